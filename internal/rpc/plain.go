package rpc

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
)

// Clients speak plain NATS, without frames and windows of ours: a request is one
// message of JSON, and so is each message of its answer. What else is to be said
// stands in headers. An answer ends with an empty message; a message that is longer
// than a piece says that more of it follows; and each has a reply subject, on
// which the client says that it has taken it.
const (
	headerEnd       = "Salt-End"  // the answer ends with this message
	headerPart      = "Salt-Part" // "more": the next message goes on with this one
	headerError     = "Nats-Service-Error"
	headerErrorCode = "Nats-Service-Error-Code"
)

// plainMessage makes the message to a client of one with a frame. An error ends
// the answer; its body is the whole of it.
func plainMessage(m *nats.Msg) *nats.Msg {
	kind := m.Data[0]
	m.Data = m.Data[1:]
	switch kind {
	case framePart:
		m.Header = nats.Header{headerPart: {"more"}}
	case frameEnd:
		m.Header = nats.Header{headerEnd: {"true"}}
	case frameError:
		var e Error
		_ = json.Unmarshal(m.Data, &e) // it was written by encodeError
		text := strings.NewReplacer("\r", " ", "\n", " ").Replace(e.Text)
		m.Header = nats.Header{headerEnd: {"true"}, headerError: {text}, headerErrorCode: {string(e.Code)}}
	}
	return m
}

// plainKind is what plainMessage has said by headers.
func plainKind(h nats.Header) byte {
	switch {
	case h.Get(headerError) != "":
		return frameError
	case h.Get(headerEnd) != "":
		return frameEnd
	case h.Get(headerPart) != "":
		return framePart
	}
	return frameItem
}

// plain says whether the connection is that of a client.
func (c *Conn) plain() bool { return c.self.Role == bus.RoleClient }

// sendPlain publishes a request, which has to fit into one message.
func (c *Conn) sendPlain(subject, reply string, body []byte) error {
	if most := c.NC.MaxPayload(); int64(len(body)) > most {
		return Errorf(Usage, "the request has %d bytes; over the network it may have %d", len(body), most)
	}
	if err := c.NC.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: body}); err != nil {
		return lost(err)
	}
	return nil
}

// number books an answer to a client, so that its words on it are understood.
func (s *Server) number(from bus.Identity, out *answerer) {
	if from.Role != bus.RoleClient {
		return
	}
	s.numbers++
	out.plain = strconv.FormatUint(s.numbers, 36)
	out.client = from.Name
	s.plain[out.plain] = out
}

// message is one frame on its way to the principal.
func (o *answerer) message(frame []byte) *nats.Msg {
	m := &nats.Msg{Subject: o.reply, Data: frame}
	if o.plain == "" {
		return m
	}
	kind := frame[0]
	m = plainMessage(m)
	if kind == frameItem || kind == framePart {
		o.count.Lock()
		m.Reply = bus.AckSubject(o.client, o.plain, o.sent)
		o.count.Unlock()
	}
	return m
}

// acked notes that a client has taken a message, and with it all before it.
func (s *Server) acked(m *nats.Msg) {
	from, rest, ok := bus.Sender(m.Subject)
	s.keepPace(from, windowWeight)
	words := strings.Split(rest, ".")
	if !ok || len(words) != 3 {
		return
	}
	total, err := strconv.ParseInt(words[2], 10, 64)
	s.mu.Lock()
	out := s.plain[words[1]]
	s.mu.Unlock()
	if err == nil && out != nil && out.client == from.Name {
		out.widen(total)
	}
}
