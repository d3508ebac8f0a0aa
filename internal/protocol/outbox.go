package protocol

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/brinebus/brine/internal/bus"
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
	Op    string          `json:"op"`   // OpFire, OpReturn, OpRefused, or "ret." and the jid
	Body  json.RawMessage `json:"body"` // as Encode makes it
}

// Encode makes the body of a letter: JSON, unless v has a form of its own.
func Encode(v any) ([]byte, error) {
	if m, ok := v.(encoding.BinaryMarshaler); ok {
		return m.MarshalBinary()
	}
	return json.Marshal(v)
}

// Decode reads the body into v.
func (l Letter) Decode(v any) error {
	if m, ok := v.(encoding.BinaryUnmarshaler); ok {
		return m.UnmarshalBinary(l.Body)
	}
	if err := bus.CheckBuilt(l.Body); err != nil {
		return err
	}
	return json.Unmarshal(l.Body, v)
}

// The body of Letters is a sign that no JSON begins with, and for each letter a line
// with all but its body, and the body. So a body is copied as it is, however often a
// letter is passed on. One JSON document is read too.
const lettersSign = '\x1e'

// letterHead is the line of a letter.
type letterHead struct {
	Epoch string `json:"epoch"`
	N     uint64 `json:"n"`
	Op    string `json:"op"`
	Size  int    `json:"size"` // of the body in bytes
}

// MarshalBinary is AppendBinary behind nothing.
func (q Letters) MarshalBinary() ([]byte, error) { return q.AppendBinary(nil) }

// AppendBinary writes the body of a request behind b.
func (q Letters) AppendBinary(b []byte) ([]byte, error) {
	size := 1
	for _, l := range q.Letters {
		size += len(l.Body) + len(l.Epoch) + len(l.Op) + 64
	}
	b = append(slices.Grow(b, size), lettersSign)
	for _, l := range q.Letters {
		head, err := json.Marshal(letterHead{l.Epoch, l.N, l.Op, len(l.Body)})
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, head...), '\n'), l.Body...)
	}
	return b, nil
}

// UnmarshalBinary reads the body of a request. The letters keep parts of b.
func (q *Letters) UnmarshalBinary(b []byte) error {
	q.Letters = nil
	if len(b) == 0 || b[0] != lettersSign {
		if err := bus.CheckBuilt(b); err != nil {
			return err
		}
		return json.Unmarshal(b, q)
	}
	for rest := b[1:]; len(rest) > 0; {
		if len(q.Letters) == MaxLetters {
			return fmt.Errorf("more than %d letters", MaxLetters)
		}
		line, behind, ended := bytes.Cut(rest, []byte("\n"))
		var head letterHead
		if err := json.Unmarshal(line, &head); err != nil {
			return fmt.Errorf("letter %d: %w", len(q.Letters)+1, err)
		}
		if !ended || head.Size < 0 || head.Size > len(behind) {
			return errors.New("the body of the last letter is not whole")
		}
		q.Letters = append(q.Letters, Letter{head.Epoch, head.N, head.Op, behind[:head.Size:head.Size]})
		rest = behind[head.Size:]
	}
	return nil
}

// Delivered tells what became of the letters, in their order. When there are fewer
// than were sent, the others are to be sent again.
type Delivered struct {
	Letters []Delivery `json:"letters"`
}

// Delivery is what became of one letter: it is stored, or refused for good.
type Delivery struct {
	Seq     uint64     `json:"seq,omitempty"` // of its last event in the master's journal; 0 for a repetition, and for a return
	Refused *bus.Error `json:"refused,omitempty"`
}
