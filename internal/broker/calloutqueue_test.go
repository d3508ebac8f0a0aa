package broker

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/logging"
)

// A question whose server has given up is dropped, so that the next one is in time.
func TestQuestionsThatWaitedTooLongAreDropped(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(1_000_000, 0)
	stop := make(chan struct{})
	x := &External{stop: stop, log: slog.New(slog.NewTextHandler(&log, nil)), throttle: logging.Throttle{}}
	q := newCalloutQueue(x)
	q.now = func() time.Time { return now }
	next := func(want string) {
		t.Helper()
		if m := q.next(); m == nil || m.Subject != want {
			t.Fatalf("the next question is %v, want %s", m, want)
		}
	}
	add := func(name string) { q.add(&nats.Msg{Subject: name}) }

	add("old1")
	add("old2")
	now = now.Add(100 * time.Millisecond)
	add("in time")
	now = now.Add(4 * time.Second)
	add("new")
	next("in time")
	next("new")
	if n := strings.Count(log.String(), "dropped"); n != 1 {
		t.Errorf("%d lines, want one:\n%s", n, &log)
	}

	// A server with another timeout tells so; its clock does not matter.
	tell := func(timeout int64) {
		c := jwt.NewAuthorizationRequestClaims("x")
		c.IssuedAt, c.Expires = 77, 77+timeout
		q.opened(c)
	}
	tell(20)
	add("patient")
	now = now.Add(16 * time.Second)
	next("patient")
	tell(2)
	add("late")
	now = now.Add(1700 * time.Millisecond)
	add("last")
	next("last")
	tell(-1)
	if got := q.limit(); got != 1600*time.Millisecond {
		t.Errorf("the limit is %s after a question that tells nonsense", got)
	}

	for range maxAsked + 10 { // adding never blocks
		add("many")
	}
	next("many")
	close(stop)
	for range 2 * maxAsked { // those that wait may come before the end
		if q.next() == nil {
			return
		}
	}
	t.Error("it does not end")
}
