package rpc

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
)

// Clients use plain NATS, without our frames and windows. A request is one message of JSON, and
// so is each message of its answer; everything else is in headers. An answer ends with an empty
// message. A header marks a message that continues in the next one. Each message has a reply
// subject, on which the client acknowledges it.
const (
	headerEnd       = "Salt-End"  // the answer ends with this message
	headerPart      = "Salt-Part" // "more": the next message goes on with this one
	headerError     = "Nats-Service-Error"
	headerErrorCode = "Nats-Service-Error-Code"
)

// plainMessage makes the message to a client from one with a frame. An error ends the answer;
// the body is the error as JSON.
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
		_ = json.Unmarshal(m.Data, &e) // written by encodeError
		text := strings.NewReplacer("\r", " ", "\n", " ").Replace(e.Text)
		m.Header = nats.Header{headerEnd: {"true"}, headerError: {text}, headerErrorCode: {string(e.Code)}}
	}
	return m
}

// plainKind returns the kind that the headers of plainMessage stand for.
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

// plain reports whether the connection is that of a client.
func (c *Conn) plain() bool { return c.self.Role == bus.RoleClient }

// sendPlain publishes a request, which must fit into one message.
func (c *Conn) sendPlain(subject, reply string, body []byte) error {
	if most := c.NC.MaxPayload(); int64(len(body)) > most {
		return Errorf(Usage, "the request has %d bytes; over the network it may have %d", len(body), most)
	}
	if err := c.NC.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: body}); err != nil {
		return lost(err)
	}
	return nil
}

// number registers an answer to a client, so that its acknowledgements can be assigned.
func (s *Server) number(from bus.Identity, out *answerer) {
	if from.Role != bus.RoleClient {
		return
	}
	s.numbers++
	out.plain = strconv.FormatUint(s.numbers, 36)
	out.client = from.Name
	s.plain[out.plain] = out
}

// message makes the message for one frame.
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

// acked records that a client has acknowledged a message, and so all before it.
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
