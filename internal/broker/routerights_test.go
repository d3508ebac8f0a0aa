package broker

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/socket"
	"github.com/brinebus/brine/test/deadline"
)

// routed is one of several servers with routes between them, each with the accounts, the
// authenticator and the request handlers of a master.
type routed struct {
	name     string
	server   *server.Server
	auth     *authenticator
	daemon   *nats.Conn
	rpc      *rpc.Server
	answered atomic.Int64 // requests that its handler got
}

// routeEndpoints are for minions and users.
var routeEndpoints = bus.Endpoints{{Op: "who", Roles: []bus.Role{bus.RoleMinion, bus.RoleUser}, Check: bus.Own, Body: 1 << 20, Handler: "who"}}

// routePeer returns the identity of a connection, by its uid.
func routePeer(p Peer) bus.Identity {
	switch p.Local.UID {
	case 1:
		return bus.Identity{Role: bus.RoleMinion, Name: "web1", Key: strings.Repeat("a", 64)}
	case 2:
		return bus.Identity{Role: bus.RoleMinion, Name: "web2", Key: strings.Repeat("b", 64)}
	}
	return bus.Identity{Role: bus.RoleUser, Name: "0"}
}

// startRouted starts members with routes to each other. A name that begins with "evil" is a
// member whose server has no limits. These tests do not run in parallel: another process may
// take a port between its choice and its use.
func startRouted(t *testing.T, names ...string) []*routed {
	t.Helper()
	var all []*routed
	var routes []*url.URL // a store with copies does not open unless at least one member is named
	for range names {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
	}
	for i, name := range names {
		all = append(all, startOneRouted(t, name, routes, i))
	}
	for _, m := range all {
		until(t, "all routes are up at "+m.name, func() bool { return m.server.NumRoutes() >= len(names)-1 })
	}
	return all
}

func startOneRouted(t *testing.T, name string, routes []*url.URL, n int) *routed {
	t.Helper()
	o := Options{Name: name, StoreDir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Admit: routePeer, Endpoints: routeEndpoints}
	g := newAuthenticator(o)
	so, err := serverOptions(o, g, nil)
	if err != nil {
		t.Fatal(err)
	}
	so.DontListen, so.Host, so.Port = false, "127.0.0.1", -1 // a server with routes waits for its listener
	so.Cluster = server.ClusterOpts{Name: "prod", Host: "127.0.0.1", Port: -1, PoolSize: -1, NoAdvertise: true, Permissions: routePermissions()}
	if strings.HasPrefix(name, "evil") {
		so.Cluster.Permissions = nil
	}
	so.Routes = routes
	so.Cluster.Port, _ = strconv.Atoi(routes[n].Port())
	m := &routed{name: name, auth: g}
	if m.server, err = server.NewServer(so); err != nil {
		t.Fatal(err)
	}
	if g.account, err = m.server.LookupAccount(account); err != nil {
		t.Fatal(err)
	}
	m.server.SetLoggerV2(&serverLog{log: slog.New(slog.NewTextHandler(t.Output(), nil)), fatal: make(chan string, 1), health: newHealth(o)}, false, false, false)
	m.server.Start()
	t.Cleanup(func() { m.server.Shutdown(); m.server.WaitForShutdown() })
	until(t, "the server runs", func() bool {
		return m.server.Running() && m.server.ClusterAddr() != nil && m.server.JetStreamEnabled()
	})
	if err := g.account.EnableJetStream(nil, nil); err != nil {
		t.Fatal(err)
	}
	m.daemon = m.dial(t, nats.UserInfo(g.daemon, ""), nats.CustomInboxPrefix("_INBOX.master"))
	m.rpc = rpc.NewServer(m.daemon, g.owner, routeEndpoints, o.Log)
	m.rpc.Handle("who", func(ctx context.Context, r *rpc.Request) error {
		m.answered.Add(1)
		return r.Send(ctx, m.name)
	})
	t.Cleanup(m.rpc.Stop)
	if err := m.rpc.Start(); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *routed) dial(t *testing.T, options ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("nats://self", append(options, nats.InProcessServer(m.server), nats.SkipHostLookup(), nats.NoReconnect())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// client connects to this member as the peer with this uid.
func (m *routed) client(t *testing.T, uid uint32) (*nats.Conn, bus.Identity) {
	t.Helper()
	i := routePeer(Peer{Local: socket.Peer{UID: uid}})
	i.Nonce = bus.NewNonce()
	secret := m.auth.expect(&localClient{Peer: socket.Peer{UID: uid}, claim: fmt.Sprint(uid)})
	return m.dial(t, nats.UserInfo(i.Nonce, secret), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})), i // refusals are expected
}

// heard collects the messages of a subscription.
func heard(t *testing.T, nc *nats.Conn, subject string) chan *nats.Msg {
	t.Helper()
	came := make(chan *nats.Msg, 100_000)
	if _, err := nc.Subscribe(subject, func(m *nats.Msg) { came <- m }); err != nil {
		t.Fatal(err)
	}
	flush(t, nc)
	return came
}

func flush(t *testing.T, nc *nats.Conn) {
	t.Helper()
	if err := nc.FlushTimeout(time.Minute); err != nil {
		t.Fatal(err)
	}
}

// settled waits until everything that the members have sent has arrived everywhere: routes keep
// the order, so a message from each member to each other one arrives last.
func settled(t *testing.T, all []*routed) {
	t.Helper()
	subject := bus.MembersSubject("settled." + bus.NewNonce())
	var came []chan *nats.Msg
	for _, m := range all {
		came = append(came, heard(t, m.daemon, subject))
	}
	for _, from := range all {
		for i, to := range all {
			until(t, "a message from "+from.name+" to "+to.name, func() bool {
				if err := from.daemon.Publish(subject, []byte(from.name)); err != nil {
					t.Fatal(err)
				}
				flush(t, from.daemon)
				for {
					select {
					case m := <-came[i]:
						if string(m.Data) == from.name {
							return true
						}
					case <-time.After(100 * time.Millisecond):
						return false
					}
				}
			})
		}
	}
}

// TestOneMemberAnswers: a request gets one answer, from the member whose server has the
// connection, also if the same minion is connected to several.
func TestOneMemberAnswers(t *testing.T) {
	all := startRouted(t, "a", "b", "c")
	settled(t, all)
	for n, m := range all {
		for uid, role := range map[uint32]string{1: "minion.web1", 0: "user.0"} {
			nc, self := m.client(t, uid)
			came := heard(t, nc, self.Inbox()+".>")
			for i := range 20 {
				if err := nc.PublishRequest("salt."+role+".req.who", fmt.Sprintf("%s.%d", self.Inbox(), i), []byte(`i{}`)); err != nil {
					t.Fatal(err)
				}
			}
			flush(t, nc)
			var answers []string
			until(t, "20 answers", func() bool {
				for len(came) > 0 {
					if one := <-came; strings.HasPrefix(string(one.Data), "i") {
						answers = append(answers, string(one.Data))
					}
				}
				return len(answers) >= 20
			})
			settled(t, all)
			for len(came) > 0 {
				if one := <-came; strings.HasPrefix(string(one.Data), "i") {
					answers = append(answers, string(one.Data))
				}
			}
			if len(answers) != 20 || slices.ContainsFunc(answers, func(s string) bool { return s != `i"`+m.name+`"` }) {
				t.Errorf("%s at %s: %d answers to 20 requests: %q", role, m.name, len(answers), slices.Compact(answers))
			}
		}
		if got := all[n].answered.Load(); got != 40 {
			t.Errorf("%s handled %d requests, want 40", m.name, got)
		}
	}
}

// routeMessages returns how many messages arrived over the routes of a member.
func routeMessages(t *testing.T, m *routed) (n int64) {
	t.Helper()
	z, err := m.server.Routez(&server.RoutezOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range z.Routes {
		n += r.InMsgs
	}
	return n
}

// TestAFloodStaysAtItsMember: whatever a minion or a user sends, to permitted subjects and to
// others, the routes carry none of it.
func TestAFloodStaysAtItsMember(t *testing.T) {
	const flood = 20_000
	all := startRouted(t, "a", "b", "c")
	settled(t, all)
	before := []int64{routeMessages(t, all[1]), routeMessages(t, all[2])}
	nc, self := all[0].client(t, 1)
	for i := range flood {
		subject := []string{"salt.minion.web1.req.who", "salt.minion.web1.credit", "salt.minion.web1.req.nosuch", "salt.minion.web2.req.who", "salt.member.+.presence"}[i%5]
		if err := nc.PublishRequest(subject, self.Inbox()+".1", []byte(`i{}`)); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, nc)
	settled(t, all)
	for i, m := range all[1:] {
		// Heartbeats of the store, and the messages of settled, are few.
		if n := routeMessages(t, m) - before[i]; n > flood/10 {
			t.Errorf("%d messages came over routes to %s during a flood of %d at a", n, m.name, flood)
		}
		if n := m.answered.Load(); n != 0 {
			t.Errorf("%s handled %d of the requests", m.name, n)
		}
	}
}

// TestAMemberHearsNothingOfOthers: a member whose own server has no limits subscribes to
// everything. It receives no request, answer or job of another member, and so learns no inbox.
func TestAMemberHearsNothingOfOthers(t *testing.T) {
	all := startRouted(t, "a", "b", "evil")
	evil := all[2]
	var came []chan *nats.Msg
	for _, subject := range []string{">", "salt.>", "*.minion.>", "salt.minion.*.req.*", "salt.minion.web1.>", "salt.user.*.req.*", "_INBOX.>", "_INBOX.*.*.>"} {
		came = append(came, heard(t, evil.daemon, subject))
	}
	settled(t, all)
	nc, self := all[0].client(t, 1)
	answers := heard(t, nc, self.Inbox()+".>")
	jobs := heard(t, nc, "salt.minion.web1.job")
	for i := range 100 {
		if err := nc.PublishRequest("salt.minion.web1.req.who", fmt.Sprintf("%s.%d", self.Inbox(), i), []byte(`i{}`)); err != nil {
			t.Fatal(err)
		}
		if err := all[0].daemon.Publish("salt.minion.web1.job", []byte("job")); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, nc)
	flush(t, all[0].daemon)
	until(t, "answers and jobs at their minion", func() bool { return len(answers) >= 100 && len(jobs) >= 100 })
	settled(t, all)
	for _, ch := range came {
		for len(ch) > 0 {
			m := <-ch
			if strings.HasPrefix(m.Subject, "salt.minion.") || strings.HasPrefix(m.Subject, "salt.user.") || strings.Contains(m.Subject+m.Reply, self.Nonce) {
				t.Fatalf("it hears %s (reply to %q): %.60q", m.Subject, m.Reply, m.Data)
			}
		}
	}
	// What it publishes itself reaches no handler of the others, even with a stolen inbox.
	for range 100 {
		if err := evil.daemon.PublishRequest("salt.minion.web1.req.who", self.Inbox()+".999", []byte(`i{}`)); err != nil {
			t.Fatal(err)
		}
		if err := evil.daemon.Publish("salt.minion.web1.job", []byte("forged")); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, evil.daemon)
	settled(t, all)
	if n := all[0].answered.Load(); n != 100 {
		t.Errorf("%d requests were handled, want the 100 of the minion itself", n)
	}
	for len(jobs) > 0 {
		if m := <-jobs; string(m.Data) == "forged" {
			t.Fatal("a job of another member came directly to a minion")
		}
	}
}

// TestNoClientIsInTheSpaceOfMembers tries the subjects of members with several roles, at the
// same server and at another one.
func TestNoClientIsInTheSpaceOfMembers(t *testing.T) {
	all := startRouted(t, "a", "b")
	var came []chan *nats.Msg
	for _, m := range all {
		came = append(came, heard(t, m.daemon, bus.MemberRoot+".>"))
	}
	settled(t, all)
	for _, uid := range []uint32{0, 1} {
		nc, self := all[0].client(t, uid)
		mine := []chan *nats.Msg{}
		for _, subject := range []string{bus.MemberRoot + ".>", bus.MembersSubject("presence"), bus.MemberSubject("a", "job"), "salt.*.*.*"} {
			mine = append(mine, heard(t, nc, subject))
			if err := nc.Publish(strings.NewReplacer("*", "x", ">", "x").Replace(subject), []byte("forged")); err != nil {
				t.Fatal(err)
			}
		}
		flush(t, nc)
		for _, m := range all {
			if err := m.daemon.Publish(bus.MembersSubject("presence"), []byte("secret")); err != nil {
				t.Fatal(err)
			}
		}
		settled(t, all)
		flush(t, nc)
		for _, ch := range mine {
			if len(ch) > 0 {
				t.Errorf("%s hears %s", self, (deadline.Receive(t, ch, "ch")).Subject)
			}
		}
	}
	for _, ch := range came {
		for len(ch) > 0 {
			if m := <-ch; string(m.Data) == "forged" {
				t.Errorf("a client has published %s", m.Subject)
			}
		}
	}
}

// TestTheStoreWorksOverRoutes: the limits of routes do not block anything that a store with
// three copies needs, even after its leader is lost.
func TestTheStoreWorksOverRoutes(t *testing.T) {
	all := startRouted(t, "a", "b", "c")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	js, err := jetstream.New(all[0].daemon)
	if err != nil {
		t.Fatal(err)
	}
	var s jetstream.Stream
	var kv jetstream.KeyValue
	until(t, "a stream and a table", func() bool {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if s, err = js.CreateOrUpdateStream(once, jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"salt.event.>"}, Replicas: 3}); err != nil {
			return false
		}
		kv, err = js.CreateOrUpdateKeyValue(once, jetstream.KeyValueConfig{Bucket: "keys", Replicas: 3})
		return err == nil
	})
	for i := range 100 {
		if _, err := js.Publish(ctx, "salt.event.x", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Put(ctx, fmt.Sprint("k", i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	info, err := s.Info(ctx)
	if err != nil || info.Cluster == nil || len(info.Cluster.Replicas) != 2 {
		t.Fatalf("%+v, %v", info, err)
	}
	var rest []*routed
	for _, m := range all {
		if m.name == info.Cluster.Leader {
			m.server.Shutdown()
		} else {
			rest = append(rest, m)
		}
	}
	for _, m := range rest {
		js, err := jetstream.New(m.daemon)
		if err != nil {
			t.Fatal(err)
		}
		until(t, "an acknowledgement after the end of the leader", func() bool {
			once, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_, err := js.Publish(once, "salt.event.y", []byte(m.name), jetstream.WithMsgID(m.name))
			return err == nil
		})
		n := 0
		c, err := js.OrderedConsumer(ctx, "EVENTS", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"salt.event.x"}})
		if err != nil {
			t.Fatal(err)
		}
		for n < 100 {
			if _, err := c.Next(jetstream.FetchMaxWait(30 * time.Second)); err != nil {
				t.Fatalf("%d of 100 events at %s: %v", n, m.name, err)
			}
			n++
		}
	}
}
