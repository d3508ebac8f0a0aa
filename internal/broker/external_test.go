package broker_test

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/capture"
	"github.com/brinebus/brine/test/deadline"
	"github.com/brinebus/brine/test/natslab"
)

// externals are the endpoints through servers of others.
var externals = bus.MasterEndpoints.Of(bus.RoleMinion, bus.RoleCaller, bus.RoleUnaccepted)

// abroad is a bus on a real NATS server.
type abroad struct {
	*broker.External
	t    *testing.T
	lab  *natslab.Cluster
	tls  *tls.Config
	gone chan bus.Identity

	mu       sync.Mutex
	accepted map[salt.MinionID]pki.PublicKey
}

func goAbroad(t *testing.T, change func(config string) string) *abroad {
	t.Helper()
	a := &abroad{t: t, lab: natslab.New(t, 1), gone: make(chan bus.Identity, 1000), accepted: map[salt.MinionID]pki.PublicKey{}}
	a.lab.JetStream = true
	var err error
	if a.tls, err = (pki.ServerPins{Fingers: []string{a.lab.Finger}}).TLS(); err != nil {
		t.Fatal(err)
	}
	c, err := broker.EnsureCredentials(filepath.Join(t.TempDir(), "seed"))
	if err != nil {
		t.Fatal(err)
	}
	config := broker.ExternalConfig(c, externals, true)
	if change != nil {
		config = change(config)
	}
	a.lab.Start(config)
	a.External, err = broker.NewExternal(broker.ExternalOptions{
		Servers: a.lab.Addresses(), Fingers: []string{a.lab.Finger}, Credentials: c, Name: "test", Admit: a.admit, Gone: func(i bus.Identity) { a.gone <- i }, Endpoints: externals, Fail: func(err error) { t.Error(err) }, Log: bustest.Log(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	begun := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Serve(ctx, func() error { close(begun); return nil }) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("Serve does not end")
		}
	})
	select {
	case <-begun:
	case <-time.After(time.Minute):
		t.Fatal("it does not begin")
	}
	return a
}

func (a *abroad) accept(id salt.MinionID, key *pki.PrivateKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.accepted[id] = key.Public()
}

// admit judges keys as a master does.
func (a *abroad) admit(p broker.Peer) bus.Identity {
	id, err := salt.ParseMinionID(p.TLS.PeerCertificates[0].Subject.CommonName)
	if err != nil {
		return bus.Identity{}
	}
	key, err := pki.PublicFromCertificate(p.TLS.PeerCertificates[0])
	if err != nil {
		return bus.Identity{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	i := bus.Identity{Role: bus.RoleUnaccepted, Name: string(id), Key: bus.KeyToken(key.Key()), Source: p.Remote}
	if a.accepted[id].Equal(key) {
		i.Role = bus.RoleMinion
		if p.Caller {
			i.Role = bus.RoleCaller
		}
	}
	return i
}

// peer is what somebody says of themselves.
type peer struct {
	id    string
	key   *pki.PrivateKey           // of the certificate
	nkey  *pki.PrivateKey           // the one shown and signed with; key if nil
	sign  func(nonce []byte) []byte // another signature
	nonce string                    // of the inbox
	more  []nats.Option
}

// dial connects to the first server. That pings each new connection after two seconds, which the client library takes
// for a wrong answer if the master, on a busy machine, has not answered about the connection by then.
func (a *abroad) dial(p peer) (c *bustest.Client, err error) {
	a.t.Helper()
	for range 5 {
		if c, err = a.dialOnce(p); err == nil || !strings.Contains(err.Error(), "expected 'PONG', got 'PING'") {
			break
		}
	}
	return c, err
}

func (a *abroad) dialOnce(p peer) (*bustest.Client, error) {
	a.t.Helper()
	if p.nkey == nil {
		p.nkey = p.key
	}
	if p.nonce == "" {
		p.nonce = bus.NewNonce()
	}
	cert, err := p.key.Certificate(p.id)
	if err != nil {
		a.t.Fatal(err)
	}
	opts := []nats.Option{nats.Secure(a.tls), nats.UserInfo(p.nonce, ""), nats.Token(base64.RawStdEncoding.EncodeToString(cert.Certificate[0])), nats.NoReconnect(), nats.Timeout(10 * time.Second)}
	if raw, ok := p.nkey.Public().Key().(ed25519.PublicKey); ok {
		name, err := nkeys.Encode(nkeys.PrefixByteUser, raw)
		if err != nil {
			a.t.Fatal(err)
		}
		opts = append(opts, nats.Nkey(string(name), func(nonce []byte) ([]byte, error) {
			if p.sign != nil {
				return p.sign(nonce), nil
			}
			return p.nkey.Sign(nonce)
		}))
	}
	c := &bustest.Client{Self: bus.Identity{Role: bus.RoleMinion, Name: p.id, Key: bus.KeyToken(p.key.Public().Key()), Nonce: p.nonce}, Violations: make(chan error, 10_000)}
	opts = append(opts, nats.CustomInboxPrefix(c.Self.Inbox()), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			c.Violations <- err
		}
	}))
	c.Conn, err = nats.Connect("tls://"+a.lab.Servers[0].Address, append(opts, p.more...)...)
	if err == nil {
		a.t.Cleanup(c.Close)
	}
	return c, err
}

// as connects as a role.
func (a *abroad) as(role bus.Role, id string) *bustest.Client {
	a.t.Helper()
	p := peer{id: id, key: bustest.Key(a.t)}
	if role != bus.RoleUnaccepted {
		a.accept(salt.MinionID(id), p.key)
	}
	if role == bus.RoleCaller {
		p.more = append(p.more, nats.Name("salt-call"))
	}
	c, err := a.dial(p)
	if err != nil {
		a.t.Fatalf("connect as %s: %v", role, err)
	}
	c.Self.Role = role
	return c
}

// The rights on a server of others are those of the one table, as on our own.
func TestEveryRoleOnEverySubjectOfAForeignServer(t *testing.T) {
	t.Parallel()
	a := goAbroad(t, func(config string) string { // the master's user may do everything, so that the test can, too
		return regexp.MustCompile(`(users: \[\n *\{nkey: "[^"]*"), permissions: .*\}\}`).ReplaceAllString(config, "$1}")
	})
	rights, spy := externals.Rights(), a.Again(t)
	victim := a.as(bus.RoleMinion, "victim")
	for _, role := range []bus.Role{bus.RoleMinion, bus.RoleCaller, bus.RoleUnaccepted} {
		t.Run(string(role), func(t *testing.T) {
			c := a.as(role, "web1.example")
			subjects := append(probes(c.Self, victim.Self), "salt.master.work", "_INBOX.master.kicked", "$SYS.REQ.USER.AUTH", "$SYS._INBOX.>", "$SYS._INBOX.x",
				"$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.SERVER.x.KICK", "$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT.BRINE.CONNZ", "$SYS.ACCOUNT.BRINE.CONNECT", "$SYS.ACCOUNT.BRINE.DISCONNECT")
			tryPublish(t, spy, rights, c, subjects)
			trySubscribe(t, spy, rights, c, subjects, "")
			trySubscribe(t, spy, rights, c, subjects, "workers")
		})
	}
}

// Nobody is let in by a key that they do not have, or without proof that they are there now.
func TestForeignServerLetsNobodyElseIn(t *testing.T) {
	t.Parallel()
	a := goAbroad(t, nil)
	web1 := bustest.Key(t)
	a.accept("web1", web1)
	rsa, err := pki.Generate(pki.RSA, 2048)
	if err != nil {
		t.Fatal(err)
	}
	var old []byte
	ok, err := a.dial(peer{id: "web1", key: web1, sign: func(nonce []byte) []byte {
		old, _ = web1.Sign(nonce)
		return old
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]peer{
		"a signature of another connection":   {id: "web1", key: web1, sign: func([]byte) []byte { return old }},
		"a signature by another key":          {id: "web1", key: web1, sign: func(n []byte) []byte { s, _ := bustest.Key(t).Sign(n); return s }},
		"no signature":                        {id: "web1", key: web1, sign: func([]byte) []byte { return nil }},
		"another nkey than the certificate's": {id: "web1", key: web1, nkey: bustest.Key(t)},
		"no nkey":                             {id: "web1", key: rsa},
		"an RSA key beside an nkey":           {id: "web1", key: rsa, nkey: bustest.Key(t)},
		"the inbox of another connection":     {id: "web1", key: web1, nonce: ok.Self.Nonce},
		"an inbox of wildcards":               {id: "web1", key: web1, nonce: "*"},
		"a name that is no id":                {id: "*", key: web1},
		"no certificate":                      {id: "web1", key: web1, more: []nats.Option{nats.Token("")}},
		"rubbish as certificate":              {id: "web1", key: web1, more: []nats.Option{nats.Token("AAAA")}},
		"a password beside":                   {id: "web1", key: web1, more: []nats.Option{nats.UserInfo("master", "x")}},
	} {
		if c, err := a.dial(p); err == nil {
			t.Errorf("%s: let in as %v", name, c.Self)
		}
	}
	if _, err := nats.Connect("tls://"+a.lab.Servers[0].Address, nats.Secure(a.tls), nats.NoReconnect()); err == nil {
		t.Error("somebody without anything is let in")
	}
	for _, name := range a.Names() { // the master's own users, whose public keys are no secret
		_, err := nats.Connect("tls://"+a.lab.Servers[0].Address, nats.Secure(a.tls), nats.NoReconnect(), nats.Nkey(name, func(n []byte) ([]byte, error) { return web1.Sign(n) }))
		if err == nil {
			t.Errorf("somebody is let in as %s without its key", name)
		}
	}
	if c, err := a.dial(peer{id: "web1", key: web1}); err != nil {
		t.Errorf("the right one is not let in: %v", err)
	} else if i, here := a.Owner(c.Self.Inbox()); !here || i.Role != bus.RoleMinion || i.Name != "web1" {
		t.Errorf("the right one is %v, %v", i, here)
	}
}

// The users of the master have no more rights than they use, since each is in the configuration
// of servers that others run.
func TestMastersUsersOnAForeignServer(t *testing.T) {
	t.Parallel()
	a := goAbroad(t, nil)
	for n, nc := range a.AgainAll(t) {
		refused := make(chan error, 100)
		nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err })
		for _, subject := range []string{"other", "$JS.API.INFO", "$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.SERVER.x.RELOAD", "$SYS.REQ.ACCOUNT.x.CLAIMS.UPDATE", "salt.user.0.req.publish", "salt.minion.web1.req.hello"} {
			if err := nc.Publish(subject, nil); err != nil {
				t.Fatal(err)
			}
			select {
			case <-refused:
			case <-time.After(10 * time.Second):
				t.Errorf("user %d may publish to %s", n, subject)
			}
		}
		for _, subject := range []string{">", "$SYS.>", "salt.>", "_INBOX.>"} {
			if _, err := nc.SubscribeSync(subject); err != nil {
				t.Fatal(err)
			}
			select {
			case <-refused:
			case <-time.After(10 * time.Second):
				t.Errorf("user %d may subscribe to %s", n, subject)
			}
		}
	}
}

// The user of the journal has JetStream, with the requests of the journal and no others, and
// nothing of the minions; what is refused to it are the powers that it would have over the servers,
// and consumers that outlive its connection.
func TestJournalsUserOnAForeignServer(t *testing.T) {
	t.Parallel()
	a := goAbroad(t, nil)
	nc := a.StoreAgain(t)
	if m, err := nc.Request("$JS.API.INFO", nil, 10*time.Second); err != nil || strings.Contains(string(m.Data), `"error"`) {
		t.Fatalf("it has no JetStream: %v", err)
	}
	refused := make(chan error, 1000)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err })
	isRefused := func() bool {
		if err := nc.FlushTimeout(10 * time.Second); err != nil {
			t.Fatal(err)
		}
		select {
		case <-refused:
			return true
		case <-time.After(100 * time.Millisecond): // an error of a flushed message is here, but for its goroutine
			return false
		}
	}
	for _, subject := range []string{
		"other", "salt.minion.web1.job", "salt.minion.web1.req.hello", "salt.user.0.req.publish", "salt.key.x.req.ask", "salt.master.work", "salt.event.x", "_INBOX.x",
		"$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.SERVER.x.KICK", "$SYS.REQ.USER.AUTH",
		"$JS.API.META.LEADER.STEPDOWN", "$JS.API.SERVER.REMOVE", "$JS.API.ACCOUNT.PURGE.BRINE", "$JS.API.STREAM.PEER.REMOVE.EVENTS_nats", "$JS.API.STREAM.LEADER.STEPDOWN.EVENTS_nats",
		"$JS.API.CONSUMER.DURABLE.CREATE.EVENTS_nats.x", "$JS.API.DIRECT.GET.EVENTS_nats", "$JS.API.STREAM.TEMPLATE.CREATE.x", "$JS.ACK.EVENTS_nats.x.1.1.1.1.1", "$JS.EVENT.x",
	} {
		if err := nc.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		if !isRefused() {
			t.Errorf("it may publish to %s", subject)
		}
	}
	for _, subject := range []string{">", "$SYS.>", "salt.>", "_INBOX.>", "$JS.>", "*.>"} {
		if _, err := nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		if !isRefused() {
			t.Errorf("it may subscribe to %s", subject)
		}
	}
	for _, r := range broker.StoreRights {
		if err := nc.Publish(strings.NewReplacer("*", "x", ">", "x").Replace(r), nil); err != nil {
			t.Fatal(err)
		}
		if isRefused() {
			t.Errorf("it may not publish to %s", r)
		}
	}
}

// Servers that are not reached, or do not know the user of the journal, are waited for within
// bounds, and the error says what was tried.
func TestAClaimWaitsWithinBounds(t *testing.T) {
	t.Parallel()
	lab := natslab.New(t, 1)
	c, err := broker.EnsureCredentials(filepath.Join(t.TempDir(), "seed"))
	if err != nil {
		t.Fatal(err)
	}
	claim := func() error {
		t.Helper()
		var waits []string
		x, err := broker.NewExternal(broker.ExternalOptions{
			Servers: lab.Addresses(), Fingers: []string{lab.Finger}, Credentials: c, Name: "test", Journal: true, Endpoints: externals, Fail: func(err error) { t.Error(err) }, Log: bustest.Log(t),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		x.Reach(2*time.Second, time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, r := x.Journal()
		err = r.Claim(ctx, func(text string) { waits = append(waits, text) })
		if len(waits) == 0 || !strings.HasPrefix(waits[len(waits)-1], "waiting for the NATS servers: ") {
			t.Errorf("it waits for %q", waits)
		}
		return err
	}
	if err := claim(); err == nil || !strings.Contains(err.Error(), "not reached") || salt.Hint(err) == "" {
		t.Errorf("no servers: %v, want a reason and a hint", err)
	}
	lab.Start(broker.ExternalConfig(c, externals, false))
	if err := claim(); err == nil || !strings.Contains(err.Error(), "do not take this master") || salt.Hint(err) == "" {
		t.Errorf("servers without the account of the journal: %v, want a reason and a hint", err)
	}
	lab.Servers[0].Kill()
	lab.JetStream = true
	lab.Start(withAnotherSystemAccount(broker.ExternalConfig(c, externals, true)))
	if err := claim(); err == nil || !strings.Contains(salt.Hint(err), "system_account") {
		t.Errorf("servers with another system account: %v, want a hint", err)
	}
}

// withAnotherSystemAccount changes what servers know of a master: of two lines they take the last.
func withAnotherSystemAccount(config string) string {
	return strings.Replace(config, "accounts {\n", "accounts {\n  OTHERS {}\n", 1) + "system_account: OTHERS\n"
}

// TestServersThatAreNotReachedAreLogged: the client library itself logs nothing of attempts that fail.
func TestServersThatAreNotReachedAreLogged(t *testing.T) {
	t.Parallel()
	seed := filepath.Join(t.TempDir(), "seed")
	c, err := broker.EnsureCredentials(seed)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	other, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	others, err := broker.EnsureCredentials(filepath.Join(t.TempDir(), "seed"))
	if err != nil {
		t.Fatal(err)
	}
	authority := natslab.New(t, 1).CA
	for name, test := range map[string]struct {
		config, finger string // no server without config
		reason, hint   string
		as             string // who is not connected; "journal" if empty
		plain          bool   // a server without TLS
	}{
		"no server":              {"", "", "connection refused", "do the servers run", "", false},
		"another certificate":    {broker.ExternalConfig(c, externals, false), strings.Repeat("ab", 32), "it has the fingerprint", "add it to nats_finger", "", false},
		"users with passwords":   {"authorization {users: [{user: a, password: b}]}\n", "", "nkeys not supported", "--nats-config", "", false},
		"users of others":        {"authorization {users: [{nkey: " + other + "}]}\n", "", "(?i)authorization violation", "copy the file of that one to " + seed, "", false},
		"no user of JetStream":   {broker.ExternalConfig(c, externals, false), "", "as=journal ", "--nats-config", "", false},
		"another system account": {withAnotherSystemAccount(broker.ExternalConfig(c, externals, true)), "", "level=ERROR .* as=system ", "check system_account", "system", false},
		"another master":         {broker.ExternalConfig(others, externals, false), "", "this user is not in the configuration of the server", "copy the file of that one to " + seed, "", false},
		"no TLS":                 {"", "", "the server does not offer TLS", "set tls with cert_file", "", true},
		"another authority":      {broker.ExternalConfig(c, externals, false), "none", "failed to verify certificate", "nats_ca must have", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			lab, said := natslab.New(t, 1), new(capture.Buffer)
			if test.config != "" {
				lab.Start(test.config)
			}
			servers, fingers, ca := lab.Addresses(), []string{cmp.Or(test.finger, lab.Finger)}, ""
			if test.finger == "none" {
				fingers, ca = nil, authority
			}
			if test.plain {
				servers = []string{withoutTLS(t)}
			}
			now := time.Now()
			x, err := broker.NewExternal(broker.ExternalOptions{
				Servers: servers, Fingers: fingers, CAFile: ca, Credentials: c, Name: "test", Journal: true, Endpoints: externals, Fail: func(err error) { t.Error(err) }, Log: slog.New(slog.NewTextHandler(said, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(x.Close)
			line := regexp.MustCompile(`level=(?:WARN|ERROR) msg="the NATS servers are not reached.* servers=` + servers[0] + ` .*`)
			reason := regexp.MustCompile(test.reason)
			t.Cleanup(func() {
				if lines := line.FindAllString(said.String(), -1); t.Failed() && len(lines) > 0 {
					t.Log(lines[len(lines)-1])
				}
			})
			if test.config == "" { // a server may take longer for its refusal than until the log says so
				x.TellUnreached(now)
				if line.MatchString(said.String()) {
					t.Errorf("it is logged at once:\n%s", said)
				}
			}
			bustest.Until(t, "the reason in the log", func() bool {
				now = now.Add(2 * time.Minute) // it may have been logged since, as at the true time
				x.TellUnreached(now)
				lines := line.FindAllString(said.String(), -1)
				return len(lines) > 0 && reason.MatchString(lines[len(lines)-1])
			})
			lines := line.FindAllString(said.String(), -1)
			if last := lines[len(lines)-1]; !strings.Contains(last, test.hint) {
				t.Errorf("%s: want the hint %q", last, test.hint)
			}
			x.TellUnreached(now.Add(time.Minute - time.Second))
			if again := line.FindAllString(said.String(), -1); len(again) != len(lines) {
				t.Errorf("it is logged twice within a minute:\n%s", said)
			}
			if err := broker.Unreached(x); err == nil || !strings.Contains(err.Error(), cmp.Or(test.as, "journal")) {
				t.Errorf("unreached: %v", err)
			}
		})
	}
}

// withoutTLS is the address of a server that offers none.
func withoutTLS(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "INFO {\"server_id\":\"x\",\"version\":\"2.15.2\",\"proto\":1,\"max_payload\":1048576,\"headers\":true,\"nonce\":\"abc\"}\r\n") // it may be gone
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
	})
	return l.Addr().String()
}

// TestServersThatAreReached: nothing is logged, and a master is ready.
func TestServersThatAreReached(t *testing.T) {
	t.Parallel()
	a := goAbroad(t, nil)
	if err := broker.Unreached(a.External); err != nil {
		t.Error(err)
	}
	a.lab.Servers[0].Kill()
	bustest.Until(t, "it to notice", func() bool { return broker.Unreached(a.External) != nil })
	a.lab.Servers[0].Start()
	bustest.Until(t, "it to be connected again", func() bool { return broker.Unreached(a.External) == nil })
}

// TestAStandbyWaitsForAMasterThatConnectsAgain: servers end the connection of the master at work again and
// again, and each time it is back. One that waits takes over only when it is told that the first one has ended.
func TestAStandbyWaitsForAMasterThatConnectsAgain(t *testing.T) {
	t.Parallel()
	lab := natslab.New(t, 1)
	lab.JetStream = true
	c, err := broker.EnsureCredentials(filepath.Join(t.TempDir(), "seed"))
	if err != nil {
		t.Fatal(err)
	}
	lab.Start(broker.ExternalConfig(c, externals, true))
	join := func() *broker.External {
		x, err := broker.NewExternal(broker.ExternalOptions{
			Servers: lab.Addresses(), Fingers: []string{lab.Finger}, Credentials: c, Name: "test", Journal: true, Endpoints: externals, Fail: func(err error) { t.Error(err) }, Log: bustest.Log(t),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(x.Close)
		return x
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first, second := join(), join()
	_, r := first.Journal()
	if err := r.Claim(ctx, func(string) {}); err != nil {
		t.Fatal(err)
	}
	wait := func(ctx context.Context, x *broker.External) <-chan error {
		waits, claimed := make(chan struct{}, 100), make(chan error, 1)
		go func() {
			_, r := x.Journal()
			claimed <- r.Claim(ctx, func(string) { waits <- struct{}{} })
		}()
		deadline.Receive(t, waits, "it to wait")
		return claimed
	}
	short, end := context.WithCancel(ctx)
	claimed := wait(short, second)
	for range 5 {
		before := first.Reconnects()
		first.Lose(t)
		bustest.Until(t, "the first one to be connected again", func() bool { return first.Reconnects() > before })
	}
	end()
	if err := deadline.Receive(t, claimed, "the second one"); !errors.Is(err, context.Canceled) {
		t.Fatalf("the second one is at work, too: %v", err)
	}
	second.VacantAfter(time.Hour) // it has to be told
	claimed = wait(ctx, second)
	first.Close()
	if err := deadline.Receive(t, claimed, "the second one to be at work"); err != nil {
		t.Error(err)
	}
}

// A master that takes over ends the connections of others to the journal. A connection that is made
// again is not used before it is known who writes the journal, and never if another master does.
func TestOthersOfAJournalAreEnded(t *testing.T) {
	t.Parallel()
	lab := natslab.New(t, 1)
	lab.JetStream = true
	c, err := broker.EnsureCredentials(filepath.Join(t.TempDir(), "seed"))
	if err != nil {
		t.Fatal(err)
	}
	lab.Start(broker.ExternalConfig(c, externals, true))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	join := func() (*nats.Conn, *broker.Remote) {
		x, err := broker.NewExternal(broker.ExternalOptions{
			Servers: lab.Addresses(), Fingers: []string{lab.Finger}, Credentials: c, Name: "test", Journal: true, Endpoints: externals, Fail: func(err error) { t.Error(err) }, Log: bustest.Log(t),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(x.Close)
		return x.Journal()
	}
	conn, first := join()
	_, second := join()
	if err := first.Claim(ctx, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if err := first.Usable(ctx); err != nil {
		t.Fatal(err)
	}
	taken := errors.New("another master writes")
	var asked atomic.Int64
	var known atomic.Bool
	first.Watch(func(context.Context) error {
		asked.Add(1)
		if known.Load() {
			return taken
		}
		return errors.New("the servers do not say it yet")
	}, taken)
	id, err := conn.GetClientID()
	if err != nil {
		t.Fatal(err)
	}
	if err := second.EndOthers(ctx); err != nil {
		t.Fatal(err)
	}
	bustest.Until(t, "the other connection to be made again", func() bool {
		again, err := conn.GetClientID()
		return err == nil && again != id && asked.Load() > 1
	})
	short, end := context.WithTimeout(ctx, 200*time.Millisecond)
	defer end()
	if err := first.Usable(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it may be used before it is known who writes: %v", err)
	}
	known.Store(true)
	if err := first.Usable(ctx); !errors.Is(err, taken) || !errors.Is(first.Err(), taken) {
		t.Errorf("it may be used after another one has taken over: %v, %v", err, first.Err())
	}
	select {
	case <-first.Failed():
	default:
		t.Error("what waits for the store is not told")
	}
}

// No role of a minion, and no other user of the master, reaches JetStream: not by its account, which
// has none, and not by its rights.
func TestNobodyElseHasJetStreamOnAForeignServer(t *testing.T) {
	t.Parallel()
	a := goAbroad(t, nil)
	for _, role := range []bus.Role{bus.RoleMinion, bus.RoleCaller, bus.RoleUnaccepted} {
		c := a.as(role, "web1")
		for _, r := range append(broker.StoreRights, "$JS.>", "$JS.API.>", "$KV.x") {
			if err := c.Publish(strings.NewReplacer("*", "x", ">", "x").Replace(r), nil); err != nil {
				t.Fatal(err)
			}
			select {
			case <-c.Violations:
			case <-time.After(10 * time.Second):
				t.Errorf("a %s may publish to %s", role, r)
			}
		}
	}
	wide := goAbroad(t, func(config string) string { // even with all rights
		return regexp.MustCompile(`(BRINE \{\s*users: \[\n *\{nkey: "[^"]*"), permissions: .*\}\}`).ReplaceAllString(config, "$1}")
	})
	m, err := wide.Again(t).Request("$JS.API.INFO", nil, 10*time.Second)
	if err == nil && !strings.Contains(string(m.Data), "JetStream not enabled for account") || err != nil && !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("the account of the minions has JetStream: %v, %v", m, err)
	}
}

// A key has so many connections, and no more.
func TestForeignServerLimitsConnectionsOfAKey(t *testing.T) {
	t.Parallel()
	a := goAbroad(t, nil)
	key := bustest.Key(t)
	a.accept("web1", key)
	for n := range broker.MaxPerKey {
		if _, err := a.dial(peer{id: "web1", key: key}); err != nil {
			t.Fatalf("connection %d: %v", n, err)
		}
	}
	if _, err := a.dial(peer{id: "web1", key: key}); err == nil {
		t.Error("there is no limit")
	}
}

// A server that does not encrypt its questions is not answered, so nobody gets in there.
func TestForeignServerMustEncryptItsQuestions(t *testing.T) {
	t.Parallel()
	a := goAbroad(t, func(config string) string {
		lines := strings.Split(config, "\n")
		return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), "xkey:") }), "\n")
	})
	key := bustest.Key(t)
	a.accept("web1", key)
	if _, err := a.dial(peer{id: "web1", key: key}); err == nil {
		t.Error("a minion is let in by a question that everybody on the way could read")
	}
}

// cut ends the connection and nobody else's.
func TestForeignServerCuts(t *testing.T) {
	t.Parallel()
	a := goAbroad(t, nil)
	one, other := a.as(bus.RoleMinion, "web1"), a.as(bus.RoleMinion, "web2")
	closed := make(chan struct{})
	one.SetClosedHandler(func(*nats.Conn) { close(closed) })
	began := time.Now()
	a.ConnectionsOf(func(i bus.Identity) bool { return i.Name == "web1" }, func(_ bus.Identity, cut func()) { cut() })
	if _, here := a.Owner(one.Self.Inbox()); here {
		t.Error("it still counts")
	}
	select {
	case <-closed:
		t.Logf("it ended after %s", time.Since(began))
	case <-time.After(5 * time.Second):
		t.Error("the server has not ended it")
	}
	if i := <-a.gone; i.Name != "web1" {
		t.Errorf("%v is gone", i)
	}
	if _, here := a.Owner(other.Self.Inbox()); !here || !other.IsConnected() {
		t.Error("the other one was cut, too")
	}
}

// Whoever is gone is known to be, and whoever this process has not admitted is ended.
func TestForeignServerIsComparedWithWhatIsKnown(t *testing.T) {
	t.Parallel()
	a := goAbroad(t, nil)
	one, other := a.as(bus.RoleMinion, "web1"), a.as(bus.RoleMinion, "web2")
	one.Close()
	select {
	case i := <-a.gone:
		if i.Name != "web1" {
			t.Errorf("%v is gone", i)
		}
	case <-time.After(10 * time.Second):
		t.Error("nobody has noticed")
	}
	closed := make(chan struct{})
	other.SetClosedHandler(func(*nats.Conn) { close(closed) })
	a.Forget()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("a connection that nobody knows lasts")
	}
}

// A server that was killed tells nobody; whoever was there is gone after seconds.
func TestForeignServerKilled(t *testing.T) {
	t.Parallel()
	a := goAbroad(t, nil)
	a.as(bus.RoleMinion, "web1")
	a.lab.Servers[0].Kill()
	select {
	case <-a.gone:
	case <-time.After(20 * time.Second):
		t.Fatal("nobody has noticed")
	}
	a.lab.Servers[0].Start()
	key := bustest.Key(t)
	a.accept("web2", key)
	for end := time.Now().Add(time.Minute); ; {
		if c, err := a.dial(peer{id: "web2", key: key}); err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatal("nobody is let in after the server has come back")
		}
	}
}
