package minion

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/capture"
	"github.com/brinebus/brine/test/deadline"
	"github.com/brinebus/brine/test/port"
)

// replayed is a minion with its master, and what somebody has recorded on the way.
type replayed struct {
	t    *testing.T
	key  *pki.PrivateKey // the master's
	addr string
	log  capture.Buffer
}

func recording(t *testing.T) *replayed {
	t.Helper()
	bustest.CheckLeaks(t)
	r := &replayed{t: t}
	r.serveMaster(t.TempDir())
	return r
}

// serveMaster runs one more master, with the key of the first.
func (r *replayed) serveMaster(dir string) {
	t := r.t
	t.Helper()
	if r.key != nil {
		if err := r.key.WritePair(filepath.Join(dir, "pki"), "master"); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "master"), []byte("root_dir: "+dir+"\npki_dir: pki\ninterface: 127.0.0.1\nauto_accept: True\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.LoadMaster(dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RetPort = port.Free(t) // it may be started again there
	m, err := master.New(t.Context(), master.Options{Config: cfg, Version: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, m.Run)
	r.addr = m.Addr().String()
	if r.key, err = pki.LoadPrivate(filepath.Join(cfg.PKIDir, "master.pem")); err != nil {
		t.Fatal(err)
	}
}

// serve runs a daemon until stop is called, or the test ends.
func serve(t *testing.T, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := deadline.Receive(t, done, "the end of a daemon"); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	deadline.Guard(t, cancel, "a daemon")
	return stop
}

// start runs the minion of the folder and waits for its master.
func (r *replayed) start(id, dir string) (m *Minion, s *upstream.Session, stop func()) {
	r.t.Helper()
	host, port, err := net.SplitHostPort(r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	text := "root_dir: " + dir + "\nid: " + id + "\nmaster: " + host + "\nmaster_port: " + port + "\n"
	if err := os.WriteFile(filepath.Join(dir, "minion"), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	cfg, _, err := config.LoadMinion(dir)
	if err != nil {
		r.t.Fatal(err)
	}
	m, err = New(r.t.Context(), Options{Config: cfg, Version: "test", Log: slog.New(slog.NewTextHandler(&r.log, nil))})
	if err != nil {
		r.t.Fatal(err)
	}
	stop = serve(r.t, m.Run)
	r.await(id+" to be connected", func() bool { s = m.masters.Session(); return s != nil })
	deadline.Receive(r.t, s.Begun(), "the beginning of the session")
	return m, s, stop
}

func (r *replayed) await(what string, f func() bool) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("it did not happen: %s\n%s", what, r.log.String())
		}
	}
}

// seal makes what the master sends to run a command that leaves a line in file.
func (r *replayed) seal(jid salt.JID, key *pki.PrivateKey, expires time.Time, file string) []byte {
	r.t.Helper()
	b, err := job.Seal(&job.Envelope{
		JID: jid, User: "root", Target: "web1", TargetType: "list", Expires: expires,
		Commands: []job.Command{{Function: "cmd.run", Args: []any{"echo >>" + file}}},
	}, key)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// said waits until the log has had these words so often.
func (r *replayed) said(words string, times int) {
	r.t.Helper()
	r.await(words, func() bool { return strings.Count(r.log.String(), words) >= times })
}

// TestReplayedJobs sends what somebody has recorded on the way to a minion: at once, after
// the minion has started again, through a second master that has the key of the first, under another id, to another minion, and for a master with
// another key. The job was run once, and that is all.
func TestReplayedJobs(t *testing.T) {
	r := recording(t)
	const jid = "20260102030405060708"
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "ran")
	recorded := r.seal(jid, r.key, time.Now().Add(time.Hour), file)
	ran := func() int {
		b, _ := os.ReadFile(file) // none is none
		return bytes.Count(b, []byte("\n"))
	}
	m, s, stop := r.start("web1", dir)
	m.executor.Take(s, recorded)
	r.await("the job to run", func() bool { return ran() == 1 && len(m.executor.Jobs().List()) == 0 })
	m.executor.Take(s, recorded)
	r.said("job not begun: it was begun before", 1)

	m.executor.Take(s, bytes.Replace(recorded, []byte(jid), []byte("20260102030405060709"), 1))
	r.said("the job is not signed by this master", 1)
	foreign, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.executor.Take(s, r.seal("20260102030405060710", foreign, time.Now().Add(time.Hour), file))
	r.said("the job is not signed by this master", 2)

	stop()
	m, s, stop = r.start("web1", dir)
	m.executor.Take(s, recorded)
	r.said("job not begun: it was begun before", 2)
	stop()
	r.serveMaster(t.TempDir())
	m, s, _ = r.start("web1", dir)
	m.executor.Take(s, recorded)
	r.said("job not begun: it was begun before", 3)
	other, theirs, _ := r.start("web2", t.TempDir())
	other.executor.Take(theirs, recorded)
	if list := other.executor.Jobs().List(); len(list) != 0 {
		t.Errorf("another minion runs it: %v", list)
	}
	deadline.Call(t, other.executor.Jobs().Wait, "Jobs")
	if ran() != 1 {
		t.Errorf("the job was run %d times, want once", ran())
	}
}

// TestClocksApart: master and minion are ten minutes apart. What is too late is so by the
// master's clock, and a step of the minion's own does not matter.
func TestClocksApart(t *testing.T) {
	r := recording(t)
	file := filepath.Join(t.TempDir(), "ran")
	m, s, _ := r.start("web1", t.TempDir())
	s.Clock = job.NewSteady(time.Now().Add(10 * time.Minute)) // as its welcome would have said
	m.executor.Take(s, r.seal("20260102030405060711", r.key, time.Now().Add(5*time.Minute), file))
	r.said("job refused", 1)
	if !strings.Contains(r.log.String(), "jid=20260102030405060711 err=") {
		t.Errorf("the log does not tell which job came too late:\n%s", r.log.String())
	}
	s.Clock = job.NewSteady(time.Now().Add(-10 * time.Minute))
	m.executor.Take(s, r.seal("20260102030405060712", r.key, time.Now().Add(-5*time.Minute), file))
	r.await("the job to run", func() bool { _, err := os.Stat(file); return err == nil })
	m.executor.Take(s, r.seal("20260102030405060712", r.key, time.Now().Add(-5*time.Minute), file))
	r.said("job not begun: it was begun before", 1)
}
