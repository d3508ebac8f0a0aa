package eauth

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/salt"
)

// Time limits.
const (
	// verifyTime limits one request to a backend: PAM modules may query slow directory servers.
	verifyTime = 30 * time.Second
	// lookEvery is the maximum age of what is known of an account: if it is locked or removed, its
	// tokens become invalid within that time.
	lookEvery = 5 * time.Second
	// blindTime is how long a login is valid if its account cannot be looked up again.
	blindTime = 5 * time.Minute
)

// Authenticator verifies users through the backends. Its methods may be called concurrently.
type Authenticator struct {
	log      *slog.Logger
	store    Store
	member   string // of a cluster, "" for a single master
	backends atomic.Pointer[Backends]
	limits   limiter // for logins
	tokened  limiter // for tokens that are presented
	clock    clock
	failTime time.Duration

	mu       sync.Mutex
	looks    map[string]*look // by backend and user
	tokens   int              // about how many tokens there are
	tokensOf map[string]int   // by backend and user
	refused  map[string]bool  // keys of tokens that this member has refused and kept
	ahead    bool             // it is known that the clock is ahead of that of the system
}

// look is what is known of an account.
type look struct {
	mu      sync.Mutex // held during a lookup
	at      time.Time
	account Account
	err     error
}

// NewAuthenticator returns an authenticator that stores its tokens in store. If all members of a cluster
// use the store, member is the name of this one, otherwise it is "". It logs backends of Salt that
// Brine does not have.
func NewAuthenticator(ctx context.Context, store Store, member string, b *Backends, log *slog.Logger) (*Authenticator, error) {
	g := &Authenticator{
		log: log, store: store, member: member, tokened: limiter{atATime: maxTokensOfSource}, failTime: failTime,
		looks: map[string]*look{}, tokensOf: map[string]int{}, refused: map[string]bool{},
	}
	g.backends.Store(b)
	g.tellAbsent(b)
	return g, g.openTokens(ctx)
}

func (g *Authenticator) tellAbsent(b *Backends) {
	for _, name := range b.Absent {
		g.log.Warn("Salt has this authentication backend, Brine does not: nobody logs in through it", "eauth", name)
	}
}

// Set replaces the backends: logins through removed backends are refused from now on.
func (g *Authenticator) Set(b *Backends) {
	g.backends.Store(b)
	g.tellAbsent(b)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looks = map[string]*look{}
}

// Backends returns the names of the current backends, sorted.
func (g *Authenticator) Backends() []string { return g.backends.Load().names() }

// Grant is a verified login. It is never changed.
type Grant struct {
	Backend string
	Account
	Issued, Expires time.Time
	Rules           string // the rules that keep_acl_in_token stores, as YAML of external_auth; "" is none

	key    []byte   // key of digest
	digest []byte   // of the account's version
	tokens []string // the tokens it was made by, as store keys, the first one first

	foreign bool // another master made one of these tokens
}

// Login verifies a user. from identifies the source, which is charged for failures. Every refusal
// takes the same time and has the same text for the principal.
func (g *Authenticator) Login(ctx context.Context, from, backend, user string, p Proof) (*Grant, error) {
	leave, err := g.limits.enter(ctx, from)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	account, err := g.verify(ctx, backend, user, p)
	if err != nil {
		// A cancelled login counts too: it cost as much.
		leave(errors.Is(err, ErrRefused) || ctx.Err() != nil)
		backoff.Sleep(ctx, g.failTime-time.Since(began))
		return nil, err
	}
	leave(false)
	now := g.clock.now()
	grant := &Grant{Backend: backend, Account: account, Issued: now, Expires: until(now.Add(g.backends.Load().life.usual), account.Until)}
	grant.seal([]byte(rand.Text()))
	g.remember(backend, account)
	return grant, nil
}

// until returns the earlier of two times; a zero end means never.
func until(t, end time.Time) time.Time {
	if !end.IsZero() && end.Before(t) {
		return end
	}
	return t
}

// verify calls the backend when it has a free slot.
func (g *Authenticator) verify(ctx context.Context, name, user string, p Proof) (Account, error) {
	b := g.backends.Load().all[name]
	if b == nil {
		return Account{}, fmt.Errorf("%w: external_auth has no backend %.60q", ErrRefused, name)
	}
	if err := check(user, p); err != nil {
		return Account{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	done, err := b.turn(ctx, p.Remote)
	if err != nil {
		return Account{}, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, verifyTime)
	defer cancel()
	account, err := b.Verify(ctx, user, p)
	if err != nil {
		return Account{}, g.unavailable(name, err)
	}
	if _, err := salt.ParseUserName(account.Name); err != nil {
		return Account{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return account, nil
}

// turn waits for a free slot of the backend.
func (b *guarded) turn(ctx context.Context, remote bool) (done func(), err error) {
	turns := []chan struct{}{b.slots}
	if remote {
		turns = []chan struct{}{b.remote, b.slots}
	}
	var has []chan struct{}
	done = func() {
		for _, t := range has {
			<-t
		}
	}
	for _, t := range turns {
		select {
		case t <- struct{}{}:
			has = append(has, t)
		case <-ctx.Done():
			done()
			return nil, context.Cause(ctx)
		}
	}
	return done, nil
}

// unavailable marks an error that is neither an acceptance nor a refusal.
func (g *Authenticator) unavailable(name string, err error) error {
	if errors.Is(err, ErrRefused) || errors.Is(err, ErrUnavailable) || errors.Is(err, errUnknowable) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, name, err)
}

// check refuses input that no backend can accept.
func check(user string, p Proof) error {
	if _, err := salt.ParseUserName(user); err != nil {
		return err
	}
	switch {
	case p.Secret == "" && len(p.Certificate) == 0:
		return errors.New("the password is empty")
	case len(p.Secret) > maxSecret:
		return fmt.Errorf("the password has more than %d bytes", maxSecret)
	case slices.Contains([]byte(p.Secret), 0):
		return errors.New("the password holds a zero byte")
	}
	return nil
}

func lookKey(backend, user string) string { return backend + "\x00" + user }

// remember stores an account that was just verified.
func (g *Authenticator) remember(backend string, a Account) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looks[lookKey(backend, a.Name)] = &look{at: time.Now(), account: a}
}

// look returns the account; what it returns is not older than lookEvery.
func (g *Authenticator) look(ctx context.Context, backend, user string) (Account, error) {
	b := g.backends.Load().all[backend]
	if b == nil {
		return Account{}, fmt.Errorf("%w: external_auth has no backend %.60q any more", ErrRefused, backend)
	}
	g.mu.Lock()
	l := g.looks[lookKey(backend, user)]
	if l == nil {
		l = &look{}
		g.looks[lookKey(backend, user)] = l
	}
	g.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.at.IsZero() && time.Since(l.at) < lookEvery {
		return l.account, l.err
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTime)
	defer cancel()
	account, err := b.Look(ctx, user)
	if err != nil && ctx.Err() != nil {
		return Account{}, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx)) // this error must not be remembered
	}
	l.at, l.account = time.Now(), account
	l.err = nil
	if err != nil {
		l.err = g.unavailable(backend, err)
	}
	return l.account, l.err
}

func (g *Grant) expired(now time.Time) bool { return !now.Before(g.Expires) }

// errFuture is wrapped by the refusal of a login by a clock that was wrong: it would last longer than
// any lifetime that is allowed.
var errFuture = fmt.Errorf("%w: it was made more than %s in the future, so the clock was wrong there", ErrRefused, clockSkew)

// future reports whether something that was issued then cannot be believed.
func future(issued, now time.Time) bool { return issued.After(now.Add(clockSkew)) }

// ErrExpired is wrapped by the refusal of a login that has expired.
var ErrExpired = fmt.Errorf("%w: it has expired", ErrRefused)

var errChanged = fmt.Errorf("%w: the account was changed since the login", ErrRefused)

// Check returns the login with the current groups of the account. It is refused if it has expired,
// if the token that it was made by is revoked, or if the account was locked or removed or has
// another secret, at most lookEvery after that.
func (g *Authenticator) Check(ctx context.Context, old *Grant) (*Grant, error) {
	for _, key := range old.tokens {
		b, err := g.store.Get(ctx, key)
		if err != nil {
			return nil, g.unavailable("the tokens", err)
		}
		if b == nil {
			return nil, fmt.Errorf("%w: its token %s is revoked", ErrRefused, key[:shortest])
		}
	}
	return g.check(ctx, old)
}

// check is Check without checking the tokens.
func (g *Authenticator) check(ctx context.Context, old *Grant) (*Grant, error) {
	now := g.clock.now()
	if old.expired(now) {
		return nil, ErrExpired
	}
	if future(old.Issued, now) {
		return nil, errFuture
	}
	if old.Rules != "" && !g.backends.Load().keep {
		fresh := *old
		fresh.Rules = ""
		old = &fresh // keep_acl_in_token was turned off: that applies to existing tokens too
	}
	account, err := g.look(ctx, old.Backend, old.Name)
	if old.foreign && (errors.Is(err, errUnknowable) || err == nil && account.Version == "") {
		return nil, fmt.Errorf("%w: another master has made the token, and this one cannot tell whether the account is the same", ErrRefused)
	}
	if errors.Is(err, errUnknowable) && now.Before(old.Issued.Add(blindTime)) && now.Add(blindTime).After(old.Issued) {
		return old, nil
	}
	if errors.Is(err, errUnknowable) {
		return nil, fmt.Errorf("%w: %w for more than %s", ErrRefused, err, blindTime)
	}
	if err != nil {
		return nil, err
	}
	if account.Name != old.Name || !old.matches(account.Version) {
		return nil, errChanged
	}
	if old.Rules != "" {
		return old, nil // with the groups from the time of the login
	}
	fresh := *old
	fresh.Groups = account.Groups
	return &fresh, nil
}
