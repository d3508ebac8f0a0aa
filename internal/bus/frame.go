package bus

import (
	"bytes"
	"errors"
	"fmt"
)

// MaxPart is how much of a message travels in one piece. It stays below the
// server's payload limit with room for headers, and is small enough that a large
// answer does not hold up the small ones behind it.
const MaxPart = 512 << 10

// MaxMessage bounds one message put together from its pieces. An output of 50 MB
// has room; a peer that never ends its message does not take the memory.
const MaxMessage = 1 << 30

// Every message of a request or an answer begins with one byte that says what
// follows.
const (
	framePart  byte = 'p' // a piece: more of the same message follow
	frameItem  byte = 'i' // a message, or its last piece
	frameEnd   byte = 'e' // the last message of an answer; may be empty
	frameError byte = 'x' // the answer ends with this error
)

// eachFrame cuts data into the bodies of messages, the last of which carries kind, and
// calls f for each. They share one buffer: f must be done with one when it returns.
func eachFrame(kind byte, data []byte, f func(body []byte) error) error {
	b := make([]byte, 0, 1+min(len(data), MaxPart))
	for len(data) > MaxPart {
		if err := f(append(append(b, framePart), data[:MaxPart]...)); err != nil {
			return err
		}
		data = data[MaxPart:]
	}
	return f(append(append(b, kind), data...))
}

func frame(kind byte, data []byte) []byte {
	b := make([]byte, 0, 1+len(data))
	return append(append(b, kind), data...)
}

// Parts cuts the data of a message that is no request into bodies that
// Assembler puts together again.
func Parts(data []byte) (parts [][]byte) {
	_ = eachFrame(frameItem, data, func(b []byte) error { // which never fails
		parts = append(parts, bytes.Clone(b))
		return nil
	})
	return parts
}

// Assembler puts the pieces of one sender's messages together. The zero value is
// ready; it is not safe for concurrent use.
type Assembler struct {
	Limit int // the largest message in bytes; 0 is MaxMessage
	buf   []byte
	bad   error // why the message under way is dropped
}

// ErrTooLarge is returned for a message beyond the limit, which is dropped.
var ErrTooLarge = errors.New("message is too large")

// Add takes the next body. done says that data is a whole message, or with an
// error that the message ended that is dropped: its pieces are passed over, so
// that its tail is never taken for a message of its own.
func (a *Assembler) Add(body []byte) (data []byte, done bool, err error) {
	kind, data, err := a.add(body)
	return data, kind != framePart, err
}

// drop forgets the message under way; err is told at its end.
func (a *Assembler) drop(err error) {
	a.buf = nil
	if a.bad == nil {
		a.bad = err
	}
}

func (a *Assembler) add(body []byte) (kind byte, data []byte, err error) {
	if len(body) == 0 {
		return 0, nil, errors.New("message without a kind")
	}
	limit := a.Limit
	if limit == 0 {
		limit = MaxMessage
	}
	kind, data = body[0], body[1:]
	if len(a.buf)+len(data) > limit {
		a.drop(fmt.Errorf("%w: the limit is %d bytes", ErrTooLarge, limit))
	}
	switch kind {
	case framePart:
		if a.bad == nil {
			a.buf = append(a.buf, data...)
		}
		return kind, nil, nil
	case frameItem, frameEnd:
		return a.end(kind, data)
	case frameError: // it is whole; a message that it broke off is never completed
		a.buf, a.bad = nil, nil
		return kind, data, nil
	}
	a.buf, a.bad = nil, nil
	return kind, nil, fmt.Errorf("message of the unknown kind %q", kind)
}

// end takes the last piece.
func (a *Assembler) end(kind byte, data []byte) (byte, []byte, error) {
	have, bad := a.buf, a.bad
	a.buf, a.bad = nil, nil
	switch {
	case bad != nil:
		return kind, nil, bad
	case len(have) > 0:
		data = append(have, data...)
	}
	return kind, data, nil
}
