package authz

import (
	"cmp"
	"context"
	"strings"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/auth"
	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/authz/login"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Principal is the verified sender of a request to the master. Only an Authorizer makes them;
// the zero value may do nothing.
type Principal struct {
	name     string // for people: fred
	subject  acl.Subject
	identity bus.Identity
	operator bool // by the rules in force at the time of the request

	login   *login.Session // of a user of external_auth
	rules   *acl.Rules     // rules that apply to them instead of those in force; nil for most
	refused error          // the login is no longer valid
	limits  string         // whose limits a login of a program such as salt-api counts for, see login.Logins.Quota
}

// Name is the name in jobs and for people: fred, sudo_fred, minion:web1.
func (p Principal) Name() string { return p.name }

// Backend is the backend that has authenticated a user of external_auth, "" for others.
func (p Principal) Backend() string { return p.subject.Backend }

// Operator reports whether it is root or the daemon's own user, unless sudo_acl binds them to
// rules of their own.
func (p Principal) Operator() bool { return p.operator }

// Identity is the identity of the connection, as the broker verified it.
func (p Principal) Identity() bus.Identity { return p.identity }

// Key is the key for limits: one for each user of the machine, each minion, and each user whom a program like salt-api has
// logged in.
func (p Principal) Key() string { return cmp.Or(p.limits, p.identity.String()) }

// Login is that of a user of external_auth, nil for others.
func (p Principal) Login() *login.Session { return p.login }

// Refused is why a login is no longer valid, nil if it is.
func (p Principal) Refused() error { return p.refused }

// account returns the account of the machine or of a client, as settings name it; "" for others.
func (p Principal) account() string {
	switch {
	case p.identity.Role == bus.RoleClient: // account names have no colon
		return salt.ClientPrefix + p.identity.Name
	case p.subject.Kind == acl.Local:
		return p.subject.Name
	}
	return ""
}

// Minion is the id of a minion, "" for a user.
func (p Principal) Minion() string {
	if p.subject.Kind == acl.Peer {
		return p.subject.Name
	}
	return ""
}

// Started reports whether the principal is the user named in a job. The name of somebody who
// came through sudo could also be that of an account.
func (p Principal) Started(user, backend string) bool {
	return p.refused == nil && p.name != "" && p.name == user && p.subject.Backend == backend &&
		(p.subject.Operator || !strings.HasPrefix(user, sudoPrefix))
}

// is reports whether the principal is the subject. A user through sudo is not root.
func (p Principal) is(s acl.Subject) bool {
	return p.subject.Kind == s.Kind && p.subject.Name == s.Name && p.subject.Backend == s.Backend && p.subject.Sudo == s.Sudo
}

// Who returns the principal for the audit log.
func (p Principal) Who() audit.Who {
	w := audit.Who{User: p.name, Sudo: p.identity.Sudo, Backend: p.subject.Backend, Source: p.identity.Source, Minion: p.Minion()}
	if uid := p.identity.UID(); uid >= 0 {
		w.UID = &uid
	}
	return w
}

// Principal returns the principal of a connection: the user who has logged in on it, otherwise
// the local user.
func (a *Authorizer) Principal(ctx context.Context, i bus.Identity) Principal {
	if who := a.external(ctx, i); who != nil {
		return *who
	}
	return a.Local(ctx, i)
}

// external returns the principal of a login, nil if nobody has logged in on the connection.
func (a *Authorizer) external(ctx context.Context, i bus.Identity) *Principal {
	s := a.Logins.On(ctx, i)
	if s == nil {
		return nil
	}
	limits := a.Logins.Quota(i)
	i.Source = cmp.Or(s.Address, i.Source)
	if s.Refused != nil {
		return &Principal{name: s.Name, identity: i, refused: s.Refused}
	}
	who := &Principal{name: s.Name, identity: i, login: s, limits: limits, subject: acl.Subject{Kind: acl.External, Name: s.Name, Groups: s.Groups, Backend: s.Backend, Unix: a.unixNames(ctx, i)}}
	if s.Rules != "" {
		var err error
		if who.rules, err = a.kept(s.Rules); err != nil {
			who.refused, who.subject = err, acl.Subject{}
		}
	}
	return who
}

// unixNames returns the names of the local user of a connection, regardless of logins.
func (a *Authorizer) unixNames(ctx context.Context, i bus.Identity) []string {
	if i.Role != bus.RoleUser {
		return nil
	}
	if i.Sudo != "" {
		return []string{sudoPrefix + i.Sudo, i.Sudo}
	}
	return []string{string(a.Users.Lookup(ctx, i.UID()).Name)}
}

// kept returns the rules that a token keeps, with the present blacklist.
func (a *Authorizer) kept(text string) (*acl.Rules, error) {
	rules, err := a.Rules().with(text)
	if err != nil {
		a.Log.Error("the rules of a token are not understood", "err", err)
		return nil, rpc.Errorf(rpc.Denied, "Authorization error occurred. The rules that the token keeps are no longer valid").WithHint("log in again")
	}
	return rules, nil
}

// Local returns the user whom the kernel names, or the client that its key names, regardless of
// logins.
func (a *Authorizer) Local(ctx context.Context, i bus.Identity) Principal {
	if i.Role == bus.RoleClient {
		return Principal{name: salt.ClientPrefix + i.Name, identity: i, subject: acl.Subject{Kind: acl.External, Name: i.Name, Backend: salt.ClientBackend}}
	}
	uid := i.UID()
	if uid < 0 {
		return Principal{name: i.String(), identity: i} // not a user, so no rights
	}
	p := Principal{identity: i, subject: a.subject(ctx, a.Users.Lookup(ctx, uid), i.Sudo)}
	p.name, p.operator = p.subject.Name, a.Rules().rules.Operator(p.subject)
	if p.subject.Sudo != "" {
		p.name = sudoPrefix + p.subject.Sudo
	}
	return p
}

// Peer returns the minion that has sent a request. The connection says which one; the message
// has no influence.
func (a *Authorizer) Peer(i bus.Identity) Principal {
	p := Principal{name: "minion:" + i.Name, identity: i}
	if i.Role == bus.RoleMinion || i.Role == bus.RoleCaller {
		p.subject = acl.Subject{Kind: acl.Peer, Name: i.Name}
	}
	return p
}

// Reactor returns the master itself as it reacts to events, with the rights of an operator.
func (a *Authorizer) Reactor(rule string) Principal {
	name := "reactor:" + rule
	return Principal{name: name, operator: true, subject: acl.Subject{Kind: acl.Local, Name: name, Operator: true}}
}

// sudoPrefix precedes the name of a user who came through sudo, as in Salt.
const sudoPrefix = "sudo_"

// subject is a user of this machine; sudo is the user who came through sudo, or "". An
// operator's groups are looked up only if they matter: a slow directory must not make root
// wait.
func (a *Authorizer) subject(ctx context.Context, u auth.User, sudo string) acl.Subject {
	s := acl.Subject{Kind: acl.Local, Name: string(u.Name), Operator: u.Operator}
	switch {
	case !s.Operator:
		s.Groups = a.Users.Groups(ctx, u.Name)
	case sudo != "":
		s.Sudo = sudo
		if a.Rules().config.SudoACL {
			s.Groups = a.Users.Groups(ctx, salt.UserName(sudo))
		}
	}
	return s
}

// OnBus returns a user as the event bus knows it. With sudo_acl, a user through sudo counts as
// themselves there, too; a login replaces the local user.
func (a *Authorizer) OnBus(ctx context.Context, i bus.Identity) eventacl.Principal {
	return a.onBus(ctx, a.Principal(ctx, i))
}

// WhileOnBus runs f; its context ends when the login of the user ends.
func (a *Authorizer) WhileOnBus(ctx context.Context, i bus.Identity, f func(context.Context) error) error {
	who := a.Principal(ctx, i)
	if err := who.Refused(); err != nil {
		return err
	}
	return a.Logins.While(ctx, who, f)
}

func (a *Authorizer) onBus(ctx context.Context, who Principal) eventacl.Principal {
	switch {
	case who.refused != nil:
		return a.Events.External(who.identity.UID(), "ended", who.name) // without any rules
	case who.login != nil:
		p := a.Events.External(who.identity.UID(), who.login.Backend, who.login.Name)
		p.Source = who.identity.Source
		return p
	case who.identity.Role == bus.RoleClient:
		return a.Events.Client(who.identity)
	case who.subject.Kind != acl.Local:
		return eventacl.Principal{UID: -1}
	}
	uid, name, operator := who.identity.UID(), who.name, who.subject.Operator
	if operator && who.subject.Sudo != "" && a.Rules().config.SudoACL {
		uid, name, operator = a.Users.ID(ctx, salt.UserName(who.subject.Sudo)), who.subject.Sudo, false
	}
	p := a.Events.User(uid, name, operator)
	p.UID, p.Sudo, p.Source = who.identity.UID(), who.subject.Sudo, who.identity.Source
	return p
}
