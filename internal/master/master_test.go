package master_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/capture"
	"github.com/brinebus/brine/test/deadline"
)

// world is a master that runs, with its directories.
type world struct {
	t    *testing.T
	dir  string
	cfg  *config.Master
	m    *master.Master
	log  capture.Buffer
	stop func()

	ended chan error // what Run has returned
}

// said is all that the master has logged.
func (w *world) said() string {
	return w.log.String()
}

// start runs a master on a random port. settings is YAML for its configuration.
func start(t *testing.T, settings string) *world {
	t.Helper()
	bustest.CheckLeaks(t)
	w := &world{t: t, dir: t.TempDir()}
	w.write("master", "root_dir: "+w.dir+"\ninterface: 127.0.0.1\n"+settings)
	w.run()
	return w
}

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) run() {
	w.t.Helper()
	cfg, err := w.load()
	if err != nil {
		w.t.Fatal(err)
	}
	w.cfg = cfg
	m, err := master.New(w.t.Context(), master.Options{Config: cfg, Reload: w.load, Version: "test", Log: slog.New(slog.NewTextHandler(io.MultiWriter(w.t.Output(), &w.log), &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	w.m, w.ended = m, done
	w.stop = func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				w.t.Errorf("Run: %v", err)
			}
		case <-time.After(time.Minute):
			w.t.Error("the master does not stop")
		}
		w.stop = func() {}
	}
	w.t.Cleanup(func() { w.stop() })
	deadline.Guard(w.t, cancel, "the master")
}

// load reads the configuration, at the start and when the master reloads it.
func (w *world) load() (*config.Master, error) {
	cfg, _, err := config.LoadMaster(w.dir)
	if err != nil {
		return nil, err
	}
	cfg.RetPort = 0 // any free one; a file cannot say that
	return cfg, nil
}

func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// offerKey connects as a minion with this key.
func (w *world) offerKey(id salt.MinionID, key *pki.PrivateKey, grains map[string]string) (*upstream.Connection, error) {
	w.t.Helper()
	return w.connectAs(id, key, grains, upstream.Spoken("test"))
}

// connectAs is offerKey with another protocol.
func (w *world) connectAs(id salt.MinionID, key *pki.PrivateKey, grains map[string]string, speaks upstream.Protocol) (*upstream.Connection, error) {
	w.t.Helper()
	l, err := upstream.Connect(w.t.Context(), upstream.Options{
		Address: w.m.Addr().String(), ID: id, Key: key, PinFile: filepath.Join(w.t.TempDir(), "minion_master.pub"), Version: "test",
		Timeout: 10 * time.Second, PingInterval: 10 * time.Second, Log: logger(w.t), AutosignGrains: grains, Speaks: speaks,
	})
	if err == nil {
		w.t.Cleanup(l.Close)
	}
	return l, err
}

func (w *world) user() *rpc.Conn {
	w.t.Helper()
	c, err := rpc.Dial(filepath.Join(w.cfg.SockDir, master.SocketName))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

func key(t *testing.T) *pki.PrivateKey {
	t.Helper()
	k, err := pki.Generate("ed25519", 0)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// minion connects an accepted minion that answers jobs with answer.
func (w *world) minion(id salt.MinionID, answer func(*job.Envelope) *job.Report) *upstream.Connection {
	w.t.Helper()
	l := w.connect(id, key(w.t), answer)
	hello(w.t, l)
	return l
}

// connect connects a minion with an accepted key, that answers jobs with answer.
func (w *world) connect(id salt.MinionID, key *pki.PrivateKey, answer func(*job.Envelope) *job.Report) *upstream.Connection {
	w.t.Helper()
	l, err := w.offerKey(id, key, nil)
	return w.attend(id, l, err, answer)
}

// attend answers the jobs of a connected minion.
func (w *world) attend(id salt.MinionID, l *upstream.Connection, err error, answer func(*job.Envelope) *job.Report) *upstream.Connection {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	if !l.Ready() {
		w.t.Fatalf("the key of %s is %s", id, l.State())
	}
	asm := rpc.Assembler{Framed: l.Framed()}
	sub, err := l.NC.SubscribeSync(bus.JobSubject(id))
	if err != nil {
		w.t.Fatal(err)
	}
	go func() {
		for {
			m, err := sub.NextMsg(time.Minute)
			if errors.Is(err, nats.ErrTimeout) {
				continue // a test may want nothing of it for longer
			}
			if err != nil {
				return // its connection has ended
			}
			body, done, err := asm.Add(m)
			if err != nil || !done {
				continue
			}
			e, err := job.Open(body, l.Master, time.Now())
			if err != nil {
				w.t.Errorf("job for %s: %v", id, err)
				continue
			}
			if r := answer(e); r != nil {
				_ = l.Tell("ret."+string(e.JID), r)
			}
		}
	}()
	return l
}

func hello(t *testing.T, l *upstream.Connection) {
	t.Helper()
	var welcome protocol.Welcome
	if err := l.Ask(t.Context(), protocol.OpHello, protocol.Hello{Grains: value.Value{V: map[string]any{}}}, &welcome); err != nil {
		t.Fatal(err)
	}
}

func pong(*job.Envelope) *job.Report {
	return &job.Report{State: job.Done, Return: value.Value{V: true}, Retcode: value.Value{V: 0}, Success: value.Value{V: true}}
}

// publish runs a job and gathers its progress.
func publish(t *testing.T, c *rpc.Conn, q protocol.Publish) (job.Start, map[salt.MinionID]job.Update, error) {
	t.Helper()
	s, err := c.Call(protocol.OpPublish, q)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var begin job.Start
	if err := s.Decode(ctx, &begin); err != nil {
		return begin, nil, err
	}
	got := map[salt.MinionID]job.Update{}
	for {
		var u job.Update
		if err := s.Decode(ctx, &u); err != nil {
			return begin, got, nil
		}
		got[u.ID] = u
	}
}

// ping is a job with a timeout that no minion reaches that answers at all: a machine that has much to
// do stands still for seconds.
func ping(target, kind string) protocol.Publish {
	return protocol.Publish{Target: target, TargetType: kind, Timeout: 60, Commands: []job.Command{{Function: "test.ping"}}}
}

func TestNothingIsLeftAfterRun(t *testing.T) {
	w := start(t, "auto_accept: True\npresence_events: True\nloop_interval: 1\n")
	w.minion("web1", pong)
	c := w.user()
	if _, got, err := publish(t, c, ping("*", "glob")); err != nil || got["web1"].State != job.Done {
		t.Errorf("ping: %+v, %v", got, err)
	}
	if _, err := c.Call(protocol.OpListen, protocol.Listen{}); err != nil {
		t.Error(err)
	}
	w.stop()
	if _, err := os.Stat(filepath.Join(w.cfg.SockDir, master.SocketName)); err == nil {
		t.Error("the socket is left")
	}
	if _, err := os.Stat(w.cfg.PIDFile); err == nil {
		t.Error("the pid file is left")
	}
}

func TestSecondInstanceIsRefused(t *testing.T) {
	w := start(t, "")
	_, err := master.New(t.Context(), master.Options{Config: w.cfg, Log: logger(t)})
	if !errors.Is(err, daemon.ErrRunning) || salt.Hint(err) == "" {
		t.Errorf("a second master: %v (hint %q), want ErrRunning with a hint", err, salt.Hint(err))
	}
}

func TestKeyStatesAtConnect(t *testing.T) {
	w := start(t, "autosign_file: autosign\nautoreject_file: autoreject\nautosign_grains_dir: grains\n")

	for name, text := range map[string]string{w.cfg.AutosignFile: "good1\nweb*\n# comment\ndb\\d\n", w.cfg.AutorejectFile: "web-bad*\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(w.cfg.AutosignGrainsDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.cfg.AutosignGrainsDir, "uuid"), []byte("8a1c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[salt.MinionID]protocol.KeyState{
		"good1": protocol.KeyAccepted, "web7": protocol.KeyAccepted, "db3": protocol.KeyAccepted,
		"db33": protocol.KeyPending, "xgood1": protocol.KeyPending, "other": protocol.KeyPending,
	} {
		l, err := w.offerKey(id, key(t), nil)
		if err != nil || l.State() != want {
			t.Errorf("%s: %v, %v; want %s", id, l, err, want)
		}
	}
	if _, err := w.offerKey("web-bad1", key(t), nil); !errors.Is(err, upstream.ErrRejected) {
		t.Errorf("autoreject: %v, want ErrRejected", err)
	}
	if l, err := w.offerKey("byuuid", key(t), map[string]string{"uuid": "8a1c"}); err != nil || l.State() != protocol.KeyAccepted {
		t.Errorf("autosign_grains: %v", err)
	}
	for name, grains := range map[string]map[string]string{
		"wrong":     {"uuid": "8a1d"},
		"traversal": {"../autosign": "good1", "..": "x", "uuid/../uuid": "8a1c"},
		"empty":     {"uuid": ""},
	} {
		if l, err := w.offerKey(salt.MinionID("g-"+name), key(t), grains); err != nil || l.State() != protocol.KeyPending {
			t.Errorf("autosign_grains %s: %v; want pending", name, err)
		}
	}

}

func TestAnotherKeyForAnIDIsDenied(t *testing.T) {
	w := start(t, "auto_accept: True\n")
	first := w.minion("web1", pong)
	if _, err := w.offerKey("web1", key(t), nil); !errors.Is(err, upstream.ErrDenied) {
		t.Errorf("another key: %v, want ErrDenied", err)
	}
	if _, got, err := publish(t, w.user(), ping("web1", "glob")); err != nil || got["web1"].State != job.Done {
		t.Errorf("the first is no longer served: %+v, %v", got, err)
	}
	select {
	case <-first.Closed:
		t.Error("the first connection was cut")
	default:
	}
}

// Who comes with another key each time fills neither the journal nor the audit log: of
// one host a hundred are told in a minute.
func TestManyKeysOfOneHost(t *testing.T) {
	w := start(t, "auto_accept: True\n")
	w.minion("web1", pong)
	for range 130 {
		// Beyond some for one id they are not recorded, and are told that no more are.
		if l, err := w.offerKey("web1", key(t), nil); !errors.Is(err, upstream.ErrDenied) && (err != nil || l.State() != protocol.KeyFull) {
			t.Fatalf("another key: %v, want it turned away", err)
		}
	}
	reported := len(entries(t, w.user(), map[string]any{"fun": "key.connect", "limit": int64(200)}))
	if reported != 100 || reported != strings.Count(w.said(), "the public keys did not match")+strings.Count(w.said(), "too many keys are waiting") {
		t.Errorf("%d are in the audit log, want 100; the log:\n%s", reported, w.said())
	}
	if n := strings.Count(w.said(), "more keys are refused than are logged one by one"); n != 1 {
		t.Errorf("that there were more is in the log %d times, want once", n)
	}
}

func TestRulesFilesOfOthersAreNotUsed(t *testing.T) {
	w := start(t, "autosign_file: autosign\n")
	if err := os.WriteFile(w.cfg.AutosignFile, []byte("*\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(w.cfg.AutosignFile, 0o666); err != nil {
		t.Fatal(err)
	}
	if l, err := w.offerKey("web1", key(t), nil); err != nil || l.State() != protocol.KeyPending {
		t.Errorf("a rules file that anybody may write: %v; want pending", err)
	}
}

func TestAcceptRejectDelete(t *testing.T) {
	w := start(t, "")
	store, err := pki.OpenExistingStore(w.cfg.PKIDir)
	if err != nil {
		t.Fatal(err)
	}
	k, other := key(t), key(t)
	l, err := w.offerKey("web1", k, nil)
	if err != nil || l.State() != protocol.KeyPending {
		t.Fatalf("first contact: %v", err)
	}
	if _, err := w.offerKey("web2", other, nil); err != nil {
		t.Fatal(err)
	}
	accept(t, store, "web1")
	accept(t, store, "web2")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.Wait(ctx); err != nil {
		t.Fatalf("waiting to be accepted: %v", err)
	}
	if l, err = w.offerKey("web1", k, nil); err != nil || !l.Ready() {
		t.Fatalf("after acceptance: %v", err)
	}
	bystander, err := w.offerKey("web2", other, nil)
	if err != nil || !bystander.Ready() {
		t.Fatalf("the other minion: %v", err)
	}
	hello(t, l)
	entries, err := store.Of("web1")
	if err != nil || len(entries) != 1 {
		t.Fatalf("entries of web1: %v, %v", entries, err)
	}
	if err := store.Delete(entries[0]); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Closed:
	case <-ctx.Done():
		t.Fatal("the connection of a deleted key lives on")
	}
	select {
	case <-bystander.Closed:
		t.Error("another minion was cut, too")
	default:
	}
	if l, err = w.offerKey("web1", k, nil); err != nil || l.State() != protocol.KeyPending {
		t.Errorf("a deleted key comes again: %v; want pending", err)
	}
}

func accept(t *testing.T, store *pki.Store, id salt.MinionID) {
	t.Helper()
	entries, err := store.Of(id)
	if err != nil || len(entries) != 1 {
		t.Fatalf("entries of %s: %v, %v", id, entries, err)
	}
	if err := store.Accept(entries[0]); err != nil {
		t.Fatal(err)
	}
}

func TestTheProgressOfAJob(t *testing.T) {
	w := start(t, "auto_accept: True\n")
	w.minion("good", pong)
	w.minion("mute", func(*job.Envelope) *job.Report { return nil })
	w.minion("away", pong).Close()
	lost := make(chan struct{})
	var dying *upstream.Connection
	dying = w.minion("dying", func(*job.Envelope) *job.Report {
		<-lost
		dying.Close()
		return nil
	})
	close(lost)
	start, got, err := publish(t, w.user(), ping("good,away,nosuch", "list"))
	if err != nil {
		t.Fatal(err)
	}
	given := ping("mute,dying", "list")
	given.Timeout = 5 // within which the end of a connection is noticed
	_, other, err := publish(t, w.user(), given)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(got, other)
	for id, want := range map[salt.MinionID]job.State{
		"good": job.Done, "mute": job.Silent, "away": job.NotConnected, "dying": job.NotConnected, "nosuch": job.NotConnected,
	} {
		if got[id].State != want {
			t.Errorf("%s: %q (%s), want %q", id, got[id].State, got[id].Text, want)
		}
	}
	if len(start.Minions) != 2 || len(start.Missing) != 1 {
		t.Errorf("start: %+v", start)
	}
	for name, q := range map[string]protocol.Publish{"nobody": ping("x*", "glob"), "unknown ids only": ping("x,y", "list")} {
		if _, _, err := publish(t, w.user(), q); rpc.CodeOf(err) != rpc.NoMatch {
			t.Errorf("%s: %v, want NoMatch", name, err)
		}
	}
	for name, q := range map[string]protocol.Publish{
		"malformed": ping("web( and", "compound"), "kind": ping("*", "bogus"), "bad id in a list": ping("good,../x", "list"), "no function": {Target: "*", TargetType: "glob"},
	} {
		if _, _, err := publish(t, w.user(), q); rpc.CodeOf(err) != rpc.Usage {
			t.Errorf("%s: %v, want Usage", name, err)
		}
	}
}

// TestReturnsOfOthers lets a minion return what it was not asked, and fire in
// spaces that are not its own.
func TestReturnsOfOthers(t *testing.T) {
	w := start(t, "auto_accept: True\n")
	w.minion("web1", pong)
	evil := w.minion("evil", pong)
	c := w.user()
	begin, _, err := publish(t, c, ping("web1", "glob"))
	if err != nil {
		t.Fatal(err)
	}
	forged := job.Report{State: job.Done, Return: value.Value{V: "forged"}}
	ctx := t.Context()
	if err := evil.Ask(ctx, "ret."+string(begin.JID), forged, nil); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("return for a job of another: %v, want Denied", err)
	}
	if err := evil.Ask(ctx, "ret.20200101000000000000", forged, nil); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("return for no job: %v, want Denied", err)
	}
	if err := evil.Ask(ctx, "ret.x", forged, nil); rpc.CodeOf(err) != rpc.Usage {
		t.Errorf("return for a bad jid: %v, want Usage", err)
	}
	if err := evil.Ask(ctx, protocol.OpReturn, protocol.LocalReturn{JID: begin.JID, Command: job.Command{Function: "test.ping"}}, nil); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("salt-call return under the jid of a job: %v, want Denied", err)
	}
	for _, tag := range []string{"salt/job/" + string(begin.JID) + "/ret/web1", "salt/auth", "salt/minion/web1/start", "SALT/Key", string(begin.JID)} {
		f := protocol.Fire{Form: protocol.FormSingle, Events: []event.Item{{Tag: "fine", Data: []byte(`1`)}, {Tag: tag, Data: []byte(`{}`)}}}
		if err := evil.Ask(ctx, protocol.OpFire, f, nil); rpc.CodeOf(err) != rpc.Denied {
			t.Errorf("fire %q: %v, want Denied", tag, err)
		}
	}
	for _, tag := range []string{"fine", "salt/auth"} {
		if err := evil.Ask(ctx, protocol.OpFire, protocol.Fire{Live: true, Events: []event.Item{{Tag: tag}}}, nil); rpc.CodeOf(err) != rpc.Usage {
			t.Errorf("fire %q without storing it: %v, want Usage", tag, err)
		}
	}
	for _, op := range []string{protocol.OpPublish, protocol.OpRun, protocol.OpListen} {
		if err := evil.Ask(ctx, op, map[string]any{"tgt": "*", "tgt_type": "glob"}, nil); err == nil {
			t.Errorf("a minion may %s", op)
		}
	}
	heard := listenSince(t, c, "")
	for _, e := range heard {
		if strings.Contains(string(e.Data), "forged") || e.Tag == "fine" {
			t.Errorf("stored: %s %s", e.Tag, e.Data)
		}
	}
}

// listenSince reads what is stored under a tag.
func listenSince(t *testing.T, c *rpc.Conn, tag string) []event.Event {
	t.Helper()
	s, err := c.Call(protocol.OpListen, protocol.Listen{Tags: []string{tag, "the-end"}, Since: time.Now().Add(-time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := c.Ask(t.Context(), protocol.OpFire, protocol.Fire{Events: []event.Item{{Tag: "the-end"}}}, nil); err != nil {
		t.Fatal(err)
	}
	var ready protocol.Ready
	if err := s.Decode(t.Context(), &ready); err != nil {
		t.Fatal(err)
	}
	var list []event.Event
	for {
		var e event.Event
		if err := s.Decode(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
		if e.Tag == "the-end" {
			return list
		}
		list = append(list, e)
	}
}

func TestTheJournalSurvivesARestart(t *testing.T) {
	w := start(t, "auto_accept: True\n")
	w.minion("web1", pong)
	begin, _, err := publish(t, w.user(), ping("web1", "glob"))
	if err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.run()
	var tags []string
	for _, e := range listenSince(t, w.user(), "salt/job/") {
		tags = append(tags, e.Tag)
	}
	want := "salt/job/" + string(begin.JID) + "/new salt/job/" + string(begin.JID) + "/ret/web1"
	if strings.Join(tags, " ") != want {
		t.Errorf("tags %v, want %s", tags, want)
	}
}

// Who waits for the pid file finds a master that serves.
func TestThePIDFileSaysReady(t *testing.T) {
	bustest.CheckLeaks(t)
	w := &world{t: t, dir: t.TempDir()}
	w.write("master", "root_dir: "+w.dir+"\ninterface: 127.0.0.1\n")
	cfg, _, err := config.LoadMaster(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RetPort = 0
	m, err := master.New(t.Context(), master.Options{Config: cfg, Version: "test", Log: logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cfg.PIDFile); err == nil {
		t.Error("there is a pid file before the master serves")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	for {
		if _, err := os.Stat(cfg.PIDFile); err == nil {
			break
		}
		select {
		case err := <-done:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	if err := deadline.Receive(t, done, "done"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(cfg.PIDFile); err == nil {
		t.Error("the pid file is left")
	}
}
