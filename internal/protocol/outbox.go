package protocol

import (
	"encoding/json"

	"brine/internal/bus"
)

// OpLetters hands over what waits in a minion's outbox: Letters → Delivered.
const OpLetters = "letters"

// OpRoom asks when the master has room for large letters: Room → Room, when it has.
// The room is the minion's until its next letters are stored.
const OpRoom = "room"

// Room is for letters of so many bytes.
type Room struct {
	Bytes int64 `json:"bytes"`
}

// SmallLetters is the size in bytes of the letters of a request that need no room.
const SmallLetters = 64 << 10

// The limits of one request of letters. A letter beyond MaxLetterBytes travels
// alone.
const (
	MaxLetters     = 1000
	MaxLetterBytes = 1 << 20
)

// OpRefused is a letter that tells of an event that the minion itself has refused,
// as the master would have: a FireEvent without data.
const OpRefused = "refused"

// Letters are requests of a minion in the order in which it made them.
type Letters struct {
	Letters []Letter `json:"letters"`
}

// Letter is one request that has waited: a return, an event, or what salt-call
// ran. Epoch and N name it for good. A letter whose number is not above the last
// one of its epoch is a repetition, however late it comes: within an epoch numbers
// only grow, and each start of the minion begins a new epoch.
type Letter struct {
	Epoch string          `json:"epoch"`
	N     uint64          `json:"n"`
	Op    string          `json:"op"` // OpFire, OpReturn, OpRefused, or "ret." and the jid
	Body  json.RawMessage `json:"body"`
}

// Delivered tells what became of the letters, in their order. When there are fewer
// than were sent, the others are to be sent again.
type Delivered struct {
	Letters []Delivery `json:"letters"`
}

// Delivery is what became of one letter: it is stored, or refused for good.
type Delivery struct {
	Seq     uint64     `json:"seq,omitempty"` // of its last event in the master's journal; 0 for a repetition
	Refused *bus.Error `json:"refused,omitempty"`
}
