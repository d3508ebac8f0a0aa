// Package settings is what of a master's configuration may change while it runs: the
// access rules, the grants on events, the backends of external_auth and the rules of the
// reactor. It reads them, all or none, and keeps what the last reading brought.
//
// It puts nothing in force by itself: whoever makes it says how.
package settings

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/auth"
	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/eauth"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/reactor"
	"github.com/brinebus/brine/internal/runner"
)

// Check reads everything that a configuration has for other packages, and returns all
// mistakes in it. It starts nothing and touches no data.
func Check(cfg *config.Master) error {
	_, err := Compile(cfg, new(auth.Users))
	return err
}

// Lint returns what is strange about the rules of a configuration without mistakes.
func Lint(ctx context.Context, cfg *config.Master) []acl.Warning {
	a, err := authz.ParseRules(cfg, tables(cfg))
	if err != nil {
		return nil
	}
	return a.Lint(ctx, new(auth.Users))
}

// Runners are those that people have added: in runner_dirs and in _runners of the
// environment base.
func Runners(cfg *config.Master, log *slog.Logger) *extension.Set {
	dirs := slices.Clone(cfg.RunnerDirs)
	for _, dir := range cfg.FileRoots["base"] {
		dirs = append(dirs, filepath.Join(dir, extension.Runners.Folder()))
	}
	return extension.New(extension.Runners, log, dirs...)
}

// tables are those that rules are about, with the runners that a configuration adds.
func tables(cfg *config.Master) authz.Tables {
	return authz.NewTables(Runners(cfg, slog.New(slog.DiscardHandler)))
}

// Compiled are the parts of a configuration that may change.
type Compiled struct {
	Rules     *authz.Rules
	Grants    *event.Grants
	Backends  *eauth.Backends
	Reactions []*reactor.Rule
}

// Compile reads all of them, and returns the mistakes of all.
func Compile(cfg *config.Master, users *auth.Users) (Compiled, error) {
	var c Compiled
	var errs [4]error
	c.Rules, errs[0] = authz.ParseRules(cfg, tables(cfg))
	c.Grants, errs[1] = eventacl.Parse(cfg.EventACL)
	c.Backends, errs[2] = eauth.Parse(cfg, eauth.System{Groups: users.Groups, Shadow: users.Shadow, PAMHelper: process.Beside("salt-pam")})
	c.Reactions, errs[3] = reactor.Parse(cfg.Reactor, cfg.RootDir)
	return c, config.Mistake(config.Join(errs[:]...))
}

// Audit is the audit log.
type Audit interface {
	Note(e audit.Entry) (written bool)
}

// Options are what settings are made with.
type Options struct {
	Start *config.Master                 // the configuration of the start
	Read  func() (*config.Master, error) // reads it anew; nil where there is nothing to read
	// Apply puts a new configuration in force, or nothing of it.
	Apply  func(*config.Master, Compiled) error
	Rules  func() *authz.Rules // those in force
	Status func(line string)   // shows the service manager what is in force
	Audit  Audit
	Log    *slog.Logger
}

// Settings are those in force. Its methods may be called concurrently.
type Settings struct {
	Options
	Users auth.Users // the accounts of this machine

	mu     sync.Mutex // one reading at a time
	read   atomic.Pointer[config.Master]
	failed atomic.Pointer[failure]
}

// failure is a configuration that is not in force.
type failure struct {
	at  time.Time
	err error
}

// New returns the settings of the start.
func New(o Options) *Settings { return &Settings{Options: o} }

// InForce is the configuration in force, by the names of its settings: what needs a
// restart is as it was at the start.
func (s *Settings) InForce() map[string]any {
	now := s.read.Load()
	if now == nil {
		return s.Start.Raw
	}
	return s.Start.InForce(&now.Common)
}

// Reload reads anew what may change. A configuration with mistakes leaves the old one in
// force, and is told until it is mended.
func (s *Settings) Reload() (runner.Reloaded, error) {
	if s.Read == nil {
		return runner.Reloaded{}, errors.New("this master has no configuration to read anew")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	note := audit.Entry{Kind: audit.Rules, Verdict: audit.Noted, Fun: "config.reload"}
	defer func() { s.Audit.Note(note) }()
	r, err := s.reread()
	if err != nil {
		s.failed.Store(&failure{time.Now(), err})
		s.Log.Error("configuration not reloaded, the old one stays in force", "err", err)
		note.Reason = "the old ones stay in force: " + err.Error()
		s.Status(s.Unreloaded())
		return r, err
	}
	s.failed.Store(nil)
	s.Log.Info("configuration reloaded", "changed", strings.Join(r.Changed, " "))
	if len(r.Restart) > 0 {
		s.Log.Warn("these settings have changed and take effect after a restart", "settings", strings.Join(r.Restart, " "))
	}
	s.Status("serving")
	return r, nil
}

// reread puts a new configuration in force, all of it or nothing.
func (s *Settings) reread() (runner.Reloaded, error) {
	cfg, err := s.Read()
	if err != nil {
		return runner.Reloaded{}, err
	}
	c, err := Compile(cfg, &s.Users)
	if err != nil {
		return runner.Reloaded{}, err
	}
	if err := s.Apply(cfg, c); err != nil {
		return runner.Reloaded{}, err
	}
	was := s.read.Swap(cfg)
	if was == nil {
		was = s.Start
	}
	var r runner.Reloaded
	r.Changed, _ = was.Changes(&cfg.Common)
	_, r.Restart = s.Start.Changes(&cfg.Common)
	return r, nil
}

// Unreloaded says that the configuration that was read last is not in force, and where
// the mistakes are; "" when it is. What they are is in the log and for who may lint the
// rules: there may be secrets in it.
func (s *Settings) Unreloaded() string {
	f := s.failed.Load()
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

// Lint returns what is strange about the rules in force, behind the mistakes for which the
// configuration that was read last is not.
func (s *Settings) Lint(ctx context.Context) []acl.Warning {
	return append(s.mistakes(), s.Rules().Lint(ctx, &s.Users)...)
}

func (s *Settings) mistakes() []acl.Warning {
	f := s.failed.Load()
	if f == nil {
		return nil
	}
	var list []acl.Warning
	for _, err := range config.Mistakes(f.err) {
		p := config.PlaceOf(err)
		list = append(list, acl.Warning{Where: p.Where, Column: p.Column, Key: p.Key, Dead: true,
			Text: "since " + f.at.Format(time.DateTime) + " the configuration is not in force: " + p.Text})
	}
	return list
}
