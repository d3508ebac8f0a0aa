package authz

import (
	"context"
	"errors"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/auth"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/salt"
)

// Rules are what the configuration says about who may do what. They are replaced as a
// whole, never changed.
type Rules struct {
	config     acl.Config
	rules      *acl.Rules
	nodegroups map[string]any
	verify     bool // the users of publisher_acl must exist
	sudo       bool // who came by sudo is held to their own rules
}

// ParseRules compiles the rules about the functions of these tables. An error names every
// mistake with its place.
func ParseRules(cfg *config.Master, t Tables) (*Rules, error) {
	groups, _ := cfg.Nodegroups.Value().(map[string]any)
	settings := acl.Config{
		PublisherACL:          setting("publisher_acl", cfg.PublisherACL),
		PublisherACLBlacklist: setting("publisher_acl_blacklist", cfg.PublisherACLBlacklist),
		ExternalAuth:          setting("external_auth", cfg.ExternalAuth),
		Peer:                  setting("peer", cfg.Peer),
		PeerRun:               setting("peer_run", cfg.PeerRun),
		MineGet:               setting("mine_get", cfg.MineGet),
		PermissiveACL:         cfg.PermissiveACL,
		SudoACL:               cfg.SudoACL,
		Nodegroups:            groups,
		Runners:               functionsOf(t.runners),
		Wheel:                 functionsOf(t.wheel),
	}
	for _, p := range t.added.Programs() {
		settings.Added = append(settings.Added, p.Name)
	}
	rules, err := acl.Parse(settings)
	if err != nil {
		return nil, located(err)
	}
	return &Rules{config: settings, rules: rules, nodegroups: groups, verify: cfg.ClientACLVerify, sudo: cfg.SudoACL}, nil
}

// Nodegroups are those of the configuration in force, as package target takes them.
func (r *Rules) Nodegroups() map[string]any { return r.nodegroups }

// located makes the mistakes that package acl has found those of a configuration.
func located(err error) error {
	var list []error
	for _, one := range config.Mistakes(err) {
		var e *acl.Error
		if errors.As(one, &e) {
			one = &config.Error{File: e.File, Line: e.Line, Column: e.Column, Key: e.Key, Err: e.Err}
		}
		list = append(list, one)
	}
	return errors.Join(list...)
}

// with returns the rules that hold for somebody whose token keeps external_auth
// as it was, in YAML.
func (r *Rules) with(external string) (*acl.Rules, error) {
	setting, err := acl.ParseSetting("external_auth", external, "token")
	if err != nil {
		return nil, err
	}
	kept := r.config
	kept.ExternalAuth = setting
	return acl.Parse(kept)
}

func setting(key string, l config.Located) acl.Setting {
	return acl.Setting{Key: key, Node: l.Node, File: l.FileOf}
}

// Lint returns what is strange about rules without mistakes.
func (r *Rules) Lint(ctx context.Context, users *auth.Users) []acl.Warning {
	list := r.rules.Lint()
	if !r.verify {
		return list
	}
	for _, name := range r.rules.LocalUsers() {
		if n, err := salt.ParseUserName(name); err != nil || !users.Exists(ctx, n) {
			list = append(list, acl.Warning{Key: "publisher_acl: " + name, Text: "this machine has no user of this name", Dead: true})
		}
	}
	return list
}
