package master_test

import (
	"path/filepath"
	"strings"
	"testing"

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
			if c.in != (err == nil) || !c.in && (!strings.Contains(err.Error(), "nobody log in from another machine") || rpc.CodeOf(err) != rpc.Denied) {
				t.Errorf("over the network: %v", err)
			}
			if err := w.user().Ask(t.Context(), protocol.OpLogin, login, nil); err != nil {
				t.Errorf("on the master's machine: %v", err)
			}
		})
	}
}
