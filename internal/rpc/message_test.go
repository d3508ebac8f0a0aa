package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/salt"
)

// forms are the two forms of messages, by whether they are those of protocol 1.
var forms = map[bool]func(subject string, k kind, body []byte) *nats.Msg{
	true:  frame,
	false: func(subject string, k kind, body []byte) *nats.Msg { return newMessage(subject, k, bytes.Clone(body)) },
}

// sent is a connection that records what is published.
type sent []*nats.Msg

func (s *sent) PublishMsg(m *nats.Msg) error {
	*s = append(*s, m)
	return nil
}

func TestPieces(t *testing.T) {
	for _, n := range []int{0, 1, MaxPart - 1, MaxPart, MaxPart + 1, 2 * MaxPart, 3*MaxPart + 7} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(i >> 8)
		}
		for framed := range forms {
			var pieces sent
			if err := Publish(&pieces, "x", data, framed); err != nil {
				t.Fatal(err)
			}
			a := Assembler{Framed: framed}
			var got []byte
			var done bool
			for i, m := range pieces {
				if done {
					t.Fatalf("framed %v, %d bytes: whole before piece %d", framed, n, i)
				}
				if len(m.Data) > MaxPart+frameBytes {
					t.Errorf("framed %v, %d bytes: a piece of %d", framed, n, len(m.Data))
				}
				var err error
				if got, done, err = a.Add(m); err != nil {
					t.Fatal(err)
				}
			}
			if !done || !bytes.Equal(got, data) {
				t.Errorf("framed %v, %d bytes became %d, whole: %v", framed, n, len(got), done)
			}
		}
	}
}

// holds returns how many bytes of the current message are kept.
func (a *Assembler) holds() int {
	n := cap(a.small)
	for _, b := range a.have {
		n += cap(b)
	}
	return n
}

// Pieces of all sizes keep their order, and none is overwritten.
func TestPiecesOfAnySize(t *testing.T) {
	var a Assembler
	var want []byte
	var sent [][]byte
	for i, n := range []int{1, minKept, 2, 3, 0, 3 * minKept, minKept - 1, 5, minKept + 1, 7} {
		piece := bytes.Repeat([]byte{byte('a' + i)}, n)
		sent, want = append(sent, bytes.Clone(piece), piece), append(want, piece...)
		if _, done, err := a.Add(newMessage("", kindPart, piece)); done || err != nil || a.size != len(want) {
			t.Fatalf("piece %d: %v, %v, %d bytes of %d", i, done, err, a.size, len(want))
		}
	}
	got, done, err := a.Add(item("end"))
	if want = append(want, "end"...); !bytes.Equal(got, want) || !done || err != nil || a.size+a.holds() != 0 {
		t.Errorf("%d bytes, %v, %v; want %d", len(got), done, err, len(want))
	}
	for i := 0; i < len(sent); i += 2 {
		if !bytes.Equal(sent[i], sent[i+1]) {
			t.Errorf("piece %d was written over", i/2)
		}
	}
}

// A message over the limit is reported once, at its end, uses no memory, and leaves nothing
// behind that could become part of the next message.
func TestAssemblerLimit(t *testing.T) {
	a := Assembler{Limit: 10}
	for range 3 {
		for range 1000 {
			if data, done, err := a.Add(newMessage("", kindPart, []byte("xxxx"))); data != nil || done || err != nil {
				t.Fatalf("piece: %q, %v, %v", data, done, err)
			}
		}
		if a.holds() > 64 || a.size > 10 {
			t.Errorf("%d bytes are held", a.holds())
		}
		if data, done, err := a.Add(item("tail")); !errors.Is(err, ErrTooLarge) || !done || data != nil {
			t.Errorf("the end of a large message: %q, %v, %v", data, done, err)
		}
		if data, done, err := a.Add(item("second")); string(data) != "second" || !done || err != nil {
			t.Errorf("the next message: %q, %v, %v", data, done, err)
		}
	}
	if _, _, err := a.Add(item("01234567890")); !errors.Is(err, ErrTooLarge) {
		t.Errorf("11 bytes at once: %v", err)
	}
}

// item returns a message without headers.
func item(text string) *nats.Msg { return newMessage("", kindItem, []byte(text)) }

func TestAssemblerRefusesJunk(t *testing.T) {
	for _, body := range []string{"", "z", "\x00abc", "Iabc"} {
		a := Assembler{Framed: true}
		if data, _, err := a.Add(&nats.Msg{Data: []byte(body)}); err == nil {
			t.Errorf("Add(%q) = %q", body, data)
		}
	}
	a := Assembler{Framed: true}
	_, _, _ = a.Add(frame("", kindPart, []byte("head")))
	if _, _, err := a.Add(&nats.Msg{Data: []byte("z")}); err == nil {
		t.Error("an unknown kind was taken")
	}
	if data, done, err := a.Add(frame("", kindItem, []byte("new"))); string(data) != "new" || !done || err != nil {
		t.Errorf("after junk: %q, %v, %v", data, done, err)
	}
}

func FuzzAssembler(f *testing.F) {
	f.Add([]byte("pab\nicd\nx{}"), true)
	f.Add([]byte("pab\nicd\nx{}"), false)
	f.Fuzz(func(t *testing.T, script []byte, framed bool) {
		a := Assembler{Limit: 100, Framed: framed}
		for _, body := range bytes.Split(script, []byte("\n")) {
			m := &nats.Msg{Data: body}
			if k, rest, err := unframe(body); !framed && err == nil {
				m = newMessage("", k, rest)
			}
			data, done, err := a.Add(m)
			if len(data) > 100 || a.size > 100 || a.holds() > 300 {
				t.Errorf("%d bytes came out, %d of %d are held", len(data), a.size, a.holds())
			}
			if err != nil && data != nil || !done && err == nil && data != nil {
				t.Errorf("Add(%q) = %q, %v, %v", m.Data, data, done, err)
			}
		}
	})
}

func TestErrorsTravel(t *testing.T) {
	for name, c := range map[string]struct {
		in         error
		code       Code
		text, hint string
	}{
		"with hint":    {Errorf(Denied, "user %s may not", "fred").WithHint("ask %s", "root"), Denied, "user fred may not", "ask root"},
		"printed hint": {Errorf(Usage, "bad: %v", salt.WithHint(errors.New("x"), "y")), Usage, "bad: x", "y"},
		"wrapped":      {errors.Join(errors.New("outer"), Errorf(Busy, "later")), Busy, "later", ""},
		"late":         {fmt.Errorf("secret path /etc/x: %w", context.DeadlineExceeded), Unavailable, "the daemon did not get an answer in time, for example from its store", "the daemon or its disk is overloaded: try again; its log names what is late"},
		"unanswered":   {fmt.Errorf("read the journal: %w", salt.WithHint(fmt.Errorf("%w: secret path /etc/x", salt.Unanswered("no leader")), "start the others")), Unavailable, "no leader", "start the others"},
		"unexpected":   {errors.New("secret path /etc/x"), Internal, "the daemon failed to do this", "its log names the cause"},
		"kept wrapped": {Errorf(Usage, "bad: %w", salt.WithHint(errors.New("x"), "y")), Usage, "bad: x", "y"},
	} {
		got := decodeError(newError("", c.in).Data)
		if CodeOf(got) != c.code || got.Error() != c.text || salt.Hint(got) != c.hint {
			t.Errorf("%s: %v, code %s, hint %q; want %v, %s, %q", name, got, CodeOf(got), salt.Hint(got), c.text, c.code, c.hint)
		}
		if strings.Contains(got.Error()+salt.Hint(got), "/etc/x") {
			t.Errorf("%s: the cause reached the peer: %v", name, got)
		}
	}
	if err := decodeError([]byte("{")); err == nil || CodeOf(err) != Internal {
		t.Errorf("junk for an error: %v", err)
	}
}
