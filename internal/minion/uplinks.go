package minion

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/link"
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

// putAll puts something into the outbox of every uplink.
func (m *Minion) putAll(ctx context.Context, out outgoing) error {
	var failed error
	for _, u := range m.uplinks {
		if _, err := u.outbox.put(ctx, out, false); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// plainBox is the outbox of a minion with one uplink.
const plainBox = ""

// openUplinks makes the uplinks with their outboxes. Where there are several, each
// outbox is named by the address of its master.
func (m *Minion) openUplinks(ctx context.Context) error {
	rosters := newRosters(m.cfg)
	m.verdicts.uplinks = len(rosters)
	adopt, err := m.plainWaits(ctx, len(rosters))
	if err != nil {
		return err
	}
	for i, r := range rosters {
		u := newUplink(m, r)
		box := plainBox
		if len(rosters) > 1 && !(i == 0 && adopt) {
			box = "_" + event.Escape(link.WithPort(r.masters[0], m.cfg.MasterPort))
		}
		if u.outbox, err = openOutbox(ctx, m, &u.session, box); err != nil {
			return err
		}
		m.uplinks = append(m.uplinks, u)
	}
	return m.warnOfBoxes(ctx)
}

// plainWaits says whether something waits in the outbox from when there was one
// uplink: with several, the first of them delivers it.
func (m *Minion) plainWaits(ctx context.Context, uplinks int) (bool, error) {
	if uplinks < 2 {
		return false, nil
	}
	n, err := m.waitingIn(ctx, plainBox)
	return n > 0, err
}

// waitingIn is how many letters wait in the outbox of this name.
func (m *Minion) waitingIn(ctx context.Context, box string) (uint64, error) {
	q, err := journal.OpenQueue(ctx, m.broker.Conn(), queueName+box, m.broker.Store())
	if err != nil {
		return 0, err
	}
	span, err := q.Span(ctx)
	return span.Last + 1 - min(span.First, span.Last+1), err
}

// warnOfBoxes tells of outboxes in which something waits for a master that is not
// in the configuration any more.
func (m *Minion) warnOfBoxes(ctx context.Context) error {
	entries, err := os.ReadDir(m.cfg.CacheDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		token, ok := strings.CutPrefix(e.Name(), boxFolder+"_")
		address, escaped := event.Unescape(token)
		if !ok || !escaped || !e.IsDir() || m.hasBox("_"+token) {
			continue
		}
		n, err := m.waitingIn(ctx, "_"+token)
		if err != nil {
			return err
		}
		if n > 0 {
			m.log.Warn("events and returns wait for a master that is not in the configuration any more; name it again to have them delivered", "master", address, "count", n)
		}
	}
	return nil
}

func (m *Minion) hasBox(box string) bool {
	for _, u := range m.uplinks {
		if u.outbox.name == box {
			return true
		}
	}
	return false
}
