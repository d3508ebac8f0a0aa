package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// MaxPart is how many bytes of a message are sent in one piece. It is below the server's
// payload limit with space for headers, and so small that a large answer does not delay small
// ones.
const MaxPart = 512 << 10

// MaxMessage limits one message assembled from its pieces. An output of 50 MB fits; a peer that
// never ends its message cannot fill the memory.
const MaxMessage = 1 << 30

// Messages are NATS messages with a body and at most a few headers: see doc/clients.md. A message
// without these headers is a whole one, or the last piece of one.
const (
	headerPart      = "Salt-Part" // "more": the next message goes on with this one
	headerEnd       = "Salt-End"  // "true": the answer ends with this message
	headerError     = "Nats-Service-Error"
	headerErrorCode = "Nats-Service-Error-Code"
)

// kind is what the headers say of a message.
type kind byte

const (
	kindItem  kind = iota // a message, or its last piece
	kindPart              // a piece: more of the same message follow
	kindEnd               // the last message of an answer; may be empty
	kindError             // the answer ends with this error
)

// These are shared by all messages, and never changed.
var (
	partHeader = nats.Header{headerPart: {"more"}}
	endHeader  = nats.Header{headerEnd: {"true"}}
)

// newMessage makes a message of any kind but an error.
func newMessage(subject string, k kind, body []byte) *nats.Msg {
	m := &nats.Msg{Subject: subject, Data: body}
	switch k {
	case kindPart:
		m.Header = partHeader
	case kindEnd:
		m.Header = endHeader
	}
	return m
}

// newError makes the message that ends an answer with an error. The headers are those of NATS
// services; the body is the error as JSON, with all that it has.
func newError(subject string, err error) *nats.Msg {
	e := publicError(err)
	text := strings.NewReplacer("\r", " ", "\n", " ").Replace(e.Text)
	return &nats.Msg{Subject: subject, Data: e.encode(), Header: nats.Header{headerEnd: {"true"}, headerError: {text}, headerErrorCode: {string(e.Code)}}}
}

// kindOf returns the kind of a message of an answer.
func kindOf(h nats.Header) kind {
	switch {
	case len(h) == 0:
		return kindItem
	case h.Get(headerError) != "":
		return kindError
	case h.Get(headerEnd) != "":
		return kindEnd
	case h.Get(headerPart) != "":
		return kindPart
	}
	return kindItem
}

// eachPiece calls f for each piece of a message, the last of which has the given kind. Nothing
// is copied.
func eachPiece(k kind, body []byte, f func(k kind, piece []byte) error) error {
	for len(body) > MaxPart {
		if err := f(kindPart, body[:MaxPart]); err != nil {
			return err
		}
		body = body[MaxPart:]
	}
	return f(k, body)
}

// Publisher sends messages; a connection does.
type Publisher interface {
	PublishMsg(m *nats.Msg) error
}

// Publish sends a message other than a request or an answer, for an Assembler with the same
// value of Framed.
func Publish(nc Publisher, subject string, body []byte, framed bool) error {
	return eachPiece(kindItem, body, func(k kind, piece []byte) error {
		if framed {
			return nc.PublishMsg(frame(subject, k, piece))
		}
		return nc.PublishMsg(newMessage(subject, k, piece))
	})
}

// PublishRequest is Publish with a reply subject.
func PublishRequest(nc Publisher, subject, reply string, body []byte) error {
	return eachPiece(kindItem, body, func(k kind, piece []byte) error {
		m := newMessage(subject, k, piece)
		m.Reply = reply
		return nc.PublishMsg(m)
	})
}

// Assembler assembles the messages of one sender from their pieces. The zero value is ready; it
// is not safe for concurrent use.
type Assembler struct {
	Limit  int  // the largest message in bytes; 0 is MaxMessage
	Framed bool // the sender speaks protocol 1

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

// Add takes the next message. done is true if data is a complete one or, with an error, at the
// end of a dropped one: its pieces are skipped, so that they cannot be taken for a separate
// message.
func (a *Assembler) Add(m *nats.Msg) (data []byte, done bool, err error) {
	k, whole, err := a.add(m)
	return whole.join(), k != kindPart, err
}

func (a *Assembler) add(m *nats.Msg) (kind, message, error) {
	if !a.Framed {
		return a.piece(kindOf(m.Header), m.Data)
	}
	k, data, err := unframe(m.Data)
	if err != nil {
		a.clear()
		return k, nil, err
	}
	return a.piece(k, data)
}

// Drop drops the present message, whose further pieces are skipped; Add returns err at its end.
func (a *Assembler) Drop(err error) { a.drop(err) }

// drop drops the present message; err is returned at its end.
func (a *Assembler) drop(err error) {
	bad := a.bad
	a.clear()
	if a.bad = bad; bad == nil {
		a.bad = err
	}
}

func (a *Assembler) clear() { a.have, a.small, a.size, a.bad = nil, nil, 0, nil }

// piece takes the next piece, of a message whose kind is known.
func (a *Assembler) piece(k kind, data []byte) (kind, message, error) {
	limit := a.Limit
	if limit == 0 {
		limit = MaxMessage
	}
	if a.size+len(data) > limit {
		a.drop(fmt.Errorf("%w: the limit is %d bytes", ErrTooLarge, limit))
	}
	switch k {
	case kindPart:
		if a.bad == nil {
			a.keep(data)
		}
		return k, nil, nil
	case kindError: // it is complete; the message that it interrupts never will be
		a.clear()
		if len(data) > limit {
			return k, nil, fmt.Errorf("%w: the limit is %d bytes", ErrTooLarge, limit)
		}
		return k, message{data}, nil
	}
	return a.end(k, data)
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
func (a *Assembler) end(k kind, data []byte) (kind, message, error) {
	bad, m := a.bad, message{data}
	if a.size > 0 {
		m = append(a.kept(), data)
	}
	a.clear()
	if bad != nil {
		return k, nil, bad
	}
	return k, m, nil
}
