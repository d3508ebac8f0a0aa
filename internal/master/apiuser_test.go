package master_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
)

// byCredentials writes the credentials of a client as salt-event creds does, and returns what
// connects with them.
func (w *world) byCredentials(name salt.ClientName) func() (*rpc.Conn, error) {
	w.t.Helper()
	dir, c := w.t.TempDir(), w.client(name, time.Time{})
	master, err := pki.LoadPrivate(filepath.Join(w.cfg.PKIDir, "master.pem"))
	if err != nil {
		w.t.Fatal(err)
	}
	ca, err := master.Authority()
	if err != nil {
		w.t.Fatal(err)
	}
	own, err := c.key.Certificate(salt.ClientPrefix + string(name))
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{"name": string(name), "url": "tls://" + w.m.Addr().String(), "server_name": bus.ServerName, "ca": "ca", "cert": "cert", "key": "key"})
	if err != nil {
		w.t.Fatal(err)
	}
	for file, b := range map[string][]byte{"ca": ca, "cert": pki.CertificatePEM(own), "key": c.key.PEM(), "client.json": text} {
		if err := os.WriteFile(filepath.Join(dir, file), b, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	return func() (*rpc.Conn, error) { return rpc.DialCredentials("", dir) }
}

// opened connects as the owner of credentials and logs in, for somebody at an address.
func (w *world) opened(dial func() (*rpc.Conn, error), user, address string) *rpc.Conn {
	w.t.Helper()
	c, err := dial()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	if user == "" {
		return c
	}
	q := protocol.Login{Backend: "sharedsecret", User: user, Password: "word", Address: address}
	if err := c.Ask(w.t.Context(), protocol.OpLogin, q, nil); err != nil {
		w.t.Fatal(err)
	}
	return c
}

const apiRules = `sharedsecret: word
api_user: [salt-api, 'client:web']
external_auth: {sharedsecret: {ada: ['@runner': [manage.up]], eve: ['@runner': [manage.up]]}}
event_acl: {'sharedsecret:ada': {listen: 'x/*'}, 'sharedsecret:eve': {listen: 'x/*'}}
`

// The address of a client is taken from the credentials that api_user names and from no others,
// nor from an account that has the same name.
func TestOnlyAPIUserNamesClientAddresses(t *testing.T) {
	w := start(t, apiRules)
	web, other := w.byCredentials("web"), w.byCredentials("salt-api")
	w.opened(web, "ada", "192.0.2.7")
	c := w.opened(other, "", "")
	q := protocol.Login{Backend: "sharedsecret", User: "ada", Password: "word", Address: "192.0.2.7"}
	if err := c.Ask(t.Context(), protocol.OpLogin, q, nil); rpc.CodeOf(err) != rpc.Denied || !strings.Contains(err.Error(), "may not log others in") {
		t.Errorf("another client: %v", err)
	}
	q.Address = ""
	if err := c.Ask(t.Context(), protocol.OpLogin, q, nil); err != nil {
		t.Errorf("without an address: %v", err)
	}
	found := entries(t, w.user(), map[string]any{"user": "ada", "kind": "login"})
	if !slices.ContainsFunc(found, func(e map[string]any) bool { return e["source"] == "192.0.2.7" && e["verdict"] == "allowed" }) {
		t.Errorf("the audit log has no login from the address: %v", found)
	}
}

// TestOneLoginDoesNotFillThoseOfOthers: whom a program has logged in counts for themselves,
// so that all places of one are none of another's.
func TestOneLoginDoesNotFillThoseOfOthers(t *testing.T) {
	w := start(t, apiRules)
	web := w.byCredentials("web")
	eve, ada := w.opened(web, "eve", "192.0.2.7"), w.opened(web, "ada", "192.0.2.8")
	listen := func(c *rpc.Conn) error {
		s, err := c.Call(protocol.OpListen, protocol.Listen{Tags: []string{"x/"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s.Decode(t.Context(), new(protocol.Ready))
	}
	var full error
	for range 200 {
		if full = listen(eve); full != nil {
			break
		}
	}
	if rpc.CodeOf(full) != rpc.Busy {
		t.Fatalf("all that one login may have under way: %v", full)
	}
	if err := listen(ada); err != nil {
		t.Errorf("another login: %v", err)
	}
	if err := listen(w.opened(web, "eve", "192.0.2.9")); rpc.CodeOf(err) != rpc.Busy {
		t.Errorf("the same from another address: %v", err)
	}
}

// TestGuessesFromOneNetworkAreSlowed: a host may send each guess from another address of its IPv6
// network. They count together, and the audit log has each address.
func TestGuessesFromOneNetworkAreSlowed(t *testing.T) {
	w := start(t, apiRules)
	web := w.byCredentials("web")
	guess := func(c *rpc.Conn, address, password string) rpc.Code {
		q := protocol.Login{Backend: "sharedsecret", User: "ada", Password: password, Address: address}
		return rpc.CodeOf(c.Ask(t.Context(), protocol.OpLogin, q, nil))
	}
	var all sync.WaitGroup
	for i := range 22 { // some are forgiven meanwhile
		c := w.opened(web, "", "")
		all.Go(func() { guess(c, fmt.Sprintf("2001:db8::%x", i+1), "guess") })
	}
	deadline.Call(t, all.Wait, "all")
	c := w.opened(web, "", "")
	if code := guess(c, "2001:db8::ffff", "guess"); code != rpc.Busy {
		t.Errorf("one more guess, from another address of the network: %q, want %q", code, rpc.Busy)
	}
	if code := guess(c, "2001:db8:0:1::1", "word"); code != "" {
		t.Errorf("a login from another network: %q", code)
	}
	if found := entries(t, w.user(), map[string]any{"user": "ada", "kind": "login"}); !slices.ContainsFunc(found, func(e map[string]any) bool { return e["source"] == "2001:db8::1" }) {
		t.Errorf("the audit log does not have the address of a guess: %v", found)
	}
}

// The credentials of api_user have connections for the users whom they log in; others have no more
// than each key has.
func TestAPIUserHasConnectionsForItsLogins(t *testing.T) {
	w := start(t, apiRules)
	web, other := w.byCredentials("web"), w.byCredentials("salt-api")
	for range broker.MaxPerKey {
		w.opened(web, "", "")
		w.opened(other, "", "")
	}
	w.opened(web, "", "")
	if c, err := other(); !errors.Is(err, rpc.ErrRefused) {
		if err == nil {
			c.Close()
		}
		t.Errorf("one more than a key may have: %v", err)
	}
}
