package rpc

import (
	"bytes"
	"errors"
	"fmt"
)

// MaxPart is how many bytes of a message are sent in one piece. It is below the server's
// payload limit with space for headers, and so small that a large answer does not delay small
// ones.
const MaxPart = 512 << 10

// MaxMessage limits one message assembled from its pieces. An output of 50 MB fits; a peer that
// never ends its message cannot fill the memory.
const MaxMessage = 1 << 30

// Every message of a request or an answer begins with a byte for its kind.
const (
	framePart  byte = 'p' // a piece: more of the same message follow
	frameItem  byte = 'i' // a message, or its last piece
	frameEnd   byte = 'e' // the last message of an answer; may be empty
	frameError byte = 'x' // the answer ends with this error
)

// HeadBytes is how many bytes of a body come before its data, see cut.
const HeadBytes = 1

// cut splits a body into the bodies of messages, the last of which has the given kind, and
// calls f for each; f must not keep it. Nothing is copied: the kind is written into the byte
// before the data; for later pieces that is the last byte of the previous piece.
func cut(kind byte, body []byte, f func(body []byte) error) error {
	for len(body) > HeadBytes+MaxPart {
		body[0] = framePart
		if err := f(body[:HeadBytes+MaxPart]); err != nil {
			return err
		}
		body = body[MaxPart:]
	}
	body[0] = kind
	return f(body)
}

// eachFrame is cut for data that must not be changed. The bodies share one buffer.
func eachFrame(kind byte, data []byte, f func(body []byte) error) error {
	b := make([]byte, 0, HeadBytes+min(len(data), MaxPart))
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

// Parts splits the data of a message other than a request into bodies for an Assembler.
func Parts(data []byte) (parts [][]byte) {
	_ = eachFrame(frameItem, data, func(b []byte) error { // f never fails
		parts = append(parts, bytes.Clone(b))
		return nil
	})
	return parts
}

// Assembler assembles the messages of one sender from their pieces. The zero value is ready; it
// is not safe for concurrent use.
type Assembler struct {
	Limit int      // the largest message in bytes; 0 is MaxMessage
	have  [][]byte // pieces of the present message, which is copied once, when it is complete
	small []byte   // later pieces that are too small to keep separately
	size  int      // of both
	bad   error    // why the present message is dropped
}

// minKept is the smallest piece that is kept as it came: the overhead of a piece is not
// counted.
const minKept = 16 << 10

// message is a complete message in its pieces.
type message [][]byte

func (m message) size() (n int) {
	for _, p := range m {
		n += len(p)
	}
	return n
}

// join joins the pieces. A single one is not copied.
func (m message) join() []byte {
	switch len(m) {
	case 0:
		return nil
	case 1:
		return m[0]
	}
	return bytes.Join(m, nil)
}

// ErrTooLarge is returned for a message beyond the limit, which is dropped.
var ErrTooLarge = errors.New("message is too large")

// Add takes the next body and keeps it. done is true if data is a complete message or, with an
// error, at the end of a dropped one: its pieces are skipped, so that they cannot be taken for
// a separate message.
func (a *Assembler) Add(body []byte) (data []byte, done bool, err error) {
	kind, m, err := a.add(body)
	return m.join(), kind != framePart, err
}

// drop drops the present message; err is returned at its end.
func (a *Assembler) drop(err error) {
	bad := a.bad
	a.clear()
	if a.bad = bad; bad == nil {
		a.bad = err
	}
}

func (a *Assembler) clear() { a.have, a.small, a.size, a.bad = nil, nil, 0, nil }

func (a *Assembler) add(body []byte) (kind byte, m message, err error) {
	if len(body) == 0 {
		return 0, nil, errors.New("message without a kind")
	}
	return a.piece(body[0], body[1:])
}

// piece takes the next piece, of a message whose kind is known.
func (a *Assembler) piece(kind byte, data []byte) (byte, message, error) {
	limit := a.Limit
	if limit == 0 {
		limit = MaxMessage
	}
	if a.size+len(data) > limit {
		a.drop(fmt.Errorf("%w: the limit is %d bytes", ErrTooLarge, limit))
	}
	switch kind {
	case framePart:
		if a.bad == nil {
			a.keep(data)
		}
		return kind, nil, nil
	case frameItem, frameEnd:
		return a.end(kind, data)
	case frameError: // it is complete; the message that it interrupts never will be
		a.clear()
		if len(data) > limit {
			return kind, nil, fmt.Errorf("%w: the limit is %d bytes", ErrTooLarge, limit)
		}
		return kind, message{data}, nil
	}
	a.clear()
	return kind, nil, fmt.Errorf("message of the unknown kind %q", kind)
}

func (a *Assembler) keep(data []byte) {
	a.size += len(data)
	if len(data) < minKept {
		a.small = append(a.small, data...)
		return
	}
	a.have, a.small = append(a.kept(), data), nil
}

// kept returns the pieces so far.
func (a *Assembler) kept() [][]byte {
	if len(a.small) == 0 {
		return a.have
	}
	return append(a.have, a.small)
}

// end takes the last piece.
func (a *Assembler) end(kind byte, data []byte) (byte, message, error) {
	bad, m := a.bad, message{data}
	if a.size > 0 {
		m = append(a.kept(), data)
	}
	a.clear()
	if bad != nil {
		return kind, nil, bad
	}
	return kind, m, nil
}
