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
	// vacantAfter is how long nobody may have answered before another master takes over: the one at
	// work may have lost its server, and takes up to some two seconds to connect to another one.
	vacantAfter = 5 * time.Second
	// leftSubject is where a master tells those that wait that it has ended. No minion may publish
	// there.
	leftSubject = "_INBOX.master.left"
)

// vacancy is whether nobody is at work.
type vacancy struct {
	*External
	left  chan struct{} // signals that a master at work has ended
	since time.Time     // since when nobody has answered; zero if somebody has, or it is not known
	ended time.Time     // when a master at work has ended
}

// listen returns a vacancy that hears of the end of the master at work, until stop.
func (x *External) listen() (v *vacancy, stop func(), err error) {
	v = &vacancy{External: x, left: make(chan struct{}, 1)}
	sub, err := x.traffic.Subscribe(leftSubject, func(*nats.Msg) {
		select {
		case v.left <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("hear of other masters at NATS servers: %w", err)
	}
	return v, func() { _ = sub.Unsubscribe() }, nil // fails if the connection has ended
}

// vacant reports whether nobody has been at work for long enough, or since a master has said that it
// ends; free is whether nobody answers now.
func (x *vacancy) vacant(free bool) bool {
	if !free {
		x.since = time.Time{}
		return false
	}
	if x.since.IsZero() {
		x.since = time.Now()
	}
	return time.Since(x.since) >= x.vacantAfter || time.Since(x.ended) < vacantAfter
}

// sayLeft tells those that wait that this master has ended.
func (x *External) sayLeft() {
	_ = x.traffic.Publish(leftSubject, nil) // without a connection they notice it later
}

// newClaim returns what a master answers: when it began, and a random text. The smaller one goes on if
// two are at work, which happens after the servers were separated.
func newClaim() string {
	return fmt.Sprintf("%020d.%s", time.Now().UnixNano(), secret())
}

// await returns true when no other master is at work, false if ctx ends first.
func (x *vacancy) await(ctx context.Context) bool {
	for ctx.Err() == nil {
		if free, _ := x.free(ctx); x.vacant(free) {
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
func (x *vacancy) free(ctx context.Context) (free, other bool) {
	defer func() { x.other.Store(other) }()
	if !x.watcher.IsConnected() || !x.traffic.IsConnected() || x.reaching.isBlind() {
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

// OtherAtWork reports whether this master waits for the end of another one.
func OtherAtWork(x *External) bool { return x.other.Load() }

// pause waits until it is asked again; false is the end.
func (x *vacancy) pause(ctx context.Context) bool {
	t := time.NewTimer(workEvery)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-x.stop:
		return false
	case <-x.left:
		x.ended = time.Now()
		return true
	case <-t.C:
		return true
	}
}

// announce lets other masters hear that this one is at work.
func (x *External) announce(claim string) (*nats.Subscription, error) {
	sub, err := x.traffic.Subscribe(workSubject, func(m *nats.Msg) { _ = m.Respond([]byte(claim)) }) // fails without a connection
	if err != nil {
		return nil, fmt.Errorf("serve through NATS servers: %w", err)
	}
	return sub, sub.SetPendingLimits(maxAsked, -1)
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
	claim := x.held
	if claim == "" {
		claim = newClaim()
	}
	defer func(ctx context.Context) {
		if x.held == "" && ctx.Err() != nil {
			x.sayLeft()
		}
	}(ctx)
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
