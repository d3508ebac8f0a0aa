package minion

import (
	"context"
	"sync"

	"github.com/brinebus/brine/internal/forwarder"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/upstream"
)

// openBoxes opens an outbox for each uplink, and makes the forwarder of events.
func (m *Minion) openBoxes(ctx context.Context) (err error) {
	now, _ := m.broker.Lost()
	m.boxes, err = outbox.Open(ctx, outbox.Options{
		ID: m.cfg.ID, Dir: m.cfg.CacheDir, Conn: m.broker.Conn(), Store: m.broker.Store(), MaxBytes: m.cfg.OutboxMaxBytes, MaxAge: m.cfg.OutboxMaxAge, Lost: now, Log: m.log,
	}, m.masters.Addresses(), links{m.masters})
	if err != nil {
		return err
	}
	m.undo = append(m.undo, m.boxes.Close)
	m.forwarder = forwarder.New(m.ctx, forwarder.Options{
		ID: m.cfg.ID, MaxEventSize: m.cfg.MaxEventSize, Bus: m.events, Masters: m.masters, Boxes: m.boxes, Log: m.log,
	})
	return nil
}

// links implements outbox.Links.
type links struct{ *upstream.Uplinks }

// Heirs implements outbox.Links.
func (l links) Heirs(i int, generation string) (lead int, now string, masters []outbox.Master) {
	lead, now, sessions := l.Uplinks.Heirs(i, generation)
	for _, s := range sessions {
		masters = append(masters, s)
	}
	return lead, now, masters
}

// attendant implements upstream.Daemon.
type attendant struct {
	m       *Minion
	mu      sync.Mutex
	started map[*upstream.Uplink]bool // uplinks over which the start was announced
}

// Facts implements upstream.Daemon.
func (a *attendant) Facts(ctx context.Context) (map[string]any, error) { return a.m.host.Facts(ctx) }

// Job implements upstream.Daemon.
func (a *attendant) Job(s *upstream.Session, body []byte) { a.m.executor.Take(s, body) }

// Attend implements upstream.Daemon: messages waiting for this master are delivered, and it is
// told what it does not know.
func (a *attendant) Attend(ctx context.Context, s *upstream.Session) {
	a.m.boxes.Wake()
	a.m.mines[s.Up.Number].Linked()
	if a.first(s.Up) {
		a.m.forwarder.FireStart(ctx, s.Up, a.m.cfg.EnableLegacyStartupEvents)
	}
	a.m.executor.Account(ctx, s)
}

// first reports whether the start was not yet announced over this uplink.
func (a *attendant) first(u *upstream.Uplink) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.started[u]
	a.started[u] = true
	return !was
}
