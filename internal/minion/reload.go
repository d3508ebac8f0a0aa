package minion

import (
	"errors"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/beacon"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/internal/executor"
	"github.com/brinebus/brine/internal/host"
	"github.com/brinebus/brine/internal/scheduler"
	"github.com/brinebus/brine/internal/upstream"
)

// Check parses what a configuration contains for other packages, and returns all mistakes in
// it. It starts nothing and touches no data.
func Check(cfg *config.Minion) error {
	_, grants := eventacl.Parse(cfg.EventACL)
	return config.Mistake(errors.Join(grants, scheduler.Check(cfg.Schedule), beacon.Check(cfg.Beacons), executor.CheckMine(cfg.MineFunctions), upstream.CheckServers(cfg)))
}

// Lint returns warnings about a valid configuration.
func Lint(cfg *config.Minion) []config.Place { return host.Lint(cfg) }

// hangup applies what may change while the minion runs from a configuration that was read
// again; one with mistakes leaves the old one in force. Then it collects the facts again and
// sends them to the master. It ends a pause before the next attempt at a master, so nobody who
// has repaired something must wait for it.
func (m *Minion) hangup() {
	status := "serving"
	if err := m.takeConfig(); err != nil {
		m.log.Error("configuration not reloaded, the old one stays in force", "err", err)
		status = "the configuration of " + time.Now().Format(time.DateTime) + " is not in force: the log says why"
	}
	if err := daemon.Notify("STATUS=" + status); err != nil {
		m.log.Debug("cannot notify the service manager", "err", err) // a service manager that only waited for the start is gone
	}
	for _, u := range m.masters.All() {
		u.Nudge()
	}
	if err := m.host.RefreshGrains(m.ctx); err != nil {
		m.log.Error("facts not refreshed", "err", err)
	}
}

func (m *Minion) takeConfig() error {
	if m.reload == nil {
		return nil
	}
	cfg, err := m.reload()
	if err != nil {
		return err
	}
	grants, err := eventacl.Parse(cfg.EventACL)
	if err != nil {
		return err
	}
	// Both or neither: the log says that the old configuration stays in force.
	if err := m.beacons.Take(cfg, func() error { return m.scheduler.Take(cfg) }); err != nil {
		return err
	}
	m.events.SetGrants(grants)
	was := m.taken.Swap(cfg)
	if was == nil {
		was = m.cfg
	}
	changed, _ := was.Changes(&cfg.Common)
	_, restart := m.cfg.Changes(&cfg.Common)
	m.log.Info("configuration reloaded", "changed", strings.Join(changed, " "))
	if len(restart) > 0 {
		m.log.Warn("these settings have changed and take effect after a restart", "settings", strings.Join(restart, " "))
	}
	return nil
}

// inForce returns the configuration in force, for functions: settings that need a restart are
// those of the start.
func (m *Minion) inForce() map[string]any {
	now := m.taken.Load()
	if now == nil {
		return m.cfg.Raw
	}
	return m.cfg.InForce(&now.Common)
}
