package minion_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/minion"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/capture"
	"github.com/brinebus/brine/test/deadline"
)

// listed is a minion with a list of masters.
func listed(t *testing.T, settings string, masters ...net.Addr) *config.Minion {
	t.Helper()
	cfg := minionConfig(t, masters[0], "master_trust_on_first_use: each\n"+settings)
	cfg.Master, cfg.MasterIsList = nil, true
	for _, m := range masters {
		cfg.Master = append(cfg.Master, m.String())
	}
	return cfg
}

// restart starts a master again, where it was.
func restart(t *testing.T, cfg *config.Master, addr net.Addr) *daemonUnderTest {
	t.Helper()
	cfg.RetPort = addr.(*net.TCPAddr).Port
	m, err := master.New(t.Context(), master.Options{Config: cfg, Version: "test", Log: logger(t, "master again")})
	if err != nil {
		t.Fatal(err)
	}
	return run(t, m.Run)
}

// masterStates says of each master whether the minion is connected, such as "+-".
func masterStates(t *testing.T, cfg *config.Minion) string {
	t.Helper()
	var s protocol.Status
	if err := dial(t, cfg.SockDir, minion.SocketName).Ask(t.Context(), protocol.OpStatus, nil, &s); err != nil {
		t.Fatal(err)
	}
	states := ""
	for _, m := range s.Masters {
		states += map[bool]string{true: "+", false: "-"}[m.Connected]
	}
	return states
}

// ping runs test.ping from a master.
func ping(t *testing.T, cfg *config.Master) job.State {
	t.Helper()
	u, _ := publish(t, dial(t, cfg.SockDir, master.SocketName), protocol.Publish{Commands: call("test.ping"), Timeout: 20})
	return u.State
}

// outcomes shows what became of events at each master.
func outcomes(f protocol.Fired) string {
	var all []string
	for _, m := range f.Masters {
		all = append(all, string(m.Outcome))
	}
	return strings.Join(all, " ")
}

func TestAllMastersAtOnce(t *testing.T) {
	acfg, a, arun := startMaster(t)
	bcfg, b, _ := startMaster(t)
	cfg := listed(t, "", a, b)
	startMinion(t, cfg)
	until(t, "both masters are connected", func() bool { return masterStates(t, cfg) == "++" })
	for name, m := range map[string]*config.Master{"first": acfg, "second": bcfg} {
		if state := ping(t, m); state != job.Done {
			t.Errorf("test.ping from the %s master: %s", name, state)
		}
		if n := len(heard(t, m.SockDir, master.SocketName, "salt/job/")); n != 2 {
			t.Errorf("the %s master has %d events of jobs; want that of its own job and its return", name, n)
		}
		if n := len(heard(t, m.SockDir, master.SocketName, "salt/minion/web1/start")); n != 1 {
			t.Errorf("the %s master has %d events of the start", name, n)
		}
	}
	pins, err := filepath.Glob(filepath.Join(cfg.PKIDir, "minion_master.*.pub"))
	if err != nil || len(pins) != 2 {
		t.Errorf("pinned: %v, %v; want a file for each master", pins, err)
	}

	c := dial(t, cfg.SockDir, minion.SocketName)
	fire := func(tag string) (f protocol.Fired) {
		t.Helper()
		if err := c.Ask(t.Context(), protocol.OpMaster, protocol.Fire{ID: tag, Events: []event.Item{{Tag: tag}}}, &f); err != nil {
			t.Fatal(err)
		}
		return f
	}
	if f := fire("both"); f.Outcome != protocol.Stored || outcomes(f) != "stored stored" || f.Masters[0].Master != a.String() {
		t.Errorf("fired to two masters: %+v", f)
	}
	arun.stop()
	until(t, "the loss of one is noticed", func() bool { return masterStates(t, cfg) == "-+" })
	if f := fire("one"); f.Outcome != protocol.Queued || outcomes(f) != "outbox stored" {
		t.Errorf("fired to two masters, one away: %+v", f)
	}
	if state := ping(t, bcfg); state != job.Done {
		t.Errorf("test.ping while the other master is away: %s", state)
	}
	fire("one") // by the same name: a repetition
	restart(t, acfg, a)
	until(t, "it is back", func() bool { return masterStates(t, cfg) == "++" })
	until(t, "it has what waited", func() bool { return len(heard(t, acfg.SockDir, master.SocketName, "one")) > 0 })
	for name, m := range map[string]*config.Master{"first": acfg, "second": bcfg} {
		for _, tag := range []string{"both", "one"} {
			if n := len(heard(t, m.SockDir, master.SocketName, tag)); n != 1 {
				t.Errorf("the %s master has the event %s %d times", name, tag, n)
			}
		}
	}
}

// TestAnAbsentMasterDelaysNothing has a list with a master that was never there,
// one whose name has no address, and one that takes calls and says nothing.
func TestAnAbsentMasterDelaysNothing(t *testing.T) {
	acfg, a, _ := startMaster(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := listed(t, "auth_timeout: 60\n", l.Addr(), a)
	cfg.Master = append(cfg.Master, "nosuch.invalid", "127.0.0.1:1", "")
	startMinion(t, cfg)
	until(t, "the one that is there is connected", func() bool { return masterStates(t, cfg)[1] == '+' })
	if states := masterStates(t, cfg); states != "-+---" {
		t.Errorf("connected: %s", states)
	}
	if state := ping(t, acfg); state != job.Done {
		t.Errorf("test.ping: %s", state)
	}
	var f protocol.Fired
	if err := dial(t, cfg.SockDir, minion.SocketName).Ask(t.Context(), protocol.OpMaster, protocol.Fire{Events: []event.Item{{Tag: "x"}}}, &f); err != nil || outcomes(f) != "outbox stored outbox outbox outbox" {
		t.Errorf("fire: %+v, %v", f, err)
	}
}

// TestReturnAfterTheLossOfItsMaster loses the master of a running job: the return
// reaches the next one, once, as what the minion ran.
func TestReturnAfterTheLossOfItsMaster(t *testing.T) {
	acfg, a, arun := startMaster(t)
	bcfg, b, _ := startMaster(t)
	cfg := listed(t, "master_type: failover\n", a, b)
	startMinion(t, cfg)
	uses(t, cfg, a)
	dir := t.TempDir()
	s, err := dial(t, acfg.SockDir, master.SocketName).Call(protocol.OpPublish, protocol.Publish{
		Target: "web1", TargetType: "glob", Async: true,
		Commands: []job.Command{{Function: "cmd.run", Args: []any{"touch " + dir + "/runs; while [ ! -e " + dir + "/go ]; do sleep 0.05; done; echo done"}, Kwargs: map[string]any{"python_shell": true}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var start job.Start
	if err := s.Decode(t.Context(), &start); err != nil {
		t.Fatal(err)
	}
	until(t, "the job runs", func() bool { _, err := os.Stat(dir + "/runs"); return err == nil })
	arun.stop()
	uses(t, cfg, b)
	write(t, dir+"/go", "")
	tag := "salt/job/" + string(start.JID) + "/ret/web1"
	until(t, "the return is in the journal of the other master", func() bool {
		return len(heard(t, bcfg.SockDir, master.SocketName, tag)) > 0
	})
	restart(t, acfg, a)
	if state := ping(t, bcfg); state != job.Done {
		t.Errorf("test.ping afterwards: %s", state)
	}
	events := heard(t, bcfg.SockDir, master.SocketName, tag)
	if len(events) != 1 {
		t.Fatalf("%d returns", len(events))
	}
	var data struct {
		ID, Fun, Return string
		Args            []any `json:"fun_args"`
	}
	if err := json.Unmarshal(events[0].Data, &data); err != nil || data.ID != "web1" || data.Fun != "cmd.run" || data.Return != "done" || len(data.Args) == 0 {
		t.Errorf("%s, %v", events[0].Data, err)
	}
	if n := len(heard(t, acfg.SockDir, master.SocketName, tag)); n != 0 {
		t.Errorf("the master that was lost has %d returns", n)
	}
	runner, err := dial(t, bcfg.SockDir, master.SocketName).Call(protocol.OpRun, protocol.Run{Command: job.Command{Function: "jobs.lookup_jid", Args: []any{string(start.JID)}}, Timeout: 20})
	if err != nil {
		t.Fatal(err)
	}
	var begun protocol.RunStart
	var result protocol.RunResult
	if err := runner.Decode(t.Context(), &begun); err != nil {
		t.Fatal(err)
	}
	if err := runner.Decode(t.Context(), &result); err != nil || !strings.Contains(show(t, result), "done") {
		t.Errorf("jobs.lookup_jid: %s, %v", show(t, result), err)
	}
}

func show(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// system is one of several masters of one system: it sends what it is told to and
// remembers what it gets.
type system struct {
	*bustest.Bus
	mu      sync.Mutex
	reports []string // of the states that it was told
	alive   int      // how often it was told that a job is running
	ready   chan struct{}
	hold    chan struct{} // batches are answered when it is closed

	greet   func(inbox string)
	cluster *protocol.Cluster
}

func startSystem(t *testing.T, key func(*bustest.Bus)) *system {
	t.Helper()
	m := &system{Bus: bustest.Start(t), ready: make(chan struct{}), hold: make(chan struct{})}
	key(m.Bus)
	greeted := sync.OnceFunc(func() { close(m.ready) }) // it may come again
	m.Server.Handle("hello", func(ctx context.Context, r *rpc.Request) error {
		if m.greet != nil {
			m.greet(r.Inbox())
		}
		greeted()
		return r.Send(ctx, protocol.Welcome{Time: time.Now(), Cluster: m.cluster})
	})
	m.Server.Handle("ask", func(ctx context.Context, r *rpc.Request) error {
		if err := r.Send(ctx, protocol.AskAnswer{State: protocol.KeyAccepted}); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	m.Server.Handle("returned", func(ctx context.Context, r *rpc.Request) error {
		var rep job.Report
		if err := r.Decode(&rep); err != nil {
			return err
		}
		m.reported(string(rep.State))
		return nil
	})
	m.Server.Handle("deliver", func(ctx context.Context, r *rpc.Request) error {
		var q outbox.Batch
		if err := r.Decode(&q); err != nil {
			return err
		}
		for _, l := range q.Messages {
			if strings.HasPrefix(l.Op, "ret.") {
				m.reported("returned")
			}
		}
		select {
		case <-m.hold:
		case <-ctx.Done():
		}
		return r.Send(ctx, outbox.Delivered{Messages: make([]outbox.Delivery, len(q.Messages))})
	})
	if err := m.Server.Start(); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *system) reported(state string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if state == string(job.Running) {
		m.alive++
		return
	}
	m.reports = append(m.reports, state)
}

// signs is how often a minion said that it is running a job.
func (m *system) signs() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.alive
}

func (m *system) got() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.reports, " ")
}

func (m *system) send(t *testing.T, e job.Envelope) {
	t.Helper()
	sealed, err := job.Seal(&e, m.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := rpc.Publish(m.Broker.Conn(), bus.JobSubject("web1"), sealed, false); err != nil {
		t.Fatal(err)
	}
}

// startSystems starts masters of one system and a minion of all of them.
func startSystems(t *testing.T, n int) []*system {
	t.Helper()
	key := bustest.Key(t)
	masters, addrs := make([]*system, n), make([]net.Addr, n)
	for i := range masters {
		masters[i] = startSystem(t, func(b *bustest.Bus) { b.Accept("web1", key) })
		addrs[i] = masters[i].Addr()
	}
	cfg := listed(t, "", addrs...)
	if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := key.WritePair(cfg.PKIDir, "minion"); err != nil {
		t.Fatal(err)
	}
	startMinion(t, cfg)
	for _, m := range masters {
		deadline.Receive(t, m.ready, "ready")
	}
	// Until then the minion has nobody to tell of a job.
	until(t, "all are connected", func() bool { return masterStates(t, cfg) == strings.Repeat("+", n) })
	return masters
}

// TestASlowDeliveryIsHeardOf runs a job that is done at once and whose return takes
// its time to be stored, as one of thousands does: until it is, also when nobody on the
// minion waits for it any more, the minion says that it is there. The job has left its
// place to the next one then.
func TestASlowDeliveryIsHeardOf(t *testing.T) {
	m := startSystems(t, 1)[0]
	e := job.Envelope{
		JID: salt.NewJID(time.Now()), Target: "web1", TargetType: "glob", User: "root", Expires: time.Now().Add(time.Minute), Heartbeat: 0.1,
		Commands: []job.Command{{Function: "test.ping"}},
	}
	m.send(t, e)
	until(t, "the minion says for more than five seconds that it is there", func() bool { return m.signs() >= 60 })
	close(m.hold)
	until(t, "it is silent", func() bool {
		before := m.signs()
		<-time.After(5 * e.Heartbeat.Duration())
		return m.signs() == before
	})
}

// TestOneJobOfTwoMasters sends the same job from two masters of one system: it runs
// once, and both are told. Another job with its id is refused.
func TestOneJobOfTwoMasters(t *testing.T) {
	masters := startSystems(t, 3)
	a, b, c := masters[0], masters[1], masters[2]
	for _, m := range masters {
		close(m.hold)
	}
	dir := t.TempDir()
	e := job.Envelope{
		JID: salt.NewJID(time.Now()), Target: "web1", TargetType: "glob", User: "root", Expires: time.Now().Add(time.Minute), Heartbeat: 60,
		Commands: []job.Command{{Function: "cmd.run", Args: []any{"echo x >> " + dir + "/runs; while [ ! -e " + dir + "/go ]; do sleep 0.05; done"}, Kwargs: map[string]any{"python_shell": true}}},
	}
	a.send(t, e)
	until(t, "the job runs", func() bool { _, err := os.Stat(dir + "/runs"); return err == nil })
	b.send(t, e)
	other := e
	other.Commands = []job.Command{{Function: "test.ping"}}
	c.send(t, other)
	until(t, "the other master was told", func() bool { return b.got() == "received" })
	until(t, "the other job was refused", func() bool { return c.got() == "refused" })
	a.send(t, e)
	write(t, dir+"/go", "")
	until(t, "both have the return", func() bool { // a quick one is its own receipt
		return strings.HasSuffix(a.got(), "returned") && strings.HasSuffix(b.got(), "returned")
	})
	if runs, err := os.ReadFile(dir + "/runs"); err != nil || string(runs) != "x\n" {
		t.Errorf("the job ran: %q, %v", runs, err)
	}
	b.send(t, e)
	if c.got() != "refused" {
		t.Errorf("the third master was told: %s", c.got())
	}
}

// TestWithoutAMaster runs a minion that is to have none: its bus and its schedule
// work, and what is for a master is refused with a reason.
func TestWithoutAMaster(t *testing.T) {
	_, a, _ := startMaster(t)
	marker := filepath.Join(t.TempDir(), "ran")
	cfg := minionConfig(t, a, "master_type: disable\nschedule:\n  one:\n    function: cmd.run\n    args: ['touch "+marker+"']\n    seconds: 1\n")
	startMinion(t, cfg)
	until(t, "the schedule runs", func() bool { _, err := os.Stat(marker); return err == nil })
	c := dial(t, cfg.SockDir, minion.SocketName)
	var s protocol.Status
	if err := c.Ask(t.Context(), protocol.OpStatus, nil, &s); err != nil || s.Connected || len(s.Masters) > 0 {
		t.Errorf("status: %+v, %v", s, err)
	}
	var f protocol.Fired
	if err := c.Ask(t.Context(), protocol.OpFire, protocol.Fire{Events: []event.Item{{Tag: "here"}}}, &f); err != nil {
		t.Errorf("fire on its own bus: %v", err)
	}
	for op, tag := range map[string]string{protocol.OpMaster: "there", protocol.OpFire: "fire_master"} {
		err := c.Ask(t.Context(), op, protocol.Fire{Events: []event.Item{{Tag: tag, Data: json.RawMessage(`{"data": 1, "tag": "there"}`)}}}, &f)
		if rpc.CodeOf(err) != rpc.Unavailable || !strings.Contains(err.Error(), "master_type is disable") {
			t.Errorf("fire for the master by %s: %v", op, err)
		}
	}
	if n := len(heard(t, cfg.SockDir, minion.SocketName, "fire_master")); n != 0 {
		t.Errorf("the refused event is on the own bus %d times", n)
	}
}

func TestPingInterval(t *testing.T) {
	mcfg, a, _ := startMaster(t)
	cfg := minionConfig(t, a, "")
	cfg.PingInterval = 20 * time.Millisecond
	startMinion(t, cfg)
	until(t, "the master hears minion_ping again and again", func() bool {
		return len(heard(t, mcfg.SockDir, master.SocketName, "minion_ping")) >= 3
	})
	e := heard(t, mcfg.SockDir, master.SocketName, "minion_ping")[0]
	if !strings.Contains(shown(t, e), `"data":"ping","id":"web1"`) {
		t.Errorf("minion_ping is %s", shown(t, e))
	}
}

// TestDistributed uses the master that follows from the minion's id.
func TestDistributed(t *testing.T) {
	_, a, _ := startMaster(t)
	_, b, _ := startMaster(t)
	_, c, _ := startMaster(t)
	cfg := listed(t, "master_type: distributed\n", a, b, c)
	startMinion(t, cfg)
	uses(t, cfg, c) // crc32 of web1
}

// TestListOfMastersChanges adds a second master to a minion for which something
// waits, and takes it out again: nothing is lost, and what waits for nobody is told.
func TestListOfMastersChanges(t *testing.T) {
	acfg, a, arun := startMaster(t)
	_, b, brun := startMaster(t)
	cfg := minionConfig(t, a, "")
	m := startMinion(t, cfg)
	connected(t, cfg)
	arun.stop()
	fire := func(tag string) {
		t.Helper()
		if err := dial(t, cfg.SockDir, minion.SocketName).Ask(t.Context(), protocol.OpMaster, protocol.Fire{Events: []event.Item{{Tag: tag}}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the loss is noticed", func() bool { return masterStates(t, cfg) == "-" })
	fire("first")
	m.stop()
	brun.stop()
	list := *cfg
	list.Master, list.MasterIsList = []string{a.String(), b.String()}, true
	m = startMinion(t, &list)
	until(t, "it is there", func() bool { return masterStates(t, &list) == "--" })
	fire("both")
	m.stop()
	var log capture.Buffer
	alone, err := minion.New(t.Context(), minion.Options{Config: cfg, Version: "test", Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "wait for a master that is not in the configuration any more") || !strings.Contains(log.String(), b.String()) {
		t.Errorf("the log says: %s", log.String())
	}
	run(t, alone.Run)
	restart(t, acfg, a)
	until(t, "what waited is delivered", func() bool { return len(heard(t, acfg.SockDir, master.SocketName, "both")) > 0 })
	if n := len(heard(t, acfg.SockDir, master.SocketName, "first")); n != 1 {
		t.Errorf("the event from before is there %d times", n)
	}
}
