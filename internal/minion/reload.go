package minion

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/schedule"
)

// Check reads everything that a configuration has for other packages, and returns all
// mistakes in it. It starts nothing and touches no data.
func Check(cfg *config.Minion) error {
	_, grants := eventacl.Parse(cfg.EventACL)
	_, jobs := schedule.Parse(cfg.Schedule.Value(), time.Local)
	if jobs != nil {
		jobs = cfg.Schedule.At(nil, jobs)
	}
	_, watches := configuredBeacons(cfg)
	return config.Mistake(errors.Join(grants, jobs, watches, checkMine(cfg)))
}

// Lint returns what is strange about a configuration and no mistake: a module that is
// disabled, or let in, under a name that no module has. Somebody may add one later.
func Lint(cfg *config.Minion) []config.Place {
	var list []config.Place
	look := func(key, text string, names []string) {
		for _, name := range names {
			if !function.KnownModule(module.Builtin(), name) {
				list = append(list, config.Place{Key: key, Text: fmt.Sprintf("there is no module %q%s", name, text)})
			}
		}
	}
	look("disable_modules", ": nothing is disabled by it", cfg.DisableModules)
	look("whitelist_modules", "", cfg.WhitelistModules)
	return list
}

// hangup takes what may change while the minion runs from a configuration that
// was read anew; one with mistakes leaves the old one in force. Then it collects
// the facts anew and tells them to the master. A pause between two attempts at a
// master ends: whoever has repaired something need not wait for it.
func (m *Minion) hangup() {
	status := "serving"
	if err := m.takeConfig(); err != nil {
		m.log.Error("configuration not reloaded, the old one stays in force", "err", err)
		status = "the configuration of " + time.Now().Format(time.DateTime) + " is not in force: the log says why"
	}
	if err := daemon.Notify("STATUS=" + status); err != nil {
		m.log.Debug("the service manager was not told", "err", err) // who waited for the start is gone
	}
	for _, u := range m.masters.All() {
		u.Nudge()
	}
	if err := m.refreshGrains(m.ctx); err != nil {
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
	if err := m.schedule.take(cfg, nil); err != nil {
		return err
	}
	if err := m.beacons.take(cfg); err != nil {
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

// inForce is the configuration in force, as functions see it: what needs a restart is
// as it was at the start.
func (m *Minion) inForce() map[string]any {
	now := m.taken.Load()
	if now == nil {
		return m.cfg.Raw
	}
	return m.cfg.InForce(&now.Common)
}
