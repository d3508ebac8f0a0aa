package rpc

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/socket"
)

// ErrLost is wrapped by every error about a connection that has ended.
var ErrLost = errors.New("the connection to the daemon was lost")

// ErrRefused is wrapped by Dial's error if the daemon does not admit this user.
var ErrRefused = errors.New("the daemon refused the connection")

// Conn is a client's connection to a daemon. Its methods may be called concurrently.
type Conn struct {
	NC     *nats.Conn
	self   bus.Identity
	inbox  string
	next   atomic.Uint64
	entry  *entry   // of a guest
	framed bool     // it speaks protocol 1, see UseFrames
	asked  *answers // nil if each request has a subscription for its answer

	numbers bool     // see Numbers
	hears   bool     // it handles errors of the server, see HearComplaints
	waiting sync.Map // if so: subjects of unanswered requests, by *Stream
}

// Dial connects to the daemon at the Unix socket path. The kernel tells the daemon which user
// this process runs as.
func Dial(path string) (*Conn, error) { return DialBySudo(path, "") }

// DialBySudo is Dial for a process that user has started through sudo. The daemon trusts that
// name only from operators. "" is none.
func DialBySudo(path, user string) (*Conn, error) {
	// The daemon has the uid from the kernel. It is also sent the uid that this process sees:
	// in a user namespace they differ, and such a user could not be answered.
	uid := os.Geteuid()
	nonce := bus.NewNonce()
	self := bus.Identity{Role: bus.RoleUser, Name: strconv.Itoa(uid), Nonce: nonce}
	dial := dialer(func() (net.Conn, error) { return socket.Dial(path) })
	var nc *nats.Conn
	var err error
	for range dialAttempts {
		nc, err = nats.Connect("nats://daemon", nats.SetCustomDialer(dial), nats.SkipHostLookup(),
			nats.UserInfo(nonce, self.Name), nats.Name(bus.SudoName(user)), nats.CustomInboxPrefix(self.Inbox()), nats.NoReconnect(), nats.Timeout(5*time.Second),
			nats.IgnoreDiscoveredServers(), nats.ErrorHandler(quiet), nats.NoCallbacksAfterClientClose(), nats.SyncQueueLen(QueueLen))
		if !isHangup(err) {
			break
		}
	}
	if errors.Is(err, nats.ErrAuthorization) {
		return nil, fmt.Errorf("connect to the daemon at %s: %w", path, ErrRefused)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the daemon at %s: %w", path, err)
	}
	c := NewConn(nc, self)
	c.AsksOften()
	c.HearComplaints(func(error) {})
	return c, nil
}

// dialAttempts is how often a connection is tried that is closed before it is ready. A daemon that was just killed has
// accepted it, or its kernel has; the next attempt shows whether one is there.
const dialAttempts = 3

// isHangup reports whether an error of nats.Connect means that the other end has closed the connection.
func isHangup(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// quiet drops asynchronous errors of the client library: those that matter to a caller are
// returned by its call.
func quiet(*nats.Conn, *nats.Subscription, error) {}

// HearComplaints makes a request fail at once if the daemon does not offer it to this
// connection. It replaces the connection's error handler; log gets the errors, too. It is
// called before the first request.
func (c *Conn) HearComplaints(log func(error)) {
	c.hears = true
	c.NC.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		log(err)
		c.complaint(err)
	})
}

// complaint handles an error of the server. An error that this user may not send a request ends
// the wait for its answer; other errors that matter to a caller are returned by its call.
func (c *Conn) complaint(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	c.waiting.Range(func(s, subject any) bool {
		if strings.Contains(err.Error(), `Publish to "`+subject.(string)+`"`) {
			s.(*Stream).refuse(Errorf(NotFound, "the daemon has no request %s", subject))
		}
		return true
	})
}

type dialer func() (net.Conn, error)

// Dial implements nats.CustomDialer; it ignores the address.
func (d dialer) Dial(string, string) (net.Conn, error) {
	c, err := d()
	if err != nil {
		return nil, err
	}
	return listening{c}, nil
}

// listening is a connection on which a failed write is not an error: what the daemon sent
// before it closed the connection, for example that it refuses this user, can still be read,
// and is read next.
type listening struct{ net.Conn }

// Write implements net.Conn.
func (l listening) Write(b []byte) (int, error) {
	n, err := l.Conn.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		return len(b), nil
	}
	return n, err
}

// SkipTLSHandshake avoids TLS on a socket that does not leave the machine.
func (d dialer) SkipTLSHandshake() bool { return true }

// NewConn wraps a connection that was made otherwise, for example by a minion over TLS.
func NewConn(nc *nats.Conn, self bus.Identity) *Conn {
	return &Conn{NC: nc, self: self, inbox: self.Inbox()}
}

// AsksOften makes Ask cheaper for a long-lived connection: answers come through one
// subscription. It is called before the first Ask.
func (c *Conn) AsksOften() { c.asked = newAnswers(c.NC, c.inbox) }

// Inbox is the private prefix of this connection, by which the daemon knows it.
func (c *Conn) Inbox() string { return c.inbox }

// Close ends the connection.
func (c *Conn) Close() { c.NC.Close() }

// Call sends a request for op and returns the answer as a stream. The subscription for the
// answer is made before the request is sent.
func (c *Conn) Call(op string, in any) (*Stream, error) {
	reply := c.inbox + "." + strconv.FormatUint(c.next.Add(1), 36)
	sub, err := c.NC.SubscribeSync(reply)
	if err != nil {
		return nil, lost(err)
	}
	// The sender respects the window, so nothing is ever dropped here.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, lost(err)
	}
	return c.request(&Stream{conn: c, sub: sub, reply: reply}, op, in)
}

// send publishes the request in as many pieces as it needs.
func (c *Conn) send(op string, in any, reply string) error {
	subject := c.subject(op)
	body, err := encode(in)
	if err != nil {
		return err
	}
	n := 0
	return eachPiece(kindItem, body, func(k kind, piece []byte) error {
		m := newMessage(subject, k, piece)
		if c.framed {
			m = frame(subject, k, piece)
		}
		if n++; c.numbers && (n > 1 || k == kindPart) {
			m = numbered(m, n)
		}
		m.Reply = reply
		if err := c.NC.PublishMsg(m); err != nil {
			return lost(err)
		}
		return nil
	})
}

func (c *Conn) subject(op string) string {
	if op == bus.OpAsk {
		return bus.AskSubject(c.self.Key)
	}
	return bus.RequestSubject(c.self.Role, c.self.Name, op)
}

// encode writes the body of a request: JSON, unless in has its own format.
func encode(in any) ([]byte, error) {
	switch in := in.(type) {
	case encoding.BinaryAppender:
		return in.AppendBinary(nil)
	case encoding.BinaryMarshaler:
		return in.MarshalBinary()
	}
	return json.Marshal(in)
}

// Tell sends a request for op and does not wait for an answer.
func (c *Conn) Tell(op string, in any) error {
	return c.send(op, in, c.inbox+"."+strconv.FormatUint(c.next.Add(1), 36))
}

// Ask sends a request for op and decodes the only message of the answer into out, unless out is
// nil. It waits until ctx ends.
func (c *Conn) Ask(ctx context.Context, op string, in, out any) error {
	s, err := c.question(op, in)
	if err != nil {
		return err
	}
	defer s.Close()
	b, err := s.Next(ctx)
	if errors.Is(err, io.EOF) && b == nil {
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("unreadable answer to %s: %w", op, err)
	}
	return nil
}

// question is Call for an answer that is read at once.
func (c *Conn) question(op string, in any) (*Stream, error) {
	if c.asked == nil {
		return c.Call(op, in)
	}
	reply := c.asked.prefix + strconv.FormatUint(c.next.Add(1), 36)
	box, err := c.asked.open(reply)
	if err != nil {
		return nil, lost(err)
	}
	return c.request(&Stream{conn: c, sub: box, reply: reply}, op, in)
}

// request sends the request for the answer s.
func (c *Conn) request(s *Stream, op string, in any) (*Stream, error) {
	if c.hears {
		s.first, s.refuse = context.WithCancelCause(context.Background())
		c.waiting.Store(s, c.subject(op))
	}
	if err := c.send(op, in, s.reply); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// source is where the messages of an answer come from.
type source interface {
	NextMsgWithContext(context.Context) (*nats.Msg, error)
	Unsubscribe() error
}

// Stream is the answer to one request. Next and Close are for one goroutine.
type Stream struct {
	conn      *Conn
	sub       source
	reply     string
	asm       Assembler
	read      bool  // something of the answer
	number    int   // of the latest message, where they have numbers
	taken     int64 // bytes read, with protocol 1
	announced int64 // bytes read that the sender knows of, with protocol 1
	ended     bool

	first  context.Context // ends if the server refuses the request; nil once there is an answer
	refuse context.CancelCauseFunc
}

// Window is how many bytes of an answer may be under way before the receiver acknowledges some:
// the maximum cost of a slow reader for the daemon.
const Window = 8 << 20

// minCost is what a small message counts for in the window, so that the window also limits the
// number of messages.
const minCost = 4 << 10

// QueueLen is for the option nats.SyncQueueLen of every connection given to NewConn: a window
// of the smallest messages, and those that end an answer. The library's default of 65,536 takes
// half a MiB for each request.
const QueueLen = Window/minCost + 16

// cost is what a message of n bytes counts for in the window, on both sides.
func cost(n int) int64 { return int64(max(n, minCost)) }

// Next returns the next message, and waits until ctx ends. At the end it returns io.EOF,
// together with the last message if that has content. A failure reported by the daemon is an
// *Error; a lost connection wraps ErrLost.
func (s *Stream) Next(ctx context.Context) ([]byte, error) {
	if s.ended {
		return nil, io.EOF
	}
	for {
		m, err := s.next(ctx)
		if err != nil {
			if s.first != nil && s.first.Err() != nil {
				s.ended = true
				return nil, context.Cause(s.first)
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			s.ended = true
			return nil, lost(err)
		}
		if m.Header.Get("Status") == "503" {
			s.ended = true
			return nil, salt.WithHint(errNobody, "")
		}
		if !follows(m, s.number) {
			s.ended = true
			return nil, fmt.Errorf("%w: a part of the answer did not arrive", ErrLost)
		}
		s.number++
		k, data, err := s.take(m)
		if err != nil {
			return nil, err
		}
		switch k {
		case kindItem:
			return data, nil
		case kindEnd:
			s.ended = true
			if len(data) == 0 {
				data = nil
			}
			return data, io.EOF
		case kindError:
			s.ended = true
			return nil, decodeError(data)
		}
	}
}

// next waits for a message; for the first one, only until the server refuses the request.
func (s *Stream) next(ctx context.Context) (*nats.Msg, error) {
	if s.first == nil {
		return s.sub.NextMsgWithContext(ctx)
	}
	either, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.first, cancel)()
	m, err := s.sub.NextMsgWithContext(either)
	if err == nil {
		s.begun()
	}
	return m, err
}

// begun records that the request was accepted, or that nobody waits for it any more.
func (s *Stream) begun() {
	if s.first != nil {
		s.conn.waiting.Delete(s)
		s.refuse(nil)
		s.first = nil
	}
}

// Decode decodes the next message into v. It returns io.EOF at the end.
func (s *Stream) Decode(ctx context.Context, v any) error {
	b, err := s.Next(ctx)
	if err != nil && b == nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("unreadable answer: %w", err)
	}
	return nil
}

// take takes one message, and confirms it if the sender asks for that: it has a reply subject
// then.
func (s *Stream) take(m *nats.Msg) (kind, []byte, error) {
	first := !s.read
	s.read, s.asm.Framed = true, s.conn.framed
	if first && !s.conn.framed && len(m.Header) == 0 && bytes.HasPrefix(m.Data, []byte{frameError, '{'}) {
		s.ended = true
		return kindError, nil, salt.WithHint(&Error{Code: Unavailable, Text: "the daemon is of an older version, and does not understand this program"}, "restart the daemon after an upgrade; masters are upgraded before programs on other machines")
	}
	k, whole, err := s.asm.add(m)
	switch {
	case err != nil:
		return k, nil, err
	case s.conn.framed:
		s.reportFramed(m)
	case m.Reply != "":
		_ = m.Respond(nil) // Next reports a lost connection
	}
	return k, whole.join(), nil
}

// Close stops listening for the answer. The daemon notices by itself.
func (s *Stream) Close() {
	s.begun()
	_ = s.sub.Unsubscribe() // fails only if the connection is gone already
}

func lost(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}
