package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/deadline"
)

const booked salt.JID = "20260102030405060708"

// uplink is one without a session.
func uplink(t *testing.T) *upstream.Uplink {
	t.Helper()
	cfg := config.NewMinion()
	cfg.Master, cfg.PKIDir = []string{"salt"}, t.TempDir()
	return upstream.New(upstream.Setup{Config: cfg, Log: slog.New(slog.DiscardHandler)}).First()
}

// oneBox implements Boxes.
type oneBox struct{}

func (oneBox) Count() int                           { return 1 }
func (oneBox) For(int) outbox.Destination           { return outbox.Destination{Box: new(outbox.Box)} }
func (oneBox) Since(int, string) outbox.Destination { return outbox.Destination{Box: new(outbox.Box)} }
func (oneBox) Named(string) outbox.Destination      { return outbox.Destination{Box: new(outbox.Box)} }

// waiting is an executor that syncs at once, a session with a master, and a job of it.
func waiting(t *testing.T) (x *Executor, s *upstream.Session, body []byte) {
	t.Helper()
	x, err := Open(t.Context(), t.Context(), Options{
		ID: "web1", Dir: t.TempDir(), Always: true, Boxes: oneBox{}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	s = &upstream.Session{Connection: &upstream.Connection{Master: key.Public()}, Up: uplink(t), Clock: job.NewSteady(time.Now())}
	body, err = job.Seal(&job.Envelope{
		JID: booked, User: "root", Target: "web1", TargetType: "list", Expires: time.Now().Add(time.Hour),
		Commands: []job.Command{{Function: "test.ping"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	return x, s, body
}

// The disk takes its time, which a pipe without a reader does in place of the space for
// the return: a master that asks meanwhile is not told that the job never came, and what is
// behind it does not wait.
func TestAJobThatWaitsForItsRecordIsKnown(t *testing.T) {
	x, s, body := waiting(t)
	pipe := filepath.Join(x.Dir, "running", string(booked))
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	x.Take(s, body)
	if r := x.standing(booked); r.State != job.Received {
		t.Errorf("of a job that waits for the disk the master is told %q", r.State)
	}
	f, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	deadline.Call(t, x.jobs.Wait, "jobs") // no space can be kept in a pipe: the job is refused
	if r := x.standing(booked); r.State != job.Unknown {
		t.Errorf("of a job that was refused before it was recorded the master is told %q", r.State)
	}
}

// A job whose space cannot be brought to the disk has no record there either. One descriptor
// is left, which is enough to make the space, and too few to sync it and the list of files
// side by side; where the one happens to end before the other begins, the next job is tried.
func TestAJobIsRecordedAfterItsSpaceIsReserved(t *testing.T) {
	x, _, _ := waiting(t)
	free, err := syscall.Open(x.Dir, syscall.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.Close(free)
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(free) + 1, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	jid, failed := booked, error(nil)
	for i := 0; i < 1000 && failed == nil; i++ {
		jid = booked[:17] + salt.JID(fmt.Sprintf("%03d", i))
		failed = x.reserve(&job.Envelope{JID: jid}, "")
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(failed, syscall.EMFILE) {
		t.Fatalf("without descriptors: %v", failed)
	}
	if x.seen.Has(jid) {
		t.Error("a job is recorded that has no space for its return")
	}
	if b, err := os.ReadFile(filepath.Join(x.Dir, "jobs_seen")); err != nil || bytes.Contains(b, []byte(jid)) {
		t.Errorf("written down: %q, %v", b, err)
	}
	if err := x.reserve(&job.Envelope{JID: jid}, ""); err != nil {
		t.Errorf("with more descriptors: %v", err)
	}
}

// A job that has waited for the disk or for a free place until it was past its time does
// not begin: this executor has no host that it could run on.
func TestAJobDoesNotBeginAfterItsTime(t *testing.T) {
	x, s, _ := waiting(t)
	x.jobs = newTable(1)
	log := new(bytes.Buffer)
	x.Log = slog.New(slog.NewTextHandler(log, nil))
	wait := func(jid salt.JID, left time.Duration) {
		t.Helper()
		now := time.Now()
		s.Clock = job.NewSteady(now)
		log.Reset()
		x.start(s, &job.Envelope{JID: jid, Target: "web1", TargetType: "list", Expires: now.Add(left), Commands: []job.Command{{Function: "test.ping"}}})
		if !strings.Contains(log.String(), "too long") || !strings.Contains(log.String(), string(jid)) {
			t.Errorf("with %s left: %q", left, log)
		}
		if left, err := os.ReadDir(filepath.Join(x.Dir, "running")); len(left) > 0 || err != nil {
			t.Errorf("the space for its return is kept: %v, %v", left, err)
		}
	}
	wait("20260102030405060701", -time.Second) // it was in time, and the disk was slow
	_, busy, err := x.jobs.begin(t.Context(), t.Context(), &job.Envelope{JID: "20260102030405060700", Commands: []job.Command{{Function: "test.ping"}}})
	if err != nil {
		t.Fatal(err)
	}
	wait("20260102030405060702", 50*time.Millisecond)
	busy.end()
	for range mostBooking {
		x.booking <- struct{}{}
	}
	wait("20260102030405060703", 50*time.Millisecond)
	if x.seen.Has("20260102030405060703") {
		t.Error("a job that was not booked is recorded")
	}
}

// Whatever came before it, a job with a record does not begin.
func TestTheRecordDecides(t *testing.T) {
	x, _, _ := waiting(t)
	e := &job.Envelope{JID: booked, Commands: []job.Command{{Function: "test.ping"}}}
	if err := x.reserve(e, ""); err != nil {
		t.Fatal(err)
	}
	if err := x.reserve(e, ""); err == nil {
		t.Error("a job is begun twice")
	}
}

// TestReturnThatIsStoredLate: a store that is late, or closed, refuses nothing. The return is sent again as it
// is, and its space is kept until it is stored.
func TestReturnThatIsStoredLate(t *testing.T) {
	ret := asSent([]job.Command{{Function: "test.ping"}}, job.Report{State: job.Done, Return: value.Value{V: "real"}})
	kept := func(x *Executor) (text string) {
		t.Helper()
		err := x.reserves.Recover(func(_ outbox.Reserved, ret protocol.Return) error {
			text, _ = ret.Return.V.(string)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	open := func(t *testing.T) (x *Executor, stop func()) {
		life, stop := context.WithCancel(t.Context())
		x, err := Open(t.Context(), life, Options{ID: "web1", Dir: t.TempDir(), Boxes: oneBox{}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(x.Close)
		if err := x.reserve(&job.Envelope{JID: booked, Commands: ret.Commands}, ""); err != nil {
			t.Fatal(err)
		}
		return x, stop
	}
	late := fmt.Errorf("keep it in the outbox: %w", context.DeadlineExceeded)
	for name, fails := range map[string]error{"late": late, "full": rpc.Errorf(rpc.Unavailable, "no space"), "closed": errors.New("the minion is stopping")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, _ := open(t)
				sent := 0
				stored, err := x.insist(booked, ret, func() error {
					if sent++; sent < 3 {
						return fails
					}
					return nil
				})
				if !stored || err != nil || sent != 3 {
					t.Errorf("stored %v, %v, after %d attempts", stored, err, sent)
				}
				if got := kept(x); got != "real" {
					t.Errorf("its space has %q until it is dropped", got)
				}
			})
		})
	}
	t.Run("the daemon ends", func(t *testing.T) {
		x, stop := open(t)
		stored, err := x.insist(booked, ret, func() error { stop(); return late })
		if got := kept(x); stored || err != nil || got != "real" {
			t.Errorf("stored %v, %v; its space has %q", stored, err, got)
		}
	})
	for name, bad := range map[string]struct {
		ret protocol.Return
		err error
	}{
		"refused":    {ret, rpc.Errorf(rpc.Usage, "too large")},
		"not a text": {protocol.Return{Report: job.Report{Return: value.Value{V: make(chan int)}}}, errors.New("it cannot be encoded")},
	} {
		t.Run(name, func(t *testing.T) {
			x, _ := open(t)
			if stored, err := x.insist(booked, bad.ret, func() error { return bad.err }); stored || !errors.Is(err, bad.err) {
				t.Errorf("stored %v, %v", stored, err)
			}
		})
	}
}

// TestJunkDoesNotFillTheLog: whoever runs the NATS servers between may send anything, and old jobs, again and
// again.
func TestJunkDoesNotFillTheLog(t *testing.T) {
	x, s, body := waiting(t)
	s.Conn = new(rpc.Conn) // what is told fails
	var log bytes.Buffer
	x.Log = slog.New(slog.NewTextHandler(&log, nil))
	if _, err := x.seen.First(booked); err != nil {
		t.Fatal(err)
	}
	lines := func(body []byte, least, most int) {
		t.Helper()
		log.Reset()
		for range 1000 {
			x.Take(s, body)
		}
		if n := strings.Count(log.String(), "\n"); n < least || n > most {
			t.Errorf("the log has %d lines about 1000 messages", n)
		}
	}
	lines([]byte("junk"), 1, 2*maxRefused)
	lines(body, 1, 2)
	s.Clock = job.NewSteady(time.Now().Add(2 * time.Hour))
	lines(body, 0, 1) // it was named within this minute
}
