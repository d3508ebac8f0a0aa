package upstream

import (
	"context"
	"time"
)

// AnswersPing reports whether the master at the other end of a connection has answered a minion_ping.
func (l *Connection) AnswersPing(ctx context.Context, within time.Duration) bool {
	u := &Uplink{log: l.opts.Log}
	return u.answersPing(ctx, &Session{Connection: l, Up: u}, within)
}
