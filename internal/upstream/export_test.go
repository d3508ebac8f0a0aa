package upstream

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"github.com/brinebus/brine/internal/config"
)

// ToldUnreachable is what a minion logs of this error in its first round.
func ToldUnreachable(err error) string {
	var said bytes.Buffer
	u := (&Uplinks{Setup: Setup{Config: config.NewMinion(), Log: slog.New(slog.NewTextHandler(&said, nil))}}).add(&roster{masters: []string{"a"}})
	if _, end := u.judge(err); end != nil {
		return end.Error()
	}
	return said.String()
}

// AnswersPing reports whether the master at the other end of a connection has answered a minion_ping.
func (l *Connection) AnswersPing(ctx context.Context, within time.Duration) bool {
	u := &Uplink{log: l.opts.Log}
	return u.answersPing(ctx, &Session{Connection: l, Up: u}, within)
}
