package master_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// credentials are those of one client, as salt-event creds makes them.
type credentials struct {
	name    string // as it claims
	key     *pki.PrivateKey
	nonce   string
	violate chan error
}

// client makes the key of name accepted.
func (w *world) client(name salt.ClientName, expires time.Time) *credentials {
	w.t.Helper()
	c := &credentials{name: string(name), key: key(w.t), nonce: bus.NewNonce(), violate: make(chan error, 100)}
	if err := w.store().AddClient(pki.Client{Name: name, Key: c.key.Public(), Expires: expires}); err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) store() *pki.Store {
	w.t.Helper()
	s, err := pki.OpenExistingStore(w.cfg.PKIDir)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (c *credentials) inbox() string {
	return bus.InboxPrefix(bus.KeyToken(c.key.Public().Key()), c.nonce)
}

// dial connects with nothing but what a library of NATS has, checking the
// master's certificate as any program does.
func (w *world) dial(c *credentials) (*nats.Conn, error) {
	w.t.Helper()
	own, err := c.key.Certificate(salt.ClientPrefix + c.name)
	if err != nil {
		w.t.Fatal(err)
	}
	return nats.Connect("tls://"+w.m.Addr().String(), nats.UserInfo(c.nonce, ""), nats.CustomInboxPrefix(c.inbox()), nats.NoReconnect(),
		nats.Secure(&tls.Config{ServerName: bus.ServerName, RootCAs: w.authority(), Certificates: []tls.Certificate{own}}),
		nats.Timeout(20*time.Second), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.violate <- err }))
}

func (w *world) authority() *x509.CertPool {
	w.t.Helper()
	k, err := pki.LoadPrivate(w.cfg.PKIDir + "/master.pem")
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := k.Authority()
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(text) {
		w.t.Fatalf("no authority: %v", err)
	}
	return pool
}

func (w *world) mustDial(c *credentials) *nats.Conn {
	w.t.Helper()
	nc, err := w.dial(c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	return nc
}

const eventACL = "event_acl:\n  client:dash:\n    fire: ['mine/*', 'salt/*']\n    listen: mine/*\n  '*': ['all/*']\n"

// request is one question of a client; it returns the code of the refusal.
func request(t *testing.T, nc *nats.Conn, subject, body string) (*nats.Msg, string) {
	t.Helper()
	m, err := nc.Request(subject, []byte(body), 20*time.Second)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	return m, m.Header.Get("Nats-Service-Error-Code")
}

func TestClientFires(t *testing.T) {
	w := start(t, eventACL)
	nc := w.mustDial(w.client("dash", time.Time{}))
	for _, test := range []struct{ name, body, code string }{
		{"granted", `{"events":[{"tag":"mine/a","data":{"n":1}}]}`, ""},
		{"not granted", `{"events":[{"tag":"other","data":{}}]}`, "denied"},
		{"granted to users", `{"events":[{"tag":"all/x"}]}`, "denied"},
		{"one of two", `{"events":[{"tag":"mine/a"},{"tag":"other"}]}`, "denied"},
		{"of the master, though granted", `{"events":[{"tag":"salt/job/20261121113344286549/new"}]}`, "denied"},
		{"of the master, otherwise written", `{"events":[{"tag":"salt//JOB/x"}]}`, "denied"},
		{"not stored, not granted", `{"live":true,"events":[{"tag":"other"}]}`, "denied"},
		{"not stored, of the master", `{"live":true,"events":[{"tag":"mine/a"},{"tag":"salt/auth"}]}`, "denied"},
		{"none", `{"events":[]}`, "usage"},
		{"no JSON", `{`, "usage"},
		{"nothing", ``, "usage"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, code := request(t, nc, "salt.client.dash.req.fire", test.body)
			if code != test.code {
				t.Fatalf("code %q, want %q: %s", code, test.code, m.Data)
			}
			var f protocol.Fired
			if code == "" && (json.Unmarshal(m.Data, &f) != nil || f.Outcome != protocol.Stored || f.Seq == 0) {
				t.Errorf("answered %s", m.Data)
			}
		})
	}
}

// TestClientFiresWithoutStoring: whoever listens for it hears it, and nobody else.
func TestClientFiresWithoutStoring(t *testing.T) {
	w := start(t, eventACL)
	c := w.client("dash", time.Time{})
	nc := w.mustDial(c)
	sub := clientListen(t, nc, c.inbox(), `{"live":true}`)
	m, code := request(t, nc, "salt.client.dash.req.fire", `{"live":true,"events":[{"tag":"mine/live","data":{"n":1}}]}`)
	var f protocol.Fired
	if code != "" || json.Unmarshal(m.Data, &f) != nil || f.Outcome != protocol.Handed || f.Seq != 0 {
		t.Fatalf("answered %q %s", code, m.Data)
	}
	if m := next(t, sub); !strings.HasPrefix(string(m.Data), `{"tag":"mine/live","from":"client:dash","data":{"n":1,"_stamp":"`) || strings.Contains(string(m.Data), `"seq"`) {
		t.Errorf("heard %s", m.Data)
	}
	if got := listenSince(t, w.user(), "mine/live"); len(got) != 0 {
		t.Errorf("stored: %+v", got)
	}
}

// clientListen asks for events and returns when the listener stands.
func clientListen(t *testing.T, nc *nats.Conn, inbox, query string) *nats.Subscription {
	t.Helper()
	sub, err := nc.SubscribeSync(inbox + ".events")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("salt.client.dash.req.listen", inbox+".events", []byte(query)); err != nil {
		t.Fatal(err)
	}
	if m := next(t, sub); !strings.HasPrefix(string(m.Data), `{"ready":true`) {
		t.Fatalf("answered %q %v", m.Data, m.Header)
	}
	return sub
}

func next(t *testing.T, sub *nats.Subscription) *nats.Msg {
	t.Helper()
	m, err := sub.NextMsg(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (w *world) fire(tags ...string) {
	w.t.Helper()
	var q protocol.Fire
	for _, tag := range tags {
		q.Events = append(q.Events, event.Item{Tag: tag})
	}
	if err := w.user().Ask(w.t.Context(), protocol.OpFire, q, nil); err != nil {
		w.t.Fatal(err)
	}
}

func TestClientListens(t *testing.T) {
	w := start(t, eventACL)
	c := w.client("dash", time.Time{})
	nc := w.mustDial(c)
	for _, tags := range []string{`[]`, `["other"]`, `["all/"]`, `["mine/","other"]`, `["salt/"]`} {
		if m, code := request(t, nc, "salt.client.dash.req.listen", `{"tags":`+tags+`}`); code != "denied" && tags != "[]" {
			t.Errorf("tags %s: code %q, %s", tags, code, m.Data)
		}
	}
	sub := clientListen(t, nc, c.inbox(), `{}`)
	w.fire("other", "mine/1", "all/x", "mine/2")
	for _, want := range []string{"mine/1", "mine/2"} {
		m := next(t, sub)
		if !strings.HasPrefix(string(m.Data), `{"tag":"`+want+`","from":"user:`) {
			t.Errorf("heard %s, want %s", m.Data, want)
		}
		if err := m.Respond(nil); err != nil {
			t.Error(err)
		}
	}
}

// A client that acknowledges what it has read gets any number of events; one that does not costs
// the master a bounded amount of memory.
func TestFlowControlOfAClient(t *testing.T) {
	const count = 3 * rpc.Window / 4096
	w := start(t, eventACL)
	c := w.client("dash", time.Time{})
	nc := w.mustDial(c)
	tags := make([]string, count)
	for i := range tags {
		tags[i] = "mine/" + strconv.Itoa(i)
	}
	w.fire(tags...)
	sub := clientListen(t, nc, c.inbox(), `{"from_seq":1,"until_end":true}`)
	heard := 0
	for {
		m := next(t, sub)
		if m.Header.Get("Salt-End") != "" {
			break
		}
		if strings.HasPrefix(string(m.Data), `{"passed"`) {
			continue
		}
		heard++
		if err := m.Respond(nil); err != nil {
			t.Fatal(err)
		}
	}
	if heard != count {
		t.Errorf("heard %d events, want %d", heard, count)
	}
}

// TestClientGoesOnWhereItStopped: positions are kept under its own name.
func TestClientGoesOnWhereItStopped(t *testing.T) {
	w := start(t, eventACL)
	c := w.client("dash", time.Time{})
	nc := w.mustDial(c)
	heard := clientListen(t, nc, c.inbox(), `{"durable":"d"}`)
	w.fire("mine/1", "mine/2")
	var second protocol.End
	for text := ""; !strings.Contains(text, `"mine/2"`); {
		text = string(next(t, heard).Data)
		if err := json.Unmarshal([]byte(text), &second); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	}
	w.fire("mine/3")
	if m, code := request(t, nc, "salt.client.dash.req.place", `{}`); code != "" {
		t.Fatalf("code %q: %s", code, m.Data)
	}
	if m, code := request(t, nc, "salt.client.dash.req.confirm", `{"durable":"d","seq":`+strconv.FormatUint(second.Seq, 10)+`}`); code != "" {
		t.Fatalf("code %q: %s", code, m.Data)
	}
	nc.Close()
	c.nonce = bus.NewNonce()
	sub := clientListen(t, w.mustDial(c), c.inbox(), `{"durable":"d"}`)
	if m := next(t, sub); !strings.Contains(string(m.Data), `"mine/3"`) {
		t.Errorf("goes on with %s, want mine/3", m.Data)
	}
}

// TestClientCannotActAsOtherRoles tries, with valid credentials of a client, the operations of other roles.
func TestClientCannotActAsOtherRoles(t *testing.T) {
	w := start(t, eventACL+"auto_accept: true\n")
	w.minion("web1", pong)
	c, other := w.client("dash", time.Time{}), w.client("other", time.Time{})
	nc := w.mustDial(c)
	for _, subject := range []string{">", "salt.>", "salt.event.>", "salt.minion.*.job", "salt.minion.web1.job", "_INBOX.>", other.inbox() + ".>",
		bus.InboxPrefix(bus.KeyToken(c.key.Public().Key()), bus.NewNonce()) + ".>", "$JS.>", "$SYS.>", "salt.client.dash.>"} {
		for _, queue := range []string{"", "workers"} {
			if _, err := nc.QueueSubscribeSync(subject, queue); err != nil {
				t.Fatal(err)
			}
			c.refused(t, nc, "subscribe to "+subject)
		}
	}
	for _, subject := range []string{"salt.minion.dash.fire", "salt.minion.web1.fire", "salt.minion.web1.req.hello", "salt.minion.web1.ret.20261121113344286549",
		"salt.minion.web1.job", "salt.minion.dash.req.hello", "salt.user.0.req.publish", "salt.user.0.req.fire", "salt.client.other.req.fire",
		"salt.client.other.req.publish", "salt.client.other.req.login", "salt.client.dash.req.keydeed", "salt.client.dash.req.purge", "salt.client.other.ack.1.1", "salt.event.mine",
		"$JS.API.INFO", "$JS.API.STREAM.PURGE.EVENTS", other.inbox() + ".x"} {
		if err := nc.PublishRequest(subject, c.inbox()+".x", []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		c.refused(t, nc, "publish to "+subject)
	}
}

// refused waits for the server's word that it did not let something pass.
func (c *credentials) refused(t *testing.T, nc *nats.Conn, what string) {
	t.Helper()
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-c.violate:
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%s: %v, want a violation", what, err)
		}
	case <-time.After(time.Minute):
		t.Errorf("%s: not refused", what)
	}
}

// TestNoReflection: an answer never goes where the client itself may not speak.
func TestNoReflection(t *testing.T) {
	w := start(t, eventACL)
	c, other := w.client("dash", time.Time{}), w.client("other", time.Time{})
	nc, victim := w.mustDial(c), w.mustDial(other)
	sub, err := victim.SubscribeSync(other.inbox() + ".>")
	if err != nil {
		t.Fatal(err)
	}
	for _, reply := range []string{other.inbox() + ".x", "salt.minion.web1.job", "_INBOX.master.x", c.inbox(), c.inbox() + ".x..y"} {
		if err := nc.PublishRequest("salt.client.dash.req.place", reply, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, code := request(t, nc, "salt.client.dash.req.place", `{}`); code != "" { // those before it are dealt with
		t.Error(code)
	}
	if n, _, err := sub.Pending(); n != 0 || err != nil {
		t.Errorf("the victim got %d messages, %v", n, err)
	}
}

func TestClientsThatAreNotLetIn(t *testing.T) {
	w := start(t, eventACL+"auto_accept: true\n")
	good := w.client("dash", time.Time{})
	for name, c := range map[string]*credentials{
		"another key":            {name: "dash", key: key(t)},
		"another name":           {name: "dash2", key: good.key},
		"nobody":                 {name: "", key: good.key},
		"a path":                 {name: "../minions/web1", key: good.key},
		"expired":                w.client("old", time.Now().Add(-time.Second)),
		"a key that was revoked": w.revoked("gone"),
	} {
		c.nonce, c.violate = bus.NewNonce(), make(chan error, 10)
		if nc, err := w.dial(c); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v", name, err)
			if nc != nil {
				nc.Close()
			}
		}
	}
	if entries, _, err := w.store().List(); err != nil || len(entries) != 0 {
		t.Errorf("the key store has now %v, %v", entries, err)
	}
}

func (w *world) revoked(name salt.ClientName) *credentials {
	c := w.client(name, time.Time{})
	if err := w.store().RemoveClient(name); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// TestRevokedClientIsCut, and nobody else.
func TestRevokedClientIsCut(t *testing.T) {
	w := start(t, eventACL)
	c, other := w.client("dash", time.Time{}), w.client("other", time.Time{})
	nc, stays := w.mustDial(c), w.mustDial(other)
	short := w.mustDial(w.client("short", time.Now().Add(15*time.Second)))
	if err := w.store().RemoveClient("dash"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*nats.Conn{"revoked": nc, "expired": short} {
		w.until("the one that is "+name+" is cut", c.IsClosed)
	}
	if err := stays.Flush(); err != nil {
		t.Errorf("the other was cut too: %v", err)
	}
}
