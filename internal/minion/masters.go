package minion

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/upstream"
)

// openMasters makes the uplinks to the masters, and an outbox for each.
func (m *Minion) openMasters(ctx context.Context) (err error) {
	m.masters = upstream.New(upstream.Setup{
		Config: m.cfg, Key: m.key, Version: m.version, Service: m.service, Log: m.log,
		Daemon: &attendant{m: m, started: map[*upstream.Uplink]bool{}}, Announce: func(tag string, data map[string]any) { m.events.Announce(tag, data) },
	})
	for range m.masters.All() {
		m.linked = append(m.linked, make(chan struct{}, 1))
	}
	now, _ := m.broker.Lost()
	m.boxes, err = outbox.Open(ctx, outbox.Options{
		ID: m.id, Dir: m.cfg.CacheDir, Conn: m.broker.Conn(), Store: m.broker.Store(), MaxBytes: m.cfg.OutboxMaxBytes, MaxAge: m.cfg.OutboxMaxAge, Lost: now, Log: m.log,
	}, m.masters.Addresses(), m.present)
	if err == nil {
		m.undo = append(m.undo, m.boxes.Close)
	}
	return err
}

// present is the master in use of an uplink, nil for none.
func (m *Minion) present(i int) outbox.Master {
	if s := m.masters.All()[i].Session(); s != nil {
		return s
	}
	return nil
}

// box is the outbox for the masters of an uplink.
func (m *Minion) box(u *upstream.Uplink) *outbox.Box { return m.boxes[u.Number] }

// attendant implements upstream.Daemon.
type attendant struct {
	m       *Minion
	mu      sync.Mutex
	started map[*upstream.Uplink]bool // the start was announced
}

// Facts implements upstream.Daemon.
func (a *attendant) Facts(ctx context.Context) (map[string]any, error) { return a.m.grains.get(ctx) }

// Job implements upstream.Daemon.
func (a *attendant) Job(s *upstream.Session, body []byte) { a.m.onJob(s, body) }

// Attend implements upstream.Daemon: what waits for this master goes, and it is told what
// it does not know.
func (a *attendant) Attend(ctx context.Context, s *upstream.Session) {
	a.m.box(s.Up).Wake()
	select {
	case a.m.linked[s.Up.Number] <- struct{}{}:
	default:
	}
	a.announceStart(ctx, s.Up)
	a.m.account(ctx, s)
}

// first says whether the start was not announced over this uplink.
func (a *attendant) first(u *upstream.Uplink) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.started[u]
	a.started[u] = true
	return !was
}

// announceStart fires Salt's events of a started minion, once a start.
func (a *attendant) announceStart(ctx context.Context, u *upstream.Uplink) {
	if !a.first(u) {
		return
	}
	m := a.m
	text := fmt.Sprintf("%q", "Minion "+string(m.id)+" started at "+time.Now().Format(time.ANSIC))
	for _, tag := range []string{"minion_start", "salt/minion/" + string(m.id) + "/start"} {
		if tag == "minion_start" && !m.cfg.EnableLegacyStartupEvents {
			continue
		}
		f := protocol.Fire{Form: protocol.FormSingle, Events: []protocol.FireEvent{{Tag: tag, Data: []byte(text)}}}
		if err := m.box(u).Put(ctx, outbox.Outgoing{Op: protocol.OpFire, Body: f, Events: 1}); err != nil {
			m.log.Warn("start not announced", "tag", tag, "err", err)
		}
	}
}
