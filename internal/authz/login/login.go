// Package login handles logins of users of external_auth, and knows the connections they are on. It
// verifies who a user is; what they may do is decided in package authz.
package login

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/authz/internal/seal"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/eauth"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Options are what logins are made with.
type Options struct {
	APIUsers []string // may log others in with their addresses, besides operators
	Remote   bool     // users may log in from other machines
	Log      *slog.Logger

	Local  func(context.Context, bus.Identity) Local // the local user of a connection, regardless of logins
	Record func(context.Context, audit.Entry) error  // called before a login takes effect
	Note   func(audit.Entry) (written bool)
}

// Local is the local user of a connection, regardless of logins.
type Local struct {
	Name     string // for people
	Account  string // of the machine or of a client, as in api_user; "" for none
	Operator bool
}

// Principal is who may have logged in on a connection.
type Principal interface {
	Identity() bus.Identity
	Login() *Session // nil for no login
}

// Logins are those of one master.
type Logins struct {
	Authenticator *eauth.Authenticator
	Came          func(inbox string) bool // reports whether a connection with this inbox exists

	o        Options
	sessions sessions
	throttle logging.Throttle
}

// New returns the logins of a master; there are none yet.
func New(o Options) *Logins { return &Logins{o: o} }

// Open reads the existing tokens, and starts to accept logins with the backends. member is the name of
// this member of a cluster, "" for a single master.
func (l *Logins) Open(ctx context.Context, tokens eauth.Store, member string, b *eauth.Backends) (err error) {
	l.Authenticator, err = eauth.NewAuthenticator(ctx, tokens, member, b, l.o.Log)
	return err
}

// Login handles a login of a user of external_auth on the connection that sends it.
func (l *Logins) Login(ctx context.Context, r *rpc.Request) error {
	if r.From.Role == bus.RoleGuest && !l.o.Remote {
		return rpc.Errorf(rpc.Denied, "this master does not allow logins from other machines").WithHint("set remote_login: True in its configuration, and restart it")
	}
	var q protocol.Login
	if err := r.Decode(&q); err != nil {
		return err
	}
	if len(q.Certificate) > 0 && len(q.Signature) == 0 && q.Token == "" {
		answer := protocol.LoggedIn{Challenge: l.sessions.challenge(r.Inbox())}
		_ = r.Decide(proven()) // asking for a proof grants nothing yet
		return l.unlessGone(ctx, r, answer)
	}
	next, err := nextOf(r, q)
	if err != nil {
		return err
	}
	source, err := l.behind(ctx, r, q.Address)
	if err != nil {
		return err
	}
	grant, err := l.verify(ctx, r, q, source)
	if unwritten := l.tellLogin(ctx, r.From, q, grant, err); err != nil {
		return loginError(q, err)
	} else if unwritten != nil {
		return unwritten
	}
	_ = r.Decide(proven())
	answer := protocol.LoggedIn{
		Backend: grant.Backend, User: grant.Name, Groups: grant.Groups, Issued: grant.Issued, Expires: grant.Expires,
		Perms: value.Value{V: l.Authenticator.Perms(grant)},
	}
	if q.MakeToken {
		if answer.Token, answer.Expires, err = l.newToken(ctx, grant, q); err != nil {
			return loginError(q, err)
		}
	}
	if next != "" {
		if err := l.sessions.promise(r.Inbox(), next, grant); err != nil {
			return err
		}
		return l.unlessGone(ctx, r, answer)
	}
	l.sessions.set(r.Inbox(), grant, q.Address)
	return l.unlessGone(ctx, r, answer)
}

// proven is the only place where this package allows anything: the answer to a login.
func proven() decision.Decision { return seal.Allow(string(bus.Proof)) }

// nextOf returns the inbox of the connection that a guest's login is for, "" for others.
func nextOf(r *rpc.Request, q protocol.Login) (string, error) {
	if r.From.Role != bus.RoleGuest {
		return "", nil
	}
	if err := bus.CheckNonce(q.Next); err != nil {
		return "", rpc.Errorf(rpc.Usage, "a login from another machine names the connection that it is for: %v", err)
	}
	i := bus.Identity{Role: bus.RoleRemote, Key: r.From.Key, Nonce: q.Next}
	return i.Inbox(), nil
}

// Session is a login on a connection.
type Session struct {
	*eauth.Grant        // as it is now, or was if it is refused
	Address      string // of the user whom a program has logged in, see protocol.Login
	Refused      error  // why the login is not valid any more
}

// On returns the login on a connection, nil for none.
func (l *Logins) On(ctx context.Context, i bus.Identity) *Session {
	old := l.sessions.of(i.Inbox())
	if old == nil {
		return nil
	}
	s := &Session{Grant: old, Address: l.sessions.address(i.Inbox())}
	g, err := l.Authenticator.Check(ctx, old)
	if err == nil {
		s.Grant = g
		return s
	}
	if l.throttle.First("login end "+i.Inbox(), time.Now()) {
		i.Source = cmp.Or(s.Address, i.Source)
		l.o.Log.Warn("login ended", "user", old.Name, "eauth", old.Backend, "source", i.String(), "reason", err)
	}
	s.Refused = loginError(protocol.Login{}, err)
	return s
}

// Remote returns the LoginName of the user whose login has announced a connection from the
// network with this inbox, "" for none.
func (l *Logins) Remote(inbox string) string {
	g := l.sessions.of(inbox)
	if g == nil {
		return ""
	}
	return bus.LoginName(g.Backend, g.Name)
}

// Holds reports whether the login on a connection is still valid. If that cannot be found out,
// it counts as valid.
func (l *Logins) Holds(ctx context.Context, i bus.Identity) bool {
	g := l.sessions.of(i.Inbox())
	if g == nil {
		return false
	}
	_, err := l.Authenticator.Check(ctx, g)
	return !errors.Is(err, eauth.ErrRefused)
}

func (l *Logins) newToken(ctx context.Context, grant *eauth.Grant, q protocol.Login) (string, time.Time, error) {
	token, expires, err := l.Authenticator.MakeToken(ctx, grant, q.Expire.Duration(), false)
	if q.Lenient && q.Expire != 0 && errors.Is(err, eauth.ErrLifetime) {
		return l.Authenticator.MakeToken(ctx, grant, 0, false)
	}
	return token, expires, err
}

// behind returns whose limit for failed logins applies: the local user's, or that of the host
// whose address a trusted program names. The address becomes the source of the request.
func (l *Logins) behind(ctx context.Context, r *rpc.Request, address string) (source string, err error) {
	switch {
	case address == "" && r.From.Role == bus.RoleUser:
		return r.From.Name, nil
	case address == "":
		return r.From.String(), nil // the name of a client may look like a user's number
	}
	a, err := netip.ParseAddr(address)
	if err != nil || a.Zone() != "" {
		return "", rpc.Errorf(rpc.Usage, "%.60q is not an address", address)
	}
	if who := l.o.Local(ctx, r.From); !l.believed(who) {
		return "", rpc.Errorf(rpc.Denied, "user %s may not log others in by their addresses", who.Name).
			WithHint("salt-api runs as the user, or has the credentials, that api_user names in the master's configuration")
	}
	r.From.Source = address
	return r.From.String() + " " + hostGroup(a), nil
}

// hostGroup is what counts as one host: an IPv4 address, or the /64 network that an IPv6 host has
// for itself.
func hostGroup(a netip.Addr) string {
	if a = a.Unmap(); a.Is4() {
		return a.String()
	}
	return netip.PrefixFrom(a, 64).Masked().String()
}

// believed reports whether the principal may name the addresses of those whom they log in.
func (l *Logins) believed(who Local) bool {
	return who.Operator || who.Account != "" && slices.Contains(l.o.APIUsers, who.Account)
}

// Quota names whose limits the requests of a connection count for, if not its own: each user
// whom a program like salt-api has logged in has their own limits, so that none of them can use
// up the limits of all.
func (l *Logins) Quota(i bus.Identity) string {
	if i.Role != bus.RoleUser && i.Role != bus.RoleClient {
		return ""
	}
	l.sessions.mu.Lock()
	defer l.sessions.mu.Unlock()
	g := l.sessions.grants[i.Inbox()]
	if g == nil || l.sessions.addresses[i.Inbox()] == "" {
		return ""
	}
	return i.String() + " " + bus.LoginName(g.Backend, g.Name)
}

// BringsOthers reports whether an identity has the credentials of a program that logs others
// in: it has connections for each of them.
func (l *Logins) BringsOthers(i bus.Identity) bool {
	return i.Role == bus.RoleClient && slices.Contains(l.o.APIUsers, salt.ClientPrefix+i.Name)
}

// unlessGone answers, or forgets the connection if it has ended meanwhile: nothing else would.
func (l *Logins) unlessGone(ctx context.Context, r *rpc.Request, answer protocol.LoggedIn) error {
	if ctx.Err() != nil {
		l.sessions.drop(r.Inbox(), l.Came)
		return ctx.Err()
	}
	return r.Send(ctx, answer)
}

// verify finds out who logs in.
func (l *Logins) verify(ctx context.Context, r *rpc.Request, q protocol.Login, source string) (*eauth.Grant, error) {
	if q.Token == "" {
		p := eauth.Proof{Secret: q.Password, Certificate: q.Certificate, Signature: q.Signature}
		if c := l.sessions.takeChallenge(r.Inbox()); c != nil {
			p.Statement = protocol.LoginStatement(r.Inbox(), q.User, c)
		}
		p.Remote = r.From.Role == bus.RoleGuest
		return l.Authenticator.Login(ctx, source, q.Backend, q.User, p)
	}
	grant, err := l.Authenticator.ShowToken(ctx, source, q.Token)
	if err != nil {
		return nil, err
	}
	if q.Backend != "" && q.Backend != grant.Backend || q.User != "" && q.User != grant.Name {
		return nil, fmt.Errorf("%w: the token belongs to %s of %s", eauth.ErrRefused, grant.Name, grant.Backend)
	}
	return grant, nil
}

// tellLogin logs a login, with the reason of a refusal, and writes it to the audit log. A login
// that cannot be written there must not take effect.
func (l *Logins) tellLogin(ctx context.Context, from bus.Identity, q protocol.Login, grant *eauth.Grant, err error) error {
	backend, user := logging.Shorten(q.Backend), logging.Shorten(q.User)
	if grant != nil {
		backend, user = grant.Backend, grant.Name
	}
	e := audit.Entry{Kind: audit.Login, Who: audit.Who{User: user, Backend: backend, Source: from.Source}, Fun: "login." + proofKind(q)}
	if uid := from.UID(); uid >= 0 {
		e.UID = &uid
	}
	log := l.o.Log.With("user", user, "eauth", backend, "kind", proofKind(q), "source", from.String())
	if err != nil {
		// Once a minute is enough for the log; the audit log counts what repeats.
		if !errors.Is(err, eauth.ErrBusy) || l.throttle.First("login "+from.String(), time.Now()) {
			log.Warn("login refused", "reason", err.Error())
		}
		e.Reason = err.Error()
		l.o.Note(e)
		return nil
	}
	log.Info("login")
	e.Verdict = audit.Allowed
	if q.MakeToken {
		e.Reason = "a token is made"
	}
	return l.o.Record(ctx, e)
}

// proofKind returns Salt's name for the kind of a login.
func proofKind(q protocol.Login) string {
	if q.Token != "" {
		return "token"
	}
	return "eauth"
}

// loginError is the error for the principal: it does not tell whether the user, the password or
// the backend was the reason.
func loginError(q protocol.Login, err error) error {
	refusal := func(code rpc.Code, more string) *rpc.Error {
		return rpc.Errorf(code, "Authentication failure of type %q occurred.%s", proofKind(q), more)
	}
	const hint = "the master's log has the reason"
	switch {
	case errors.Is(err, eauth.ErrBusy):
		return refusal(rpc.Busy, " "+err.Error())
	case errors.Is(err, eauth.ErrUnavailable):
		return refusal(rpc.Unavailable, " The authentication system does not answer").WithHint(hint)
	case errors.Is(err, eauth.ErrExpired):
		return refusal(rpc.Denied, " The login has expired").WithHint("log in again")
	case errors.Is(err, eauth.ErrLifetime):
		return rpc.Errorf(rpc.Denied, "%v", err)
	case errors.Is(err, eauth.ErrRefused):
		return refusal(rpc.Denied, "").WithHint(hint)
	}
	return err
}

// Limits of answers that go on, for a user of external_auth.
const (
	// loginLook is how often the login is checked.
	loginLook = time.Second
	// blindLook is how long that may be impossible because the backend does not answer.
	blindLook = time.Minute
)

// While runs f. Its context ends when the login of who ends, with the refusal as its cause: an
// answer in progress stops, a job that was started does not.
func (l *Logins) While(ctx context.Context, who Principal, f func(context.Context) error) error {
	if who.Login() == nil {
		return f(ctx)
	}
	ctx, end := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { end(l.loginEnd(ctx, who)) })
	err := f(ctx)
	ended := context.Cause(ctx)
	end(nil)
	watch.Wait()
	if ended != nil && !errors.Is(ended, context.Canceled) {
		return ended
	}
	return err
}

// loginEnd waits for the end of a login and returns the error for its user, or nil when ctx
// ends.
func (l *Logins) loginEnd(ctx context.Context, who Principal) error {
	tick := time.NewTicker(loginLook)
	defer tick.Stop()
	for good := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		_, err := l.Authenticator.Check(ctx, who.Login().Grant)
		switch {
		case err == nil:
			good = time.Now()
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, eauth.ErrRefused) || time.Since(good) > blindLook:
			l.o.Log.Warn("login ended", "user", who.Login().Name, "eauth", who.Login().Backend, "source", who.Identity().String(), "reason", err)
			return loginError(protocol.Login{}, err)
		}
	}
}

// Ended forgets the login on a connection that has ended.
func (l *Logins) Ended(inbox string) { l.sessions.drop(inbox, l.Came) }
