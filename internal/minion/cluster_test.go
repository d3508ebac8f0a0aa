package minion_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/minion"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
	"github.com/brinebus/brine/test/port"
)

// memberUnderTest is one master of a cluster.
type memberUnderTest struct {
	cfg  *config.Master
	addr net.Addr
	run  *daemonUnderTest
}

// startCluster runs the masters of a cluster, which accept every key.
func startCluster(t *testing.T) []*memberUnderTest {
	t.Helper()
	all := make([]*memberUnderTest, 3)
	var peers []string
	sign := t.TempDir()
	for i := range all {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "master"), "root_dir: "+dir+"\ninterface: 127.0.0.1\nauto_accept: True\nmaster_sign_pubkey: True\npresence_events: True\nloop_interval: 1\ncluster_id: test\n")
		cfg, _, err := config.LoadMaster(dir)
		if err != nil {
			t.Fatal(err)
		}
		cfg.RetPort, cfg.ClusterPort = port.Free(t), port.Free(t)
		peers = append(peers, fmt.Sprintf("127.0.0.1:%d", cfg.ClusterPort))
		all[i] = &memberUnderTest{cfg: cfg}
	}
	if _, _, err := pki.EnsurePair(sign, "master_sign", pki.Ed25519, 0); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, m := range all {
		m.cfg.ClusterPeers = peers
		copyPair(t, sign, m.cfg.PKIDir)
		wg.Go(func() { m.start(t) })
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return all
}

func (m *memberUnderTest) start(t *testing.T) {
	d, err := master.New(t.Context(), master.Options{Config: m.cfg, Version: "test", Log: logger(t, fmt.Sprintf("master%d", m.cfg.RetPort))})
	if err != nil {
		t.Errorf("a member does not start: %v", err)
		return
	}
	m.addr, m.run = d.Addr(), run(t, d.Run)
}

func copyPair(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"master_sign.pem", "master_sign.pub"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), b, 0o400); err != nil {
			t.Fatal(err)
		}
	}
}

// admit accepts the key of a minion on all members.
func admit(t *testing.T, cfg *config.Minion, all []*memberUnderTest) {
	t.Helper()
	key, _, err := pki.EnsurePair(cfg.PKIDir, "minion", pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		write(t, filepath.Join(m.cfg.PKIDir, "minions", string(cfg.ID)), string(key.Public().PEM()))
	}
}

// learned are the addresses of the members that a minion has kept.
func learned(cfg *config.Minion) (addresses []string) {
	b, err := os.ReadFile(filepath.Join(cfg.PKIDir, "cluster_members"))
	if err != nil {
		return nil
	}
	var file struct{ Members []protocol.Member }
	if json.Unmarshal(b, &file) != nil {
		return nil
	}
	for _, m := range file.Members {
		if len(m.Key) > 0 {
			addresses = append(addresses, m.Address)
		}
	}
	slices.Sort(addresses)
	return addresses
}

func addressesOf(all []*memberUnderTest) (addresses []string) {
	for _, m := range all {
		addresses = append(addresses, m.addr.String())
	}
	slices.Sort(addresses)
	return addresses
}

// connectedTo is the address of the master in use, "" for none.
func connectedTo(t *testing.T, cfg *config.Minion) string {
	t.Helper()
	var s protocol.Status
	if err := dial(t, cfg.SockDir, minion.SocketName).Ask(t.Context(), protocol.OpStatus, nil, &s); err != nil || !s.Connected {
		return ""
	}
	return s.Master
}

// TestAMemberThatStopsSendsItsMinionsAway stops a member while jobs are sent from another one: none
// of them misses the minion, none is lost, and nobody hears that it was away.
func TestAMemberThatStopsSendsItsMinionsAway(t *testing.T) {
	all := startCluster(t)
	cfg := verifying(t, all[0].cfg.PKIDir, "", all[0].addr, all[1].addr)
	admit(t, cfg, all)
	startMinion(t, cfg)
	var a *memberUnderTest // where it is; one that has just started may not know all keys yet
	until(t, "the minion is connected", func() bool {
		at := connectedTo(t, cfg)
		i := slices.IndexFunc(all, func(m *memberUnderTest) bool { return m.addr.String() == at })
		if i >= 0 {
			a = all[i]
			all = append(slices.Delete(slices.Clone(all), i, i+1), a)
		}
		return i >= 0
	})
	b := all[0]
	until(t, "the minion knows all members", func() bool { return slices.Equal(learned(cfg), addressesOf(all)) })
	until(t, "another member reaches the minion", func() bool { return ping(t, b.cfg) == job.Done })

	dir := t.TempDir()
	long := make(chan job.Update, 1)
	c := dial(t, b.cfg.SockDir, master.SocketName)
	go func() {
		u, _ := publish(t, c, protocol.Publish{Commands: []job.Command{{Function: "cmd.run", Args: []any{"touch " + dir + "/runs; while [ ! -e " + dir + "/go ]; do sleep 0.05; done; echo done"}, Kwargs: map[string]any{"python_shell": true}}}, Timeout: 20})
		long <- u
	}()
	until(t, "a long job runs", func() bool { _, err := os.Stat(dir + "/runs"); return err == nil })
	stopped := make(chan time.Duration)
	go func() {
		began := time.Now()
		a.run.stop()
		stopped <- time.Since(began)
	}()
	jobs := 0
	for over := false; !over; jobs++ {
		select {
		case took := <-stopped:
			t.Logf("the member has stopped after %s", took)
			over = true
		default:
		}
		if state := ping(t, b.cfg); state != job.Done {
			t.Errorf("test.ping number %d while a member stops: %s", jobs, state)
		}
	}
	if at := connectedTo(t, cfg); at == a.addr.String() || at == "" {
		t.Errorf("the minion is connected to %q", at)
	}
	write(t, dir+"/go", "")
	if u := <-long; u.State != job.Done || u.Return.V != "done" {
		t.Errorf("the job that ran meanwhile: %s %v", u.State, u.Return.V)
	}
	for _, m := range all[:len(all)-1] {
		for _, e := range heard(t, m.cfg.SockDir, master.SocketName, "salt/presence/change") {
			var change struct{ Lost []string }
			if err := json.Unmarshal(e.Data, &change); err != nil || len(change.Lost) > 0 {
				t.Errorf("presence: %s, %v", e.Data, err)
			}
		}
	}
	events := heard(t, cfg.SockDir, minion.SocketName, "__master_disconnected")
	if len(events) != 0 {
		t.Errorf("the minion has lost a master: %s", events[0].Data)
	}
	t.Logf("%d jobs meanwhile", jobs)
}

// TestOneConfiguredMemberIsEnough: a minion that knows one member by its configuration uses the
// others when that is gone, also after a restart.
func TestOneConfiguredMemberIsEnough(t *testing.T) {
	all := startCluster(t)
	cfg := verifying(t, all[0].cfg.PKIDir, "", all[0].addr)
	cfg.Master, cfg.MasterIsList, cfg.MasterType = cfg.Master[:1], false, "str"
	admit(t, cfg, all)
	d := startMinion(t, cfg)
	until(t, "the minion knows all members", func() bool { return slices.Equal(learned(cfg), addressesOf(all)) })
	d.stop()
	all[0].run.stop()
	startMinion(t, cfg)
	until(t, "the minion uses another member", func() bool {
		at := connectedTo(t, cfg)
		return at == all[1].addr.String() || at == all[2].addr.String()
	})
	if pins, _ := filepath.Glob(filepath.Join(cfg.PKIDir, "minion_master.*.pub")); len(pins) > 0 {
		t.Errorf("keys of members are pinned: %s", strings.Join(pins, " "))
	}
	until(t, "it can be reached", func() bool { return ping(t, all[1].cfg) == job.Done })
}

// TestAMinionThatMovesIsConnectedTwice: when a master asks the minion to leave, the minion uses
// the other member, whose key the first one has named, and which hears of the jobs of the first
// one. It stays connected to the first one for a moment, since more may come from there.
func TestAMinionThatMovesIsConnectedTwice(t *testing.T) {
	key := bustest.Key(t)
	accept := func(b *bustest.Bus) { b.Accept("web1", key) }
	a, b := startSystem(t, accept), startSystem(t, accept)
	a.cluster = &protocol.Cluster{}
	for _, m := range []*system{a, b} {
		a.cluster.Members = append(a.cluster.Members, protocol.Member{Name: m.Addr().String(), Address: m.Addr().String(), Key: m.Key.Public().SHA256(), Running: true})
	}
	b.cluster = a.cluster
	inbox, moved := make(chan string, 1), make(chan time.Time, 1)
	e := job.Envelope{
		JID: salt.NewJID(time.Now()), Target: "web1", TargetType: "glob", User: "root", Expires: time.Now().Add(time.Minute), Heartbeat: 0.1,
		Commands: []job.Command{{Function: "test.ping"}},
	}
	a.greet = func(of string) { inbox <- of }
	b.greet = func(string) {
		a.send(t, e) // it arrives while the minion leaves
		moved <- time.Now()
	}
	cfg := minionConfig(t, a.Addr(), "master_type: failover\n")
	cfg.Master, cfg.MasterIsList = []string{a.Addr().String(), "127.0.0.1:1"}, true
	if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := key.WritePair(cfg.PKIDir, "minion"); err != nil {
		t.Fatal(err)
	}
	startMinion(t, cfg)
	uses(t, cfg, a.Addr())
	old := deadline.Receive(t, inbox, "hello")
	leave, err := json.Marshal(protocol.Control{Leave: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Broker.Conn().Publish(bus.ControlSubject(old), leave); err != nil {
		t.Fatal(err)
	}
	at := deadline.Receive(t, moved, "hello at the other one")
	until(t, "the old connection has ended", func() bool { _, there := a.Owner(old); return !there })
	if lasted := time.Since(at); lasted < 400*time.Millisecond {
		t.Errorf("the old connection lasts for %s", lasted)
	}
	uses(t, cfg, b.Addr())
	until(t, "the other member hears of the job", func() bool { return b.signs() >= 3 })
	close(b.hold)
	until(t, "it has the return", func() bool { return strings.HasSuffix(b.got(), "returned") })
	if got := a.got(); strings.Contains(got, "returned") {
		t.Errorf("the first one was told: %s", got)
	}
}
