package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// Of several masters with the same credentials one is at work; the others wait until nobody
// answers that they are.
const (
	workSubject = "salt.master.work"
	// workEvery is between two questions of a master that waits, and workTwice how long answers
	// of others are waited for by one that is at work.
	workEvery = time.Second
	workTwice = 300 * time.Millisecond
)

// claim is what a master answers: when it began, and a random text. The smaller one goes on if
// two are at work, which happens after the servers were separated.
func (x *External) claim() string {
	return fmt.Sprintf("%020d.%s", time.Now().UnixNano(), secret())
}

// await returns true when no other master is at work, false if ctx ends first.
func (x *External) await(ctx context.Context) bool {
	for ctx.Err() == nil {
		if x.watcher.IsConnected() && x.traffic.IsConnected() {
			asking, cancel := context.WithTimeout(ctx, workEvery)
			_, err := x.traffic.RequestWithContext(asking, workSubject, nil)
			cancel()
			switch {
			case errors.Is(err, nats.ErrNoResponders):
				return true
			case err == nil:
				x.throttle.Log(x.log, slog.LevelInfo, "waits", 1, "another master is at work on these NATS servers; this one waits for it to end")
			}
		}
		t := time.NewTimer(workEvery)
		select {
		case <-ctx.Done():
			t.Stop()
			return false
		case <-x.stop:
			t.Stop()
			return false
		case <-t.C:
		}
	}
	return false
}

// preceded reports whether another master is at work that began before this one.
func (x *External) preceded(ctx context.Context, claim string) bool {
	inbox := x.traffic.NewInbox()
	sub, err := x.traffic.SubscribeSync(inbox)
	if err != nil {
		return false
	}
	defer func() { _ = sub.Unsubscribe() }() // fails if the connection has ended
	if err := x.traffic.PublishRequest(workSubject, inbox, nil); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, workTwice)
	defer cancel()
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return false
		}
		if other := string(m.Data); other != "" && other < claim {
			return true
		}
	}
}

// work is one turn at work: it returns when ctx ends, or another master goes on.
func (x *External) work(ctx context.Context) error {
	claim := x.claim()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	subs, err := x.subscribe(claim)
	defer func() {
		for _, sub := range subs {
			_ = sub.Unsubscribe() // fails if the connection has ended
		}
	}()
	if err != nil {
		return err
	}
	x.setServing(true)
	defer x.dropAll()
	defer x.setServing(false)
	x.log.Info("this master is at work on the NATS servers")
	x.watch(ctx, claim)
	return nil
}

func (x *External) setServing(on bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.serving = on
}
