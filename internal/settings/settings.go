// Package settings is the part of a master's configuration that may change while it runs: the
// access rules, the grants on events, the backends of external_auth and the rules of the
// reactor. It reads all of them or none, and keeps the result of the latest read.
//
// It puts nothing in force by itself: Options.Apply does.
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
	"github.com/brinebus/brine/internal/authz/command"
	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/eauth"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/reactor"
	"github.com/brinebus/brine/internal/runner"
)

// Check parses what a configuration contains for other packages, and returns all mistakes in
// it. It starts nothing and touches no data.
func Check(cfg *config.Master) error {
	_, err := Compile(cfg, new(auth.Users))
	return err
}

// Lint returns warnings about the valid rules of a configuration.
func Lint(ctx context.Context, cfg *config.Master) []acl.Warning {
	a, err := rules(cfg)
	if err != nil {
		return nil
	}
	return a.Lint(ctx, new(auth.Users))
}

// Runners returns the site's own runners: in runner_dirs and in _runners of the environment
// base.
func Runners(cfg *config.Master, log *slog.Logger) *extension.Set {
	dirs := slices.Clone(cfg.RunnerDirs)
	for _, dir := range cfg.FileRoots["base"] {
		dirs = append(dirs, filepath.Join(dir, extension.Runners.Folder()))
	}
	return extension.New(extension.Runners, log, dirs...)
}

// Tables returns the function tables that rules are about, with the site's own runners.
func Tables(added *extension.Set) command.Tables { return command.New(added) }

// Compiled are the parsed parts of a configuration that may change.
type Compiled struct {
	Rules     *authz.Rules
	Grants    *event.Grants
	Backends  *eauth.Backends
	Reactions []*reactor.Rule
}

// Compile parses all of them, and returns all mistakes.
func Compile(cfg *config.Master, users *auth.Users) (Compiled, error) {
	var c Compiled
	var errs [4]error
	c.Rules, errs[0] = rules(cfg)
	c.Grants, errs[1] = eventacl.Parse(cfg.EventACL)
	c.Backends, errs[2] = eauth.Parse(cfg, eauth.System{Groups: users.Groups, Shadow: users.Shadow, PAMHelper: process.Beside("salt-pam")})
	c.Reactions, errs[3] = reactor.Parse(cfg.Reactor, cfg.RootDir)
	return c, config.Mistake(config.Join(errs[:]...))
}

// Audit is the audit log.
type Audit interface {
	Note(e audit.Entry) (written bool)
}

// Options are the settings of a Settings.
type Options struct {
	Start *config.Master                 // the configuration at the start
	Read  func() (*config.Master, error) // reads it again; nil if that is not possible
	// Apply puts a new configuration in force, or nothing of it.
	Apply  func(*config.Master, Compiled) error
	Rules  func() *authz.Rules // those in force
	Status func(line string)   // sets the status line in the service manager
	Audit  Audit
	Log    *slog.Logger
}

// Settings are the settings in force. Its methods may be called concurrently.
type Settings struct {
	Options
	Users auth.Users // the accounts of this machine

	mu     sync.Mutex // one reload at a time
	read   atomic.Pointer[config.Master]
	failed atomic.Pointer[failure]
}

// failure is a configuration that could not be put in force.
type failure struct {
	at  time.Time
	err error
}

// New returns the settings of the start.
func New(o Options) *Settings { return &Settings{Options: o} }

// InForce returns the configuration in force, by the names of its settings: those that need a
// restart are as at the start.
func (s *Settings) InForce() map[string]any {
	now := s.read.Load()
	if now == nil {
		return s.Start.Raw
	}
	return s.Start.InForce(&now.Common)
}

// Digest returns a checksum of the access rules in force, see config.Digest.
func (s *Settings) Digest() string { return config.Digest(s.InForce()) }

// Reload reads again what may change. A configuration with mistakes leaves the old one in
// force, and is reported until it is corrected.
func (s *Settings) Reload() (runner.Reloaded, error) {
	if s.Read == nil {
		return runner.Reloaded{}, errors.New("this master has no configuration to read again")
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

// Unreloaded returns where the mistakes are because of which the latest configuration is not in
// force, "" if it is. What they are is in the log, and for users who may lint the rules, since
// it may contain secrets.
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

// Lint returns warnings about the rules in force, after the mistakes because of which the
// latest configuration is not in force.
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
