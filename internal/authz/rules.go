package authz

import (
	"context"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/auth"
	"github.com/brinebus/brine/internal/salt"
)

// Rules are the configured rules about who may do what. They are replaced as a whole, never
// changed.
type Rules struct {
	config acl.Config
	rules  *acl.Rules
	verify bool // the users of publisher_acl must exist
}

// ParseRules compiles the rules. verify says that the users of publisher_acl must exist. An error
// has an acl.Error for each mistake.
func ParseRules(c acl.Config, verify bool) (*Rules, error) {
	rules, err := acl.Parse(c)
	if err != nil {
		return nil, err
	}
	return &Rules{config: c, rules: rules, verify: verify}, nil
}

// Nodegroups returns those of the configuration, as package target takes them.
func (r *Rules) Nodegroups() map[string]any { return r.config.Nodegroups }

// with returns the rules for a principal whose token keeps external_auth as it was, in YAML.
func (r *Rules) with(external string) (*acl.Rules, error) {
	setting, err := acl.ParseSetting("external_auth", external, "token")
	if err != nil {
		return nil, err
	}
	kept := r.config
	kept.ExternalAuth = setting
	return acl.Parse(kept)
}

// Lint returns warnings about valid rules that look wrong.
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
