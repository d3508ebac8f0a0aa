package broker

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/logging"
)

const (
	// stockWait is how long a server with the configuration that ExternalConfig makes waits for an
	// answer, counted from when it sends the question. Each question tells how long its server waits.
	stockWait = 5 * time.Second
	// longestWait limits what a question can tell.
	longestWait = time.Minute
)

// calloutQueue has the questions of the servers that wait to be answered. A server gives up after
// its timeout, and the peer connects again with a new question. If questions were answered after
// that, each would delay the next one, and none would ever be in time. So those that have waited for
// too long are dropped.
type calloutQueue struct {
	waiting  chan callout
	stop     <-chan struct{}
	now      func() time.Time
	wait     atomic.Int64 // how long the server of the latest opened question waits
	throttle *logging.Throttle
	log      *slog.Logger
}

// callout is a question with the time of its arrival. The times in it are those of the server's clock.
type callout struct {
	*nats.Msg
	since time.Time
}

func newCalloutQueue(x *External) *calloutQueue {
	q := &calloutQueue{waiting: make(chan callout, maxAsked), stop: x.stop, now: time.Now, throttle: &x.throttle, log: x.log}
	q.wait.Store(int64(stockWait))
	return q
}

// add has a question wait. It never blocks: those that wait in the connection would have no time of
// arrival.
func (q *calloutQueue) add(m *nats.Msg) {
	select {
	case q.waiting <- callout{m, q.now()}:
	default:
		q.drop(nil)
	}
}

// next returns the next question that its server still waits for, and nil at the end.
func (q *calloutQueue) next() *nats.Msg {
	for {
		select {
		case m := <-q.waiting:
			age := q.now().Sub(m.since)
			if age <= q.limit() {
				return m.Msg
			}
			q.drop([]any{"waited", age})
		case <-q.stop:
			return nil
		}
	}
}

// limit leaves a fifth of the time that the servers wait to the way here, the answer and the way
// back.
func (q *calloutQueue) limit() time.Duration { return time.Duration(q.wait.Load()) / 5 * 4 }

// opened learns from an authentic question how long its server waits. The difference of two times
// of one clock does not depend on ours.
func (q *calloutQueue) opened(c *jwt.AuthorizationRequestClaims) {
	if d := time.Duration(c.Expires-c.IssuedAt) * time.Second; c.Expires > c.IssuedAt && d > 0 {
		q.wait.Store(int64(min(d, longestWait)))
	}
}

func (q *calloutQueue) drop(args []any) {
	q.throttle.Log(q.log, slog.LevelWarn, "dropped", 1, "questions of NATS servers are dropped unanswered: more minions connect than can be admitted in time, and they try again", append(args, "limit", q.limit())...)
}
