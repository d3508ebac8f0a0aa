package minion_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/minion"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
	"github.com/brinebus/brine/test/port"
)

// daemonUnderTest is a daemon that runs until stop is called or the test ends.
type daemonUnderTest struct {
	stop  func()
	ended chan error
}

func run(t testing.TB, serve func(context.Context) error) *daemonUnderTest {
	ctx, cancel := context.WithCancel(context.Background())
	d := &daemonUnderTest{ended: make(chan error, 1)}
	finished := make(chan struct{})
	go func() { d.ended <- serve(ctx); close(finished) }()
	d.stop = func() {
		cancel()
		select {
		case <-finished:
		case <-time.After(time.Minute):
			t.Error("a daemon does not stop")
		}
	}
	t.Cleanup(func() { d.stop() })
	deadline.Guard(t, cancel, "a daemon")
	return d
}

func logger(t testing.TB, name string) *slog.Logger {
	if _, measured := t.(*testing.B); measured {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("daemon", name)
}

// startMaster runs a real master that accepts every key.
func startMaster(t testing.TB) (*config.Master, net.Addr, *daemonUnderTest) {
	t.Helper()
	return startMasterWith(t, func(string) string { return "" })
}

// startMasterWith runs one with further settings, which may name files in dir.
func startMasterWith(t testing.TB, settings func(dir string) string) (*config.Master, net.Addr, *daemonUnderTest) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "master"), "root_dir: "+dir+"\ninterface: 127.0.0.1\nauto_accept: True\n"+settings(dir))
	cfg, _, err := config.LoadMaster(dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RetPort = port.Free(t) // it may be started again there
	m, err := master.New(t.Context(), master.Options{Config: cfg, Version: "test", Log: logger(t, "master")})
	if err != nil {
		t.Fatal(err)
	}
	return cfg, m.Addr(), run(t, m.Run)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func minionConfig(t testing.TB, master net.Addr, settings string) *config.Minion {
	t.Helper()
	dir := t.TempDir()
	host, port, _ := net.SplitHostPort(master.String())
	write(t, filepath.Join(dir, "minion"), fmt.Sprintf("root_dir: %s\nid: web1\nmaster: %s\nmaster_port: %s\n%s", dir, host, port, settings))
	cfg, _, err := config.LoadMinion(dir)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func startMinion(t testing.TB, cfg *config.Minion) *daemonUnderTest {
	t.Helper()
	m, err := minion.New(t.Context(), minion.Options{Config: cfg, Version: "test", Log: logger(t, "minion")})
	if err != nil {
		t.Fatal(err)
	}
	return run(t, m.Run)
}

// A request that comes before the daemon can answer requests waits, and is not refused.
func TestARequestBeforeTheStartIsDoneWaits(t *testing.T) {
	_, a, _ := startMaster(t)
	cfg := listed(t, "", a)
	m, err := minion.New(t.Context(), minion.Options{Config: cfg, Version: "test", Log: logger(t, "minion")})
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		c, err := rpc.Dial(filepath.Join(cfg.SockDir, minion.SocketName))
		if err == nil {
			defer c.Close()
			err = c.Ask(t.Context(), protocol.OpStatus, nil, nil)
		}
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("answered before the daemon runs: %v", err)
		answered <- nil
	case <-time.After(100 * time.Millisecond): // an answer would be there by then; on a slow machine the test sees less
	}
	run(t, m.Run)
	if err := deadline.Receive(t, answered, "answered"); err != nil {
		t.Errorf("once the daemon runs: %v", err)
	}
}

func dial(t testing.TB, dir, name string) *rpc.Conn {
	t.Helper()
	c, err := rpc.Dial(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// until asks again and again, a little apart, until ok.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline.Until(t, ok, what)
}

func connected(t testing.TB, cfg *config.Minion) {
	t.Helper()
	c := dial(t, cfg.SockDir, minion.SocketName)
	until(t, "the minion is connected", func() bool {
		var s protocol.Status
		return c.Ask(t.Context(), protocol.OpStatus, nil, &s) == nil && s.Connected
	})
}

func call(fun string, args ...any) []job.Command {
	return []job.Command{{Function: salt.Function(fun), Args: args}}
}

// publish runs a job on web1 and returns its last update and all the states.
func publish(t *testing.T, c *rpc.Conn, q protocol.Publish) (last job.Update, states []job.State) {
	t.Helper()
	q.Target, q.TargetType = "web1", "glob"
	s, err := c.Call(protocol.OpPublish, q)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var start job.Start
	if err := s.Decode(ctx, &start); err != nil {
		t.Fatal(err)
	}
	for {
		var u job.Update
		if err := s.Decode(ctx, &u); err != nil {
			return last, states
		}
		last, states = u, append(states, u.State)
	}
}

func TestNothingIsLeftAfterRun(t *testing.T) {
	bustest.CheckLeaks(t)
	mcfg, addr, m := startMaster(t)
	cfg := minionConfig(t, addr, "")
	d := startMinion(t, cfg)
	connected(t, cfg)
	if u, _ := publish(t, dial(t, mcfg.SockDir, master.SocketName), protocol.Publish{Commands: call("test.ping")}); u.State != job.Done {
		t.Errorf("ping: %+v", u)
	}
	d.stop()
	m.stop()
	for _, path := range []string{filepath.Join(cfg.SockDir, minion.SocketName), cfg.PIDFile} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
}

// The pid file is there once the minion serves, and not before.
func TestThePIDFileSaysReady(t *testing.T) {
	bustest.CheckLeaks(t)
	_, addr, _ := startMaster(t)
	cfg := minionConfig(t, addr, "")
	m, err := minion.New(t.Context(), minion.Options{Config: cfg, Version: "test", Log: logger(t, "minion")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cfg.PIDFile); err == nil {
		t.Error("there is a pid file before the minion serves")
	}
	run(t, m.Run)
	until(t, "there is a pid file", func() bool { _, err := os.Stat(cfg.PIDFile); return err == nil })
	var s protocol.Status
	if err := dial(t, cfg.SockDir, minion.SocketName).Ask(t.Context(), protocol.OpStatus, nil, &s); err != nil {
		t.Error(err)
	}
}

func TestSecondInstanceIsRefused(t *testing.T) {
	_, addr, _ := startMaster(t)
	cfg := minionConfig(t, addr, "")
	startMinion(t, cfg)
	if _, err := minion.New(t.Context(), minion.Options{Config: cfg, Log: logger(t, "second")}); !errors.Is(err, daemon.ErrRunning) {
		t.Errorf("a second minion: %v, want ErrRunning", err)
	}
}

// TestStatesOfAJob runs jobs that end in each way.
func TestStatesOfAJob(t *testing.T) {
	mcfg, addr, _ := startMaster(t)
	cfg := minionConfig(t, addr, "")
	startMinion(t, cfg)
	connected(t, cfg)
	c := dial(t, mcfg.SockDir, master.SocketName)
	for name, row := range map[string]struct {
		q    protocol.Publish
		want job.State
	}{
		"done":             {protocol.Publish{Commands: call("test.ping")}, job.Done},
		"failed":           {protocol.Publish{Commands: call("cmd.run", "exit 3")}, job.Failed},
		"unknown function": {protocol.Publish{Commands: call("nosuch.fun")}, job.Failed},
		"a panic is that job's failure only, and so is an exception": {protocol.Publish{Commands: call("test.exception")}, job.Failed},
		"longer than the timeout":                                    {protocol.Publish{Commands: call("test.sleep", 6.0), Timeout: 3}, job.Done},
	} {
		if u, states := publish(t, c, row.q); u.State != row.want {
			t.Errorf("%s: %s (%v: %v), want %s", name, u.State, states, u.Return.V, row.want)
		}
	}
}

func TestKilledJob(t *testing.T) {
	mcfg, addr, _ := startMaster(t)
	cfg := minionConfig(t, addr, "")
	startMinion(t, cfg)
	connected(t, cfg)
	c := dial(t, mcfg.SockDir, master.SocketName)
	marker := filepath.Join(t.TempDir(), "running")
	done := make(chan job.Update, 1)
	go func() {
		u, _ := publish(t, dial(t, mcfg.SockDir, master.SocketName), protocol.Publish{Commands: call("cmd.run", "touch "+marker+"; sleep 100 & sleep 100")})
		done <- u
	}()
	until(t, "the job runs", func() bool { _, err := os.Stat(marker); return err == nil })
	running, _ := publish(t, c, protocol.Publish{Commands: call("saltutil.running")})
	var jid string
	list, _ := running.Return.V.([]any)
	for _, one := range list {
		if m, ok := one.(map[string]any); ok && m["fun"] == "cmd.run" {
			jid, _ = m["jid"].(string)
		}
	}
	if jid == "" {
		t.Fatalf("saltutil.running: %v", running.Return.V)
	}
	publish(t, c, protocol.Publish{Commands: call("saltutil.kill_job", jid)})
	if u := deadline.Receive(t, done, "done"); u.State != job.Killed || u.Text == "" {
		t.Errorf("killed job: %+v", u)
	}
}

// TestOutbox fires while the master is away: the events arrive in order when it
// is back, once.
func TestOutbox(t *testing.T) {
	mcfg, addr, m := startMaster(t)
	cfg := minionConfig(t, addr, "")
	startMinion(t, cfg)
	connected(t, cfg)
	m.stop()
	c := dial(t, cfg.SockDir, minion.SocketName)
	until(t, "the loss is noticed", func() bool {
		var s protocol.Status
		return c.Ask(t.Context(), protocol.OpStatus, nil, &s) == nil && !s.Connected
	})
	const n = 20
	for i := range n {
		var fired protocol.Fired
		f := protocol.Fire{Events: []event.Item{{Tag: "kept", Data: json.RawMessage(fmt.Sprint(i))}}}
		if err := c.Ask(t.Context(), protocol.OpMaster, f, &fired); err != nil || fired.Outcome != protocol.Queued {
			t.Fatalf("fire %d: %+v, %v; want it in the outbox", i, fired, err)
		}
	}
	mcfg.RetPort = addr.(*net.TCPAddr).Port
	again, err := master.New(t.Context(), master.Options{Config: mcfg, Version: "test", Log: logger(t, "master")})
	if err != nil {
		t.Fatal(err)
	}
	run(t, again.Run)
	s, err := dial(t, mcfg.SockDir, master.SocketName).Call(protocol.OpListen, protocol.Listen{Tags: []string{"kept"}, Since: time.Now().Add(-time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ready protocol.Ready
	if err := s.Decode(ctx, &ready); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		var e protocol.Heard
		if err := s.Decode(ctx, &e); err != nil || string(e.Data) != fmt.Sprint(i) || e.From != "web1" {
			t.Fatalf("event %d: %s from %q, %v", i, e.Data, e.From, err)
		}
	}
}

func TestRefusedForGood(t *testing.T) {
	_, addr, _ := startMaster(t)
	cfg := minionConfig(t, addr, "master_finger: 00:11\n")
	d := startMinion(t, cfg)
	select {
	case err := <-d.ended:
		if !errors.Is(err, upstream.ErrMasterKey) || salt.Hint(err) == "" {
			t.Errorf("wrong master_finger: %v (hint %q)", err, salt.Hint(err))
		}
	case <-time.After(time.Minute):
		t.Error("a minion that refuses its master goes on")
	}
	if _, err := os.Stat(filepath.Join(cfg.PKIDir, "minion_master.pub")); err == nil {
		t.Error("the refused key was kept")
	}
}

// TestPillar targets by pillar and reads it on the minion that it is for.
func TestPillar(t *testing.T) {
	mcfg, addr, _ := startMasterWith(t, func(dir string) string {
		if err := os.MkdirAll(filepath.Join(dir, "pillar"), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "pillar", "top.sls"), "base:\n  web1: [one]\n  other: [two]\n")
		write(t, filepath.Join(dir, "pillar", "one.sls"), "role: web\n")
		write(t, filepath.Join(dir, "pillar", "two.sls"), "secret: geheim\n")
		return "pillar_roots: {base: [pillar]}\n"
	})
	cfg := minionConfig(t, addr, "")
	startMinion(t, cfg)
	connected(t, cfg)
	c := dial(t, mcfg.SockDir, master.SocketName)
	u, _ := publish(t, c, protocol.Publish{Commands: call("pillar.items")})
	if got := fmt.Sprint(u.Return.V); got != "map[role:web]" {
		t.Errorf("pillar.items: %s", got)
	}
	for expr, want := range map[string]job.State{"role:web": job.Done, "secret:*": ""} {
		s, err := c.Call(protocol.OpPublish, protocol.Publish{Target: expr, TargetType: "pillar", Commands: call("test.ping"), Timeout: 5})
		if err != nil {
			t.Fatal(err)
		}
		var start job.Start
		var u job.Update
		err = s.Decode(t.Context(), &start)
		for err == nil && !u.State.Final() || err == nil && u.State == "" {
			err = s.Decode(t.Context(), &u)
		}
		if u.State != want {
			t.Errorf("-I %s: %q, %v; want %q", expr, u.State, err, want)
		}
	}
}
