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

// Bounds in time.
const (
	// verifyTime bounds one question to a backend: PAM modules ask directory
	// servers, which may be slow.
	verifyTime = 30 * time.Second
	// lookEvery is how old what is known of an account may be: one that is
	// locked or removed loses its tokens within that time.
	lookEvery = 5 * time.Second
	// blindTime is how long a login holds where its account cannot be looked
	// at again.
	blindTime = 5 * time.Minute
)

// Authenticator lets users of the backends in. It may be used by many goroutines at once.
type Authenticator struct {
	log      *slog.Logger
	store    Store
	backends atomic.Pointer[Backends]
	limits   limiter // of logins
	tokened  limiter // of tokens that are shown
	clock    clock
	failTime time.Duration

	mu       sync.Mutex
	looks    map[string]*look // by backend and user
	tokens   int              // how many there are, about
	tokensOf map[string]int   // by backend and user
}

// look is what is known of an account.
type look struct {
	mu      sync.Mutex // held while it is asked for
	at      time.Time
	account Account
	err     error
}

// NewAuthenticator returns an authenticator that keeps its tokens in store. Backends of Salt that Brine does
// not have are named in the log.
func NewAuthenticator(ctx context.Context, store Store, b *Backends, log *slog.Logger) (*Authenticator, error) {
	g := &Authenticator{log: log, store: store, tokened: limiter{atATime: maxTokensOfSource}, failTime: failTime, looks: map[string]*look{}, tokensOf: map[string]int{}}
	g.backends.Store(b)
	g.tellAbsent(b)
	return g, g.openTokens(ctx)
}

func (g *Authenticator) tellAbsent(b *Backends) {
	for _, name := range b.Absent {
		g.log.Warn("Salt has this authentication backend, Brine does not: nobody logs in through it", "eauth", name)
	}
}

// Set puts other backends in force: logins through those that have gone are
// refused from now on.
func (g *Authenticator) Set(b *Backends) {
	g.backends.Store(b)
	g.tellAbsent(b)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looks = map[string]*look{}
}

// Backends returns the names of those in force, sorted.
func (g *Authenticator) Backends() []string { return g.backends.Load().names() }

// Grant is a login that was verified. It is never changed.
type Grant struct {
	Backend string
	Account
	Issued, Expires time.Time
	Rules           string // what keep_acl_in_token keeps, as YAML of external_auth; "" is none

	key    []byte   // of digest
	digest []byte   // of the account's version
	tokens []string // by which it was made, as the store names them, the first one first
}

// Login verifies a user. From names the source, which pays for failures. Every
// refusal takes the same time and, to the principal, has the same words.
func (g *Authenticator) Login(ctx context.Context, from, backend, user string, p Proof) (*Grant, error) {
	leave, err := g.limits.enter(ctx, from)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	account, err := g.verify(ctx, backend, user, p)
	if err != nil {
		// One that was broken off counts too: it has cost as much.
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

// until returns the earlier of two times, of which end may be zero for never.
func until(t, end time.Time) time.Time {
	if !end.IsZero() && end.Before(t) {
		return end
	}
	return t
}

// verify asks the backend, in its turn.
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

// turn waits for a turn of the backend.
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

// unavailable marks what is neither yes nor no.
func (g *Authenticator) unavailable(name string, err error) error {
	if errors.Is(err, ErrRefused) || errors.Is(err, ErrUnavailable) || errors.Is(err, errUnknowable) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, name, err)
}

// check refuses what can be no login of any backend.
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

// remember notes an account that was just verified.
func (g *Authenticator) remember(backend string, a Account) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looks[lookKey(backend, a.Name)] = &look{at: time.Now(), account: a}
}

// look returns the account as it was within lookEvery.
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
		return Account{}, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx)) // not to be remembered
	}
	l.at, l.account = time.Now(), account
	l.err = nil
	if err != nil {
		l.err = g.unavailable(backend, err)
	}
	return l.account, l.err
}

func (g *Grant) expired(now time.Time) bool { return !now.Before(g.Expires) }

// ErrExpired is wrapped by the refusal of a login whose time is over.
var ErrExpired = fmt.Errorf("%w: its time is over", ErrRefused)

var errChanged = fmt.Errorf("%w: the account was changed since the login", ErrRefused)

// Check returns the login as it is now, with the account's groups of now. It is
// refused when its time is over, when the token that it was made by is revoked, or
// the account was locked or removed or has got another secret, at most lookEvery
// after that.
func (g *Authenticator) Check(ctx context.Context, old *Grant) (*Grant, error) {
	for _, key := range old.tokens {
		b, err := g.store.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		if b == nil {
			return nil, fmt.Errorf("%w: its token %s is revoked", ErrRefused, key[:shortest])
		}
	}
	return g.check(ctx, old)
}

// check is Check without a look at the tokens.
func (g *Authenticator) check(ctx context.Context, old *Grant) (*Grant, error) {
	now := g.clock.now()
	if old.expired(now) {
		return nil, ErrExpired
	}
	if old.Rules != "" && !g.backends.Load().keep {
		fresh := *old
		fresh.Rules = ""
		old = &fresh // whoever takes keep_acl_in_token back means the tokens that there are
	}
	account, err := g.look(ctx, old.Backend, old.Name)
	if errors.Is(err, errUnknowable) && now.Before(old.Issued.Add(blindTime)) {
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
		return old, nil // with the groups of then
	}
	fresh := *old
	fresh.Groups = account.Groups
	return &fresh, nil
}
