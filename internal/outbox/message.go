package outbox

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/brinebus/brine/internal/rpc"
)

// OpDeliver delivers the messages waiting in a minion's outbox: Batch → Delivered.
const OpDeliver = "messages"

// opLetters is OpDeliver with protocol 1.
const opLetters = "letters"

// OpCapacity asks for capacity for a large batch: Capacity → Capacity, as soon as the master
// has it. The capacity is reserved until the minion's next batch is stored.
const OpCapacity = "room"

// Capacity is a request for a batch of that many bytes.
type Capacity struct {
	Bytes int64 `json:"bytes"`
}

// SmallBatch is the size, in bytes, up to which a batch needs no capacity.
const SmallBatch = 64 << 10

// The limits of one batch. A message larger than MaxBatchBytes is sent alone.
const (
	MaxBatch      = 1000 // messages
	MaxBatchBytes = 1 << 20
)

// OpRefused is a message about an event that the minion itself has refused, as the master would
// have: a FireEvent without data.
const OpRefused = "refused"

// Batch is messages of a minion in the order in which they were made.
type Batch struct {
	Messages []Message `json:"messages"`
}

// Message is one request that has waited: a return, an event, or what salt-call ran. Epoch and
// N identify it. Within an epoch numbers only grow, and each start of the minion begins a new
// epoch, so a message whose number is not above the last one of its epoch is a duplicate,
// however late it comes.
type Message struct {
	Epoch string          `json:"epoch"`
	N     uint64          `json:"n"`
	Op    string          `json:"op"`   // protocol.OpFire, protocol.OpReturn, OpRefused, or "ret." and the jid
	Body  json.RawMessage `json:"body"` // as made by protocol.Encode
}

// Decode reads the body into v.
func (m Message) Decode(v any) error {
	if own, ok := v.(encoding.BinaryUnmarshaler); ok {
		return own.UnmarshalBinary(m.Body)
	}
	if err := rpc.CheckBuilt(m.Body); err != nil {
		return err
	}
	return json.Unmarshal(m.Body, v)
}

// The body of a Batch begins with a byte that no JSON begins with. Then, for each message, come
// a line with everything but its body, and the body, so a body is copied unchanged, however
// often a message is passed on. A single JSON document can be read, too.
const batchSign = '\x1e'

// messageHead is the line of a message.
type messageHead struct {
	Epoch string `json:"epoch"`
	N     uint64 `json:"n"`
	Op    string `json:"op"`
	Size  int    `json:"size"` // size of the body in bytes
}

// MarshalBinary is AppendBinary(nil).
func (q Batch) MarshalBinary() ([]byte, error) { return q.AppendBinary(nil) }

// AppendBinary appends the body of a request to b.
func (q Batch) AppendBinary(b []byte) ([]byte, error) {
	size := 1
	for _, l := range q.Messages {
		size += len(l.Body) + len(l.Epoch) + len(l.Op) + 64
	}
	b = append(slices.Grow(b, size), batchSign)
	for _, l := range q.Messages {
		head, err := json.Marshal(messageHead{l.Epoch, l.N, l.Op, len(l.Body)})
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, head...), '\n'), l.Body...)
	}
	return b, nil
}

// UnmarshalBinary reads the body of a request. The messages refer to parts of b.
func (q *Batch) UnmarshalBinary(b []byte) error {
	q.Messages = nil
	if len(b) == 0 || b[0] != batchSign {
		if err := rpc.CheckBuilt(b); err != nil {
			return err
		}
		document := struct{ Messages, Letters []Message }{} // letters with protocol 1
		err := json.Unmarshal(b, &document)
		q.Messages = append(document.Messages, document.Letters...)
		return err
	}
	for rest := b[1:]; len(rest) > 0; {
		if len(q.Messages) == MaxBatch {
			return fmt.Errorf("more than %d messages", MaxBatch)
		}
		line, behind, ended := bytes.Cut(rest, []byte("\n"))
		var head messageHead
		if err := json.Unmarshal(line, &head); err != nil {
			return fmt.Errorf("message %d: %w", len(q.Messages)+1, err)
		}
		if !ended || head.Size < 0 || head.Size > len(behind) {
			return errors.New("the body of the last message is not whole")
		}
		q.Messages = append(q.Messages, Message{head.Epoch, head.N, head.Op, behind[:head.Size:head.Size]})
		rest = behind[head.Size:]
	}
	return nil
}

// Delivered holds the outcomes of a batch, in the order of its messages. If there are fewer
// than messages, the others must be sent again.
type Delivered struct {
	Messages []Delivery `json:"messages,omitempty"`
	Letters  []Delivery `json:"letters,omitempty"` // in their place with protocol 1
}

// answer is the answer to a request.
func answer(op string, list []Delivery) Delivered {
	if op == opLetters {
		return Delivered{Letters: list}
	}
	return Delivered{Messages: list}
}

// Delivery is the outcome of one message: it is stored, or finally refused.
type Delivery struct {
	Seq     uint64     `json:"seq,omitempty"` // of its last event in the master's journal; 0 for a duplicate and for a return
	Refused *rpc.Error `json:"refused,omitempty"`
}
