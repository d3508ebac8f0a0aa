package rpc

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
// fits; a peer that never ends its message does not take the memory.
const MaxMessage = 1 << 30

// Every message of a request or an answer begins with one byte that says what
// follows.
const (
	framePart  byte = 'p' // a piece: more of the same message follow
	frameItem  byte = 'i' // a message, or its last piece
	frameEnd   byte = 'e' // the last message of an answer; may be empty
	frameError byte = 'x' // the answer ends with this error
)

// HeadBytes is how many bytes a body has before its data, see cut.
const HeadBytes = 1

// cut cuts a body into the bodies of messages, the last of which carries kind, and
// calls f for each, which must be done with one when it returns. Nothing is copied: the
// head before the data takes the kind, and so does, behind each piece, its last byte.
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

// eachFrame is cut for data that is somebody else's, which is not changed. The bodies
// share one buffer.
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
	Limit int      // the largest message in bytes; 0 is MaxMessage
	have  [][]byte // of the message under way, which is copied once, when it is whole
	small []byte   // what came behind that, in pieces too small to be kept each
	size  int      // of both
	bad   error    // why the message under way is dropped
}

// minKept is the smallest piece that is kept as it came: what each costs beside its
// bytes is counted nowhere.
const minKept = 16 << 10

// ErrTooLarge is returned for a message beyond the limit, which is dropped.
var ErrTooLarge = errors.New("message is too large")

// Add takes the next body, and keeps it. done says that data is a whole message, or with an
// error that the message ended that is dropped: its pieces are passed over, so
// that its tail is never taken for a message of its own.
func (a *Assembler) Add(body []byte) (data []byte, done bool, err error) {
	kind, data, err := a.add(body)
	return data, kind != framePart, err
}

// drop forgets the message under way; err is told at its end.
func (a *Assembler) drop(err error) {
	bad := a.bad
	a.clear()
	if a.bad = bad; bad == nil {
		a.bad = err
	}
}

func (a *Assembler) clear() { a.have, a.small, a.size, a.bad = nil, nil, 0, nil }

func (a *Assembler) add(body []byte) (kind byte, data []byte, err error) {
	if len(body) == 0 {
		return 0, nil, errors.New("message without a kind")
	}
	return a.piece(body[0], body[1:])
}

// piece takes the next piece, of a message whose kind was said beside it.
func (a *Assembler) piece(kind byte, data []byte) (byte, []byte, error) {
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
	case frameError: // it is whole; a message that it broke off is never completed
		a.clear()
		if len(data) > limit {
			return kind, nil, fmt.Errorf("%w: the limit is %d bytes", ErrTooLarge, limit)
		}
		return kind, data, nil
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

// kept are the pieces so far.
func (a *Assembler) kept() [][]byte {
	if len(a.small) == 0 {
		return a.have
	}
	return append(a.have, a.small)
}

// end takes the last piece.
func (a *Assembler) end(kind byte, data []byte) (byte, []byte, error) {
	bad := a.bad
	if a.size > 0 {
		data = bytes.Join(append(a.kept(), data), nil)
	}
	a.clear()
	if bad != nil {
		return kind, nil, bad
	}
	return kind, data, nil
}
