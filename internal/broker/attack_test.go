package broker_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// limit bounds the waits of a failing test.
const limit = time.Minute

func TestLoginsWithoutAPrivateInboxAreRefused(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	key := bustest.Key(t)
	b.Accept("web1", key)
	for name, option := range map[string]nats.Option{
		"no user at all":     nats.Name("anonymous"),
		"empty user":         nats.UserInfo("", ""),
		"empty user, a pass": nats.UserInfo("", "guess"),
		"a name":             nats.UserInfo("web1", ""),
		"short nonce":        nats.UserInfo("ABCDEFGHIJKLMNO", ""),
		"long nonce":         nats.UserInfo(strings.Repeat("A", 65), ""),
		"wildcard":           nats.UserInfo("ABCDEFGHIJKLMNOPQ.*", ""),
		"all of them":        nats.UserInfo(strings.Repeat(">", 20), ""),
		"dots":               nats.UserInfo("ABCDEFGHIJ.KLMNOPQRST", ""),
		"blank":              nats.UserInfo("ABCDEFGHIJ KLMNOPQRST", ""),
		"the daemon's role":  nats.UserInfo("master:", ""),
		"token":              nats.Token("ABCDEFGHIJKLMNOPQRST"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := []nats.Option{option}
			if c, err := b.Dial(bustest.Claim{ID: "web1", Key: key}, append(options, clearUser(name))...); !errors.Is(err, nats.ErrAuthorization) {
				t.Errorf("got %v, %v; want an authorization violation", c, err)
			}
		})
	}
	t.Cleanup(func() { expectNobody(t, b) })
}

// clearUser removes the nonce that Dial sets, for cases without one.
func clearUser(name string) nats.Option {
	return func(o *nats.Options) error {
		if name == "no user at all" || name == "token" {
			o.User, o.Password = "", ""
		}
		return nil
	}
}

// expectNobody fails if anybody is connected: a refused connection must leave nothing behind.
func expectNobody(t *testing.T, b *bustest.Bus) {
	b.Connections(func(i bus.Identity, _ func()) { t.Errorf("%s is connected", i) })
}

func TestInvalidIDsAreRefused(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	for _, id := range []string{
		"", ".", "..", "../x", "a/b", "a\x00b", "/etc/passwd", "*", ">", "web1.*", "a b", "a,b", "a\nb", "-web1", strings.Repeat("a", 300), "wéb1", "ａ", "web1\u200b",
	} {
		if c, err := b.Dial(bustest.Claim{ID: id, Key: bustest.Key(t)}); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("id %q: %v, %v; want an authorization violation", id, c, err)
		}
	}
	expectNobody(t, b)
}

func TestTransportsThatAreRefused(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	key := bustest.Key(t)
	b.Accept("web1", key)
	t.Run("plain", func(t *testing.T) {
		r := b.RawTCP(t)
		r.Send(`CONNECT {"user":"`+bus.NewNonce()+`","tls_required":false}`, "PING")
		if lines, served := r.Until("PONG"); served {
			t.Errorf("served without TLS: %q", lines)
		}
	})
	t.Run("TLS 1.2", func(t *testing.T) {
		if c, err := b.Dial(bustest.Claim{ID: "web1", Key: key, TLS: tls.VersionTLS12}); err == nil {
			t.Errorf("connected: %v", c)
		}
	})
	t.Run("no certificate", func(t *testing.T) {
		if c, err := b.Dial(bustest.Claim{ID: "web1"}); err == nil {
			t.Errorf("connected: %v", c)
		}
	})
	if c, err := b.Dial(bustest.Claim{ID: "web1", Key: key}); err != nil {
		t.Errorf("the right way: %v", err)
	} else {
		c.Close()
	}
	t.Run("a session resumed", func(t *testing.T) { // resuming a session would need no key
		certificate, err := key.Certificate("web1")
		if err != nil {
			t.Fatal(err)
		}
		cfg := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
		for range 2 {
			c, err := b.Dial(bustest.Claim{ID: "web1", Key: key}, nats.Secure(cfg))
			if err != nil {
				t.Fatal(err)
			}
			if s, err := c.TLSConnectionState(); err != nil || s.DidResume {
				t.Errorf("resumed: %t, %v", s.DidResume, err)
			}
			if err := c.Flush(); err != nil {
				t.Error(err)
			}
			c.Close()
		}
	})
}

// A certificate is public; only its private key proves an identity.
func TestCopiedCertificate(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	key, own := bustest.Key(t), bustest.Key(t)
	b.Accept("web1", key)
	certificate, err := key.Certificate("web1")
	if err != nil {
		t.Fatal(err)
	}
	certificate.PrivateKey = own.Signer()
	c, err := b.Dial(bustest.Claim{ID: "web1", Key: own}, nats.Secure(&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}}))
	if err == nil {
		t.Errorf("connected: %v", c)
	}
	expectNobody(t, b)
}

func TestAnInboxHasOneConnection(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	key, thief := bustest.Key(t), bustest.Key(t)
	b.Accept("web1", key)
	b.Accept("web2", thief)
	nonce := bus.NewNonce()
	first := dial(t, b, bustest.Claim{ID: "web1", Key: key, Nonce: nonce})
	if _, err := b.Dial(bustest.Claim{ID: "web1", Key: key, Nonce: nonce}); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("a second connection with the nonce of a living one: %v", err)
	}
	second := dial(t, b, bustest.Claim{ID: "web2", Key: thief, Nonce: nonce}) // another inbox
	heard, err := second.SubscribeSync(first.Self.Inbox() + ".>")
	if err != nil {
		t.Fatal(err)
	}
	answered, err := first.SubscribeSync(first.Self.Inbox() + ".>")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*bustest.Client{first, second} {
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Conn().Publish(first.Self.Inbox()+".1", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	if _, err := answered.NextMsg(limit); err != nil {
		t.Errorf("the owner heard nothing: %v", err)
	}
	if err := second.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, err := heard.Pending(); n > 0 && err == nil {
		t.Error("the thief heard the answer")
	}
	first.Close()
	awaitGone(t, b)
	dial(t, b, bustest.Claim{ID: "web1", Key: key, Nonce: nonce}) // the limit is free again
}

func dial(t *testing.T, b *bustest.Bus, c bustest.Claim, more ...nats.Option) *bustest.Client {
	t.Helper()
	client, err := b.Dial(c, more...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func awaitGone(t *testing.T, b *bustest.Bus) bus.Identity {
	t.Helper()
	select {
	case i := <-b.Gone:
		return i
	case <-time.After(limit):
		t.Fatal("nobody was told of the end of a connection")
	}
	return bus.Identity{}
}

func TestOneKeyHasSoManyConnections(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	claim := bustest.Claim{ID: "web1", Key: bustest.Key(t)}
	b.Accept("web1", claim.Key)
	var all []*bustest.Client
	for range broker.MaxPerKey {
		all = append(all, dial(t, b, claim))
	}
	if _, err := b.Dial(claim); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("connection %d: %v", broker.MaxPerKey+1, err)
	}
	b.As(t, bus.RoleMinion, "web2") // another key is not affected
	all[0].Close()
	awaitGone(t, b)
	dial(t, b, claim)
}

// Each of these is admitted by its key and then refused by the server itself. None may stay
// counted for the key.
func TestRefusedAfterAdmissionLeavesNoGhost(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	claim := bustest.Claim{ID: "web1", Key: bustest.Key(t)}
	b.Accept("web1", claim.Key)
	for name, rest := range map[string]string{
		"answers without headers": `"headers":false,"no_responders":true`,
		"a protocol of its own":   `"protocol":99`,
		"the system account":      `"account":"SYS"`,
		"the global account":      `"account":"$G"`,
		"a new account":           `"account":"mine","new_account":true`,
	} {
		for range broker.MaxPerKey/5 + 1 {
			r := b.RawTLS(t, claim)
			r.Send(`CONNECT {"user":"`+bus.NewNonce()+`",`+rest+`}`, "PING")
			if lines, served := r.Until("PONG"); served {
				t.Fatalf("%s: served: %q", name, lines)
			}
			awaitGone(t, b)
		}
	}
	expectNobody(t, b)
	dial(t, b, claim)
}

// The server would accept a second CONNECT: with another inbox in each, one connection could
// use up the memory for registered connections.
func TestSecondConnectEndsTheConnection(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	claim := bustest.Claim{ID: "web1", Key: bustest.Key(t)}
	b.Accept("web1", claim.Key)
	r := b.RawTLS(t, claim)
	r.Send(`CONNECT {"user":"`+bus.NewNonce()+`"}`, "PING")
	if lines, served := r.Until("PONG"); !served {
		t.Fatalf("not served: %q", lines)
	}
	r.Send(`CONNECT {"user":"`+bus.NewNonce()+`","name":"salt-call"}`, "PING")
	if lines, served := r.Until("PONG"); served {
		t.Errorf("served as somebody else: %q", lines)
	}
	awaitGone(t, b)
	expectNobody(t, b)
}

func TestProtocolLimits(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	claim := bustest.Claim{ID: "web1", Key: bustest.Key(t)}
	b.Accept("web1", claim.Key)
	for name, c := range map[string]struct{ line, want string }{
		"payload":           {"PUB salt.minion.web1.fire 2000000", "-ERR 'Maximum Payload Violation'"},
		"payload of 2^63":   {"PUB salt.minion.web1.fire 9223372036854775808", ""},
		"negative payload":  {"PUB salt.minion.web1.fire -5", ""},
		"headers":           {"HPUB salt.minion.web1.fire 2000000 2000001", "-ERR 'Maximum Payload Violation'"},
		"control line":      {"PUB salt.minion.web1." + strings.Repeat("a", 5000) + " 0", "-ERR 'Maximum Control Line Exceeded'"},
		"endless line":      {"PUB " + strings.Repeat("a", 1<<20), "-ERR 'Maximum Control Line Exceeded'"},
		"junk":              {"GIVE me all", "-ERR 'Unknown Protocol Operation'"},
		"a route's word":    {"RS+ SALT salt.event.>", "-ERR"},
		"a route's message": {"RMSG SALT salt.event.x 2", "-ERR"},
		"a leaf's word":     {"LS+ salt.event.>", "-ERR"},
		"a leaf's message":  {"LMSG salt.event.x 2", "-ERR"},
		"an account's word": {"A+ SALT", "-ERR"},
		"the web":           {"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", "-ERR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := b.RawTLS(t, claim)
			r.Send(`CONNECT {"user":"`+bus.NewNonce()+`","headers":true,"verbose":false}`, "PING")
			if _, served := r.Until("PONG"); !served {
				t.Fatal("not served")
			}
			r.Send(c.line, "PING")
			lines, served := r.Until("PONG")
			if served || !strings.Contains(strings.ToLower(strings.Join(lines, "\n")), strings.ToLower(c.want)) {
				t.Errorf("answer %q, served on: %v; want %s and the end", lines, served, c.want)
			}
		})
	}
}

// TestSubscriptionsOfAConnection: nobody, with an accepted key or without, fills the table of subjects, by
// many subscriptions or by deep ones. A subscription for each request that may be under way is possible.
func TestSubscriptionsOfAConnection(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	known := bustest.Claim{ID: "web1", Key: bustest.Key(t)}
	b.Accept("web1", known.Key)
	for name, claim := range map[string]bustest.Claim{"a minion": known, "an unknown key": {ID: "web2", Key: bustest.Key(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nonce := bus.NewNonce()
			inbox := bus.InboxPrefix(event.Escape(bus.KeyToken(claim.Key.Public().Key())), nonce)
			r := b.RawTLS(t, claim)
			r.Send(`CONNECT {"user":"`+nonce+`","headers":true,"verbose":false}`, "PING")
			if _, served := r.Until("PONG"); !served {
				t.Fatal("not served")
			}
			try := func(subject string, sid int) string {
				r.Send(fmt.Sprintf("SUB %s %d", subject, sid), "PING")
				lines, _ := r.Until("PONG")
				return strings.ToLower(strings.Join(lines, " "))
			}
			if said := try(inbox+".a.b.c.d.e", 1); !strings.Contains(said, "-err") {
				t.Errorf("a deep subscription: %q", said)
			}
			n := 0
			for refused := false; !refused && n < 1000; n++ {
				said := try(fmt.Sprintf("%s.%d", inbox, n), n+2)
				if refused = strings.Contains(said, "-err"); refused && !strings.Contains(said, "maximum subscriptions exceeded") {
					t.Errorf("subscription %d: %q", n, said)
				}
			}
			if n <= 128 || n > 160 { // 128 requests may be under way
				t.Errorf("%d subscriptions", n)
			}
		})
	}
}

// The port accepts only clients, whatever a peer sends before or in its CONNECT to appear as
// another kind.
func TestOtherKindsOfPeersAreRefused(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	claim := bustest.Claim{ID: "web1", Key: bustest.Key(t)}
	b.Accept("web1", claim.Key)
	for name, line := range map[string]string{
		"route":     `INFO {"server_id":"x","cluster":"c","nonce":"n"}`,
		"leaf":      `CONNECT {"server_id":"x","remote_account":"SALT","is_leaf":true}`,
		"gateway":   `CONNECT {"gateway":"g","server_id":"x"}`,
		"web":       "GET /leafnode HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n",
		"early sub": "SUB > 1",
		"early pub": "PUB salt.event.x 0\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := b.RawTLS(t, claim)
			r.Send(line, "PING")
			if lines, served := r.Until("PONG"); served {
				t.Errorf("served: %q", lines)
			}
		})
	}
}

// serve answers "echo" and records that it did.
func serve(t *testing.T, b *bustest.Bus, called chan<- bus.Identity) {
	t.Helper()
	for _, role := range []bus.Role{bus.RoleMinion, bus.RoleUser} {
		b.Server.Handle(bustest.Probe(role, "echo"), func(ctx context.Context, r *rpc.Request) error {
			called <- r.From
			return r.SendRaw(ctx, []byte("1"))
		})
	}
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
}

// The daemon may publish anywhere, so nobody may be able to make it answer anywhere.
func TestAnswersGoToThePrincipalOnly(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	called := make(chan bus.Identity, 100)
	serve(t, b, called)
	victim := b.As(t, bus.RoleMinion, "victim")
	c := b.As(t, bus.RoleMinion, "web1")
	user := b.As(t, bus.RoleUser, "")
	heard, err := b.Conn().SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	own := c.Self.Inbox()
	elsewhere := []string{
		"", "x", victim.Self.Inbox() + ".1", user.Self.Inbox() + ".1", "salt.minion.victim.job", "salt.minion.web1.job", "salt.event.salt.auth",
		"$JS.API.STREAM.DELETE.EVENTS", "_INBOX.master.x", "_INBOX." + c.Self.Key + ".AAAAAAAAAAAAAAAAAAAA.1",
		own, own + ".", own + ".1.2", own + ".*", own + ".>", "_INBOX.*." + c.Self.Nonce + ".1", "_INBOX.>",
	}
	for _, reply := range elsewhere {
		if err := c.PublishRequest("salt.minion.web1.req.echo", reply, []byte("1")); err != nil {
			t.Fatal(err)
		}
		for subject, body := range map[string]string{"salt.minion.web1.req.echo": "i1", "salt.minion.web1.credit": reply + " 1000000", "salt.minion.web1.ack.1.1000000": ""} { // also with protocol 1
			if err := c.PublishRequest(subject, reply, []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask(t, rpc.NewConn(c.Conn, c.Self)) // the right way, after all of the others
	if from := deadline.Receive(t, called, "called"); from.Name != "web1" || len(called) > 0 {
		t.Errorf("%d more requests were served, one of %s", len(called), from)
	}
	for _, m := range drain(t, b.Conn(), heard) {
		if !strings.HasPrefix(m.Subject, "salt.minion.web1.") && !strings.HasPrefix(m.Subject, own+".") {
			t.Errorf("the daemon spoke on %s", m.Subject)
		}
	}
}

// ask sends the request that serve answers.
func ask(t *testing.T, c *rpc.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := c.Ask(ctx, "echo", 1, nil); err != nil {
		t.Errorf("echo: %v", err)
	}
}

// What a message says about its sender, in headers or body, has no effect.
func TestHeadersOfAPeerHaveNoEffect(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stored := make(chan bus.Identity, 10)
	b.Server.Handle("minionFire", func(ctx context.Context, r *rpc.Request) error {
		_, err := j.Append(ctx, event.Event{Tag: "mytag", Data: []byte("1"), From: r.From.Name}, "")
		stored <- r.From
		return err
	})
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	c := b.As(t, bus.RoleMinion, "web1")
	for range 3 {
		m := nats.NewMsg("salt.minion.web1.fire")
		m.Data, m.Reply = []byte("1"), c.NewInbox()
		for name, value := range map[string]string{
			"Nats-Msg-Id": "same", "Nats-Rollup": "all", "Nats-Expected-Last-Sequence": "99", "Nats-Expected-Stream": "OTHER", "Nats-TTL": "1s",
			"Nats-Request-Info": `{"acc":"SYS","id":"victim"}`, "From": "victim", "Nats-Service-Error": "x",
			"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "Status": "503",
		} {
			m.Header.Set(name, value)
		}
		if err := c.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		select {
		case from := <-stored:
			if from.Name != "web1" {
				t.Errorf("stored in the name of %s", from)
			}
		case <-time.After(limit):
			t.Fatal("not served")
		}
	}
	if last, err := j.Last(t.Context()); err != nil || last != 3 {
		t.Errorf("%d events, %v; want 3", last, err)
	}
}

// A header can make the server report the route of a message to a subject; it must not be one
// on which the principal may not publish.
func TestTraceReportsGoNowhere(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	heard, err := b.Conn().SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	victim := b.As(t, bus.RoleMinion, "victim")
	c := b.As(t, bus.RoleMinion, "web1")
	for _, dest := range []string{"salt.minion.victim.job", "salt.event.salt.auth", victim.Self.Inbox() + ".1", "$JS.API.STREAM.DELETE.EVENTS"} {
		m := nats.NewMsg("salt.minion.web1.fire")
		m.Header.Set("Nats-Trace-Dest", dest)
		m.Header.Set("Nats-Trace-Only", "true")
		if err := c.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, m := range drain(t, b.Conn(), heard) {
		if m.Subject != "salt.minion.web1.fire" {
			t.Errorf("something was said on %s", m.Subject)
		}
	}
}

func TestFloodOfRequestsIsBusyForItsPrincipalOnly(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	entered := make(chan struct{}, 1000)
	b.Server.Handle(bustest.Probe(bus.RoleMinion, "wait"), func(ctx context.Context, r *rpc.Request) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	serve(t, b, make(chan bus.Identity, 100))
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	client := b.As(t, bus.RoleMinion, "web1")
	flood := rpc.NewConn(client.Conn, client.Self)
	const concurrent = 128
	for range concurrent {
		if _, err := flood.Call("wait", nil); err != nil {
			t.Fatal(err)
		}
	}
	for range concurrent {
		deadline.Receive(t, entered, "entered")
	}
	for range 300 {
		s, err := flood.Call("wait", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(ctx); rpc.CodeOf(err) != rpc.Busy {
			t.Fatalf("one too many: %v, want busy", err)
		}
		s.Close()
	}
	other := b.As(t, bus.RoleMinion, "web2")
	ask(t, rpc.NewConn(other.Conn, other.Self))
	local, err := rpc.Dial(b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	ask(t, local)
	client.Close()
	awaitGone(t, b)
	back := dial(t, b, bustest.Claim{ID: "web1", Key: accepted(t, b, "web1")})
	if _, err := rpc.NewConn(back.Conn, back.Self).Call("wait", nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-entered: // the end of the connection made room
	case <-ctx.Done():
		t.Error("the requests of a connection that ended still count")
	}
}

func accepted(t *testing.T, b *bustest.Bus, id string) *pki.PrivateKey {
	t.Helper()
	key := bustest.Key(t)
	b.Accept(salt.MinionID(id), key)
	return key
}

// Incomplete requests are limited, and removed with their connection.
func TestUnfinishedRequests(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	serve(t, b, make(chan bus.Identity, 100))
	c := b.As(t, bus.RoleMinion, "web1")
	answers, err := c.SubscribeSync(c.Self.Inbox() + ".*")
	if err != nil {
		t.Fatal(err)
	}
	begin := func(c *bustest.Client, n int) {
		m := &nats.Msg{Subject: "salt.minion.web1.req.echo", Reply: c.Self.Inbox() + ".half" + strconv.Itoa(n), Data: []byte("["), Header: nats.Header{"Salt-Part": {"more"}}}
		if n%2 == 1 { // with protocol 1
			m.Data, m.Header = []byte("p["), nil
		}
		if err := c.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 17 {
		begin(c, n)
	}
	m, err := answers.NextMsg(limit)
	if err != nil || !strings.Contains(string(m.Data), `"busy"`) {
		t.Fatalf("the seventeenth: %v, %v; want busy", m, err)
	}
	ask(t, rpc.NewConn(c.Conn, c.Self)) // a complete one is still served
	drain(t, c.Conn, answers)
	if err := c.PublishRequest("salt.minion.web1.req.echo", c.Self.Inbox()+".half0", []byte("1]")); err != nil {
		t.Fatal(err)
	}
	if m, err := answers.NextMsg(limit); err != nil || !strings.HasSuffix(m.Subject, ".half0") || string(m.Data) != "1" {
		t.Errorf("the first, completed: %v, %v", m, err)
	}
}

// The only request of an unaccepted key has one piece.
func TestUnacceptedKeysHoldNothing(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	b.Server.Handle("ask", func(ctx context.Context, r *rpc.Request) error { return r.SendRaw(ctx, []byte(`"ok"`)) })
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	c := b.As(t, bus.RoleUnaccepted, "web1")
	answers, err := c.SubscribeSync(c.Self.Inbox() + ".*")
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{"{": `"usage"`, "p{": `"usage"`, strings.Repeat("x", 100<<10): `"usage"`, "i{}": `"ok"`, "{}": `"ok"`} {
		m := &nats.Msg{Subject: bus.AskSubject(c.Self.Key), Reply: c.Self.Inbox() + ".1", Data: []byte(body)}
		if body == "{" {
			m.Header = nats.Header{"Salt-Part": {"more"}}
		}
		if err := c.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
		if m, err := answers.NextMsg(limit); err != nil || !strings.Contains(string(m.Data), want) {
			t.Errorf("%.5q of %d bytes: %v, %v; want %s", body, len(body), m, err, want)
		}
		drain(t, c.Conn, answers) // the end of the answer
	}
}

// On the local socket the kernel names the user: nothing that a process writes into its CONNECT
// gives it another identity.
func TestLocalConnectCarriesNoCredentials(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t)
	uid := strconv.Itoa(os.Geteuid())
	nonce := func() string { return `"user":"` + bus.NewNonce() + `"` }
	for name, more := range map[string]string{
		"password":             `"pass":"guess"`,
		"password twice":       `"pass":"a","pass":"b"`,
		"password in capitals": `"PASS":"guess"`,
		"password folded":      `"pa\u017f\u017f":"guess"`, // encoding/json folds the long s
		"token":                `"auth_token":"guess"`,
		"token in capitals":    `"AUTH_TOKEN":"guess"`,
		"jwt":                  `"jwt":"eyJ","sig":"x"`,
		"nkey":                 `"nkey":"UABC","sig":"x"`,
		"account":              `"account":"SYS"`,
		"Account":              `"Account":"SYS"`,
		"new account":          `"account":"mine","new_account":true`,
		"as salt-call":         `"name":"salt-call"`,
		"as a route":           `"cluster":"c","import":{"allow":[">"]},"export":{"allow":[">"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := b.RawLocal(t)
			r.Send("CONNECT {"+nonce()+","+more+"}", "PING")
			if lines, served := r.Until("PONG"); !served {
				t.Fatalf("not served: %q", lines)
			}
			for _, forbidden := range []string{"SUB > 1", "SUB salt.event.> 2", "SUB $SYS.> 3", "PUB salt.minion.web1.job 0\r\n", "PUB salt.user.1" + uid + ".req.echo 0\r\n", "PUB salt.user." + uid + ".req.x 0\r\n"} {
				r.Send(forbidden)
				if line := r.Line(); !strings.HasPrefix(line, "-ERR 'Permissions Violation") {
					t.Errorf("%s: %q", forbidden, line)
				}
			}
			r.Send("PUB salt.user."+uid+".req.echo 0\r\n", "PING")
			if line := r.Line(); line != "PONG" {
				t.Errorf("the user's own subject: %q", line)
			}
		})
	}
}

func TestLocalFirstLines(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	for name, lines := range map[string][]string{
		"no connect":         {"PING"},
		"sub first":          {"SUB > 1", "PING"},
		"no object":          {"CONNECT []", "PING"},
		"broken":             {`CONNECT {"user":`, "PING"},
		"wrong type":         {`CONNECT {"user":{}}`, "PING"},
		"endless":            {"CONNECT " + strings.Repeat(" ", 1<<20), "PING"},
		"no nonce":           {"CONNECT {}", "PING"},
		"the daemon's":       {`CONNECT {"user":"master:"}`, "PING"},
		"two in one":         {`CONNECT {"user":"` + bus.NewNonce() + `"}`, `CONNECT {"user":"` + bus.NewNonce() + `"}`, "PING"},
		"with a credentials": {`CONNECT {"user":"` + bus.NewNonce() + `"}`, `CONNECT {"user":"` + bus.NewNonce() + `","pass":"x"}`, "PING"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := b.RawLocal(t)
			r.Send(lines...)
			if lines, served := r.Until("PONG"); served {
				t.Errorf("served: %q", lines)
			}
		})
	}
}

func TestCutEndsOneConnection(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*bustest.Bus, bus.Identity, func()){
		"among all":    func(_ *bustest.Bus, _ bus.Identity, cut func()) { cut() },
		"by its inbox": func(b *bustest.Bus, i bus.Identity, _ func()) { b.Cut.Inbox(i.Inbox()) },
		"by its key":   func(b *bustest.Bus, i bus.Identity, _ func()) { b.Cut.Unaccepted(i.Key) },
	} {
		t.Run(name, func(t *testing.T) {
			b := bustest.Start(t)
			closed := make(chan struct{})
			key := bustest.Key(t)
			if name != "by its key" {
				key = accepted(t, b, "web1")
			}
			dial(t, b, bustest.Claim{ID: "web1", Key: key}, nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
			other := b.As(t, bus.RoleMinion, "web2")
			b.Connections(func(i bus.Identity, own func()) {
				if i.Name == "web1" {
					cut(b, i, own)
				}
			})
			select {
			case <-closed:
			case <-time.After(limit):
				t.Fatal("the connection lives")
			}
			if i := awaitGone(t, b); i.Name != "web1" {
				t.Errorf("%s is gone", i)
			}
			if err := other.Flush(); err != nil {
				t.Errorf("the other one: %v", err)
			}
			b.Cut.Inbox("_INBOX.minion.web9.x")
			b.Cut.Unaccepted("of nobody")
		})
	}
}

// Not parallel: it looks at the sockets of the whole process.
func TestOnePortIsOpen(t *testing.T) {
	before := listeners(t)
	b := bustest.StartStore(t)
	port := b.Addr().String()[strings.LastIndexByte(b.Addr().String(), ':')+1:]
	var opened []string
	for inode, p := range listeners(t) {
		if _, old := before[inode]; !old {
			opened = append(opened, p)
		}
	}
	if len(opened) != 1 || opened[0] != port {
		t.Errorf("listening on the ports %v, want %s alone", opened, port)
	}
	before = listeners(t)
	quiet, err := broker.Start(broker.Options{Name: "minion", StoreDir: t.TempDir(), Log: b.Log, Admit: func(broker.Peer) bus.Identity { return bus.Identity{} }})
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Stop()
	if after := listeners(t); len(after) != len(before) || quiet.Addr() != nil {
		t.Errorf("a broker without a listener listens: %v, %v", after, quiet.Addr())
	}
}

// listeners returns the ports on which this process listens over TCP, by inode.
func listeners(t *testing.T) map[string]string {
	t.Helper()
	mine := map[string]bool{}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if link, err := os.Readlink(fd); err == nil {
			mine[strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")] = true
		}
	}
	open := map[string]string{}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(table)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" || !mine[f[9]] { // 0A is LISTEN
				continue
			}
			port, err := strconv.ParseUint(f[1][strings.LastIndexByte(f[1], ':')+1:], 16, 16)
			if err != nil {
				t.Fatal(err)
			}
			open[f[9]] = fmt.Sprint(port)
		}
	}
	return open
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	certificate, err := b.Key.Certificate("salt-master")
	if err != nil {
		t.Fatal(err)
	}
	_, err = broker.Start(broker.Options{Name: "second", Listen: b.Addr().String(), TLS: &tls.Config{Certificates: []tls.Certificate{certificate}}, Log: b.Log})
	if !errors.Is(err, syscall.EADDRINUSE) || salt.Hint(err) == "" {
		t.Errorf("%v (hint %q), want EADDRINUSE with a hint", err, salt.Hint(err))
	}
	if _, err := broker.Start(broker.Options{Name: "bare", Listen: "127.0.0.1:0", Log: b.Log}); err == nil {
		t.Error("a broker listens without TLS")
	}
}

// Not parallel: it looks at all goroutines.
func TestNothingRunsAfterStop(t *testing.T) {
	bustest.CheckLeaks(t)
	b := bustest.StartStore(t)
	b.Server.Handle(bustest.Probe(bus.RoleMinion, "wait"), func(ctx context.Context, r *rpc.Request) error {
		_ = r.Send(ctx, "waiting")
		<-ctx.Done()
		return ctx.Err()
	})
	serve(t, b, make(chan bus.Identity, 100))
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(t.Context(), event.Event{Tag: "mytag", Data: []byte("1")}, ""); err != nil {
		t.Fatal(err)
	}
	c := b.As(t, bus.RoleMinion, "web1")
	s, err := rpc.NewConn(c.Conn, c.Self).Call("wait", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if _, err := s.Next(ctx); err != nil {
		t.Fatal(err)
	}
	local, err := rpc.Dial(b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	ask(t, local)
	b.RawLocal(t) // connects and sends nothing
	b.RawTCP(t)
	b.As(t, bus.RoleUnaccepted, "web2")
}
