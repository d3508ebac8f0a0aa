package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/journal"
)

// Lock is a lock that this member holds.
type Lock struct {
	member   *Member
	key      string
	holder   Holder
	term     context.Context
	revision uint64
}

// HeldError means that another member holds a lock.
type HeldError struct{ Holder Holder }

// Error implements error.
func (e *HeldError) Error() string { return fmt.Sprintf("member %s holds the lock", e.Holder.Member) }

func lockKey(name string) string { return "lock/" + name }

// Acquire takes the lock of this name, or returns a HeldError. A caller takes each lock once. After another error
// this member may have the lock all the same, or get it in the next moments, since the answer was lost: only after a
// later Acquire without such an error it is known.
func (m *Member) Acquire(ctx context.Context, name string) (*Lock, error) {
	me, term, err := m.Holder(ctx)
	if err != nil {
		return nil, err
	}
	has, revision, err := m.lock(ctx, name)
	if err != nil {
		return nil, err
	}
	if has != me {
		live, err := m.Live(ctx, has)
		if err != nil {
			return nil, err
		}
		if live {
			return nil, &HeldError{has}
		}
	}
	got, err := m.write(ctx, lockKey(name), me, revision)
	if errors.Is(err, journal.ErrChanged) {
		if has, got, err = m.lock(ctx, name); err == nil && has != me { // another one was faster
			return nil, &HeldError{has}
		}
	}
	if err != nil {
		return nil, err
	}
	if term.Err() != nil {
		return nil, errLapsed
	}
	return &Lock{member: m, key: lockKey(name), holder: me, term: term, revision: got}, nil
}

// HolderOf returns the member that holds a lock, "" if none does as far as known.
func (m *Member) HolderOf(ctx context.Context, name string) (string, error) {
	has, _, err := m.lock(ctx, name)
	if err != nil {
		return "", err
	}
	if live, err := m.Live(ctx, has); !live || err != nil {
		return "", err
	}
	return has.Member, nil
}

func (m *Member) lock(ctx context.Context, name string) (h Holder, revision uint64, err error) {
	revision, err = m.read(ctx, lockKey(name), &h)
	return h, revision, err
}

// Context ends when the lock is lost, since this member cannot renew its lease.
func (l *Lock) Context() context.Context { return l.term }

// Release gives the lock back. It tries until that is done, or the lease has ended, with which others may take
// the lock: a member that renews its lease would otherwise have it for ever. When ctx has ended, since the member
// is about to give up its lease, it tries once.
func (l *Lock) Release(ctx context.Context) {
	for l.term.Err() == nil {
		_, err := l.member.write(context.WithoutCancel(ctx), l.key, Holder{}, l.revision)
		if err == nil || errors.Is(err, journal.ErrChanged) || !backoff.Sleep(ctx, renewAgain) {
			return
		}
	}
}
