package client_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/saltcmd"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/test/deadline"
)

// fingerprint returns the fingerprint of the master's key.
func fingerprint(t *testing.T) string {
	t.Helper()
	key, err := pki.LoadPublic(filepath.Join(root, "etc/salt/pki/master/master.pub"))
	if err != nil {
		t.Fatal(err)
	}
	return key.SHA256()
}

// remote connects over the network without credentials.
func remote(t *testing.T) *client.Conn {
	t.Helper()
	return connect(t, "tls://127.0.0.1:"+port, client.Fingerprint(fingerprint(t)))
}

var ada = client.Login{Backend: "sharedsecret", User: "ada", Password: "secret word"}

// A user of external_auth on another machine has the rights that the same login has on the
// master's, and no others.
func TestRemote(t *testing.T) {
	here, there := connect(t, socket), remote(t)
	for _, c := range []*client.Conn{here, there} {
		if _, err := c.Login(t.Context(), ada); err != nil {
			t.Fatal(err)
		}
		got := returns(t, c, client.Glob("web1"), client.Call("test.echo", "x"))
		if len(got) != 1 || !got[0].OK() || got[0].Value != "x" {
			t.Errorf("test.echo: %+v", got)
		}
		if _, err := c.Run(t.Context(), client.Glob("web1"), client.Call("test.sleep", 1)); !errors.Is(err, client.ErrDenied) {
			t.Errorf("a function that the login has no rule for: %v", err)
		}
		if _, err := c.Runner(t.Context(), client.Call("manage.up")); !errors.Is(err, client.ErrDenied) {
			t.Errorf("a runner that the login has no rule for: %v", err)
		}
		if _, err := c.Fire(t.Context(), client.Event{Tag: "ada/x", Data: json.RawMessage("{}")}); !errors.Is(err, client.ErrDenied) {
			t.Errorf("an event that the login may only hear: %v", err)
		}
		l, err := c.Listen(t.Context(), client.ListenOptions{Tags: []string{"ada/"}})
		if err != nil {
			t.Errorf("events that the login may hear: %v", err)
			continue
		}
		l.Close()
	}
}

// Without a login nothing is permitted, and a failed login grants nothing.
func TestRemoteWithoutLogin(t *testing.T) {
	c := remote(t)
	check := func(when string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for what, ask := range map[string]func() error{
			"run":    func() error { _, err := c.Run(ctx, client.Glob("*"), client.Call("test.ping")); return err },
			"runner": func() error { _, err := c.Runner(ctx, client.Call("manage.up")); return err },
			"listen": func() error { _, err := c.Listen(ctx, client.ListenOptions{}); return err },
			"fire":   func() error { _, err := c.Fire(ctx, client.Event{Tag: "ada/x"}); return err },
		} {
			if err := ask(); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s, %s: %v", when, what, err)
			}
		}
	}
	check("before a login")
	wrong := ada
	wrong.Password = "wrong"
	if _, err := c.Login(t.Context(), wrong); !errors.Is(err, client.ErrDenied) {
		t.Fatalf("a wrong password: %v", err)
	}
	check("after a login that failed")
	if _, err := c.Login(t.Context(), client.Login{Token: strings.Repeat("ab", 32)}); !errors.Is(err, client.ErrDenied) {
		t.Fatalf("a token that is none: %v", err)
	}
	if _, err := c.Login(t.Context(), ada); err != nil {
		t.Fatal(err)
	}
	if got := returns(t, c, client.Glob("web1"), client.Call("test.ping")); len(got) != 1 || !got[0].OK() {
		t.Errorf("after the login: %+v", got)
	}
}

// There is no login to a master with another key.
func TestRemoteWrongKey(t *testing.T) {
	other, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{other.Public().SHA256(), "", "x", fingerprint(t)[:len(fingerprint(t))-1]} {
		_, err := client.Connect(t.Context(), "tls://127.0.0.1:"+port, client.Fingerprint(f))
		if f == "" && err == nil || f != "" && !errors.Is(err, client.ErrServer) {
			t.Errorf("fingerprint %q: %v", f, err)
		}
	}
}

// When a token is revoked, the event streams of its user end, and their next requests are
// refused.
func TestRemoteTokenRevoked(t *testing.T) {
	first := remote(t)
	l := ada
	l.MakeToken = true
	s, err := first.Login(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	c := remote(t)
	if _, err := c.Login(t.Context(), client.Login{Token: s.Token}); err != nil {
		t.Fatal(err)
	}
	ears, err := c.Listen(t.Context(), client.ListenOptions{Tags: []string{"ada/"}})
	if err != nil {
		t.Fatal(err)
	}
	defer ears.Close()
	id := tokenOf(t, first)
	if _, err := first.Runner(t.Context(), client.Call("auth.del_token", id)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := ears.Next(ctx); !errors.Is(err, client.ErrDenied) && !errors.Is(err, client.ErrLost) {
		t.Errorf("a listener whose token was revoked: %v", err)
	}
	if _, err := c.Run(t.Context(), client.Glob("web1"), client.Call("test.ping")); !errors.Is(err, client.ErrDenied) && !errors.Is(err, client.ErrLost) {
		t.Errorf("a job by a token that was revoked: %v", err)
	}
	if _, err := remote(t).Login(t.Context(), client.Login{Token: s.Token}); !errors.Is(err, client.ErrDenied) {
		t.Errorf("a login by a token that was revoked: %v", err)
	}
}

// tokenOf returns the id of the only token of the user.
func tokenOf(t *testing.T, c *client.Conn) string {
	t.Helper()
	list, err := c.Runner(t.Context(), client.Call("auth.list_tokens"))
	if err != nil {
		t.Fatal(err)
	}
	tokens, _ := list.([]any)
	if len(tokens) == 0 {
		t.Fatalf("no token in %v", list)
	}
	one, _ := tokens[len(tokens)-1].(map[string]any)
	return fmt.Sprint(one["id"])
}

// guest connects below this package, as an attacker would, and collects permission errors.
func guest(t *testing.T, key *pki.PrivateKey, nonce string, more ...nats.Option) (*nats.Conn, bus.Identity, chan error) {
	t.Helper()
	certificate, err := key.Certificate(bus.GuestCertificate)
	if err != nil {
		t.Fatal(err)
	}
	self := bus.Identity{Role: bus.RoleGuest, Key: bus.KeyToken(key.Public().Key()), Nonce: nonce}
	complaints := make(chan error, 100)
	nc, err := nats.Connect("tls://127.0.0.1:"+port, append(more, nats.Secure(&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}}),
		nats.UserInfo(nonce, ""), nats.CustomInboxPrefix(self.Inbox()), nats.NoReconnect(), nats.IgnoreDiscoveredServers(), nats.UseOldRequestStyle(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { complaints <- err }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc, self, complaints
}

// A guest has no access to the subjects of a user, of another key and of all guests, and the
// key of a user's connection alone does not make a connection that user's.
func TestRemoteAttacks(t *testing.T) {
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	nc, self, complaints := guest(t, key, bus.NewNonce())
	login := fmt.Sprintf(`{"eauth":"sharedsecret","username":"ada","password":"secret word","next":%q}`, bus.NewNonce())
	m, err := nc.Request(bus.RequestSubject(bus.RoleGuest, self.Key, "login"), []byte(login), time.Minute)
	if err != nil || !strings.Contains(string(m.Data), `"ada"`) {
		t.Fatalf("the login: %v, %s", err, m.Data)
	}
	again, _, other := guest(t, key, bus.NewNonce()) // with the key of the login, but not its nonce
	subjects := []string{
		bus.RequestSubject(bus.RoleRemote, bus.LoginName("sharedsecret", "ada"), "publish"), bus.RequestSubject(bus.RoleUser, "0", "publish"),
		bus.RequestSubject(bus.RoleGuest, self.Key, "publish"), bus.RequestSubject(bus.RoleGuest, strings.Repeat("0", 64), "login"),
	}
	for _, s := range subjects {
		for c, output := range map[*nats.Conn]chan error{nc: complaints, again: other} {
			if err := c.PublishRequest(s, c.NewRespInbox(), []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
			if err := deadline.Receive(t, output, "output"); !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: %v", s, err)
			}
		}
	}
	m, err = nc.Request(bus.RequestSubject(bus.RoleGuest, self.Key, "login"), []byte(login), time.Minute)
	if err != nil || !strings.Contains(string(m.Data), "already") {
		t.Errorf("a second login of the same connection: %v, %s", err, m.Data)
	}
	m, err = again.Request(bus.RequestSubject(bus.RoleGuest, self.Key, "login"), []byte(strings.Replace(login, `"next"`, `"other"`, 1)), time.Minute)
	if err != nil || !strings.Contains(string(m.Data), "names the connection") {
		t.Errorf("a login for no connection: %v, %s", err, m.Data)
	}
}

// Guesses from another machine are slowed down by address, whatever keys are used; other
// addresses are not affected.
func TestRemoteGuesses(t *testing.T) {
	guess := func(from string, n int) (busy int) {
		key, err := pki.Generate(pki.Ed25519, 0)
		if err != nil {
			t.Fatal(err)
		}
		dialer := nats.Dialer(&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}})
		nc, self, _ := guest(t, key, bus.NewNonce(), dialer)
		q := fmt.Sprintf(`{"token":%q,"next":%q}`, strings.Repeat("ab", 32), bus.NewNonce())
		ended := make(chan bool, n)
		for range n {
			go func() {
				m, err := nc.Request(bus.RequestSubject(bus.RoleGuest, self.Key, "login"), []byte(q), time.Minute)
				ended <- err == nil && strings.Contains(string(m.Data), `"busy"`)
			}()
		}
		for range n {
			if <-ended {
				busy++
			}
		}
		return busy
	}
	network := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(250), rand.IntN(250)) // the limit for this network stays
	busy := 0
	for range 5 { // each with its own key, and fewer guesses than the limit for one
		busy += guess(network+"2", 6)
	}
	if busy == 0 {
		t.Error("thirty guesses from one address were all looked at")
	}
	if guess(network+"3", 6) > 0 {
		t.Error("another address was refused for them")
	}
	if _, err := connect(t, socket).Login(t.Context(), ada); err != nil {
		t.Errorf("a login on the master's machine: %v", err)
	}
}

// tool runs salt as on another machine, with this home directory.
func tool(t *testing.T, home, typed string, tty bool, words ...string) (code int, output string) {
	t.Helper()
	var out bytes.Buffer
	getenv := func(name string) string { return map[string]string{"HOME": home}[name] }
	env := &cli.Env{Name: "salt", Args: words, Stdin: strings.NewReader(typed), Stdout: &out, Stderr: &out, Getenv: getenv, StdinTTY: tty}
	return saltcmd.Run(t.Context(), env), out.String()
}

// On a terminal a login shows the fingerprint of the master's key, and nothing is sent or
// stored unless the user confirms it.
func TestLoginAsksAboutTheKey(t *testing.T) {
	home := t.TempDir()
	file := filepath.Join(home, ".config/salt/cli")
	login := []string{"login", "-a", "sharedsecret", "--username", "ada", "tls://127.0.0.1:" + port}
	code, output := tool(t, home, "n\n", true, login...)
	if _, err := os.Stat(file); code != cli.NoPermission || !strings.Contains(output, fingerprint(t)) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key that was not confirmed: code %d, %v, %s", code, err, output)
	}
	if code, output = tool(t, home, "secret word\n", false, login...); code != cli.Usage || !strings.Contains(output, "--fingerprint") {
		t.Errorf("nobody to ask: code %d, %s", code, output)
	}
	if code, output = tool(t, home, "y\nsecret word\n", true, login...); code != cli.OK || strings.Contains(output, "secret word") {
		t.Fatalf("the login: code %d, %s", code, output)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the login is kept as %v, %v", info, err)
	}
	if code, output = tool(t, home, "", false, "web1", "test.ping"); code != cli.OK {
		t.Errorf("a job by the token: code %d, %s", code, output)
	}
	if code, output = tool(t, home, "secret word\n", false, login...); code != cli.OK {
		t.Errorf("another login at a master that is known: code %d, %s", code, output)
	}
	if os.Geteuid() != 0 {
		return // only root can give a file away
	}
	if err := os.Chown(file, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if code, output = tool(t, home, "", false, "web1", "test.ping"); code != cli.NoPermission || !strings.Contains(output, "its owner 12345") {
		t.Errorf("a login that is another user's: code %d, %s", code, output)
	}
}
