package settings

import (
	"errors"
	"log/slog"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/config"
)

// rules compiles the access rules of a configuration. The error lists all mistakes with their
// positions.
func rules(cfg *config.Master) (*authz.Rules, error) {
	t := Tables(Runners(cfg, slog.New(slog.DiscardHandler)))
	groups, _ := cfg.Nodegroups.Value().(map[string]any)
	r, err := authz.ParseRules(acl.Config{
		PublisherACL:          setting("publisher_acl", cfg.PublisherACL),
		PublisherACLBlacklist: setting("publisher_acl_blacklist", cfg.PublisherACLBlacklist),
		ExternalAuth:          setting("external_auth", cfg.ExternalAuth),
		Peer:                  setting("peer", cfg.Peer),
		PeerRun:               setting("peer_run", cfg.PeerRun),
		MineGet:               setting("mine_get", cfg.MineGet),
		PermissiveACL:         cfg.PermissiveACL,
		SudoACL:               cfg.SudoACL,
		Nodegroups:            groups,
		Runners:               t.Runners(),
		Wheel:                 t.Wheel(),
		Added:                 t.Added(),
		Functions:             t,
	}, cfg.ClientACLVerify)
	if err != nil {
		return nil, located(err)
	}
	return r, nil
}

func setting(key string, l config.Located) acl.Setting {
	return acl.Setting{Key: key, Node: l.Node, File: l.FileOf}
}

// located turns the mistakes that package acl has found into mistakes of the configuration.
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
