package rpc

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
)

// Protocol 1 between master and minion had no headers. The kind of a message was a byte before
// its body, and what was read of an answer was reported on one subject for all answers of a
// connection. It is understood so that masters and minions can be upgraded one after the other:
// this file is all of it, and goes when protocol 1 does.
//
// A daemon recognises such a request by its first byte, with which no body begins, and answers
// in the same way. A minion knows from the handshake that its master is older, see UseFrames.
const (
	framePart  byte = 'p'
	frameItem  byte = 'i'
	frameEnd   byte = 'e'
	frameError byte = 'x'
)

// frameBytes is how much longer a framed body is.
const frameBytes = 1

var frames = [...]byte{kindItem: frameItem, kindPart: framePart, kindEnd: frameEnd, kindError: frameError}

// isFramed reports whether a request, or its first piece, is one of protocol 1.
func isFramed(m *nats.Msg) bool {
	return len(m.Header) == 0 && len(m.Data) > 0 && (m.Data[0] == frameItem || m.Data[0] == framePart)
}

// frame makes a message of protocol 1.
func frame(subject string, k kind, body []byte) *nats.Msg {
	b := make([]byte, 0, frameBytes+len(body))
	return &nats.Msg{Subject: subject, Data: append(append(b, frames[k]), body...)}
}

func unframe(body []byte) (kind, []byte, error) {
	if len(body) == 0 {
		return kindItem, nil, errors.New("message without a kind")
	}
	for k, f := range frames {
		if f == body[0] {
			return kind(k), body[frameBytes:], nil
		}
	}
	return kindItem, nil, fmt.Errorf("message of the unknown kind %q", body[0])
}

// UseFrames makes the connection speak protocol 1. It is called before the first request.
func (c *Conn) UseFrames() { c.framed = true }

// Framed reports whether the connection speaks protocol 1.
func (c *Conn) Framed() bool { return c.framed }

// Framed reports whether the sender of the request speaks protocol 1.
func (r *Request) Framed() bool { return r.framed }

// reportFramed reports what was read, each quarter of the window.
func (s *Stream) reportFramed(m *nats.Msg) {
	s.taken += cost(len(m.Data))
	if s.taken-s.announced < Window/4 {
		return
	}
	s.announced = s.taken
	body := s.reply + " " + strconv.FormatInt(s.taken, 10)
	_ = s.conn.NC.Publish(bus.WindowSubject(s.conn.self.Role, s.conn.self.Name), []byte(body)) // Next reports a lost connection
}

// widenFramed handles such a report: "reply total".
func (s *Server) widenFramed(m *nats.Msg) {
	from, _, ok := bus.Sender(m.Subject)
	reply, total, split := strings.Cut(string(m.Data), " ")
	n, err := strconv.ParseInt(total, 10, 64)
	owner, own := s.ownInbox(from, reply)
	if own {
		from.Key, from.Nonce = owner.Key, owner.Nonce // which name the connection
	}
	s.keepPace(from, windowWeight)
	if !own || !ok || !split || err != nil {
		return
	}
	s.mu.Lock()
	out := s.streams[reply]
	s.mu.Unlock()
	if out != nil {
		out.widen(n)
	}
}
