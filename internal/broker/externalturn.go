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

// claims are those to be the one at work.
type claims struct{ *External }

// newClaim returns what a master answers: when it began, and a random text. The smaller one goes on if
// two are at work, which happens after the servers were separated.
func newClaim() string {
	return fmt.Sprintf("%020d.%s", time.Now().UnixNano(), secret())
}

// await returns true when no other master is at work, false if ctx ends first.
func (x claims) await(ctx context.Context) bool {
	for ctx.Err() == nil {
		if free, _ := x.free(ctx); free {
			return true
		}
		if !x.pause(ctx) {
			return false
		}
	}
	return false
}

// free reports whether no other master is at work; other is true if one is, both are false if it
// is not known.
func (x claims) free(ctx context.Context) (free, other bool) {
	if !x.watcher.IsConnected() || !x.traffic.IsConnected() {
		return false, false
	}
	ctx, cancel := context.WithTimeout(ctx, workEvery)
	defer cancel()
	_, err := x.traffic.RequestWithContext(ctx, workSubject, nil)
	if err == nil {
		x.throttle.Log(x.log, slog.LevelInfo, "waits", 1, "another master is at work on these NATS servers; this one waits for it to end")
	}
	return errors.Is(err, nats.ErrNoResponders), err == nil
}

// pause waits until it is asked again; false is the end.
func (x claims) pause(ctx context.Context) bool {
	t := time.NewTimer(workEvery)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-x.stop:
		return false
	case <-t.C:
		return true
	}
}

// announce lets other masters hear that this one is at work.
func (x claims) announce(claim string) (*nats.Subscription, error) {
	sub, err := x.traffic.Subscribe(workSubject, func(m *nats.Msg) { _ = m.Respond([]byte(claim)) }) // fails without a connection
	if err != nil {
		return nil, fmt.Errorf("serve through NATS servers: %w", err)
	}
	return sub, sub.SetPendingLimits(maxAsked, -1)
}

// preceded reports whether another master is at work that began before this one.
func (x claims) preceded(ctx context.Context, claim string) bool {
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
	claim := x.held
	if claim == "" {
		claim = newClaim()
	}
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
