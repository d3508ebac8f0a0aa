package master_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/deadline"
	"github.com/brinebus/brine/test/natslab"
)

// abroad is a master that is reached through real NATS servers.
type abroad struct {
	*world
	lab     *natslab.Cluster
	servers []string // that minions use
}

func goAbroad(t *testing.T, servers int, settings string) *abroad {
	t.Helper()
	lab := natslab.New(t, servers)
	return meet(t, lab, lab.Settings()+settings)
}

// meet starts a master with these settings, and then the servers.
func meet(t *testing.T, lab *natslab.Cluster, settings string) *abroad {
	t.Helper()
	a := &abroad{start(t, settings), lab, lab.Addresses()}
	lab.Start(a.config())
	a.atWork(1)
	return a
}

// config is what nats.config returns.
func (a *abroad) config() string {
	a.t.Helper()
	s, err := a.user().Call(protocol.OpRun, protocol.Run{Command: job.Command{Function: "nats.config"}})
	if err != nil {
		a.t.Fatal(err)
	}
	defer s.Close()
	for {
		var r struct{ Return value.Value }
		if err := s.Decode(a.t.Context(), &r); err != nil {
			a.t.Fatalf("nats.config: %v", err)
		}
		if text, ok := r.Return.V.(string); ok {
			return text
		}
	}
}

// atWork waits until the master has been at work as often.
func (a *abroad) atWork(times int) {
	a.t.Helper()
	wait(a.t, "the master to be at work", func() bool { return strings.Count(a.said(), "this master is at work on the NATS servers") >= times })
}

// wait waits for something, within bounds.
func wait(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline.Until(t, f, what)
}

func (a *abroad) options(id salt.MinionID, key *pki.PrivateKey) upstream.Options {
	return upstream.Options{
		Address: "salt:4506", ID: id, Key: key, PinFile: filepath.Join(a.t.TempDir(), "minion_master.pub"), Version: "test",
		Timeout: 10 * time.Second, PingInterval: 10 * time.Second, Log: logger(a.t),
		Servers: upstream.Servers{Addresses: a.servers, Trust: pki.ServerPins{Fingers: []string{a.lab.Finger}}},
	}
}

// minionAbroad keeps an accepted minion connected and answering, until the end of the test.
func (a *abroad) minionAbroad(id salt.MinionID, key *pki.PrivateKey) {
	a.t.Helper()
	ready := make(chan struct{}, 1)
	var wg sync.WaitGroup
	a.t.Cleanup(wg.Wait)
	ctx := a.t.Context() // ends before Cleanup
	wg.Go(func() {
		for ctx.Err() == nil {
			if l, err := upstream.Connect(ctx, a.options(id, key)); err == nil && l.Ready() {
				a.answerJobs(l, id, ready)
			} else if err == nil {
				l.Close()
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond): // the pause of a minion
			}
		}
	})
	select {
	case <-ready:
	case <-time.After(time.Minute):
		a.t.Fatalf("%s does not get in", id)
	}
}

// answerJobs answers jobs until the connection ends.
func (a *abroad) answerJobs(l *upstream.Connection, id salt.MinionID, ready chan<- struct{}) {
	defer l.Close()
	sub, err := l.NC.SubscribeSync(bus.JobSubject(id))
	if err != nil {
		return
	}
	var welcome protocol.Welcome
	if err := l.Ask(a.t.Context(), protocol.OpHello, protocol.Hello{Grains: value.Value{V: map[string]any{}}}, &welcome); err != nil {
		return
	}
	for _, jid := range welcome.Jobs { // it has no outbox, so what was under way is begun again
		_ = l.Tell("ret."+string(jid), job.Report{State: job.Unknown})
	}
	select {
	case ready <- struct{}{}:
	default:
	}
	var asm rpc.Assembler
	for {
		m, err := sub.NextMsgWithContext(a.t.Context())
		if err != nil {
			return
		}
		body, done, err := asm.Add(m)
		if err != nil || !done {
			continue
		}
		if e, err := job.Open(body, l.Master, time.Now()); err == nil {
			_ = l.Tell("ret."+string(e.JID), pong(e))
		}
	}
}

// TestAMasterWithoutServersIsNotReady: no minion reaches it.
func TestAMasterWithoutServersIsNotReady(t *testing.T) {
	lab := natslab.New(t, 1)
	w := start(t, lab.Settings())
	m := master.NewMonitor(w.m)
	defer m.Close()
	wait(t, "the reason", func() bool {
		err := m.Ready()
		return err != nil && strings.Contains(err.Error(), "not connected to the NATS servers as minions, logins, system: ")
	})
	if made := "a new seed for nats_servers was made"; !strings.Contains(w.said(), made) || !strings.Contains(w.said(), filepath.Join(w.cfg.PKIDir, "master_nats.seed")) {
		t.Errorf("it does not say that %s:\n%s", made, w.said())
	}
	lab.Start((&abroad{world: w}).config())
	wait(t, "the master to be ready", func() bool { return m.Ready() == nil })
}

// A minion is accepted, runs jobs, and is cut at once when its key is deleted, on three servers.
func TestMinionsThroughNATSServers(t *testing.T) {
	a := goAbroad(t, 3, "")
	if a.m.Addr() != nil {
		t.Errorf("the master listens on %s", a.m.Addr())
	}
	k := key(t)
	l, err := upstream.Connect(t.Context(), a.options("web1", k))
	if err != nil || l.State() != protocol.KeyPending {
		t.Fatalf("a new key is %v, %v; want pending", l, err)
	}
	defer l.Close()
	if err := l.Ask(t.Context(), protocol.OpHello, protocol.Hello{}, nil); err == nil {
		t.Error("a key that waits may say hello")
	}
	store, err := pki.OpenStore(a.cfg.PKIDir)
	if err != nil {
		t.Fatal(err)
	}
	accept(t, store, "web1")
	if err := l.Wait(t.Context()); err != nil {
		t.Fatalf("it has not heard that it is accepted: %v", err)
	}
	a.minionAbroad("web1", k)
	a.accepted("web2", key(t))
	wait(t, "both minions", func() bool { // the master sees the new file soon
		_, got, err := publish(t, a.user(), ping("*", "glob"))
		return err == nil && got["web1"].State == job.Done && got["web2"].State == job.Done
	})
	one, err := upstream.Connect(t.Context(), a.options("web1", k))
	if err != nil || !one.Ready() {
		t.Fatalf("a second connection: %v", err)
	}
	defer one.Close()
	entries, err := store.Of("web1")
	if err != nil || len(entries) != 1 {
		t.Fatalf("keys of web1: %v, %v", entries, err)
	}
	began := time.Now()
	if err := store.Delete(entries[0]); err != nil {
		t.Fatal(err)
	}
	select {
	case <-one.Closed:
		t.Logf("cut %s after its key was deleted", time.Since(began))
		if time.Since(began) > 2*time.Second {
			t.Error("which is not at once")
		}
	case <-time.After(10 * time.Second):
		t.Error("the connection lasts without its key")
	}
	if again, err := upstream.Connect(t.Context(), a.options("web1", k)); err == nil && again.Ready() {
		t.Error("the deleted key gets in")
	}
	if _, got, err := publish(t, a.user(), ping("web2", "glob")); err != nil || got["web2"].State != job.Done {
		t.Errorf("the other one was cut, too: %+v, %v", got, err)
	}
}

// TestMinionsOfOtherSites: each site has a server of its own, and gateways link them. The master uses that of its site, and minions
// that of theirs: they get their jobs, a key that is deleted cuts its minion there, and a site that was away is back with its server.
func TestMinionsOfOtherSites(t *testing.T) {
	lab := natslab.New(t, 3)
	lab.Sites = true
	a := meet(t, lab, lab.Servers[0].Settings())
	at := func(site int) *abroad { return &abroad{a.world, lab, []string{lab.Servers[site].Address}} }
	answered := func(ids ...string) func() bool {
		return func() bool {
			_, got, err := publish(t, a.user(), ping(strings.Join(ids, ","), "list"))
			for _, id := range ids {
				if got[salt.MinionID(id)].State != job.Done {
					return false
				}
			}
			return err == nil
		}
	}
	k := key(t)
	a.accepted("here", key(t))
	at(1).accepted("there", k)
	at(2).accepted("farther", key(t))
	wait(t, "the minions of all sites", answered("here", "there", "farther"))

	one, err := upstream.Connect(t.Context(), at(1).options("there", k))
	if err != nil || !one.Ready() {
		t.Fatalf("a second connection: %v", err)
	}
	defer one.Close()
	began := time.Now()
	if err := os.Remove(filepath.Join(a.cfg.PKIDir, "minions", "there")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-one.Closed:
		t.Logf("cut %s after its key was deleted", time.Since(began))
	case <-time.After(10 * time.Second):
		t.Error("the connection lasts without its key")
	}
	if again, err := upstream.Connect(t.Context(), at(2).options("there", k)); err == nil {
		if again.Ready() {
			t.Error("the deleted key gets in at another site")
		}
		again.Close()
	}

	lab.Servers[2].Kill()
	wait(t, "the minion of another site", answered("here"))
	lab.Servers[2].Start()
	wait(t, "the minion of the site that was away", answered("here", "farther"))
}

// accepted brings a minion, whose key is put among the accepted ones.
func (a *abroad) accepted(id salt.MinionID, k *pki.PrivateKey) {
	a.t.Helper()
	if err := os.WriteFile(filepath.Join(a.cfg.PKIDir, "minions", string(id)), k.Public().PEM(), 0o644); err != nil {
		a.t.Fatal(err)
	}
	a.minionAbroad(id, k)
}

// Three servers, one killed while jobs run: minions go to the others, and every job that was
// started afterwards is answered by all.
func TestNATSServerKilledUnderLoad(t *testing.T) {
	a := goAbroad(t, 3, "auto_accept: True\n")
	const minions = 6
	for n := range minions {
		a.minionAbroad(salt.MinionID(fmt.Sprintf("web%d", n)), key(t))
	}
	var answered atomic.Int64
	stop, ended := make(chan struct{}), make(chan struct{})
	user := a.user()
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_, got, err := publish(t, user, ping("*", "glob"))
			if err != nil {
				t.Errorf("a job is refused: %v", err)
				return
			}
			for _, u := range got {
				if u.State == job.Done {
					answered.Add(1)
				}
			}
		}
	}()
	wait(t, "jobs", func() bool { return answered.Load() > 10*minions })
	began := time.Now()
	a.lab.Servers[0].Kill()
	wait(t, "all minions after a server was killed", func() bool {
		_, got, err := publish(t, user, ping("*", "glob"))
		all := err == nil && len(got) == minions
		for _, u := range got {
			all = all && u.State == job.Done
		}
		return all
	})
	t.Logf("all %d minions have answered %s after a server was killed", minions, time.Since(began))
	close(stop)
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Fatal("a job does not end")
	}
}

// Of two masters with the same credentials and the same keys, the second one takes over when
// the first one ends, and does nothing before.
func TestASecondMasterTakesOver(t *testing.T) {
	a := goAbroad(t, 1, "auto_accept: True\n")
	a.minionAbroad("web1", key(t))
	if _, got, err := publish(t, a.user(), ping("*", "glob")); err != nil || got["web1"].State != job.Done {
		t.Fatalf("ping: %+v, %v", got, err)
	}
	b := &abroad{&world{t: t, dir: t.TempDir()}, a.lab, a.servers}
	b.write("master", "root_dir: "+b.dir+"\ninterface: 127.0.0.1\nauto_accept: True\n"+a.lab.Settings())
	cfg, err := b.load()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(cfg.PKIDir, os.DirFS(a.cfg.PKIDir)); err != nil { // seed, master key, minions
		t.Fatal(err)
	}
	for _, name := range []string{"master.pem", "master_nats.seed"} {
		if err := os.Chmod(filepath.Join(cfg.PKIDir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.run()
	wait(t, "the second one to wait", func() bool { return strings.Contains(b.said(), "another master is at work") })
	if _, got, err := publish(t, a.user(), ping("*", "glob")); err != nil || got["web1"].State != job.Done {
		t.Errorf("ping by the first while the second waits: %+v, %v", got, err)
	}
	if _, got, err := publish(t, b.user(), ping("*", "glob")); got["web1"].State != job.NotConnected || !strings.HasSuffix(got["web1"].Text, "; another master is at work on the NATS servers") {
		t.Errorf("whoever asks the one that waits is told %+v, %v", got, err)
	}
	elsewhere := func(m *abroad) bool {
		var done protocol.KeyActed
		if err := m.user().Ask(t.Context(), protocol.OpKeyAction, protocol.KeyAction{Act: keyring.Delete}, &done); err != nil {
			t.Fatal(err)
		}
		return done.Elsewhere
	}
	if elsewhere(a) || !elsewhere(b) {
		t.Errorf("whoever decides about keys is told that another master is at work: %t at the one at work, %t at the one that waits", elsewhere(a), elsewhere(b))
	}
	began := time.Now()
	a.stop()
	b.atWork(1)
	wait(t, "the minion at the second master", func() bool {
		_, got, err := publish(t, b.user(), ping("*", "glob"))
		return err == nil && got["web1"].State == job.Done
	})
	if elsewhere(b) {
		t.Error("the master at work says that another one is")
	}
	t.Logf("the second master had an answer %s after the first one ended", time.Since(began))
}

// TestAMasterWhoseServersRefuseItEnds: the servers are given a smaller max_payload while they run, so they
// end the connection of the master for good with its next longer message. It says so, and ends, to be
// started again.
func TestAMasterWhoseServersRefuseItEnds(t *testing.T) {
	a := goAbroad(t, 1, "auto_accept: True\n")
	a.minionAbroad("web1", key(t))
	a.lab.Reload(a.config(), "max_payload: 1KB\n")
	long := ping("*", "glob")
	long.Async, long.Commands[0].Args = true, []any{strings.Repeat("x", 100_000)}
	user, err := a.user(), error(nil)
	wait(t, "the master to end, which hears no minion", func() bool {
		select {
		case err = <-a.ended:
			a.ended <- nil // for the end of the test
			return true
		default:
		}
		if s, err := user.Call(protocol.OpPublish, long); err == nil { // until the servers have read it, it is answered
			s.Close()
		}
		return false
	})
	if !errors.Is(err, broker.ErrFailed) || !strings.Contains(err.Error(), "has ended: nats: Maximum Payload Violation") {
		t.Errorf("the master has ended with %v", err)
	}
}

// What a minion checks before it trusts a server and a master behind it.
func TestMinionsTrustOnlyTheirMaster(t *testing.T) {
	a := goAbroad(t, 1, "auto_accept: True\n")
	rsa, err := pki.Generate(pki.RSA, 2048)
	if err != nil {
		t.Fatal(err)
	}
	o := a.options("rsa1", rsa)
	if _, err := upstream.Connect(t.Context(), o); err == nil || !strings.Contains(err.Error(), "Ed25519") || salt.Hint(err) == "" {
		t.Errorf("an RSA minion: %v, want a reason and a hint", err)
	}
	o = a.options("web1", key(t))
	o.Servers.Trust = pki.ServerPins{Fingers: []string{strings.Repeat("00", 32)}}
	if _, err := upstream.Connect(t.Context(), o); !errors.Is(err, pki.ErrServerPin) {
		t.Errorf("a server with another certificate: %v, want ErrServerPin", err)
	}
	o.Servers.Trust = pki.ServerPins{}
	if _, err := upstream.Connect(t.Context(), o); err == nil {
		t.Error("without pins any server is trusted")
	}
	o.Servers.Trust = pki.ServerPins{CAFile: a.lab.CA}
	l, err := upstream.Connect(t.Context(), o)
	if err != nil {
		t.Fatalf("a server with a certificate of the authority: %v", err)
	}
	l.Close()
	o = a.options("web2", key(t))
	if err := os.WriteFile(o.PinFile, key(t).Public().PEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := upstream.Connect(t.Context(), o); !errors.Is(err, upstream.ErrMasterKey) {
		t.Errorf("another master than the pinned one: %v, want ErrMasterKey", err)
	}
	o = a.options("web3", key(t))
	o.Trust.Verify, o.Trust.VerifyKey = true, key(t).Public()
	if _, err := upstream.Connect(t.Context(), o); !errors.Is(err, upstream.ErrSignature) {
		t.Errorf("a master without a signature: %v, want ErrSignature", err)
	}
}

// Requests for anybody but minions do not come through the servers.
func TestOnlyMinionsThroughNATSServers(t *testing.T) {
	for _, e := range master.MinionEndpoints {
		for _, r := range e.Roles {
			if r != bus.RoleMinion && r != bus.RoleCaller && r != bus.RoleUnaccepted {
				t.Errorf("%s may be requested by a %s", e.Op, r)
			}
		}
	}
	requests, windows, acks := master.MinionEndpoints.Subjects()
	for _, s := range append(append(requests, windows...), acks...) {
		if !strings.HasPrefix(s, "salt.minion.") && !strings.HasPrefix(s, "salt.key.") {
			t.Errorf("the master hears %s", s)
		}
	}
}

// TestAMinionTellsOnceOfARefusedServer: it uses another one, so nothing else would tell of it.
func TestAMinionTellsOnceOfARefusedServer(t *testing.T) {
	a := goAbroad(t, 1, "auto_accept: True\n")
	bad := natslab.New(t, 1)
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	other, err := pair.PublicKey() // without a user with a key, the server has no nonce, and there is no TLS
	if err != nil {
		t.Fatal(err)
	}
	bad.Start("authorization {users: [{nkey: " + other + "}]}\n")
	var said bytes.Buffer
	o := a.options("web1", key(t))
	o.Log = slog.New(slog.NewTextHandler(&said, nil))
	o.Servers.Addresses = append(slices.Clone(o.Servers.Addresses), bad.Servers[0].Address)
	for fingers, trust := range map[string]pki.ServerPins{"add it to nats_finger": o.Servers.Trust, "nats_ca must have": {CAFile: a.lab.CA}} {
		said.Reset()
		o.Servers.Trust, o.Servers.Refused = trust, new(pki.Refused)
		for range 16 { // in random order
			l, err := upstream.Connect(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
		}
		if line := said.String(); strings.Count(line, "is not trusted") != 1 || !strings.Contains(line, "level=WARN") || !strings.Contains(line, "server="+bad.Servers[0].Address) || !strings.Contains(line, fingers) {
			t.Errorf("it logs %q, want one line with %q", line, fingers)
		}
	}
}
