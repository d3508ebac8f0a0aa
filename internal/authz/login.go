package authz

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/eauth"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Logins lets users of external_auth in, and knows the connections on which they are. It
// says who somebody is, and decides nothing about what they may do.
type Logins struct {
	Authenticator *eauth.Authenticator
	Came          func(inbox string) bool // says whether a connection with it is there

	apiUsers []string // may log others in by their addresses, beside operators
	remote   bool     // guests may log in
	log      *slog.Logger
	local    func(context.Context, bus.Identity) Principal // who asks, whoever has logged in
	record   func(context.Context, audit.Entry) error      // before it takes effect
	note     func(audit.Entry) bool
	sessions sessions
	throttle logging.Throttle
}

// Open reads the tokens that there are, and lets users of the backends in.
func (l *Logins) Open(ctx context.Context, tokens eauth.Store, b *eauth.Backends) (err error) {
	l.Authenticator, err = eauth.NewAuthenticator(ctx, tokens, b, l.log)
	return err
}

// sessions are the connections that users of external_auth have logged in on, by
// inbox prefix. A login replaces the rights that the kernel's word gives.
type sessions struct {
	mu         sync.Mutex
	grants     map[string]*eauth.Grant
	addresses  map[string]string // of whom a program has logged in, see protocol.Login
	next       map[string]string // of guests who have logged in: the inbox of the connection that is theirs
	challenges map[string][]byte
}

// challengeBytes is the size of what a certificate's key has to sign.
const challengeBytes = 32

func (l *sessions) of(inbox string) *eauth.Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grants[inbox]
}

// address is that of whom a program has logged in on a connection, "" for none.
func (l *sessions) address(inbox string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addresses[inbox]
}

func (l *sessions) set(inbox string, g *eauth.Grant, address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grants == nil {
		l.grants, l.addresses = map[string]*eauth.Grant{}, map[string]string{}
	}
	l.grants[inbox] = g
	delete(l.addresses, inbox)
	if address != "" {
		l.addresses[inbox] = address
	}
}

// promise lets the next connection of a guest, the one with the inbox next, be that of the
// login. A guest logs in once.
func (l *sessions) promise(guest, next string, g *eauth.Grant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next[guest] != "" || l.grants[next] != nil {
		return rpc.Errorf(rpc.Usage, "there is a login for this connection already")
	}
	if l.next == nil {
		l.next = map[string]string{}
	}
	if l.grants == nil {
		l.grants, l.addresses = map[string]*eauth.Grant{}, map[string]string{}
	}
	l.next[guest], l.grants[next] = next, g
	return nil
}

// drop forgets a connection that has ended, and what it was promised where that connection
// has not come.
func (l *sessions) drop(inbox string, came func(inbox string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if next := l.next[inbox]; next != "" && !came(next) {
		delete(l.grants, next)
	}
	delete(l.next, inbox)
	delete(l.grants, inbox)
	delete(l.addresses, inbox)
	delete(l.challenges, inbox)
}

// challenge makes the one challenge of a connection anew.
func (l *sessions) challenge(inbox string) []byte {
	c := make([]byte, challengeBytes)
	rand.Read(c) //nolint:errcheck // it never fails
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.challenges == nil {
		l.challenges = map[string][]byte{}
	}
	l.challenges[inbox] = c
	return c
}

// takeChallenge returns the challenge of a connection, once.
func (l *sessions) takeChallenge(inbox string) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.challenges[inbox]
	delete(l.challenges, inbox)
	return c
}

// Login lets a user of external_auth in on the connection that asks.
func (l *Logins) Login(ctx context.Context, r *rpc.Request) error {
	if r.From.Role == bus.RoleGuest && !l.remote {
		return rpc.Errorf(rpc.Denied, "this master lets nobody log in from another machine").WithHint("set remote_login: True in its configuration, and restart it")
	}
	var q protocol.Login
	if err := r.Decode(&q); err != nil {
		return err
	}
	if len(q.Certificate) > 0 && len(q.Signature) == 0 && q.Token == "" {
		answer := protocol.LoggedIn{Challenge: l.sessions.challenge(r.Inbox())}
		_ = r.Decide(allow(bus.Proof)) // who is asked for a proof has got nothing yet
		return l.unlessGone(ctx, r, answer)
	}
	next, err := nextOf(r, q)
	if err != nil {
		return err
	}
	payer, err := l.behind(ctx, r, q.Address)
	if err != nil {
		return err
	}
	grant, err := l.verify(ctx, r, q, payer)
	if unwritten := l.tellLogin(ctx, r.From, q, grant, err); err != nil {
		return loginError(q, err)
	} else if unwritten != nil {
		return unwritten
	}
	_ = r.Decide(allow(bus.Proof))
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

// nextOf is the inbox of the connection that a guest's login is for, "" for others.
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

// Remote is the LoginName of the user for whom a connection of the network with this inbox
// was announced by their login, "" for nobody.
func (l *Logins) Remote(inbox string) string {
	g := l.sessions.of(inbox)
	if g == nil {
		return ""
	}
	return bus.LoginName(g.Backend, g.Name)
}

// Holds says whether the login on a connection does. Where that cannot be found out, it does.
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

// behind says who pays for logins that fail: the local user who asks, or the address for
// which one asks who is believed. It becomes the source of the request.
func (l *Logins) behind(ctx context.Context, r *rpc.Request, address string) (payer string, err error) {
	switch {
	case address == "" && r.From.Role == bus.RoleUser:
		return r.From.Name, nil
	case address == "":
		return r.From.String(), nil // a client may have the name that is a number of a user
	}
	if a, err := netip.ParseAddr(address); err != nil || a.Zone() != "" {
		return "", rpc.Errorf(rpc.Usage, "%.60q is no address", address)
	}
	if who := l.local(ctx, r.From); !l.believed(who) {
		return "", rpc.Errorf(rpc.Denied, "user %s may not log others in by their addresses", who.name).
			WithHint("salt-api runs as the user, or has the credentials, that api_user names in the master's configuration")
	}
	r.From.Source = address
	return r.From.String() + " " + address, nil
}

// believed says whether somebody is, about where those come from whom they log in.
func (l *Logins) believed(who Principal) bool {
	switch {
	case who.operator:
		return true
	case who.identity.Role == bus.RoleClient: // an account has no colon in its name
		return slices.Contains(l.apiUsers, salt.ClientPrefix+who.identity.Name)
	}
	return who.subject.Kind == acl.Local && slices.Contains(l.apiUsers, who.subject.Name)
}

// Payer names in whose bounds the requests of a connection count, where those are not its
// own: each whom a program like salt-api has logged in has bounds for themselves, so that
// none of them can use up those of all.
func (l *Logins) Payer(i bus.Identity) string {
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

// BringsOthers says whether an identity is that of credentials with which a program logs
// others in: it has connections for each of them.
func (l *Logins) BringsOthers(i bus.Identity) bool {
	return i.Role == bus.RoleClient && slices.Contains(l.apiUsers, salt.ClientPrefix+i.Name)
}

// unlessGone answers, or forgets the connection if it has ended meanwhile: nobody
// else would.
func (l *Logins) unlessGone(ctx context.Context, r *rpc.Request, answer protocol.LoggedIn) error {
	if ctx.Err() != nil {
		l.sessions.drop(r.Inbox(), l.Came)
		return ctx.Err()
	}
	return r.Send(ctx, answer)
}

// verify finds out who logs in.
func (l *Logins) verify(ctx context.Context, r *rpc.Request, q protocol.Login, payer string) (*eauth.Grant, error) {
	if q.Token == "" {
		p := eauth.Proof{Secret: q.Password, Certificate: q.Certificate, Signature: q.Signature}
		if c := l.sessions.takeChallenge(r.Inbox()); c != nil {
			p.Statement = protocol.LoginStatement(r.Inbox(), q.User, c)
		}
		p.Remote = r.From.Role == bus.RoleGuest
		return l.Authenticator.Login(ctx, payer, q.Backend, q.User, p)
	}
	grant, err := l.Authenticator.ShowToken(ctx, payer, q.Token)
	if err != nil {
		return nil, err
	}
	if q.Backend != "" && q.Backend != grant.Backend || q.User != "" && q.User != grant.Name {
		return nil, fmt.Errorf("%w: the token is of %s by %s", eauth.ErrRefused, grant.Name, grant.Backend)
	}
	return grant, nil
}

// tellLogin logs a login, with the reason of a refusal, and writes it to the audit
// log. One that is not written there must not take effect.
func (l *Logins) tellLogin(ctx context.Context, from bus.Identity, q protocol.Login, grant *eauth.Grant, err error) error {
	backend, user := logging.Shorten(q.Backend), logging.Shorten(q.User)
	if grant != nil {
		backend, user = grant.Backend, grant.Name
	}
	e := audit.Entry{Kind: audit.Login, Who: audit.Who{User: user, Backend: backend, Source: from.Source}, Fun: "login." + proofKind(q)}
	if uid := from.UID(); uid >= 0 {
		e.UID = &uid
	}
	log := l.log.With("user", user, "eauth", backend, "kind", proofKind(q), "source", from.String())
	if err != nil {
		// Once a minute is enough for the log; the audit log counts what repeats.
		if !errors.Is(err, eauth.ErrBusy) || l.throttle.First("login "+from.String(), time.Now()) {
			log.Warn("login refused", "reason", err.Error())
		}
		e.Reason = err.Error()
		l.note(e)
		return nil
	}
	log.Info("login")
	e.Verdict = audit.Allowed
	if q.MakeToken {
		e.Reason = "a token is made"
	}
	return l.record(ctx, e)
}

// proofKind is what Salt calls the kind of a login.
func proofKind(q protocol.Login) string {
	if q.Token != "" {
		return "token"
	}
	return "eauth"
}

// loginError is what the principal is told: not whether it was the user, the
// password or the backend.
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
		return refusal(rpc.Denied, " The login has expired").WithHint("log in anew")
	case errors.Is(err, eauth.ErrLifetime):
		return rpc.Errorf(rpc.Denied, "%v", err)
	case errors.Is(err, eauth.ErrRefused):
		return refusal(rpc.Denied, "").WithHint(hint)
	}
	return err
}

// Bounds of what is told to a user of external_auth as it happens.
const (
	// loginLook is how often it is made sure that the login still holds.
	loginLook = time.Second
	// blindLook is how long that may be unknown, since the backend is away.
	blindLook = time.Minute
)

// While runs f, whose context ends when the login of who does, with the refusal
// as its cause: what is told as it happens stops then, what was started does not.
func (l *Logins) While(ctx context.Context, who Principal, f func(context.Context) error) error {
	if who.login == nil {
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

// loginEnd waits for the end of a login and returns what its user is told. When ctx
// ends it returns nil.
func (l *Logins) loginEnd(ctx context.Context, who Principal) error {
	tick := time.NewTicker(loginLook)
	defer tick.Stop()
	for good := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		_, err := l.Authenticator.Check(ctx, who.login)
		switch {
		case err == nil:
			good = time.Now()
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, eauth.ErrRefused) || time.Since(good) > blindLook:
			l.log.Warn("login ended", "user", who.name, "eauth", who.login.Backend, "source", who.identity.String(), "reason", err)
			return loginError(protocol.Login{}, err)
		}
	}
}

// Ended forgets the login on a connection that has ended.
func (l *Logins) Ended(inbox string) { l.sessions.drop(inbox, l.Came) }
