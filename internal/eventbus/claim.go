package eventbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/lease"
)

// claim is a position that this member of a cluster has taken. Its entry names the member, and is
// written only at the revision that this member knows: after another member has taken the
// position, this one cannot move it. It is nil for a single master, which needs none.
type claim struct {
	holder   lease.Holder
	term     context.Context // ends when others may take the position
	revision uint64
	// unsure is what a write without an answer may still store at the revision unsureAt; nil if there is none.
	unsure   *stored
	unsureAt uint64
}

// positionTable is the table of positions.
type positionTable interface {
	lease.Table
	Get(ctx context.Context, key string) ([]byte, error)
	Put(ctx context.Context, key string, value []byte) error
}

// heldError means that a listener at another member has a position.
type heldError struct{ by string }

func (e *heldError) Error() string {
	return "a listener at the member " + e.by + " works on the position"
}

// errMoved means that another member has taken a position from this one.
var errMoved = errors.New("another member of the cluster has taken the position")

// claim takes a position for this member, unless another one that runs has it. It returns what is
// stored, nil if there is nothing yet.
func (m *Member) claim(ctx context.Context, t lease.Table, key string) (*stored, *claim, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	c := &claim{}
	var err error
	if c.holder, c.term, err = m.lease.Holder(ctx); err != nil {
		return nil, nil, fmt.Errorf("position %s: this member has no lease: %w", key, err)
	}
	for {
		have, err := c.look(ctx, t, key)
		switch {
		case err != nil:
			return nil, nil, err // nothing of this member is there that has to be given back
		case have == nil:
			return nil, c, nil
		}
		if have.Holder != c.holder {
			live, err := m.lease.Live(ctx, have.Holder)
			if err != nil {
				return nil, nil, err
			}
			if live {
				return nil, nil, &heldError{have.Holder.Member}
			}
		}
		if err := c.write(ctx, t, key, *have); !errors.Is(err, journal.ErrChanged) {
			return have, c, err
		}
	}
}

// holds reports whether a member holds a position, as far as known.
func (m *Member) holds(ctx context.Context, h lease.Holder) bool {
	live, err := m.lease.Live(ctx, h)
	return live && err == nil
}

// look reads a position, and remembers its revision.
func (c *claim) look(ctx context.Context, t lease.Table, key string) (*stored, error) {
	e, err := t.Entry(ctx, key)
	if err != nil {
		return nil, err
	}
	c.revision = e.Revision
	if e.Value == nil {
		return nil, nil
	}
	have := new(stored)
	if err := json.Unmarshal(e.Value, have); err != nil {
		return nil, fmt.Errorf("position %s: %w", key, err)
	}
	return have, nil
}

func (c *claim) write(ctx context.Context, t lease.Table, key string, p stored) error {
	p.Holder = c.holder
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	revision, err := t.Update(ctx, key, b, c.revision)
	switch {
	case err == nil:
		c.revision = revision
	case !errors.Is(err, journal.ErrChanged):
		c.unsure, c.unsureAt = &p, c.revision
	}
	return err
}

// put stores a position. If a write before it has got no answer, and was stored, it stores it after
// that one.
func (c *claim) put(ctx context.Context, t positionTable, key string, p stored) error {
	if c == nil {
		return putPosition(ctx, t, key, p)
	}
	err := c.write(ctx, t, key, p)
	if !errors.Is(err, journal.ErrChanged) {
		return err
	}
	have, err := c.look(ctx, t, key)
	if err != nil {
		return err
	}
	if have != nil && have.Holder != c.holder {
		c.revision = 0 // so that nothing is stored any more
		return errMoved
	}
	return c.write(ctx, t, key, p)
}

// release gives a position back, so that another member may take it at once.
func (c *claim) release(ctx context.Context, t lease.Table, key string) error {
	if c == nil || c.term.Err() != nil {
		return nil
	}
	have, err := c.look(ctx, t, key)
	switch {
	case err != nil:
		return err
	case c.unsure != nil && c.unsureAt == c.revision:
		have = c.unsure // nobody has the position, and after this write that one is not stored
	case have == nil || have.Holder != c.holder:
		return nil
	}
	have.Holder = lease.Holder{}
	have.Time = time.Now().UTC()
	b, err := json.Marshal(have)
	if err != nil {
		return err
	}
	_, err = t.Update(ctx, key, b, c.revision)
	return err
}

// giveBack calls release until that has succeeded, or term has ended, with which others may take what is given back:
// a member that renews its lease would otherwise have it for ever. When the member stops, and ends its lease, one
// attempt is enough. what is named in the log.
func (m *Member) giveBack(term context.Context, what string, release func(ctx context.Context) error) {
	for term.Err() == nil {
		once, end := context.WithTimeout(term, leaveTime)
		err := release(once)
		end()
		if err == nil {
			return
		}
		m.throttle.Log(m.events.log, slog.LevelWarn, what, 1, "other members wait for what this one cannot give back now", "name", what, "err", err)
		select {
		case <-time.After(claimPause):
		case <-term.Done():
		case <-m.stopping:
			return
		}
	}
}

// leaveTime limits one attempt.
const leaveTime = 5 * time.Second
