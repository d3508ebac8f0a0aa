package eauth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
)

// memory is a Store that forgets.
type memory struct {
	mu sync.Mutex
	m  map[string][]byte
	// disk is what a power cut leaves.
	disk map[string][]byte
	gone map[string]time.Time // what was deleted, and until when it must not come back
}

func (s *memory) Keep(ctx context.Context, key string, value []byte) error {
	if err := s.Put(ctx, key, value); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disk = maps.Clone(s.m)
	return nil
}

func (s *memory) Put(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[string][]byte{}
	}
	s.m[key] = value
	return nil
}

func (s *memory) Get(_ context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m[key], nil
}

func (s *memory) Delete(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, key)
	return nil
}

func (s *memory) DeleteUntil(ctx context.Context, key string, until time.Time) error {
	s.mu.Lock()
	if s.gone == nil {
		s.gone = map[string]time.Time{}
	}
	s.gone[key] = until
	s.mu.Unlock()
	return s.Delete(ctx, key)
}

func (s *memory) Each(_ context.Context, f func(string, []byte)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, v := range s.m {
		f(k, v)
	}
	return nil
}

// load reads a configuration with a file of users beside it.
func load(t testing.TB, settings, users string) *config.Master {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"master": "root_dir: " + dir + "\n" + settings, "users": users} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, _, err := config.LoadMaster(dir)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func noGroups(context.Context, salt.UserName) []string { return nil }

func parse(t testing.TB, cfg *config.Master) *Backends {
	t.Helper()
	b, err := Parse(cfg, System{Groups: noGroups})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newAuthenticator opens one that does not pause after failures.
func newAuthenticator(t testing.TB, store Store, b *Backends) *Authenticator {
	t.Helper()
	return newMember(t, store, "", b)
}

func newMember(t testing.TB, store Store, member string, b *Backends) *Authenticator {
	t.Helper()
	g, err := NewAuthenticator(t.Context(), store, member, b, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	g.failTime = 0
	return g
}

const fileUsers = `
# made by htpasswd, openssl and mkpasswd; the password is "pässwörd 1"
bcrypt:$2b$05$lMjrIxt0AIVGx8z4NLGaLeXbjlzYGSJRsgqSou34dXXMLaaHMkr4i
apache:$2y$05$Vg.DgIxLAsMjUk3a/Cf7reKlSZFfmHCU/XfA.c4/Gbi5cfMatQvmS
sha256:$5$EPazIaGGDtTmQjVF$jBX.wCw0BzliONdGE/PgqmeT0jHd7BMDw5xI1w87mH1
sha512:$6$qwNZkQFL0DKPfg4N$.NDf3T0fhxrZOqjSBV9vH9G4QAfHV3QBL6UPgKEBtx3a.ryBvgxBujbUsxlhWUj7O5qSdfgOG1QU4acLE6T8g/
yescrypt:$y$j9T$y87XK2O/lisodsXjdb8720$RWNKcUWJi2HdBNANtDobK6NvedW0AnQqDGsIeWXX0gD
md5:$1$tBIKjur8$BXjZ9Gh/Ql0f0bWoXoaHC0
apr1:$apr1$Wl7nuTJk$hcEcAsXjTsUzgGSvAeGRx1
sha1:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=
plain:pässwörd 1
locked:!$5$EPazIaGGDtTmQjVF$jBX.wCw0BzliONdGE/PgqmeT0jHd7BMDw5xI1w87mH1
empty:
twice:$5$EPazIaGGDtTmQjVF$jBX.wCw0BzliONdGE/PgqmeT0jHd7BMDw5xI1w87mH1
twice:$2b$05$xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
`

func TestPasswordFile(t *testing.T) {
	g := newAuthenticator(t, &memory{}, parse(t, load(t, "external_auth: {file: {^filename: users, x: [.*]}}\n", fileUsers)))
	const right = "pässwörd 1"
	for user, want := range map[string]bool{
		"bcrypt": true, "apache": true, "sha256": true, "sha512": true, "yescrypt": true, "twice": true,
		"md5": false, "apr1": false, "sha1": false, "plain": false, "locked": false, "empty": false, "nosuch": false,
	} {
		t.Run(user, func(t *testing.T) {
			grant, err := g.Login(t.Context(), user, "file", user, Proof{Secret: right})
			if (err == nil) != want || err != nil && !errors.Is(err, ErrRefused) {
				t.Fatalf("login: %v, want success %t", err, want)
			}
			if want && (grant.Name != user || grant.Backend != "file") {
				t.Errorf("logged in as %+v", grant)
			}
			for _, wrong := range []string{"", "x", right + " ", "pässwörd 2", strings.Repeat("x", 5000), right + "\x00"} {
				if _, err := g.Login(t.Context(), user+wrong[:min(1, len(wrong))], "file", user, Proof{Secret: wrong}); !errors.Is(err, ErrRefused) {
					t.Errorf("login with %.20q: %v, want a refusal", wrong, err)
				}
			}
		})
	}
}

func TestFormsOfPasswordFiles(t *testing.T) {
	const sum = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b" // SHA-256 of "secret"
	for name, c := range map[string]struct{ options, users string }{
		"plain text, asked for": {"^hashtype: plaintext", "fred:secret\n"},
		"with blanks around":    {"^hashtype: plaintext, ^field_separator: ' : '", "fred : secret\r\n"},
		"other fields":          {`^hashtype: plaintext, ^field_separator: "\t", ^username_field: 3, ^password_field: 2`, "x\tsecret\tfred\n"},
		"SHA-256":               {"^hashtype: sha256", "fred:" + sum + ":more\n"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newAuthenticator(t, &memory{}, parse(t, load(t, "external_auth: {file: {^filename: users, "+c.options+"}}\n", c.users)))
			if _, err := g.Login(t.Context(), "1", "file", "fred", Proof{Secret: "secret"}); err != nil {
				t.Errorf("right password: %v", err)
			}
			for user, secret := range map[string]string{"fred": "secret1", "x": "secret", "Fred": "secret"} {
				if _, err := g.Login(t.Context(), "1", "file", user, Proof{Secret: secret}); !errors.Is(err, ErrRefused) {
					t.Errorf("%s with %s: %v, want a refusal", user, secret, err)
				}
			}
		})
	}
}

func TestPasswordFileThatOthersChange(t *testing.T) {
	cfg := load(t, "external_auth: {file: {^filename: users, ^hashtype: plaintext}}\n", "fred:secret\n")
	g := newAuthenticator(t, &memory{}, parse(t, cfg))
	file := filepath.Join(cfg.RootDir, "users")
	for mode, want := range map[os.FileMode]error{0o600: nil, 0o640: nil, 0o400: nil, 0o644: ErrUnavailable, 0o660: ErrUnavailable, 0o602: ErrUnavailable} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Login(t.Context(), "1", "file", "fred", Proof{Secret: "secret"}); !errors.Is(err, want) {
			t.Errorf("mode %04o: %v, want %v", mode, err, want)
		}
	}
}

// Mistakes in the configuration have their place.
func TestBadBackends(t *testing.T) {
	for name, c := range map[string]struct{ settings, want string }{
		"a slip":            {"external_auth:\n  pamm: {fred: [.*]}", `master:3:3: external_auth: there is no authentication backend "pamm"`},
		"everybody":         {"external_auth:\n  auto: {fred: [.*]}", "master:3:3: external_auth: auto would let in everybody"},
		"no file":           {"external_auth:\n  file: {fred: [.*]}", "master:3:3: external_auth: file: ^filename is not set"},
		"a weak hash":       {"external_auth:\n  file:\n    ^filename: x\n    ^hashtype: md5", "master:5:16: external_auth: ^hashtype: md5 is easily cracked"},
		"no number":         {"external_auth:\n  file:\n    ^filename: x\n    ^username_field: a", `master:5:22: external_auth: ^username_field: "a" is not a number`},
		"a slip in a key":   {"external_auth:\n  file:\n    ^filename: x\n    ^hashtyp: md5", "master:5:5: external_auth: the backend file has no option ^hashtyp"},
		"a list":            {"external_auth:\n  file:\n    ^filename: [x]", "master:4:16: external_auth: ^filename: it is not a single value"},
		"no secret":         {"external_auth:\n  sharedsecret: {fred: [.*]}", "master:3:3: external_auth: sharedsecret: sharedsecret is not set"},
		"an odd override":   {"token_expire_user_override: fred", "token_expire_user_override: it is neither true or false nor a mapping"},
		"an override alone": {"token_expire_user_override: {pam: fred}", "token_expire_user_override: pam: the users are not a list"},
	} {
		_, err := Parse(load(t, c.settings+"\n", ""), System{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	b := parse(t, load(t, "external_auth: {rest: {fred: [.*]}}\n", ""))
	if !slices.Equal(b.Absent, []string{"rest"}) || len(b.names()) > 0 {
		t.Errorf("a backend of Salt: absent %v, there %v", b.Absent, b.names())
	}
}

const secretSettings = "sharedsecret: open sesame\nexternal_auth: {sharedsecret: {fred: [test.*], 'ops%': ['@runner']}}\n"

func TestInvalidLoginsAreRefused(t *testing.T) {
	g := newAuthenticator(t, &memory{}, parse(t, load(t, secretSettings, "")))
	if _, err := g.Login(t.Context(), "0", "sharedsecret", "fred", Proof{Secret: "open sesame"}); err != nil {
		t.Fatalf("the right secret: %v", err)
	}
	for i, c := range []struct{ backend, user, secret string }{
		{"sharedsecret", "fred", ""}, {"sharedsecret", "", "open sesame"}, {"sharedsecret", "fred", "open sesam"},
		{"", "fred", "open sesame"}, {"nosuch", "fred", "open sesame"}, {"pam", "fred", "open sesame"}, {"SharedSecret", "fred", "open sesame"},
		{"sharedsecret", "fred\nroot", "open sesame"}, {"sharedsecret", "-x", "open sesame"}, {"sharedsecret", "a:b", "open sesame"},
	} {
		if grant, err := g.Login(t.Context(), fmt.Sprint(i), c.backend, c.user, Proof{Secret: c.secret}); !errors.Is(err, ErrRefused) || grant != nil {
			t.Errorf("%+v: %v, %v; want a refusal", c, grant, err)
		}
	}
}

// login logs fred in.
func login(t testing.TB, g *Authenticator) *Grant {
	t.Helper()
	grant, err := g.Login(t.Context(), "0", "sharedsecret", "fred", Proof{Secret: "open sesame"})
	if err != nil {
		t.Fatal(err)
	}
	return grant
}

func mustToken(t testing.TB, g *Authenticator, life time.Duration) string {
	t.Helper()
	token, _, err := g.MakeToken(t.Context(), login(t, g), life, true)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// A token is good until the moment of its end, and dead from then on, whatever
// the clock of the system does.
func TestTokensExpire(t *testing.T) {
	store := &memory{}
	backends := parse(t, load(t, secretSettings, ""))
	g := newAuthenticator(t, store, backends)
	wall := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	g.clock = clock{wall: func() time.Time { return wall }}
	issued := wall
	token, other := mustToken(t, g, time.Hour), mustToken(t, g, time.Hour)
	list, err := g.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	end := list[1].Expires // a moment after the hour, since the time goes on
	for _, after := range []time.Duration{0, time.Minute, 59*time.Minute + 30*time.Second} {
		wall = issued.Add(after)
		if grant, err := g.Token(t.Context(), token); err != nil || grant.Name != "fred" || grant.Backend != "sharedsecret" {
			t.Errorf("after %s: %v, %v", after, grant, err)
		}
	}
	wall = issued.Add(-time.Hour) // set back: the time goes on
	if _, err := g.Token(t.Context(), token); err != nil {
		t.Errorf("with the clock set back: %v", err)
	}
	wall = end
	if _, err := g.Token(t.Context(), token); !errors.Is(err, ErrExpired) {
		t.Errorf("at its end: %v, want an end", err)
	}
	wall = issued
	for name, token := range map[string]string{"the token": token, "one that was not tried at its end": other} {
		if _, err := g.Token(t.Context(), token); !errors.Is(err, ErrRefused) {
			t.Errorf("%s, with the clock set back after its end: %v, want a refusal", name, err)
		}
	}
	if n := len(tokensIn(store)); n > 0 {
		t.Errorf("%d tokens are left", n)
	}
}

func tokensIn(s *memory) (keys []string) {
	_ = s.Each(context.Background(), func(key string, _ []byte) {
		if len(key) == len(tokenKey("")) {
			keys = append(keys, key)
		}
	})
	return keys
}

// openAt opens one whose clock follows wall from the beginning.
func openAt(t *testing.T, store Store, member string, b *Backends, wall *time.Time) *Authenticator {
	t.Helper()
	g := &Authenticator{
		log: slog.New(slog.DiscardHandler), store: store, member: member, looks: map[string]*look{}, tokensOf: map[string]int{}, refused: map[string]bool{},
		clock: clock{wall: func() time.Time { return *wall }},
	}
	g.backends.Store(b)
	if err := g.openTokens(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}

// Nor does a restart with a clock that was set back revive it.
func TestTokensOverARestart(t *testing.T) {
	store := &memory{}
	backends := parse(t, load(t, secretSettings, ""))
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	wall := start
	g := openAt(t, store, "", backends, &wall)
	alive, dead := mustToken(t, g, 3*time.Hour), mustToken(t, g, time.Hour)
	wall = start.Add(2 * time.Hour)
	if err := g.noteTime(t.Context()); err != nil {
		t.Fatal(err)
	}
	wall = start
	g = openAt(t, store, "", backends, &wall)
	if _, err := g.Token(t.Context(), dead); !errors.Is(err, ErrRefused) {
		t.Errorf("a token from before: %v, want a refusal", err)
	}
	if _, err := g.Token(t.Context(), alive); err != nil {
		t.Errorf("a token that lives: %v", err)
	}
}

// The store holds nothing that one could log in with.
func TestStoredTokensAreDigests(t *testing.T) {
	store := &memory{}
	g := newAuthenticator(t, store, parse(t, load(t, secretSettings, "")))
	token := mustToken(t, g, 0)
	for key, value := range store.m {
		for _, secret := range []string{token, "open sesame"} {
			if strings.Contains(key+string(value), secret) {
				t.Errorf("the store holds %q", secret)
			}
		}
		if _, err := g.Token(t.Context(), key); !errors.Is(err, ErrRefused) {
			t.Errorf("login with the key %s of the store: %v, want a refusal", key, err)
		}
	}
	if _, err := g.Token(t.Context(), strings.ToUpper(token)); !errors.Is(err, ErrRefused) {
		t.Errorf("a token in other letters: %v, want a refusal", err)
	}
	for _, bad := range []string{"", "x", token[:63], token + "0", strings.Repeat("0", 64), clockKey} {
		if _, err := g.Token(t.Context(), bad); !errors.Is(err, ErrRefused) {
			t.Errorf("token %q: %v, want a refusal", bad, err)
		}
	}
}

// stub is a backend whose accounts a test changes.
type stub struct {
	mu      sync.Mutex
	account Account
	err     error
	lookErr error
	looks   int
}

func (s *stub) Verify(context.Context, string, Proof) (Account, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.account, s.err
}

func (s *stub) Look(context.Context, string) (Account, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	return s.account, s.lookErr
}

func (s *stub) set(a Account, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.account, s.lookErr = a, err
}

// stubbed is an authenticator whose backend sharedsecret is the stub.
func stubbed(t testing.TB, s Backend, settings string) *Authenticator {
	t.Helper()
	b := parse(t, load(t, secretSettings+settings, ""))
	b.all["sharedsecret"].Backend = s
	return newAuthenticator(t, &memory{}, b)
}

// forget makes the authenticator look at accounts again, as lookEvery does.
func (g *Authenticator) forgetLooks() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looks = map[string]*look{}
}

// Whatever happens to an account ends its tokens and logins.
func TestTokensDieWithTheAccount(t *testing.T) {
	good := Account{Name: "fred", Groups: []string{"ops"}, Version: "1"}
	for name, c := range map[string]struct {
		account Account
		err     error
		want    error
		back    bool // it is alive once the account is again
	}{
		"unchanged":            {good, nil, nil, true},
		"another password":     {Account{Name: "fred", Version: "2"}, nil, ErrRefused, false},
		"locked":               {Account{}, fmt.Errorf("%w: it is locked", ErrRefused), ErrRefused, false},
		"renamed":              {Account{Name: "Fred", Version: "1"}, nil, ErrRefused, false},
		"a server that is off": {Account{}, errors.New("connection refused"), ErrUnavailable, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stub{account: good}
			g := stubbed(t, s, "")
			token, session := mustToken(t, g, 0), login(t, g)
			s.set(c.account, c.err)
			g.forgetLooks()
			if _, err := g.Check(t.Context(), session); !errors.Is(err, c.want) {
				t.Errorf("the login: %v, want %v", err, c.want)
			}
			if _, err := g.Token(t.Context(), token); !errors.Is(err, c.want) {
				t.Errorf("the token: %v, want %v", err, c.want)
			}
			s.set(good, nil)
			g.forgetLooks()
			if _, err := g.Token(t.Context(), token); (err == nil) != c.back {
				t.Errorf("the token, when the account is as before: %v, want it alive: %t", err, c.back)
			}
		})
	}
}

// A login whose account cannot be looked at holds for a while only.
func TestLoginsThatCanNotBeLookedAt(t *testing.T) {
	s := &stub{account: Account{Name: "fred"}, lookErr: errUnknowable}
	g := stubbed(t, s, "")
	wall := time.Now()
	g.clock = clock{wall: func() time.Time { return wall }}
	session := login(t, g)
	g.forgetLooks()
	if _, err := g.Check(t.Context(), session); err != nil {
		t.Errorf("at once: %v", err)
	}
	_, expires, err := g.MakeToken(t.Context(), session, 0, true)
	if err != nil || expires.After(wall.Add(blindTime+time.Minute)) {
		t.Errorf("its token expires at %s, %v; want it after %s", expires, err, blindTime)
	}
	wall = wall.Add(blindTime + time.Second)
	if _, err := g.Check(t.Context(), session); !errors.Is(err, ErrRefused) {
		t.Errorf("after %s: %v, want a refusal", blindTime, err)
	}
}

// A token that is made with a token ends with it, so that nobody renews forever
// what they once proved: neither past a certificate, nor unseen by a directory.
func TestTokensOfTokens(t *testing.T) {
	for name, c := range map[string]struct {
		lookErr error
		life    time.Duration
		within  time.Duration
	}{
		"a short one":     {nil, time.Hour, time.Hour},
		"the usual one":   {nil, 0, 12 * time.Hour},
		"without a look":  {errUnknowable, 0, blindTime},
		"of a late login": {errUnknowable, time.Hour, blindTime},
	} {
		t.Run(name, func(t *testing.T) {
			g := stubbed(t, &stub{account: Account{Name: "fred"}, lookErr: c.lookErr}, "")
			wall := time.Now()
			begun := wall
			g.clock = clock{wall: func() time.Time { return wall }}
			proven := login(t, g)
			wall = wall.Add(c.within / 2)
			g.forgetLooks()
			token, end, err := g.MakeToken(t.Context(), proven, c.life/2, true)
			if err != nil {
				t.Fatal(err)
			}
			wall = wall.Add(c.within / 4)
			g.forgetLooks()
			again, err := g.Token(t.Context(), token)
			if err != nil {
				t.Fatal(err)
			}
			of, later, err := g.MakeToken(t.Context(), again, 0, true)
			if err != nil || later.After(end) {
				t.Errorf("the token of a token ends at %s, %v; want no later than %s", later, err, end)
			}
			if _, err := g.Token(t.Context(), of); err != nil {
				t.Errorf("the token of a token: %v", err)
			}
			if c.lookErr != nil && end.After(begun.Add(c.within+time.Minute)) {
				t.Errorf("the token ends at %s, want it %s after the login", end, c.within)
			}
		})
	}
}

// One user does not take the room for tokens from the others, and gets it back.
func TestTokensOfOneUserAreBounded(t *testing.T) {
	g := newAuthenticator(t, &memory{}, parse(t, load(t, secretSettings, "")))
	fred := login(t, g)
	g.tokensOf[lookKey(fred.Backend, fred.Name)] = maxOfUser - 1
	if _, _, err := g.MakeToken(t.Context(), fred, 0, false); err != nil {
		t.Errorf("the last one: %v", err)
	}
	if _, _, err := g.MakeToken(t.Context(), fred, 0, false); !errors.Is(err, ErrBusy) {
		t.Errorf("one more: %v, want it refused", err)
	}
	gina, err := g.Login(t.Context(), "0", "sharedsecret", "gina", Proof{Secret: "open sesame"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.MakeToken(t.Context(), gina, 0, false); err != nil {
		t.Errorf("another user's: %v", err)
	}
	if err := g.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.MakeToken(t.Context(), fred, 0, false); err != nil {
		t.Errorf("once it is known that the others are gone: %v", err)
	}
}

// Groups are those of now, unless the token keeps the rules of then.
func TestGroupsOfTokens(t *testing.T) {
	for keep, want := range map[string][]string{"false": {"web"}, "true": {"ops"}} {
		s := &stub{account: Account{Name: "fred", Groups: []string{"ops"}}}
		g := stubbed(t, s, "keep_acl_in_token: "+keep+"\n")
		token := mustToken(t, g, 0)
		s.set(Account{Name: "fred", Groups: []string{"web"}}, nil)
		g.forgetLooks()
		grant, err := g.Token(t.Context(), token)
		if err != nil || !slices.Equal(grant.Groups, want) {
			t.Errorf("keep_acl_in_token %s: %v, %v; want the groups %v", keep, grant, err, want)
			continue
		}
		if kept := strings.Contains(grant.Rules, "test.*") && strings.Contains(grant.Rules, "ops%"); kept != (keep == "true") {
			t.Errorf("keep_acl_in_token %s keeps %q", keep, grant.Rules)
		}
	}
}

// What a token keeps it keeps while the configuration says so: taken back there, the tokens
// that there are have the groups and rules of now, and so has a login by one of them.
func TestKeptRulesAreTakenBack(t *testing.T) {
	s := &stub{account: Account{Name: "fred", Groups: []string{"ops"}}}
	g := stubbed(t, s, "keep_acl_in_token: true\n")
	token := mustToken(t, g, 0)
	session, err := g.Token(t.Context(), token)
	if err != nil || session.Rules == "" {
		t.Fatalf("the token keeps %+v, %v", session, err)
	}
	s.set(Account{Name: "fred", Groups: []string{"web"}}, nil)
	g.Set(stubbed(t, s, "").backends.Load())
	of, _, err := g.MakeToken(t.Context(), mustCheck(t, g, session), 0, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{token, of} {
		if grant, err := g.Token(t.Context(), shown); err != nil || grant.Rules != "" || !slices.Equal(grant.Groups, []string{"web"}) {
			t.Errorf("a token: %+v, %v; want the groups of now, and no rules", grant, err)
		}
	}
	if grant := mustCheck(t, g, session); grant.Rules != "" || !slices.Equal(grant.Groups, []string{"web"}) {
		t.Errorf("the login: %+v; want the groups of now, and no rules", grant)
	}
	list, err := g.List(t.Context(), nil)
	if err != nil || len(list) != 2 || list[0].KeepsRules || list[1].KeepsRules {
		t.Errorf("the list says %+v, %v; want two that keep nothing", list, err)
	}
	s.set(Account{}, errUnknowable) // nobody can be looked at any more: the rules are those of now all the same
	g.forgetLooks()
	if grant := mustCheck(t, g, session); grant.Rules != "" {
		t.Errorf("the login, which nobody can look at: %+v", grant)
	}
}

func mustCheck(t *testing.T, g *Authenticator, old *Grant) *Grant {
	t.Helper()
	grant, err := g.Check(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	return grant
}

// A token that is made with one that keeps rules has these: those of now were for the groups
// of then, which nobody has had.
func TestTokensOfTokensThatKeepRules(t *testing.T) {
	s := &stub{account: Account{Name: "fred", Groups: []string{"ops"}}}
	g := stubbed(t, s, "keep_acl_in_token: true\n")
	session, err := g.Token(t.Context(), mustToken(t, g, 0))
	if err != nil {
		t.Fatal(err)
	}
	s.set(Account{Name: "fred"}, nil)
	b := parse(t, load(t, "keep_acl_in_token: true\n"+strings.Replace(secretSettings, "@runner", "cmd.run", 1), ""))
	b.all["sharedsecret"].Backend = s
	g.Set(b)
	of, _, err := g.MakeToken(t.Context(), mustCheck(t, g, session), 0, false)
	if err != nil {
		t.Fatal(err)
	}
	grant, err := g.Token(t.Context(), of)
	if err != nil || grant.Rules != session.Rules || strings.Contains(grant.Rules, "cmd.run") {
		t.Errorf("the token of a token keeps %q, %v; want %q", grant.Rules, err, session.Rules)
	}
}

func TestLifetimes(t *testing.T) {
	for override, want := range map[string]bool{
		"true": true, "false": false, "{sharedsecret: [fred, tom]}": true, "{sharedsecret: [tom]}": false, "{pam: [fred]}": false, "{}": false,
	} {
		g := newAuthenticator(t, &memory{}, parse(t, load(t, secretSettings+"token_expire: 100\ntoken_expire_user_override: "+override+"\n", "")))
		grant := login(t, g)
		_, expires, err := g.MakeToken(t.Context(), grant, 5*time.Hour, false)
		if (err == nil) != want || err != nil && !errors.Is(err, ErrLifetime) {
			t.Errorf("override %s: %v, want success %t", override, err, want)
		}
		if err == nil && expires.Sub(g.clock.now()) < 4*time.Hour {
			t.Errorf("override %s: it expires at %s", override, expires)
		}
		if _, expires, err := g.MakeToken(t.Context(), grant, 0, false); err != nil || expires.Sub(g.clock.now()) > 100*time.Second {
			t.Errorf("override %s, the usual life: until %s, %v", override, expires, err)
		}
	}
}

func TestListAndDelete(t *testing.T) {
	g := newAuthenticator(t, &memory{}, parse(t, load(t, secretSettings, "")))
	one, two := mustToken(t, g, 0), mustToken(t, g, 0)
	list, err := g.List(t.Context(), nil)
	if err != nil || len(list) != 2 || list[0].User != "fred" || list[0].Backend != "sharedsecret" {
		t.Fatalf("%+v, %v", list, err)
	}
	if list[0].ID != TokenID(one) && list[1].ID != TokenID(one) {
		t.Errorf("%s is the id of neither: %+v", TokenID(one), list)
	}
	for _, name := range []string{"", "abc", one, TokenID(one) + "00", strings.Repeat("0", 64), "zz" + TokenID(one)} {
		if err := forget(t, g, name); err == nil {
			t.Errorf("delete %q found something", name)
		}
	}
	if _, err := g.Token(t.Context(), one); err != nil {
		t.Errorf("the token after that: %v", err)
	}
	if err := forget(t, g, " "+strings.ToUpper(TokenID(one))); err != nil {
		t.Errorf("delete by id: %v", err)
	}
	if _, err := g.Token(t.Context(), one); !errors.Is(err, ErrRefused) {
		t.Errorf("the deleted token: %v, want a refusal", err)
	}
	if _, err := g.Token(t.Context(), two); err != nil {
		t.Errorf("the other token: %v", err)
	}
	if err := forget(t, g, tokenKey(two)[:shortest]); err != nil {
		t.Errorf("delete by the beginning of an id: %v", err)
	}
	if err := forget(t, g, tokenKey(two)[:shortest]); err == nil {
		t.Error("it can be deleted twice")
	}
}

// A token that is revoked takes with it what is logged in by it, and the tokens
// that were made with it: it may have been stolen.
func TestRevokedTokens(t *testing.T) {
	g := newAuthenticator(t, &memory{}, parse(t, load(t, secretSettings, "")))
	first, other := mustToken(t, g, 0), mustToken(t, g, 0)
	made := []string{first}
	var logins []*Grant
	for range maxLine {
		grant, err := g.Token(t.Context(), made[len(made)-1])
		if err != nil {
			t.Fatal(err)
		}
		token, _, err := g.MakeToken(t.Context(), grant, 0, true)
		if len(made) == maxLine {
			if !errors.Is(err, ErrLifetime) {
				t.Errorf("a token made of %d others: %v, want a refusal", maxLine, err)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		made, logins = append(made, token), append(logins, grant)
	}
	const cut = 2 // the others were made with it
	if err := forget(t, g, TokenID(made[cut])); err != nil {
		t.Fatal(err)
	}
	for i, grant := range logins {
		if _, err := g.Check(t.Context(), grant); errors.Is(err, ErrRefused) != (i >= cut) {
			t.Errorf("the login by token %d of a line that was cut at %d: %v", i, cut, err)
		}
	}
	if list, err := g.List(t.Context(), nil); err != nil || len(list) != cut+1 {
		t.Errorf("%d tokens are listed, %v; want %d", len(list), err, cut+1)
	}
	for i, token := range made {
		if _, err := g.Token(t.Context(), token); errors.Is(err, ErrRefused) != (i >= cut) {
			t.Errorf("token %d of a line that was cut at %d: %v", i, cut, err)
		}
	}
	if _, err := g.Token(t.Context(), other); err != nil {
		t.Errorf("another token: %v", err)
	}
}

// A flood of tokens that are refused is not looked at, and hinders only its source.
func TestFloodOfTokens(t *testing.T) {
	store := &memory{}
	g := newAuthenticator(t, store, parse(t, load(t, secretSettings, "")))
	good := mustToken(t, g, 0)
	busy := 0
	for i := range 200 {
		_, err := g.ShowToken(t.Context(), "eve", fmt.Sprintf("%064x", i))
		if errors.Is(err, ErrBusy) {
			busy++
		} else if !errors.Is(err, ErrRefused) {
			t.Fatalf("a token that is none: %v", err)
		}
	}
	if busy < 150 {
		t.Errorf("%d of 200 were told to wait, want nearly all", busy)
	}
	if _, err := g.ShowToken(t.Context(), "eve", good); !errors.Is(err, ErrBusy) {
		t.Errorf("eve with a good token: %v, want her to wait", err)
	}
	for range 200 {
		if _, err := g.ShowToken(t.Context(), "fred", good); err != nil {
			t.Fatalf("somebody else's: %v", err)
		}
	}
}

// A token that somebody was given survives a power cut, as far as the store keeps anything through one.
func TestATokenSurvivesAPowerCut(t *testing.T) {
	store := &memory{}
	token := mustToken(t, newAuthenticator(t, store, parse(t, load(t, secretSettings, ""))), 0)
	left := &memory{m: store.disk}
	if _, err := newAuthenticator(t, left, parse(t, load(t, secretSettings, ""))).Token(t.Context(), token); err != nil {
		t.Error(err)
	}
}

// leaderless is a store that cannot be asked for a while.
type leaderless struct {
	memory
	err error
}

func (s *leaderless) Get(ctx context.Context, key string) ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.memory.Get(ctx, key)
}

func (s *leaderless) Put(ctx context.Context, key string, value []byte) error {
	if s.err != nil {
		return s.err
	}
	return s.memory.Put(ctx, key, value)
}

func (s *leaderless) Keep(ctx context.Context, key string, value []byte) error {
	if s.err != nil {
		return s.err
	}
	return s.memory.Keep(ctx, key, value)
}

// While the store cannot be asked, no token is accepted or made, none is refused for good, and no login
// ends.
func TestTokensOfAStoreThatCannotBeAsked(t *testing.T) {
	store := &leaderless{}
	g := newAuthenticator(t, store, parse(t, load(t, secretSettings, "")))
	good := mustToken(t, g, 0)
	login, err := g.Token(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	store.err = errors.New("there is no leader")
	_, shown := g.ShowToken(t.Context(), "fred", good)
	_, checked := g.Check(t.Context(), login)
	_, _, made := g.MakeToken(t.Context(), login, 0, false)
	for what, err := range map[string]error{"a token": shown, "a login": checked, "a new token": made} {
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrRefused) || !errors.Is(err, store.err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	store.err = nil
	if _, err := g.ShowToken(t.Context(), "fred", good); err != nil {
		t.Errorf("the token is gone: %v", err)
	}
}

// slow is a backend that takes its time to refuse, and counts.
type slow struct {
	stub
	running, most atomic.Int32
	release       chan struct{}
}

func (s *slow) Verify(ctx context.Context, user string, p Proof) (Account, error) {
	if p.Secret == "right" {
		return Account{Name: user}, nil
	}
	n := s.running.Add(1)
	defer s.running.Add(-1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	select {
	case <-s.release:
	case <-ctx.Done():
	}
	return Account{}, ErrRefused
}

// A flood of failing logins of one source takes a small part of a backend, is
// told to wait, and leaves others alone.
func TestFloodOfLogins(t *testing.T) {
	s := &slow{release: make(chan struct{})}
	g := stubbed(t, s, "")
	var flood sync.WaitGroup
	var refused, busy atomic.Int32
	for range 200 {
		flood.Go(func() {
			switch _, err := g.Login(t.Context(), "eve", "sharedsecret", "fred", Proof{Secret: "wrong"}); {
			case errors.Is(err, ErrBusy):
				busy.Add(1)
			case errors.Is(err, ErrRefused):
				refused.Add(1)
			}
		})
	}
	deadline.Until(t, func() bool { g.clock.now(); return s.running.Load() >= maxOfSource }, "all turns of eve are taken")
	for range 20 { // while both turns of eve are taken
		if _, err := g.Login(t.Context(), "fred", "sharedsecret", "fred", Proof{Secret: "right"}); err != nil {
			t.Fatalf("somebody else meanwhile: %v", err)
		}
	}
	close(s.release)
	deadline.Call(t, flood.Wait, "flood")
	if s.most.Load() > maxOfSource {
		t.Errorf("%d logins of one source at a time, want at most %d", s.most.Load(), maxOfSource)
	}
	if refused.Load()+busy.Load() != 200 || busy.Load() < 150 {
		t.Errorf("%d were refused and %d told to wait, want nearly all of 200 told to wait", refused.Load(), busy.Load())
	}
	if _, err := g.Login(t.Context(), "fred", "sharedsecret", "fred", Proof{Secret: "right"}); err != nil {
		t.Errorf("somebody else afterwards: %v", err)
	}
	if _, err := g.Login(t.Context(), "eve", "sharedsecret", "fred", Proof{Secret: "right"}); !errors.Is(err, ErrBusy) {
		t.Errorf("eve with the right password: %v, want her to wait", err)
	}
}

// TestForgivenSourcesAreForgottenFirst: when there are too many sources, those whose failures are
// forgiven make room, and one that has failed too often still waits.
func TestForgivenSourcesAreForgottenFirst(t *testing.T) {
	l := &limiter{sources: map[string]*source{}}
	for range 2 * maxFailed {
		l.give("eve", l.take("eve"), true)
	}
	for i := len(l.sources); i < maxSources; i++ {
		l.sources[fmt.Sprint(i)] = &source{failed: 1, since: time.Now().Add(-time.Minute)}
	}
	l.take("one more")
	if _, err := l.enter(t.Context(), "eve"); !errors.Is(err, ErrBusy) || len(l.sources) != 2 {
		t.Errorf("eve: %v, want her to wait; there are %d sources, want 2", err, len(l.sources))
	}
}

// costly finds hashes that say themselves how much they cost, which is the operator's choice.
// Others take some milliseconds.
var costly = regexp.MustCompile(`rounds=|\$2|\$y|\$7|argon|scrypt`)

// However many machines send logins, they have half of a backend: who is on the master's own
// does not wait for them.
func TestFloodOfRemoteLogins(t *testing.T) {
	s := &slow{release: make(chan struct{})}
	g := stubbed(t, s, "")
	var flood sync.WaitGroup
	for i := range 4 * maxOfBackend {
		flood.Go(func() {
			_, _ = g.Login(t.Context(), fmt.Sprint("guest:", i), "sharedsecret", "fred", Proof{Secret: "wrong", Remote: true})
		})
	}
	deadline.Until(t, func() bool { g.clock.now(); return s.running.Load() >= maxOfBackend/2 }, "all turns of guests are taken")
	if _, err := g.Login(t.Context(), "fred", "sharedsecret", "fred", Proof{Secret: "right"}); err != nil {
		t.Errorf("somebody on the master's machine meanwhile: %v", err)
	}
	close(s.release)
	deadline.Call(t, flood.Wait, "flood")
	if s.most.Load() > maxOfBackend/2 {
		t.Errorf("%d logins from other machines at a time, want at most %d", s.most.Load(), maxOfBackend/2)
	}
}

// FuzzPasswordFile reads any file as one of users: nobody gets in whose entry it
// has not.
func FuzzPasswordFile(f *testing.F) {
	f.Add("fred:$2b$05$lMjrIxt0AIVGx8z4NLGaLeXbjlzYGSJRsgqSou34dXXMLaaHMkr4i\n", "fred", "x")
	f.Add("fred:$y$j9T$$\n", "fred", "x")
	f.Add("fred:$6$rounds=0$$\n:x\n", "", "x")
	f.Add("fred:$5$salt$KtBfBPSFfWQTAzAl7fBPL5gYJmvLYz9YtG9GqkNgrJ6\nanna:$6$a$\n", "fred", "x")
	f.Fuzz(func(t *testing.T, text, user, secret string) {
		if len(text) > 1000 || len(secret) > 100 || costly.MatchString(text) {
			return
		}
		name := filepath.Join(t.TempDir(), "users")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file := &passwordFile{name: name, kind: "htpasswd", separator: ":", secret: 1, trustedUID: os.Geteuid()}
		if a, err := file.Verify(t.Context(), user, Proof{Secret: secret}); err == nil && !strings.Contains(text, user+":"+a.Version) {
			t.Errorf("%q let %q in", text, user)
		}
	})
}

// forget deletes a token as an operator names it.
func forget(t *testing.T, g *Authenticator, id string) error {
	t.Helper()
	key, err := g.Find(t.Context(), id, nil)
	if err != nil {
		return err
	}
	return g.Delete(t.Context(), key)
}

// TestOwnTokens: who has logged in finds their own tokens, and of others' nothing.
func TestOwnTokens(t *testing.T) {
	g := newAuthenticator(t, &memory{}, parse(t, load(t, secretSettings, "")))
	token := mustToken(t, g, 0)
	fred, other := login(t, g), &Grant{Backend: "sharedsecret", Account: Account{Name: "ann"}}
	for _, of := range []*Grant{other, {Backend: "file", Account: Account{Name: "fred"}}} {
		list, err := g.List(t.Context(), of)
		if err != nil || len(list) != 0 {
			t.Errorf("%s of %s sees %+v, %v", of.Name, of.Backend, list, err)
		}
		none, err := g.Find(t.Context(), "00000000", of)
		key, other := g.Find(t.Context(), TokenID(token), of)
		if key != none || err == nil || other == nil || strings.ReplaceAll(other.Error(), TokenID(token), "00000000") != err.Error() {
			t.Errorf("the token of another is %q, %v; one that there is not %q, %v", key, other, none, err)
		}
	}
	if list, err := g.List(t.Context(), fred); err != nil || len(list) != 1 {
		t.Errorf("one's own: %+v, %v", list, err)
	}
	if _, err := g.Find(t.Context(), TokenID(token), fred); err != nil {
		t.Error(err)
	}
}
