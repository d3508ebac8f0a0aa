package authz

import (
	"context"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/auth"
	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/eauth"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Principal is who wants something of the master, as verified. An Authorizer alone makes
// them; the zero value may nothing.
type Principal struct {
	name     string // for people: fred
	subject  acl.Subject
	identity bus.Identity
	operator bool // by the rules in force when they asked

	login   *eauth.Grant // of a user of external_auth
	rules   *acl.Rules   // that hold for them instead of those in force; nil for most
	refused error        // the login does not hold any more
}

// Name is what jobs and people call them: fred, sudo_fred, minion:web1.
func (p Principal) Name() string { return p.name }

// Backend is what authenticated a user of external_auth, "" for others.
func (p Principal) Backend() string { return p.subject.Backend }

// Operator says that it is root or the daemon's own user, who is not held to rules of
// their own as with sudo_acl.
func (p Principal) Operator() bool { return p.operator }

// Identity is the connection behind the principal, as the broker verified it.
func (p Principal) Identity() bus.Identity { return p.identity }

// Key is what bounds are kept by: one for each user of the machine and each minion.
func (p Principal) Key() string { return p.identity.String() }

// Login is that of a user of external_auth, nil for others.
func (p Principal) Login() *eauth.Grant { return p.login }

// Refused is why a login does not hold any more, nil where it does.
func (p Principal) Refused() error { return p.refused }

// Minion is the id of a minion that asks, "" for a user.
func (p Principal) Minion() string {
	if p.subject.Kind == acl.Peer {
		return p.subject.Name
	}
	return ""
}

// Started says whether the principal is the one whom a job names as its user. The
// name of somebody who came by sudo could be that of an account, too.
func (p Principal) Started(user, backend string) bool {
	return p.refused == nil && p.name != "" && p.name == user && p.subject.Backend == backend &&
		(p.subject.Operator || !strings.HasPrefix(user, sudoPrefix))
}

// is tells whether the principal is the subject. Who came by sudo is not root.
func (p Principal) is(s acl.Subject) bool {
	return p.subject.Kind == s.Kind && p.subject.Name == s.Name && p.subject.Backend == s.Backend && p.subject.Sudo == s.Sudo
}

// Who is the principal for the record.
func (p Principal) Who() audit.Who {
	w := audit.Who{User: p.name, Sudo: p.identity.Sudo, Backend: p.subject.Backend, Source: p.identity.Source, Minion: p.Minion()}
	if uid := p.identity.UID(); uid >= 0 {
		w.UID = &uid
	}
	return w
}

// Principal is who asks on a connection: the user who has logged in on it, or else
// the local user.
func (a *Authorizer) Principal(ctx context.Context, i bus.Identity) Principal {
	if who := a.external(ctx, i); who != nil {
		return *who
	}
	return a.Local(ctx, i)
}

// external is the principal behind a login, nil where nobody has logged in on the
// connection.
func (a *Authorizer) external(ctx context.Context, i bus.Identity) *Principal {
	old := a.Logins.sessions.of(i.Inbox())
	if old == nil {
		return nil
	}
	if address := a.Logins.sessions.address(i.Inbox()); address != "" {
		i.Source = address
	}
	g, err := a.Logins.Authenticator.Check(ctx, old)
	if err != nil {
		if a.Logins.throttle.First("login end "+i.Inbox(), time.Now()) {
			a.Log.Warn("login ended", "user", old.Name, "eauth", old.Backend, "source", i.String(), "reason", err)
		}
		return &Principal{name: old.Name, identity: i, refused: loginError(protocol.Login{}, err)}
	}
	who := &Principal{name: g.Name, identity: i, login: g, subject: acl.Subject{Kind: acl.External, Name: g.Name, Groups: g.Groups, Backend: g.Backend, Unix: a.unixNames(ctx, i)}}
	if g.Rules != "" {
		if who.rules, err = a.kept(g.Rules); err != nil {
			who.refused, who.subject = err, acl.Subject{}
		}
	}
	return who
}

// unixNames are the names of the local user on a connection, whoever has logged in.
func (a *Authorizer) unixNames(ctx context.Context, i bus.Identity) []string {
	if i.Role != bus.RoleUser {
		return nil
	}
	if i.Sudo != "" {
		return []string{sudoPrefix + i.Sudo, i.Sudo}
	}
	return []string{string(a.Users.Lookup(ctx, i.UID()).Name)}
}

// kept are the rules that a token keeps. The blacklist is that of now.
func (a *Authorizer) kept(text string) (*acl.Rules, error) {
	rules, err := a.Rules().with(text)
	if err != nil {
		a.Log.Error("the rules of a token are not understood", "err", err)
		return nil, rpc.Errorf(rpc.Denied, "Authorization error occurred. The rules that the token keeps are not understood any more").WithHint("log in anew")
	}
	return rules, nil
}

// Local is the user whom the kernel names, or the client whom its key does, whoever has
// logged in.
func (a *Authorizer) Local(ctx context.Context, i bus.Identity) Principal {
	if i.Role == bus.RoleClient {
		return Principal{name: salt.ClientPrefix + i.Name, identity: i, subject: acl.Subject{Kind: acl.External, Name: i.Name, Backend: eauth.Client}}
	}
	uid := i.UID()
	if uid < 0 {
		return Principal{name: i.String(), identity: i} // no user: no rights
	}
	p := Principal{identity: i, subject: a.subject(ctx, a.Users.Lookup(ctx, uid), i.Sudo)}
	p.name, p.operator = p.subject.Name, a.Rules().rules.Operator(p.subject)
	if p.subject.Sudo != "" {
		p.name = sudoPrefix + p.subject.Sudo
	}
	return p
}

// Peer is a minion that asks. Which one, the connection says; the message has no
// word in it.
func (a *Authorizer) Peer(i bus.Identity) Principal {
	p := Principal{name: "minion:" + i.Name, identity: i}
	if i.Role == bus.RoleMinion || i.Role == bus.RoleCaller {
		p.subject = acl.Subject{Kind: acl.Peer, Name: i.Name}
	}
	return p
}

// Reactor is the master itself where it answers events, by the rules of an operator.
func (a *Authorizer) Reactor(rule string) Principal {
	name := "reactor:" + rule
	return Principal{name: name, operator: true, subject: acl.Subject{Kind: acl.Local, Name: name, Operator: true}}
}

// sudoPrefix stands before the name of somebody who came by sudo, as in Salt.
const sudoPrefix = "sudo_"

// subject is a user of this machine, who came by sudo where that is not "". The
// groups of an operator are not asked for unless they count: a slow directory must
// not keep root waiting.
func (a *Authorizer) subject(ctx context.Context, u auth.User, sudo string) acl.Subject {
	s := acl.Subject{Kind: acl.Local, Name: string(u.Name), Operator: u.Operator}
	switch {
	case !s.Operator:
		s.Groups = a.Users.Groups(ctx, u.Name)
	case sudo != "":
		s.Sudo = sudo
		if a.Rules().sudo {
			s.Groups = a.Users.Groups(ctx, salt.UserName(sudo))
		}
	}
	return s
}

// OnBus is a user as the bus of events knows it. With sudo_acl, who came by
// sudo stands for themselves there too; a login replaces what the kernel says.
func (a *Authorizer) OnBus(ctx context.Context, i bus.Identity) eventacl.Principal {
	return a.onBus(ctx, a.Principal(ctx, i))
}

// WhileOnBus runs f, whose context ends when the login of who asks does.
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
		return a.Events.External(who.identity.UID(), "ended", who.name) // nobody's rules
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
	if operator && who.subject.Sudo != "" && a.Rules().sudo {
		uid, name, operator = a.Users.ID(ctx, salt.UserName(who.subject.Sudo)), who.subject.Sudo, false
	}
	p := a.Events.User(uid, name, operator)
	p.UID, p.Sudo, p.Source = who.identity.UID(), who.subject.Sudo, who.identity.Source
	return p
}
