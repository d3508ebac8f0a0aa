package eauth

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/salt"
)

// System is what backends need from the machine.
type System struct {
	// Groups returns the groups of a local user.
	Groups func(ctx context.Context, name salt.UserName) []string
	// Shadow returns the password field of a local user, which changes if the password is changed
	// or locked; "" if the system shows none.
	Shadow func(ctx context.Context, name salt.UserName) (string, error)
	// PAMHelper is the program that calls PAM.
	PAMHelper string
}

// Backends is the set of configured backends. It is never changed.
type Backends struct {
	all  map[string]*guarded
	life lifetimes
	keep bool // a token keeps the rules from the time when it was made
	// rules is external_auth; a token keeps a part of it.
	rules config.Located
	// Absent lists backends of the configuration that do not exist here: nobody can log in through
	// them.
	Absent []string
}

// guarded is a backend with its slots.
type guarded struct {
	Backend
	slots  chan struct{}
	remote chan struct{} // slots for logins from other machines; each of these also takes one of slots
}

// foreign lists the backends of Salt that Brine does not have.
var foreign = []string{"django", "keystone", "mysql", "rest", "yubico"}

// makers has the constructor of each backend, by name.
var makers = map[string]func(o options, cfg *config.Master, sys System) (Backend, error){
	"file": func(o options, cfg *config.Master, _ System) (Backend, error) {
		return newPasswordFile(o, func(name string) string { return under(cfg, name) })
	},
	"ldap": func(_ options, cfg *config.Master, _ System) (Backend, error) { return newDirectory(cfg) },
	"pam":  func(_ options, cfg *config.Master, sys System) (Backend, error) { return newPAM(cfg, sys) },
	"pki": func(o options, cfg *config.Master, _ System) (Backend, error) {
		return newCertificates(o, func(name string) string { return under(cfg, name) })
	},
	"sharedsecret": func(_ options, cfg *config.Master, _ System) (Backend, error) {
		return newSharedSecret(cfg.SharedSecret)
	},
}

// under resolves a relative name below root_dir.
func under(cfg *config.Master, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(cfg.RootDir, name)
}

// Parse sets up the backends of external_auth. An error has its position. Whether the users and
// rules are well-formed is checked by package acl, which reads the same setting.
func Parse(cfg *config.Master, sys System) (*Backends, error) {
	b := &Backends{all: map[string]*guarded{}, keep: cfg.KeepACLInToken, rules: cfg.ExternalAuth}
	var err error
	if b.life, err = parseLifetimes(cfg); err != nil {
		return nil, err
	}
	n := cfg.ExternalAuth.Node
	if n == nil || n.Kind != yaml.MappingNode {
		return b, nil
	}
	var errs []error
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if slices.Contains(foreign, key.Value) {
			b.Absent = append(b.Absent, key.Value)
			continue
		}
		if key.Value == salt.ClientBackend { // nobody logs in there
			continue
		}
		made, err := makeBackend(key, options{cfg.ExternalAuth, n.Content[i+1]}, cfg, sys)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		b.all[key.Value] = &guarded{made, make(chan struct{}, maxOfBackend), make(chan struct{}, maxOfBackend/2)}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return b, nil
}

func makeBackend(key *yaml.Node, o options, cfg *config.Master, sys System) (Backend, error) {
	maker := makers[key.Value]
	switch {
	case key.Value == "auto":
		return nil, o.setting.At(key, errors.New("auto would let in everybody under any name; it is not supported"))
	case maker == nil:
		return nil, o.setting.At(key, salt.WithHint(fmt.Errorf("there is no authentication backend %q", key.Value), "the backends are file, ldap, pam, pki and sharedsecret"))
	}
	if err := o.checkKeys(key.Value); err != nil {
		return nil, err
	}
	made, err := maker(o, cfg, sys)
	if located := (*config.Error)(nil); err != nil && !errors.As(err, &located) {
		err = o.setting.At(key, fmt.Errorf("%s: %w", key.Value, err))
	}
	return made, err
}

// names returns the names of the backends, sorted.
func (b *Backends) names() []string {
	names := make([]string, 0, len(b.all))
	for name := range b.all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// rulesOf returns, as YAML, the part of external_auth that can apply to the account: a token keeps
// it.
func (b *Backends) rulesOf(backend string, a Account) (string, error) {
	n := b.rules.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == backend {
			return keep(n.Content[i], n.Content[i+1], a)
		}
	}
	return "", fmt.Errorf("external_auth has no backend %s", backend)
}

// keep returns the entries of a backend that name the account, one of its groups, or everybody.
func keep(key, users *yaml.Node, a Account) (string, error) {
	part := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i+1 < len(users.Content); i += 2 {
		who := users.Content[i].Value
		if who == a.Name || who == "*" || who == "*%" || len(who) > 1 && who[len(who)-1] == '%' && slices.Contains(a.Groups, who[:len(who)-1]) {
			part.Content = append(part.Content, users.Content[i], users.Content[i+1])
		}
	}
	b, err := yaml.Marshal(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{key, part}})
	return string(b), err
}
