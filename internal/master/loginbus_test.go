package master_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// A login replaces the rights of the connection on the bus of events, too: root's
// connection is not an operator's any more, nor that of a user of this machine with the name
// of the login.
func TestAfterALoginTheBusHasItsRights(t *testing.T) {
	w := start(t, `external_auth: {file: {^filename: users, fred: [test.*]}}
event_acl:
  fred: {fire: [local/*], listen: [local/*]}
  '*': {fire: [all/*], listen: [all/*]}
  'file:fred': {fire: [app/*, 'salt/*'], listen: app/*}
`)
	w.write("users", "fred:$2b$05$g3QWkLfBQeik8mgn9tYqreTWW5S3XBr9Hq/Ue66IY.p.aflqq37RO\n")
	if err := os.Chmod(filepath.Join(w.dir, "users"), 0o600); err != nil {
		t.Fatal(err)
	}
	fire := func(c *rpc.Conn, tag string) error {
		f := protocol.Fire{ID: bus.NewNonce(), Events: []event.Item{{Tag: tag, Data: json.RawMessage("{}")}}}
		return c.Ask(t.Context(), protocol.OpFire, f, nil)
	}
	listen := func(c *rpc.Conn, tag string) error {
		s, err := c.Call(protocol.OpListen, protocol.Listen{Tags: []string{tag}, UntilEnd: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, err = s.Next(t.Context())
		return err
	}
	root, fred := w.user(), w.user()
	login := protocol.Login{Backend: "file", User: "fred", Password: "gruener-hering"}
	if err := fred.Ask(t.Context(), protocol.OpLogin, login, nil); err != nil {
		t.Fatal(err)
	}
	for tag, may := range map[string]bool{"app/x": true, "local/x": false, "all/x": false, "other": false, "salt/job/x": false} {
		if err := fire(root, tag); err != nil {
			t.Errorf("root, fire %s: %v", tag, err)
		}
		if err := fire(fred, tag); (rpc.CodeOf(err) != rpc.Denied) != may {
			t.Errorf("after a login, fire %s: %v", tag, err)
		}
		if err := listen(fred, tag); (rpc.CodeOf(err) != rpc.Denied) != may {
			t.Errorf("after a login, listen to %s: %v", tag, err)
		}
	}
	for _, op := range []string{protocol.OpStat, protocol.OpPurge} {
		if err := fred.Ask(t.Context(), op, protocol.Purge{Durable: "x", User: "root"}, nil); rpc.CodeOf(err) != rpc.Denied {
			t.Errorf("after a login, %s: %v", op, err)
		}
	}
}
