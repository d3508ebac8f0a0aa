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

// System is what backends need of the machine.
type System struct {
	// Groups are those of a local user.
	Groups func(ctx context.Context, name salt.UserName) []string
	// Shadow is the password field of a local user, which says whether it was
	// changed or locked; "" where the system shows none.
	Shadow func(ctx context.Context, name salt.UserName) (string, error)
	// PAMHelper is the program that talks to PAM.
	PAMHelper string
}

// Backends are those that the configuration sets up. They are never changed.
type Backends struct {
	all  map[string]*guarded
	life lifetimes
	keep bool // a token keeps the rules of its moment
	// rules is external_auth, of which a token keeps a part.
	rules config.Located
	// Absent are backends of the configuration that are not here: nobody can
	// log in through them.
	Absent []string
}

// guarded is a backend with its turns.
type guarded struct {
	Backend
	slots  chan struct{}
	remote chan struct{} // turns of logins from other machines, each of which takes one of slots too
}

// Client is the name below external_auth of the programs that have credentials of
// salt-event creds: a key of theirs is the proof, and nobody logs in.
const Client = "client"

// foreign are the backends of Salt that Brine has not.
var foreign = []string{"django", "keystone", "mysql", "rest", "yubico"}

// makers are the backends by name.
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

// under makes a relative name one below root_dir.
func under(cfg *config.Master, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(cfg.RootDir, name)
}

// Parse sets up the backends of external_auth. A mistake has its place. That the
// users and rules are well formed is for package acl, which reads the same.
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
		if key.Value == Client {
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
		return nil, o.setting.At(key, errors.New("auto would let in everybody under any name; it is not here"))
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

// rulesOf returns, as YAML, the part of external_auth that can be about the
// account: what a token keeps.
func (b *Backends) rulesOf(backend string, a Account) (string, error) {
	n := b.rules.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == backend {
			return keep(n.Content[i], n.Content[i+1], a)
		}
	}
	return "", fmt.Errorf("external_auth has no backend %s", backend)
}

// keep writes the entries below a backend that name the account, one of its
// groups, or everybody.
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
