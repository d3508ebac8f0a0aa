package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/salt"
)

// Limits of the tries to restore one stream. A connection between servers that ends meanwhile takes
// pieces, or their confirmations, with it, and the server cannot go on with a stream that has a gap.
const (
	sendTries  = 3
	sendTime   = 30 * time.Minute // no try begins later
	answerTime = 20 * time.Second // for a piece, or for the end
	// giveUpTime is when the server has given up what it gets no more pieces of, which it does after 5 s.
	// A stream that is removed before could get the last of them.
	giveUpTime = 6 * time.Second
	removeTime = time.Minute
)

var (
	// errUnanswered is wrapped by the error about a request or a piece without an answer.
	errUnanswered error = salt.Unanswered("the server has not answered")
	// errEnded is wrapped by the error about a restore that the server does not go on with.
	errEnded = errors.New("the server has ended the restore too early")
)

// unanswered says of a request that ended with err what a deadline of it means, unless that was
// the end of all, ctx.
func unanswered(ctx context.Context, err error, limit time.Duration) error {
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w within %s", errUnanswered, limit)
	}
	return err
}

// passing reports whether another try to restore a stream may succeed.
func passing(err error) bool {
	for _, one := range []error{errUnanswered, errEnded, errLost} {
		if errors.Is(err, one) {
			return true
		}
	}
	var f *fault
	return errors.As(err, &f) && (f.Code == codeRestore || f.Code == codeAssignment)
}

// sendAgain restores a stream that is not there. What a failed try has left of it is removed, and it is
// tried again. found is true if the first try found a stream, which is not ours to remove.
func (r *restorer) sendAgain(ctx context.Context, m move) (found bool, err error) {
	name, begun := m.to.Stream(), time.Now()
	for try := 1; ; try++ {
		err := r.send(ctx, m)
		late := try > 1 && errors.Is(err, errExists) // an earlier request was carried out after its remains were removed
		switch {
		case err == nil || ctx.Err() != nil || !passing(err) && !late:
			return try == 1 && errors.Is(err, errExists), err
		case try == sendTries || time.Since(begun) > sendTime:
			return false, salt.WithHint(fmt.Errorf("%d tries have failed, the last one: %w", try, err),
				fmt.Sprintf("the NATS servers do not take the stream %s: look at their logs, at the connections between them and at their disks", name))
		}
		r.to.Log.Warn("a stream was not restored completely: what there is of it is removed, and it is restored again", "stream", name, "try", try, "of", sendTries, "err", err)
		if !backoff.Sleep(ctx, giveUpTime) {
			return false, context.Cause(ctx)
		}
		if err := r.remove(ctx, name); err != nil {
			return false, err
		}
	}
}

// remove removes what an earlier try has left of a stream. Where the stream has lost its leader, the
// servers remove it and may not say so.
func (r *restorer) remove(ctx context.Context, name string) error {
	once, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	for {
		err := ask(once, r.nc, "STREAM.DELETE."+name, struct{}{}, nil)
		if err == nil || errors.Is(err, errNoStream) {
			return nil
		}
		if !errors.Is(err, errUnanswered) && !early(err) || !backoff.Sleep(once, beginPause) {
			return salt.WithHint(fmt.Errorf("remove what an earlier try has left of it: %w", unanswered(ctx, err, removeTime)),
				fmt.Sprintf("the NATS servers do not remove the stream %s: look at their logs, and at the connections between them", name))
		}
	}
}

// early reports whether a request came too early: right after a start a cluster may not know yet
// that enough members are there.
func early(err error) bool {
	var f *fault
	return errors.As(err, &f) && (f.Code == codeNoPeers || f.Code == codeUnavailable) || errors.Is(err, nats.ErrNoResponders)
}
