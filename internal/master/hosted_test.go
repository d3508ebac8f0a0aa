package master_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/membership"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
	"github.com/brinebus/brine/test/natslab"
)

// goHosted starts NATS servers with JetStream, and a master that has its journal there.
func goHosted(t *testing.T, servers int, settings string) *abroad {
	t.Helper()
	bustest.CheckLeaks(t)
	lab := natslab.New(t, servers)
	lab.JetStream = true
	a := newHosted(t, lab, settings)
	config, err := master.ServerConfig(a.cfg, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	lab.Start(config)
	a.run()
	a.atWork(1)
	return a
}

// newHosted prepares a master with an empty directory, which does not run yet.
func newHosted(t *testing.T, lab *natslab.Cluster, settings string) *abroad {
	t.Helper()
	a := &abroad{&world{t: t, dir: t.TempDir()}, lab, lab.Addresses()}
	a.write("master", fmt.Sprintf("root_dir: %s\ninterface: 127.0.0.1\nnats_jetstream: True\nnats_copies: %d\n%s%s", a.dir, min(3, len(lab.Servers)), lab.Settings(), settings))
	var err error
	if a.cfg, err = a.load(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(a.cfg.PKIDir, 0o700); err != nil {
		t.Fatal(err)
	}
	return a
}

// replacement prepares another master on a fresh machine: it has the seed and the key of the first
// one, and nothing else.
func (a *abroad) replacement(settings string) *abroad {
	a.t.Helper()
	b := newHosted(a.t, a.lab, settings)
	for _, name := range []string{"master.pem", "master.pub", "master_nats.seed"} {
		text, err := os.ReadFile(filepath.Join(a.cfg.PKIDir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(b.cfg.PKIDir, name), text, 0o600)
		}
		if err != nil {
			a.t.Fatal(err)
		}
	}
	return b
}

// pinged runs a job on a minion through this master, and reports whether it was answered.
func (a *abroad) pinged(id string) bool {
	_, got, err := publish(a.t, a.user(), ping(id, "glob"))
	for _, u := range got {
		if u.State != job.Done {
			return false
		}
	}
	return err == nil && len(got) > 0
}

// A master whose journal is in the JetStream of three servers ends; one with an empty directory
// has its events, jobs and keys, and a key that the first one has deleted is out at it.
func TestAnEmptyMasterGoesOn(t *testing.T) {
	a := goHosted(t, 3, "")
	one, two := key(t), key(t)
	a.accepted("web1", one)
	a.accepted("web2", two)
	wait(t, "a first job", func() bool { return a.pinged("web1") && a.pinged("web2") })
	begin, _, err := publish(t, a.user(), ping("web1", "glob"))
	if err != nil {
		t.Fatal(err)
	}
	a.fire("kept/1", "kept/2")
	if _, err := os.Stat(filepath.Join(a.cfg.CacheDir, "journal")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has a journal of its own: %v", err)
	}
	store, err := pki.OpenStore(a.cfg.PKIDir)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := store.Of("web2")
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	if err := store.Delete(entries[0]); err != nil {
		t.Fatal(err)
	}
	wait(t, "web2 to be out", func() bool { return !a.pinged("web2") })
	a.tells("salt/key", `"delete"`) // when the deletion is stored
	a.stop()
	b := a.replacement("")
	b.run()
	b.atWork(1)
	wait(t, "the minion at the new master", func() bool { return b.pinged("web1") })
	if b.pinged("web2") {
		t.Error("a key that was deleted at the first master is accepted at the second")
	}
	if got := listenSince(t, b.user(), "kept/"); len(got) != 2 {
		t.Errorf("it has the events %v", got)
	}
	if got := listenSince(t, b.user(), "salt/job/"+string(begin.JID)+"/ret/"); len(got) != 1 {
		t.Errorf("the job has the returns %v", got)
	}
	if listed, err := os.ReadDir(filepath.Join(b.cfg.PKIDir, "minions")); err != nil || !slices.ContainsFunc(listed, func(e fs.DirEntry) bool { return e.Name() == "web1" }) {
		t.Errorf("its key directory has %v, %v", listed, err)
	}
}

// tells waits until the journal has an event with this tag whose data contains text.
func (a *abroad) tells(tag, text string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), deadline.Time)
	defer cancel()
	s, err := a.user().Call(protocol.OpListen, protocol.Listen{Tags: []string{tag}, Since: time.Now().Add(-time.Hour)})
	if err != nil {
		a.t.Fatal(err)
	}
	defer s.Close()
	var ready protocol.Ready
	err = s.Decode(ctx, &ready)
	for e := (event.Event{}); err == nil && !strings.Contains(string(e.Data), text); {
		e = event.Event{}
		err = s.Decode(ctx, &e)
	}
	if err != nil {
		a.t.Fatalf("no event %s has %s: %v", tag, text, err)
	}
}

// A key that is deleted at a master that was at work before, and waits, stays deleted when that is at work again:
// its own key directory says what was in force there.
func TestADeletionAtAWaitingMaster(t *testing.T) {
	a := goHosted(t, 1, "")
	a.accepted("web1", key(t))
	a.accepted("web2", key(t))
	wait(t, "a first job", func() bool { return a.pinged("web1") && a.pinged("web2") })
	a.stop()
	b := a.replacement("")
	b.run()
	b.atWork(1)
	wait(t, "the minions at the other master", func() bool { return b.pinged("web1") && b.pinged("web2") })
	store, err := pki.OpenStore(a.cfg.PKIDir)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := store.Of("web2")
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	if err := store.Delete(entries[0]); err != nil {
		t.Fatal(err)
	}
	b.stop()
	a.run()
	a.atWork(2)
	wait(t, "the minion at the first master", func() bool { return a.pinged("web1") })
	if a.pinged("web2") {
		t.Error("a key that was deleted at the waiting master is accepted when it is at work")
	}
	if entries, err := store.Of("web2"); err != nil || slices.ContainsFunc(entries, func(e pki.Entry) bool { return e.State == pki.Accepted }) {
		t.Errorf("the key directory has it: %v, %v", entries, err)
	}
	a.stop()
	b.run()
	b.atWork(2)
	wait(t, "the minion at the other master", func() bool { return b.pinged("web1") })
	if b.pinged("web2") {
		t.Error("a key that was deleted at one master is accepted at the other one")
	}
}

// TestAWaitingMasterIsReady: a start that waits for the end of another master is ready to take over, and is not while it
// waits for anything else.
func TestAWaitingMasterIsReady(t *testing.T) {
	a := goHosted(t, 1, "")
	b := a.replacement("")
	ready := make(chan func() error, 1)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := master.New(ctx, master.Options{Config: b.cfg, Version: "test", Log: logger(t), Starting: func(f func() error) { ready <- f }})
		ended <- err
	}()
	waits := deadline.Receive(t, ready, "the start")
	wait(t, "the second master to be ready", func() bool { return waits() == nil })
	a.lab.Servers[0].Kill()
	wait(t, "the reason", func() bool {
		err := waits()
		return err != nil && strings.Contains(err.Error(), "the master is starting: the master is not connected to the NATS servers")
	})
	a.lab.Servers[0].Start()
	wait(t, "the second master to be ready again", func() bool { return waits() == nil })
	stop()
	if err := deadline.Receive(t, ended, "the end of the start"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// fireUntil fires events until stop is closed, and returns those that were acknowledged. An event that
// was refused is not fired again.
func (a *abroad) fireUntil(name string, stop <-chan struct{}) (acked []string, refused int) {
	user := a.user()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return acked, refused
		default:
		}
		tag := fmt.Sprintf("load/%s/%06d", name, n)
		if err := user.Ask(a.t.Context(), protocol.OpFire, protocol.Fire{Events: []event.Item{{Tag: tag}}}, nil); err != nil {
			a.t.Logf("%s is refused: %v", tag, err)
			refused++
			continue
		}
		acked = append(acked, tag)
	}
}

// stored counts the events with these tags in the journal.
func (a *abroad) stored(prefix string) map[string]int {
	a.t.Helper()
	count := map[string]int{}
	for _, e := range listenSince(a.t, a.user(), prefix) {
		count[e.Tag]++
	}
	return count
}

// Each of three servers is killed once while events are fired and jobs run: no event is refused, what
// was acknowledged is there, once, and every job ends as it should: its minion has answered, or has
// not been connected, as its server was the killed one.
func TestHostedServersKilledUnderLoad(t *testing.T) {
	a := goHosted(t, 3, "")
	a.accepted("web1", key(t))
	wait(t, "a first job", func() bool { return a.pinged("web1") })
	stop := make(chan struct{})
	var acked []string
	var refused, answered int
	var loads sync.WaitGroup
	loads.Go(func() { acked, refused = a.fireUntil("a", stop) })
	loads.Go(func() {
		for user := a.user(); ; answered++ {
			select {
			case <-stop:
				return
			default:
			}
			_, got, err := publish(t, user, ping("web1", "glob"))
			if state := got["web1"].State; err != nil || state != job.Done && state != job.NotConnected {
				t.Errorf("a job is answered %+v, %v", got, err)
				return
			}
		}
	})
	for n, s := range a.lab.Servers {
		s.Kill()
		wait(t, "a job after a server was killed", func() bool { return a.pinged("web1") })
		s.Start()
		wait(t, "all copies", func() bool { return a.lab.Whole() })
		t.Logf("server %d was killed and is back", n)
	}
	close(stop)
	deadline.Call(t, loads.Wait, "the loads")
	count := a.stored("load/")
	for _, tag := range acked {
		if count[tag] != 1 {
			t.Errorf("%s was acknowledged and is there %d times", tag, count[tag])
		}
	}
	if len(acked) < 100 || answered < 3 || refused > 0 {
		t.Errorf("%d events were acknowledged, %d refused, %d jobs answered", len(acked), refused, answered)
	}
	a.stop() // before the servers
}

// Without most of the servers nothing is stored, and whoever asks is told so within bounds; when they
// are back, the same master goes on, and stores who has deleted a key meanwhile, and the event about it.
func TestHostedWithoutMostServers(t *testing.T) {
	a := goHosted(t, 3, "")
	a.accepted("web1", key(t))
	wait(t, "a first job", func() bool { return a.pinged("web1") })
	a.fire("kept/1")
	store, err := pki.OpenStore(a.cfg.PKIDir)
	if err == nil {
		err = os.WriteFile(filepath.Join(a.cfg.PKIDir, "minions", "gone"), key(t).Public().PEM(), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	wait(t, "the key to be known", func() bool { return strings.Contains(a.said(), `msg="key accept" minion=gone`) })
	of, err := store.Of("gone")
	if err != nil || len(of) != 1 {
		t.Fatal(of, err)
	}
	out := of[0]
	for _, s := range a.lab.Servers[1:] {
		s.Kill()
	}
	user, begun := a.user(), time.Now()
	err = user.Ask(t.Context(), protocol.OpFire, protocol.Fire{Events: []event.Item{{Tag: "kept/2"}}}, nil)
	if rpc.CodeOf(err) != rpc.Unavailable || time.Since(begun) > 40*time.Second {
		t.Errorf("an event is answered %v after %s, want %s within 40 s", err, time.Since(begun), rpc.Unavailable)
	}
	t.Logf("an event: %v after %s", err, time.Since(begun))
	begun = time.Now()
	if _, got, err := publish(t, user, ping("web1", "glob")); err == nil || time.Since(begun) > 40*time.Second {
		t.Errorf("a job is answered %v, %v after %s", got, err, time.Since(begun))
	}
	if _, err := upstream.Connect(t.Context(), a.options("web9", key(t))); err == nil {
		t.Error("a minion gets in while it is not known whose turn it is")
	}
	var done protocol.KeyActed
	action := protocol.KeyAction{Act: keyring.Delete, Keys: []pki.Name{out.Name()}}
	if err := user.Ask(t.Context(), protocol.OpKeyAction, action, &done); err != nil || done.Unstored == "" {
		t.Errorf("whoever deletes a key is told %+v, %v", done, err)
	}
	if err := store.Delete(out); err != nil {
		t.Fatal(err)
	}
	wait(t, "the deletion to be recorded", func() bool { return strings.Contains(a.said(), "is recorded in a file until it can") })
	for _, s := range a.lab.Servers[1:] {
		s.Start()
	}
	wait(t, "the servers to be back", func() bool { return a.lab.Whole() && a.pinged("web1") })
	wait(t, "the deletion to be stored", func() bool { return strings.Contains(a.said(), "was done while it could not be stored is stored now") })
	if !slices.ContainsFunc(listenSince(t, user, "salt/key"), func(e event.Event) bool {
		return strings.Contains(string(e.Data), `"act":"delete"`) && strings.Contains(string(e.Data), `"gone"`)
	}) {
		t.Error("there is no event about the deletion")
	}
	if found := entries(t, user, map[string]any{"fun": "key.delete"}); len(found) != 1 {
		t.Errorf("the audit log has %v", found)
	}
	verified(t, user)
	if got := a.stored("kept/"); got["kept/1"] != 1 || got["kept/2"] > 1 {
		t.Errorf("it has %v", got)
	}
	a.stop() // before the servers
}

// refusedStart starts a master on servers with this configuration, and returns why it does not
// start.
func refusedStart(t *testing.T, jetStream bool, change func(string) string, settings string) error {
	t.Helper()
	lab := natslab.New(t, 1)
	lab.JetStream = jetStream
	a := newHosted(t, lab, settings)
	config, err := master.ServerConfig(a.cfg, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	lab.Start(change(config))
	begun := time.Now()
	_, err = master.New(t.Context(), master.Options{Config: a.cfg, Version: "test", Log: logger(t)})
	if time.Since(begun) > time.Minute {
		t.Errorf("it was told after %s", time.Since(begun))
	}
	return err
}

// What is missing at the servers is said at the start, within bounds.
func TestHostedStartIsRefused(t *testing.T) {
	same := func(c string) string { return c }
	for name, test := range map[string]struct {
		jetStream bool
		change    func(string) string
		want      string
	}{
		"no JetStream at all": {false, same, "JetStream does not answer"},
		"none in the account": {true, func(c string) string { return strings.Replace(c, "jetstream: enabled", "", 1) }, "JetStream does not answer"},
		"too few streams": {true, func(c string) string {
			return strings.Replace(c, "jetstream: enabled", "jetstream: {max_streams: 2}", 1)
		}, "maximum number of streams reached"},
		"too little space": {true, func(c string) string {
			return strings.Replace(c, "jetstream: enabled", "jetstream: {max_file: 1MB}", 1)
		}, "insufficient storage resources"},
	} {
		t.Run(name, func(t *testing.T) {
			err := refusedStart(t, test.jetStream, test.change, "")
			if !errors.Is(err, membership.ErrHosted) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("it says %v, want %q", err, test.want)
			}
		})
	}
}

// TestALongStartGoesOn: a service manager would end a start that says nothing for as long.
func TestALongStartGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		stop := master.TellWhile(func() { n.Add(1) })
		time.Sleep(91 * time.Second)
		if n := n.Load(); n != 9 {
			t.Errorf("it said %d times in 91 s that it goes on, want 9", n)
		}
		stop()
		time.Sleep(time.Minute)
		if n := n.Load(); n != 9 {
			t.Errorf("it said so %d times more after the start", n-9)
		}
	})
}

// TestAJournalAtTheServersJoinsByABackup: there is no directory that could be restored.
func TestAJournalAtTheServersJoinsByABackup(t *testing.T) {
	for _, test := range []struct {
		dir, name, fits string
		want            []string // how the steps begin
	}{
		{"/cache/journal", "", "/cache/journal", []string{"systemctl stop", "salt-master --restore /cache/journal", "systemctl start"}},
		{"", "nats", "NATS servers", []string{"salt-run journal.backup DIR", "systemctl stop", "salt-master --restore DIR --restore-as nats", "systemctl start"}},
	} {
		fits, next := master.JoinSteps(test.dir, test.name)
		if !strings.Contains(fits, test.fits) || !slices.EqualFunc(next, test.want, strings.HasPrefix) {
			t.Errorf("%q: %q, %q; want %q, %q", test.dir, fits, next, test.fits, test.want)
		}
	}
}
