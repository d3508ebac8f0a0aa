package minion

import (
	"context"
	"errors"
	"sync"

	"github.com/brinebus/brine/internal/link"
	"github.com/brinebus/brine/internal/outbox"
)

// session is that of the first master of the list that is connected, nil for
// none.
func (m *Minion) session() *session {
	for _, u := range m.uplinks {
		if s := u.session.Load(); s != nil {
			return s
		}
	}
	return nil
}

// uplink is the one for what any master may take: the first that is connected, or
// else the first; nil with master_type disable.
func (m *Minion) uplink() *uplink {
	if s := m.session(); s != nil {
		return s.up
	}
	if len(m.uplinks) == 0 {
		return nil
	}
	return m.uplinks[0]
}

var errNoMaster = errors.New("no master is connected")

// eachSession calls f for all sessions at the same time and waits for it. Without a
// session it returns errNoMaster.
func (m *Minion) eachSession(f func(*session) error) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	err := errNoMaster
	var failed error
	for _, u := range m.uplinks {
		s := u.session.Load()
		if s == nil {
			continue
		}
		err = nil
		wg.Go(func() {
			if e := f(s); e != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, e)
			}
		})
	}
	wg.Wait()
	return errors.Join(err, failed)
}

// openUplinks makes the uplinks with their outboxes.
func (m *Minion) openUplinks(ctx context.Context) (err error) {
	rosters := newRosters(m.cfg)
	m.verdicts.uplinks = len(rosters)
	addresses := make([]string, len(rosters))
	for i, r := range rosters {
		m.uplinks = append(m.uplinks, newUplink(m, r))
		addresses[i] = link.WithPort(r.masters[0], m.cfg.MasterPort)
	}
	now, _ := m.broker.Lost()
	if m.boxes, err = outbox.Open(ctx, outbox.Options{
		ID: m.id, Dir: m.cfg.CacheDir, Conn: m.broker.Conn(), Store: m.broker.Store(), MaxBytes: m.cfg.OutboxMaxBytes, MaxAge: m.cfg.OutboxMaxAge, Lost: now, Log: m.log,
	}, addresses, m.master); err != nil {
		return err
	}
	m.undo = append(m.undo, m.boxes.Close)
	for i, u := range m.uplinks {
		u.outbox = m.boxes[i]
	}
	return nil
}

// master is the master in use of an uplink, nil for none.
func (m *Minion) master(i int) outbox.Master {
	if s := m.uplinks[i].session.Load(); s != nil {
		return s
	}
	return nil
}
