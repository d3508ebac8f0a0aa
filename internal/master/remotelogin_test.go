package master_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// TestRemoteLoginIsASetting: without it the right password lets nobody in over the network,
// and the answer names the setting; on the master's own machine it does.
func TestRemoteLoginIsASetting(t *testing.T) {
	const rules = "sharedsecret: word\nexternal_auth: {sharedsecret: {ada: [test.ping]}}\n"
	login := protocol.Login{Backend: "sharedsecret", User: "ada", Password: "word"}
	for name, c := range map[string]struct {
		setting string
		in      bool
	}{"unset": {"", false}, "false": {"remote_login: False\n", false}, "true": {"remote_login: True\n", true}} {
		t.Run(name, func(t *testing.T) {
			w := start(t, rules+c.setting)
			key, err := pki.LoadPrivate(filepath.Join(w.cfg.PKIDir, "master.pem"))
			if err != nil {
				t.Fatal(err)
			}
			guest, err := rpc.DialGuest("tls://"+w.m.Addr().String(), key.Public().SHA256())
			if err != nil {
				t.Fatal(err)
			}
			defer guest.Close()
			q := login
			q.Next = guest.Next()
			err = guest.Ask(t.Context(), protocol.OpLogin, q, nil)
			if c.in != (err == nil) || !c.in && (!strings.Contains(err.Error(), "does not allow logins from other machines") || rpc.CodeOf(err) != rpc.Denied) {
				t.Errorf("over the network: %v", err)
			}
			if err := w.user().Ask(t.Context(), protocol.OpLogin, login, nil); err != nil {
				t.Errorf("on the master's machine: %v", err)
			}
		})
	}
}

// remote logs in over the network and comes back as the user.
func (w *world) remote(q protocol.Login) *rpc.Conn {
	w.t.Helper()
	key, err := pki.LoadPrivate(filepath.Join(w.cfg.PKIDir, "master.pem"))
	if err != nil {
		w.t.Fatal(err)
	}
	guest, err := rpc.DialGuest("tls://"+w.m.Addr().String(), key.Public().SHA256())
	if err != nil {
		w.t.Fatal(err)
	}
	var in protocol.LoggedIn
	q.Next = guest.Next()
	if err := guest.Ask(w.t.Context(), protocol.OpLogin, q, &in); err != nil {
		w.t.Fatal(err)
	}
	c, err := guest.Enter(in.Backend, in.User)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

// TestTheEndOfATokenEndsItsSessions: when a token expires, what is told to its user ends by
// itself, nothing more is answered, and the connection is cut; that of another login stays.
func TestTheEndOfATokenEndsItsSessions(t *testing.T) {
	w := start(t, "sharedsecret: word\nremote_login: True\ntoken_expire_user_override: True\n"+
		"external_auth: {sharedsecret: {ada: [test.ping], bob: [test.ping]}}\nevent_acl: {'sharedsecret:ada': {listen: 'x/*'}, 'sharedsecret:bob': {listen: 'x/*'}}\n")
	var in protocol.LoggedIn
	if err := w.user().Ask(t.Context(), protocol.OpLogin, protocol.Login{Backend: "sharedsecret", User: "ada", Password: "word", MakeToken: true, Expire: 2}, &in); err != nil {
		t.Fatal(err)
	}
	ada, bob := w.remote(protocol.Login{Token: in.Token}), w.remote(protocol.Login{Backend: "sharedsecret", User: "bob", Password: "word"})
	heard, err := ada.Call(protocol.OpListen, protocol.Listen{Tags: []string{"x/"}})
	if err != nil {
		t.Fatal(err)
	}
	defer heard.Close()
	if err := heard.Decode(t.Context(), new(protocol.Ready)); err != nil {
		t.Fatal(err)
	}
	w.m.CutEnded(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := heard.Next(ctx); rpc.CodeOf(err) != rpc.Denied {
		t.Fatalf("what is heard ends with %v", err)
	}
	if err := ada.Ask(ctx, protocol.OpEnd, nil, nil); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("a request after the end: %v", err)
	}
	w.m.CutEnded(t.Context())
	w.until("the connection to be cut", ada.NC.IsClosed)
	if err := bob.Ask(ctx, protocol.OpEnd, nil, nil); err != nil {
		t.Errorf("another login: %v", err)
	}
}
