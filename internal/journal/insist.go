package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The store normally answers within milliseconds. While it is opened again it may never answer,
// and on an overloaded machine it may take many seconds. So a question is repeated after
// askTime, with a timeout that doubles each time, so that a slow answer is not missed forever.
// After askTimes, 14 s in all, the caller gets an error. A start gives up only after
// startTimes, two minutes, since without the answer the daemon would end.
const (
	askTime    = 2 * time.Second
	askTimes   = 3
	startTimes = 6
)

// In a cluster, and at servers of others, nobody answers for up to nine seconds when the leader of a stream was killed, and a
// reader that the server has placed at that member gets no answer at all. So a question is repeated
// more often, in the same time.
var (
	memberAsks   = []time.Duration{askTime, 2 * askTime, askTime, 2 * askTime, askTime}
	memberStarts = slices.Repeat([]time.Duration{askTime, 2 * askTime, 4 * askTime}, 9)
)

// Clustered is a Store or Delays of a member of a cluster.
type Clustered interface {
	Clustered() bool
}

func clustered(store Delays) bool {
	c, ok := store.(Clustered)
	return ok && c.Clustered()
}

// patience returns the timeouts of the attempts.
func patience(ctx context.Context, store Delays) (list []time.Duration) {
	starting := ctx.Value(startKey{}) != nil
	if _, remote := remoteOf(store); remote || clustered(store) {
		if starting {
			return memberStarts
		}
		return memberAsks
	}
	for n := range times(ctx) {
		list = append(list, askTime<<n)
	}
	return list
}

// ErrLate is wrapped by the error for a question that the store has not answered; so is
// context.DeadlineExceeded.
var ErrLate = errors.New("the store of this daemon does not answer")

// errLate is that error.
var errLate = fmt.Errorf("%w: %w", ErrLate, context.DeadlineExceeded)

type startKey struct{}

// Starting returns the context for a start, which waits longer for the store.
func Starting(ctx context.Context) context.Context { return context.WithValue(ctx, startKey{}, true) }

// times is how often a question is asked.
func times(ctx context.Context) int {
	if ctx.Value(startKey{}) != nil {
		return startTimes
	}
	return askTimes
}

// longest is the total time for an answer of the store.
func longest(ctx context.Context) time.Duration { return askTime<<times(ctx) - askTime }

// insist calls ask, again if no answer comes or there is no leader to answer, until ctx ends; store
// logs each missing answer. It is for questions that may be asked twice.
func insist(ctx context.Context, store Delays, what string, ask func(context.Context) error) (err error) {
	begun := time.Now()
	for _, limit := range patience(ctx, store) {
		once, cancel := context.WithTimeout(ctx, limit)
		if r, ok := remoteOf(store); ok {
			err = askRemote(once, r, ask)
		} else {
			err = askLed(once, store, ask)
		}
		cancel()
		if ctx.Err() != nil && err != nil {
			return context.Cause(ctx)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		store.Late(what, time.Since(begun))
	}
	if clustered(store) {
		return fmt.Errorf("%w: %w", errElection, errLate)
	}
	if unheard(err) {
		return fmt.Errorf("%w: %w", errLate, err)
	}
	return errLate
}

// unheard reports whether a question may have found nobody to answer it: there is no connection, no
// leader, or too few servers. With servers that others run that passes, as long as most of them run.
func unheard(err error) bool {
	return isLeaderless(err) || isPlaceless(err) || errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrConnectionReconnecting) ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled)
}

// remoteOf returns the store of others that this one is, or is about.
func remoteOf(store Delays) (Remote, bool) {
	if p, ok := store.(*patient); ok {
		store = p.Store
	}
	r, ok := store.(Remote)
	return r, ok
}

// askRemote is askLed for a store behind a connection that may be lost: what nobody has heard is
// asked again.
func askRemote(ctx context.Context, r Remote, ask func(context.Context) error) error {
	for {
		err := r.Usable(ctx)
		if err == nil {
			err = ask(ctx)
		}
		if !unheard(err) {
			return err
		}
		if ctx.Value(startKey{}) == nil && r.Err() != nil {
			return r.Err()
		}
		select {
		case <-time.After(leaderPause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// leaderPause is the pause before a stream is asked again that had no leader.
const leaderPause = 100 * time.Millisecond

// noLeader is the server's code for a stream without a leader.
const noLeader jetstream.ErrorCode = 10008

// Its codes for a message that a leader does not take which is ending: nothing is stored.
const (
	notLeader jetstream.ErrorCode = 10009
	notStored jetstream.ErrorCode = 10077
)

// noPeers is its code for a stream for whose copies there are not enough servers, or are not known
// yet.
const noPeers jetstream.ErrorCode = 10005

// askLed calls ask, again until there is a leader to answer, or ctx ends: a cluster elects one
// within seconds. If most members are not reached, it does not wait: there will be none. A start
// does, since the others may be starting; it waits for a place for its streams, too, since the leader
// takes a member that has just come into account only after a moment.
func askLed(ctx context.Context, store Delays, ask func(context.Context) error) error {
	for {
		err := ask(ctx)
		if !isLeaderless(err) && (ctx.Value(startKey{}) == nil || !isPlaceless(err)) {
			return err
		}
		if s, ok := store.(interface{ Err() error }); ok && ctx.Value(startKey{}) == nil && s.Err() != nil {
			return s.Err()
		}
		select {
		case <-time.After(leaderPause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errElection, ctx.Err())
		}
	}
}

// isLeaderless reports whether err says that a stream has no leader: the server's answer to a
// question, and to a message that nobody takes. Neither has stored anything.
func isLeaderless(err error) bool {
	return codeOf(err) == noLeader || errors.Is(err, jetstream.ErrNoStreamResponse)
}

// codeOf returns the server's code of an error, 0 for none. The library watches tables by its older
// interface, which has an error of its own.
func codeOf(err error) jetstream.ErrorCode {
	if api := (*jetstream.APIError)(nil); errors.As(err, &api) {
		return api.ErrorCode
	}
	if api := (*nats.APIError)(nil); errors.As(err, &api) {
		return jetstream.ErrorCode(api.ErrorCode)
	}
	return 0
}

// isPlaceless reports whether err says that there are too few members for the copies of a stream.
func isPlaceless(err error) bool {
	return codeOf(err) == noPeers
}
