package rpc

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go"
)

// answers collects all answers for a connection that sends many requests, with one
// subscription. A subscription for each would cost the server as much as the request itself, in
// the subject table that all connections share.
type answers struct {
	begin  func() error // subscribes, the first time
	prefix string       // of the reply subjects

	mu    sync.Mutex // guards the next fields
	boxes map[string]*mailbox
	ended bool
}

// sharedPart follows the inbox in the reply subjects of answers.
const sharedPart = "a"

func newAnswers(nc *nats.Conn, inbox string) *answers {
	a := &answers{prefix: inbox + "." + sharedPart + ".", boxes: map[string]*mailbox{}}
	a.begin = sync.OnceValue(func() error {
		sub, err := nc.Subscribe(a.prefix+"*", a.take)
		if err != nil {
			return err
		}
		sub.SetClosedHandler(func(string) { a.end() })
		return sub.SetPendingLimits(-1, -1) // each sender respects its window
	})
	return a
}

// open makes the mailbox for one answer.
func (a *answers) open(reply string) (*mailbox, error) {
	if err := a.begin(); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return nil, nats.ErrConnectionClosed
	}
	b := &mailbox{reply: reply, of: a, came: make(chan struct{}, 1)}
	a.boxes[reply] = b
	return b, nil
}

func (a *answers) take(m *nats.Msg) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if b := a.boxes[m.Subject]; b != nil { // otherwise nobody waits for it any more
		b.queue = append(b.queue, m)
		b.nudge()
	}
}

// end tells all waiting callers that the connection was lost.
func (a *answers) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	for _, b := range a.boxes {
		b.nudge()
	}
}

// mailbox receives one answer. It has the methods of a subscription that Stream needs.
type mailbox struct {
	reply string
	of    *answers
	came  chan struct{}
	queue []*nats.Msg // guarded by answers
}

func (b *mailbox) nudge() {
	select {
	case b.came <- struct{}{}:
	default:
	}
}

// NextMsgWithContext returns the next message.
func (b *mailbox) NextMsgWithContext(ctx context.Context) (*nats.Msg, error) {
	for {
		if m, ended := b.first(); m != nil {
			return m, nil
		} else if ended {
			return nil, nats.ErrConnectionClosed
		}
		select {
		case <-b.came:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (b *mailbox) first() (m *nats.Msg, ended bool) {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	if len(b.queue) > 0 {
		m, b.queue = b.queue[0], b.queue[1:]
	}
	return m, b.of.ended
}

// Unsubscribe closes the mailbox.
func (b *mailbox) Unsubscribe() error {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	delete(b.of.boxes, b.reply)
	return nil
}

// isShared reports whether a reply subject, split into tokens, is one of answers.
func isShared(parts []string) bool { return len(parts) == 5 && parts[3] == sharedPart }
