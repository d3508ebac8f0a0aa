package master

import (
	"context"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/eauth"
)

// openGate opens external_auth over the journal.
func (m *Master) openGate(ctx context.Context) error {
	b, err := backends(m.cfg, &m.users)
	if err != nil {
		return config.Mistake(err)
	}
	table, err := m.journal.Table(ctx, "tokens")
	if err != nil {
		return err
	}
	m.authz.Logins.Gate, err = eauth.NewGate(ctx, table, b, m.log)
	m.tellAbsent(b)
	return err
}

// setBackends puts those of a new configuration in force.
func (m *Master) setBackends(b *eauth.Backends) {
	m.authz.Logins.Gate.Set(b)
	m.tellAbsent(b)
}

func (m *Master) tellAbsent(b *eauth.Backends) {
	for _, name := range b.Absent {
		m.log.Warn("Salt has this authentication backend, Brine does not: nobody logs in through it", "eauth", name)
	}
}

// sweepEvery is how often tokens that have expired are removed.
const sweepEvery = time.Minute

func (m *Master) sweepTokens() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-tick.C:
		}
		if err := m.authz.Logins.Gate.Sweep(m.ctx); err != nil && m.ctx.Err() == nil {
			m.log.Error("tokens not swept", "err", err)
		}
	}
}
