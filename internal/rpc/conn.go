package rpc

import (
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

// ErrLost is wrapped by every error that comes from a connection that ended.
var ErrLost = errors.New("the connection to the daemon was lost")

// ErrRefused is wrapped by Dial when the daemon does not let this user in.
var ErrRefused = errors.New("the daemon refused the connection")

// Conn is a client's connection to a daemon. Its methods may be called
// concurrently.
type Conn struct {
	NC    *nats.Conn
	self  bus.Identity
	inbox string
	next  atomic.Uint64
	entry *entry   // of a guest
	asked *answers // nil where each question subscribes for its answer

	hears   bool     // the server's complaints, see HearComplaints
	waiting sync.Map // then: subjects of requests without an answer yet, by *Stream
}

// Dial connects to the daemon behind the Unix socket at path, as the user that
// this process runs as: the kernel tells the daemon who that is.
func Dial(path string) (*Conn, error) { return DialBySudo(path, "") }

// DialBySudo is Dial for a process that the user was let start by sudo, which the
// daemon believes of operators. "" is nobody.
func DialBySudo(path, user string) (*Conn, error) {
	// The daemon has the number from the kernel. It is told whom this process takes itself
	// for, since in a user namespace that is somebody else, who could not be answered.
	uid := os.Geteuid()
	nonce := bus.NewNonce()
	self := bus.Identity{Role: bus.RoleUser, Name: strconv.Itoa(uid), Nonce: nonce}
	dial := dialer(func() (net.Conn, error) { return socket.Dial(path) })
	nc, err := nats.Connect("nats://daemon", nats.SetCustomDialer(dial), nats.SkipHostLookup(),
		nats.UserInfo(nonce, self.Name), nats.Name(bus.SudoName(user)), nats.CustomInboxPrefix(self.Inbox()), nats.NoReconnect(), nats.Timeout(5*time.Second),
		nats.IgnoreDiscoveredServers(), nats.ErrorHandler(quiet), nats.NoCallbacksAfterClientClose(), nats.SyncQueueLen(QueueLen))
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

// quiet drops asynchronous complaints of the client library: what matters to a
// caller arrives as the error of its call.
func quiet(*nats.Conn, *nats.Subscription, error) {}

// HearComplaints makes a request that the daemon does not have for this connection fail
// at once. It takes the connection's handler of errors, which log is told
// of too, and is called before the first request.
func (c *Conn) HearComplaints(log func(error)) {
	c.hears = true
	c.NC.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		log(err)
		c.complaint(err)
	})
}

// complaint hears what the server complains of. That a request is one that the daemon
// does not have for this user ends the wait for its answer; whatever else matters to a
// caller arrives as the error of its call.
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

// Dial implements nats.CustomDialer; the address is the dialer's own affair.
func (d dialer) Dial(string, string) (net.Conn, error) {
	c, err := d()
	if err != nil {
		return nil, err
	}
	return listening{c}, nil
}

// listening is a connection that does not take a closed door for an answer: what
// the daemon said before it closed, such as that it refuses this user, is still
// there to be read, and is read next.
type listening struct{ net.Conn }

// Write implements net.Conn.
func (l listening) Write(b []byte) (int, error) {
	n, err := l.Conn.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		return len(b), nil
	}
	return n, err
}

// SkipTLSHandshake keeps TLS away from a socket that does not leave the machine.
func (d dialer) SkipTLSHandshake() bool { return true }

// NewConn wraps a connection that was made otherwise, by a minion over TLS.
func NewConn(nc *nats.Conn, self bus.Identity) *Conn {
	return &Conn{NC: nc, self: self, inbox: self.Inbox()}
}

// AsksOften makes Ask cheap for a connection that lives long: the answers come through
// one subscription. It is called before the first Ask.
func (c *Conn) AsksOften() { c.asked = newAnswers(c.NC, c.inbox) }

// Inbox is the private prefix of this connection, by which the daemon knows it.
func (c *Conn) Inbox() string { return c.inbox }

// Close ends the connection.
func (c *Conn) Close() { c.NC.Close() }

// Call asks the daemon to do op and returns the answer as a stream. The
// subscription for the answer stands before the request leaves.
func (c *Conn) Call(op string, in any) (*Stream, error) {
	reply := c.inbox + "." + strconv.FormatUint(c.next.Add(1), 36)
	sub, err := c.NC.SubscribeSync(reply)
	if err != nil {
		return nil, lost(err)
	}
	// The sender keeps to the window, so nothing is ever dropped here.
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
	if c.plain() {
		return c.sendPlain(subject, reply, body[HeadBytes:])
	}
	return cut(frameItem, body, func(b []byte) error {
		if err := c.NC.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: b}); err != nil { // it copies b
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

// encode writes the body of a request behind the bytes for its head: JSON, unless in has a form of its
// own.
func encode(in any) ([]byte, error) {
	head := make([]byte, HeadBytes)
	switch in := in.(type) {
	case encoding.BinaryAppender:
		return in.AppendBinary(head)
	case encoding.BinaryMarshaler:
		b, err := in.MarshalBinary()
		return append(head, b...), err
	}
	b, err := json.Marshal(in)
	return append(head, b...), err
}

// Tell asks the daemon to do op and does not wait for an answer.
func (c *Conn) Tell(op string, in any) error {
	return c.send(op, in, c.inbox+"."+strconv.FormatUint(c.next.Add(1), 36))
}

// Ask asks the daemon to do op and reads the one message of the answer into out,
// unless that is nil. The context bounds the wait.
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

// request sends the request that s is the answer to.
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
	taken     int64 // bytes taken from the stream
	announced int64 // bytes of those that the sender knows of
	ended     bool

	first  context.Context // ends where the server does not take the request; nil once it was answered
	refuse context.CancelCauseFunc
}

// Window is how many bytes of an answer may be under way before the receiver has
// said that it took some: what a slow reader costs the daemon, at most.
const Window = 8 << 20

// minCost is what a small message counts for in the window, so that the window
// bounds their number too.
const minCost = 4 << 10

// QueueLen is for the option nats.SyncQueueLen of every connection that is handed
// to NewConn: a window of the smallest messages, and those that end an answer. The
// library's own 65,536 cost half a MiB for each request, and a window of small
// messages overran even them.
const QueueLen = Window/minCost + 16

// cost is what a message of n bytes counts for in the window, on both sides.
func cost(n int) int64 { return int64(max(n, minCost)) }

// Next returns the next message, waiting as long as ctx allows. At the end it
// returns io.EOF, together with the closing message if that has a content. A
// failure told by the daemon is an *Error; a lost connection wraps ErrLost.
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
			return nil, salt.WithHint(&Error{Code: Unavailable, Text: "the daemon does not serve this request"}, "")
		}
		kind, data, err := s.read(m)
		if err != nil {
			return nil, err
		}
		s.widen(m)
		switch kind {
		case frameItem:
			return data, nil
		case frameEnd:
			s.ended = true
			if len(data) == 0 {
				data = nil
			}
			return data, io.EOF
		case frameError:
			s.ended = true
			return nil, decodeError(data)
		}
	}
}

// next waits for a message, and for the first one only as long as the server takes the
// request.
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

// begun says that the request was taken, or that nobody waits for it any more.
func (s *Stream) begun() {
	if s.first != nil {
		s.conn.waiting.Delete(s)
		s.refuse(nil)
		s.first = nil
	}
}

// Decode reads the next message into v. It returns io.EOF at the end.
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

// read takes one message apart.
func (s *Stream) read(m *nats.Msg) (kind byte, data []byte, err error) {
	if s.conn.plain() {
		return s.asm.piece(plainKind(m.Header), m.Data)
	}
	return s.asm.add(m.Data)
}

// widen tells the sender what was taken, each quarter of the window.
func (s *Stream) widen(m *nats.Msg) {
	s.taken += cost(len(m.Data))
	if s.taken-s.announced < Window/4 {
		return
	}
	s.announced = s.taken
	if s.conn.plain() {
		_ = m.Respond(nil) // a lost connection is told by Next
		return
	}
	subject := bus.WindowSubject(s.conn.self.Role, s.conn.self.Name)
	body := s.reply + " " + strconv.FormatInt(s.taken, 10)
	_ = s.conn.NC.Publish(subject, []byte(body)) // a lost connection is told by Next
}

// Close ends the interest in the answer. The daemon notices by itself.
func (s *Stream) Close() {
	s.begun()
	_ = s.sub.Unsubscribe() // fails only when the connection is gone already
}

func lost(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}
