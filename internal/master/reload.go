package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/auth"
	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/internal/eauth"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/reactor"
	"github.com/brinebus/brine/internal/runner"
)

// Check reads everything that a configuration has for other packages, and returns all
// mistakes in it. It starts nothing and touches no data.
func Check(cfg *config.Master) error {
	_, err := compile(cfg, new(auth.Users))
	return config.Mistake(err)
}

// Lint returns what is strange about the rules of a configuration without mistakes.
func Lint(ctx context.Context, cfg *config.Master) []runner.Finding {
	a, err := authz.ParseRules(cfg, tablesOf(cfg))
	if err != nil {
		return nil
	}
	return a.Lint(ctx, new(auth.Users))
}

// tablesOf are those that rules are about, with the runners that a configuration adds.
func tablesOf(cfg *config.Master) authz.Tables {
	return authz.NewTables(runners(cfg, slog.New(slog.DiscardHandler)))
}

// compiled are the parts of a configuration that may change while the master runs.
type compiled struct {
	rules     *authz.Rules
	grants    *event.Grants
	backends  *eauth.Backends
	reactions []*reactor.Rule
}

// compile reads all of them, and tells the mistakes of all.
func compile(cfg *config.Master, users *auth.Users) (compiled, error) {
	var c compiled
	var errs [4]error
	c.rules, errs[0] = authz.ParseRules(cfg, tablesOf(cfg))
	c.grants, errs[1] = eventacl.Parse(cfg.EventACL)
	c.backends, errs[2] = backends(cfg, users)
	c.reactions, errs[3] = reactor.Parse(cfg.Reactor, cfg.RootDir)
	return c, config.Join(errs[:]...)
}

// backends sets up those of external_auth.
func backends(cfg *config.Master, users *auth.Users) (*eauth.Backends, error) {
	return eauth.Parse(cfg, eauth.System{Groups: users.Groups, Shadow: users.Shadow, PAMHelper: process.Beside("salt-pam")})
}

// taken is what was read of the configuration since the start.
type taken struct {
	mu     sync.Mutex // one reading at a time
	cfg    atomic.Pointer[config.Master]
	failed atomic.Pointer[failedReload]
}

// failedReload is a configuration that is not in force.
type failedReload struct {
	at  time.Time
	err error
}

// why says that the configuration that was read last is not in force, and where the
// mistakes are; "" when it is. What they are is in the log and for who may lint the
// rules: there may be secrets in it.
func (t *taken) why() string {
	f := t.failed.Load()
	if f == nil {
		return ""
	}
	var places []string
	for _, err := range config.Mistakes(f.err) {
		p := config.PlaceOf(err)
		places = append(places, strings.TrimSpace(p.Where+" "+p.Key))
	}
	return fmt.Sprintf("the configuration of %s is not in force: %s", f.at.Format(time.DateTime), strings.Join(places, ", "))
}

// findings are the mistakes for acl.lint.
func (t *taken) findings() []runner.Finding {
	f := t.failed.Load()
	if f == nil {
		return nil
	}
	var list []runner.Finding
	for _, err := range config.Mistakes(f.err) {
		p := config.PlaceOf(err)
		list = append(list, runner.Finding{Where: p.Where, Column: p.Column, Key: p.Key, Dead: true,
			Text: "since " + f.at.Format(time.DateTime) + " the configuration is not in force: " + p.Text})
	}
	return list
}

// inForce is the configuration in force: what needs a restart is as it was at the
// start.
func (m *Master) inForce() map[string]any {
	now := m.taken.cfg.Load()
	if now == nil {
		return m.cfg.Raw
	}
	return m.cfg.InForce(&now.Common)
}

// reloadConfig re-reads what may change while the master runs. A configuration with
// mistakes leaves the old one in force, and is told until it is mended.
func (m *Master) reloadConfig() (runner.Reloaded, error) {
	if m.reload == nil {
		return runner.Reloaded{}, errors.New("this master has no configuration to read anew")
	}
	m.taken.mu.Lock()
	defer m.taken.mu.Unlock()
	note := audit.Entry{Kind: audit.Rules, Verdict: audit.Noted, Fun: "config.reload"}
	defer func() { m.auditLog.Note(note) }()
	r, err := m.reread()
	if err != nil {
		m.taken.failed.Store(&failedReload{time.Now(), err})
		m.log.Error("configuration not reloaded, the old one stays in force", "err", err)
		note.Reason = "the old ones stay in force: " + err.Error()
		m.status(m.taken.why())
		return r, err
	}
	m.taken.failed.Store(nil)
	m.log.Info("configuration reloaded", "changed", strings.Join(r.Changed, " "))
	if len(r.Restart) > 0 {
		m.log.Warn("these settings have changed and take effect after a restart", "settings", strings.Join(r.Restart, " "))
	}
	m.status("serving")
	return r, nil
}

// status is the line that the service manager shows. Who only waited for the start is
// gone by now.
func (m *Master) status(line string) {
	if err := daemon.Notify("STATUS=" + line); err != nil {
		m.log.Debug("the service manager was not told", "err", err)
	}
}

// reread puts a new configuration in force, all of it or nothing.
func (m *Master) reread() (runner.Reloaded, error) {
	cfg, err := m.reload()
	if err != nil {
		return runner.Reloaded{}, err
	}
	c, err := compile(cfg, &m.users)
	if err != nil {
		return runner.Reloaded{}, err
	}
	if err := m.keys.Configure(cfg); err != nil {
		return runner.Reloaded{}, err
	}
	m.events.SetGrants(c.grants)
	m.authz.SetRules(c.rules)
	m.reactor.Set(c.reactions)
	m.setBackends(c.backends)
	was := m.taken.cfg.Swap(cfg)
	if was == nil {
		was = m.cfg
	}
	var r runner.Reloaded
	r.Changed, _ = was.Changes(&cfg.Common)
	_, r.Restart = m.cfg.Changes(&cfg.Common)
	return r, nil
}

// lint reports what is strange about the rules in force, and why those that were
// written since are not.
func (m *Master) lint(ctx context.Context) []runner.Finding {
	return append(m.taken.findings(), m.authz.Rules().Lint(ctx, &m.users)...)
}
