package eauth

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// Store stores tokens: a table of the journal. A power cut does not lose what is kept.
type Store interface {
	Keep(ctx context.Context, key string, value []byte) error
	Put(ctx context.Context, key string, value []byte) error
	Get(ctx context.Context, key string) ([]byte, error)
	Delete(ctx context.Context, key string) error
	// DeleteUntil is Delete for what must not come back before that time, whatever is lost or restored.
	DeleteUntil(ctx context.Context, key string, until time.Time) error
	Each(ctx context.Context, f func(key string, value []byte)) error
}

const (
	tokenBytes = 32
	// maxTokens limits the tokens of a program that never uses them, and maxOfUser those of one
	// user, so that they do not block other users.
	maxTokens = 100_000
	maxOfUser = 10_000
	// maxLine limits how many tokens may be made one by the other: each use of the last one checks
	// all of them.
	maxLine = 8
	// shortest is the minimum number of digits of a token's id.
	shortest = 8
	clockKey = "clock" // the latest time that a single master has returned, in the same table
)

// stored is a token in the store, with the SHA-256 of the token as its key. The token itself is not
// stored.
type stored struct {
	Backend string    `json:"eauth"`
	User    string    `json:"name"`
	Groups  []string  `json:"groups,omitempty"`
	Issued  time.Time `json:"start"`
	Expires time.Time `json:"expire"`
	Rules   string    `json:"auth_list,omitempty"`
	Digest  []byte    `json:"digest"`            // of the account's version, keyed with the token
	By      []string  `json:"by,omitempty"`      // the tokens it was made by, the first one first
	Foreign bool      `json:"foreign,omitempty"` // another master made it, or one of the tokens it was made by
}

// Token is a token as users see it. Its id is the beginning of its digest: it identifies the token
// but cannot be used as one.
type Token struct {
	ID, Backend, User string
	Groups            []string
	Issued, Expires   time.Time
	KeepsRules        bool
}

// openTokens reads the last time from the store.
func (g *Authenticator) openTokens(ctx context.Context) error {
	if err := g.dropSharedTime(ctx); err != nil {
		return err
	}
	b, err := g.store.Get(ctx, g.clockKey())
	if err != nil {
		return err
	}
	if t, err := time.Parse(time.RFC3339Nano, string(b)); err == nil {
		g.clock.atLeast(t)
	}
	return g.Sweep(ctx)
}

// clockKey is the key of the latest time that was returned. Each member has its own: the clock of another
// one may be wrong.
func (g *Authenticator) clockKey() string {
	if g.member == "" {
		return clockKey
	}
	return clockKey + "/" + g.member
}

// dropSharedTime removes the time that all members of an older version have stored under one key. Otherwise
// a single master that goes on with the table would take it for its own.
func (g *Authenticator) dropSharedTime(ctx context.Context) error {
	if g.member == "" {
		return nil
	}
	b, err := g.store.Get(ctx, clockKey)
	if err != nil || b == nil {
		return err
	}
	return g.store.Delete(ctx, clockKey)
}

// seal stores a digest of the account's version that does not reveal the version.
func (g *Grant) seal(key []byte) {
	g.key = key
	g.digest = versionDigest(key, g.Version)
}

func (g *Grant) matches(version string) bool {
	return hmac.Equal(g.digest, versionDigest(g.key, version))
}

func versionDigest(key []byte, version string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("account mark\x00" + version))
	return h.Sum(nil)
}

func tokenKey(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// TokenID returns the id by which operators name a token. It cannot be used as one.
func TokenID(token string) string { return idOf(tokenKey(token)) }

func idOf(key string) string { return key[:2*shortest] }

// MakeToken makes a token for the login. life 0 is the usual lifetime; every user may choose it if
// free is set. It returns the token and its expiry.
func (g *Authenticator) MakeToken(ctx context.Context, login *Grant, life time.Duration, free bool) (string, time.Time, error) {
	b := g.backends.Load()
	life, err := b.life.of(login.Backend, login.Name, life, free)
	if err != nil {
		return "", time.Time{}, err
	}
	if len(login.tokens) >= maxLine {
		return "", time.Time{}, fmt.Errorf("%w ends here: it would be the token of a token, %d times over", ErrLifetime, maxLine)
	}
	if err := g.count(login); err != nil {
		return "", time.Time{}, err
	}
	now := g.clock.now()
	token := newToken()
	made := *login
	made.Issued, made.Expires = now, until(now.Add(life), login.Until)
	switch account, err := g.look(ctx, login.Backend, login.Name); {
	case errors.Is(err, errUnknowable):
		made.Expires = until(made.Expires, login.Issued.Add(blindTime))
	case err != nil:
		return "", time.Time{}, err
	case login.digest != nil && !login.matches(account.Version):
		return "", time.Time{}, errChanged
	default:
		made.Version = account.Version // a login by token does not know it
	}
	if b.keep && made.Rules == "" { // otherwise the current rules would be stored for the groups of that time
		if made.Rules, err = b.rulesOf(login.Backend, login.Account); err != nil {
			return "", time.Time{}, err
		}
	}
	made.seal([]byte(token))
	if err := g.put(ctx, tokenKey(token), &made); err != nil {
		return "", time.Time{}, err
	}
	g.log.Info("token made", "user", made.Name, "eauth", made.Backend, "id", tokenKey(token)[:shortest], "expires", made.Expires)
	return token, made.Expires, nil
}

// count counts a token before it is made, if the limits allow it. The next Sweep corrects the count
// if the token was deleted or not made.
func (g *Authenticator) count(login *Grant) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := lookKey(login.Backend, login.Name)
	switch {
	case g.tokens >= maxTokens:
		return fmt.Errorf("%w: there are %d tokens already", ErrBusy, maxTokens)
	case g.tokensOf[key] >= maxOfUser:
		return fmt.Errorf("%w: %s has %d tokens already", ErrBusy, login.Name, maxOfUser)
	}
	g.tokens++
	g.tokensOf[key]++
	return nil
}

func newToken() string {
	b := make([]byte, tokenBytes)
	rand.Read(b) //nolint:errcheck // it never fails
	return hex.EncodeToString(b)
}

func (g *Authenticator) put(ctx context.Context, key string, t *Grant) error {
	b, err := json.Marshal(stored{
		Backend: t.Backend, User: t.Name, Groups: t.Groups, Issued: t.Issued, Expires: t.Expires, Rules: t.Rules, Digest: t.digest, By: t.tokens, Foreign: t.foreign,
	})
	if err != nil {
		return err
	}
	if err = g.noteTime(ctx); err == nil {
		err = g.store.Keep(ctx, key, b)
	}
	if err != nil {
		return g.unavailable("the tokens", err)
	}
	return nil
}

// noteTime stores the time for the next start.
func (g *Authenticator) noteTime(ctx context.Context) error {
	return g.store.Put(ctx, g.clockKey(), []byte(g.clock.now().Format(time.RFC3339Nano)))
}

// ShowToken is Token for a source that presents the token. The source is charged for refused
// tokens: a flood of them is not checked.
func (g *Authenticator) ShowToken(ctx context.Context, from, token string) (*Grant, error) {
	leave, err := g.tokened.enter(ctx, from)
	if err != nil {
		return nil, err
	}
	grant, err := g.Token(ctx, token)
	leave(errors.Is(err, ErrRefused))
	return grant, err
}

// Token returns the current login for a token. A single master deletes a token that is refused
// permanently. Tokens that are made with this login end with the token: otherwise its owner could renew it
// forever.
func (g *Authenticator) Token(ctx context.Context, token string) (*Grant, error) {
	if len(token) != hex.EncodedLen(tokenBytes) {
		return nil, fmt.Errorf("%w: this is not a token", ErrRefused)
	}
	key := tokenKey(token)
	b, err := g.store.Get(ctx, key)
	if err != nil {
		return nil, g.unavailable("the tokens", err)
	}
	if b == nil {
		return nil, fmt.Errorf("%w: there is no such token", ErrRefused)
	}
	var s stored
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("token %s of the store: %w", key[:shortest], err)
	}
	t, err := g.Check(ctx, &Grant{
		Backend: s.Backend, Account: Account{Name: s.User, Groups: s.Groups, Until: s.Expires}, Issued: s.Issued, Expires: s.Expires, Rules: s.Rules,
		key: []byte(token), digest: s.Digest, tokens: append(s.By, key), foreign: s.Foreign,
	})
	if errors.Is(err, ErrRefused) {
		return nil, errors.Join(err, g.refuse(ctx, key, &s, err))
	}
	if err == nil {
		g.accepted(key)
	}
	return t, err
}

// Issue makes a token for a user without a login: for operators.
func (g *Authenticator) Issue(ctx context.Context, backend, user string, life time.Duration) (string, time.Time, error) {
	if err := check(user, Proof{Secret: "-"}); err != nil {
		return "", time.Time{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	account, err := g.look(ctx, backend, user)
	if err != nil {
		return "", time.Time{}, err
	}
	return g.MakeToken(ctx, &Grant{Backend: backend, Account: account}, life, true)
}

// all returns the stored tokens.
func (g *Authenticator) all(ctx context.Context) (map[string]stored, error) {
	all := map[string]stored{}
	err := g.store.Each(ctx, func(key string, value []byte) {
		var s stored
		if len(key) == hex.EncodedLen(sha256.Size) && json.Unmarshal(value, &s) == nil {
			all[key] = s
		}
	})
	return all, err
}

// lives reports whether a token, one of all, is valid by its times and by the tokens it was made by.
func (s *stored) lives(all map[string]stored, now time.Time) bool {
	return !s.orphaned(all) && now.Before(s.Expires) && !future(s.Issued, now)
}

// orphaned reports whether a token that it was made by is gone.
func (s *stored) orphaned(all map[string]stored) bool {
	return slices.ContainsFunc(s.By, func(key string) bool {
		_, there := all[key]
		return !there
	})
}

// List returns the tokens that have not expired, by user and time.
func (g *Authenticator) List(ctx context.Context, of *Grant) ([]Token, error) {
	now := g.clock.now()
	all, err := g.all(ctx)
	keep := g.backends.Load().keep
	var list []Token
	for key, s := range all {
		if s.lives(all, now) && of.owns(s.Backend, s.User) {
			list = append(list, Token{idOf(key), s.Backend, s.User, s.Groups, s.Issued, s.Expires, keep && s.Rules != ""})
		}
	}
	slices.SortFunc(list, func(a, b Token) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Backend, b.Backend), a.Issued.Compare(b.Issued))
	})
	return list, err
}

// owns reports whether a token belongs to the login; all tokens belong to nil.
func (g *Grant) owns(backend, user string) bool {
	return g == nil || g.Backend == backend && g.Name == user
}

// Find returns the token whose id begins with id. A logged-in user, of, finds only their own
// tokens; nil finds all.
func (g *Authenticator) Find(ctx context.Context, id string, of *Grant) (TokenKey, error) {
	id = strings.ToLower(strings.TrimSpace(id))
	if len(id) < shortest {
		return "", fmt.Errorf("a token is named by at least %d digits of its id", shortest)
	}
	all, err := g.all(ctx)
	if err != nil {
		return "", err
	}
	var found []string
	for key, s := range all {
		if strings.HasPrefix(key, id) && of.owns(s.Backend, s.User) {
			found = append(found, key)
		}
	}
	switch len(found) {
	case 0:
		return "", salt.WithHint(fmt.Errorf("no token has an id that begins with %.64q", id), "'salt-run auth.list_tokens' lists them")
	case 1:
		return TokenKey(found[0]), nil
	}
	return "", fmt.Errorf("%d tokens have ids that begin with %s", len(found), id)
}

// TokenKey identifies one token in the store, and cannot be used as one.
type TokenKey string

// Delete deletes a token and those made with it. A store that is shared with other masters
// remembers that it must not come back.
func (g *Authenticator) Delete(ctx context.Context, key TokenKey) error {
	if s, ok := g.store.(interface {
		Revoke(ctx context.Context, key string) error
	}); ok {
		return s.Revoke(ctx, string(key))
	}
	b, err := g.store.Get(ctx, string(key))
	if err != nil {
		return err
	}
	var stored stored
	if b == nil || json.Unmarshal(b, &stored) != nil {
		return g.store.Delete(ctx, string(key))
	}
	return g.store.DeleteUntil(ctx, string(key), stored.gone())
}

// gone is when a token is expired by the clocks of all members: until then it must not come back if it is deleted.
func (s *stored) gone() time.Time { return s.Expires.Add(clockSkew) }

// Foreign restricts a token from another master to what this master would have allowed: its stored
// rules are dropped, it lives no longer than the usual lifetime here, and each use is checked with
// the backends of this master, which must know the same account with the same secret.
func (g *Authenticator) Foreign(value []byte) ([]byte, error) {
	var s stored
	if err := json.Unmarshal(value, &s); err != nil {
		return nil, fmt.Errorf("token of another master: %w", err)
	}
	b := g.backends.Load()
	if b.all[s.Backend] == nil {
		return nil, fmt.Errorf("token of another master: external_auth has no backend %.60q here", s.Backend)
	}
	if err := check(s.User, Proof{Secret: "-"}); err != nil {
		return nil, fmt.Errorf("token of another master: %w", err)
	}
	if len(s.By) > maxLine || len(s.Digest) == 0 {
		return nil, errors.New("token of another master: it is not as this one makes them")
	}
	life, err := b.life.of(s.Backend, s.User, 0, false)
	if err != nil {
		return nil, err
	}
	now := g.clock.now()
	s.Expires, s.Rules, s.Foreign = until(now.Add(life), s.Expires), "", true
	if s.Issued.After(now) {
		s.Issued = now
	}
	return json.Marshal(s)
}
