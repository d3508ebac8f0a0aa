package journal_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/pki"
)

// linkTLS is the TLS configuration of a master whose journal has this name. It does not check
// who is a member: package member has the rule.
func linkTLS(t testing.TB, name string) *tls.Config {
	t.Helper()
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := key.Certificate(name)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true}
}

func commonName(c *x509.Certificate) (string, error) { return c.Subject.CommonName, nil }

// owner is a master whose journal can be mirrored.
type owner struct {
	broker  *broker.Broker
	journal *journal.Journal
	stop    func()
}

func startOwner(t testing.TB, dir, name, listen string) owner {
	t.Helper()
	return startOwnerTelling(t, dir, name, listen, t.Output())
}

// startOwnerTelling writes its log to w.
func startOwnerTelling(t testing.TB, dir, name, listen string, w io.Writer) owner {
	t.Helper()
	log := slog.New(slog.NewTextHandler(w, nil))
	o := storeOptions(dir, log)
	o.Link = &broker.LinkOptions{Listen: listen, TLS: linkTLS(t, name), Journal: name, Judge: commonName}
	b, err := broker.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	j := open(t, b)
	links, err := b.Links.Conn()
	if err != nil {
		t.Fatal(err)
	}
	l, err := j.NewLink(name, dir, links, log)
	if err != nil {
		t.Fatal(err)
	}
	stop := func() { l.Close(); j.Close(); b.Stop() }
	t.Cleanup(stop)
	return owner{b, j, stop}
}

func startMirror(t testing.TB, dir, peer, of, reader string) (*broker.Mirror, *journal.Mirror) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	s, err := broker.StartMirror(t.Context(), broker.MirrorOptions{Peer: peer, TLS: linkTLS(t, reader), StoreDir: dir, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	waitFor(t, "that the link stands", s.Linked)
	m, err := journal.OpenMirror(t.Context(), s.Conn(), bus.Link{Owner: of, Reader: reader}, s, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s, m
}

func addTo(t testing.TB, j *journal.Journal, tag string) uint64 {
	t.Helper()
	e, err := event.New(tag, nil, "web1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	seq, err := j.Append(t.Context(), e, "")
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// heard collects events of a mirror up to the sequence to.
func heard(t testing.TB, m *journal.Mirror, to uint64) (list []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	end := fmt.Errorf("all are there")
	err := m.Follow(ctx, 1, func(e journal.Text) error {
		head, _ := event.HeadOf(e.Body) // data that is not an event has no tag
		list = append(list, fmt.Sprint(e.Seq, head.Tag))
		if e.Seq >= to {
			return end
		}
		return nil
	})
	if err != end {
		t.Fatal(err)
	}
	return list
}

// waitFor waits until is returns true, for a bounded time.
func waitFor(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatal("never: ", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// TestAMirrorHasWhatTheJournalHas: what was stored before the link (more than is sent before
// the mirror must acknowledge), events of several messages, and what is stored later.
func TestAMirrorHasWhatTheJournalHas(t *testing.T) {
	a := startOwner(t, t.TempDir(), "m1-a", "127.0.0.1:0")
	addTo(t, a.journal, "first")
	for range 40 {
		if _, err := a.journal.Append(t.Context(), filled("long", "x", 900<<10), ""); err != nil {
			t.Fatal(err)
		}
	}
	_, m := startMirror(t, t.TempDir(), a.broker.Links.Addr(), "m1-a", "m2-b")
	last := addTo(t, a.journal, "after")
	var want []string
	if err := a.journal.Replay(t.Context(), 1, last, func(e journal.Text) error {
		head, err := event.HeadOf(e.Body)
		want = append(want, fmt.Sprint(e.Seq, head.Tag))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got := heard(t, m, last); !slices.Equal(got, want) || len(want) != 42 {
		t.Errorf("the mirror has %v, the journal %v", got, want)
	}
	var counted int // read by count, without a consumer
	if err := m.Replay(t.Context(), 1, last, func(journal.Text) error { counted++; return nil }); err != nil || counted != 42 {
		t.Errorf("read %d events, %v", counted, err)
	}
}

// TestAMirrorGoesOn: while the owner is down, what was mirrored can be read; when it is back
// and the mirror is opened again, the mirror receives the rest, with the same sequences.
func TestAMirrorGoesOn(t *testing.T) {
	dir := t.TempDir()
	a := startOwner(t, dir, "m1-a", "127.0.0.1:0")
	address := a.broker.Links.Addr()
	addTo(t, a.journal, "one")
	s, m := startMirror(t, t.TempDir(), address, "m1-a", "m2-b")
	heard(t, m, 1)
	a.stop()
	waitFor(t, "that the link is gone", func() bool { return !s.Linked() })
	if got := heard(t, m, 1); !slices.Equal(got, []string{"1one"}) {
		t.Errorf("while the owner is away the mirror has %v", got)
	}
	a = startOwner(t, dir, "m1-a", address)
	addTo(t, a.journal, "two")
	waitFor(t, "that the link is back", s.Linked)
	if err := s.Reopen(); err != nil {
		t.Fatal(err)
	}
	if got := heard(t, m, 2); !slices.Equal(got, []string{"1one", "2two"}) {
		t.Errorf("the mirror has %v", got)
	}
}

// TestAMirrorOfMoreThanThereIs: restoring an old copy of a journal that was mirrored gives a
// warning.
func TestAMirrorOfMoreThanThereIs(t *testing.T) {
	reported, line := io.Pipe()
	defer reported.Close()
	found := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(reported)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "put back from a copy") {
				found <- lines.Text()
			}
		}
	}()
	dir := t.TempDir()
	a := startOwnerTelling(t, dir, "m1-a", "127.0.0.1:0", line)
	addTo(t, a.journal, "one")
	to := bus.Link{Owner: "m1-a", Reader: "m2-b"}
	s, m := startMirror(t, t.TempDir(), a.broker.Links.Addr(), to.Owner, to.Reader)
	heard(t, m, 1)
	if err := s.Conn().PublishRequest(to.Create(bus.JournalStream), "$JSC.R.probe", []byte(fmt.Sprintf(`{"config":{"deliver_subject":%q,"opt_start_seq":7}}`, to.Deliver()+".x"))); err != nil {
		t.Fatal(err)
	}
	select {
	case text := <-found:
		if !strings.Contains(text, "mirrored=6") || !strings.Contains(text, "here=1") || !strings.Contains(text, "file="+filepath.Join(dir, "id")) {
			t.Error(text)
		}
	case <-time.After(time.Minute):
		t.Error("the log does not tell of it")
	}
}

// TestDecisionsAreReserved: sequences of the table that the other master mirrors are reserved
// before they are used.
func TestDecisionsAreReserved(t *testing.T) {
	b := startStore(t, t.TempDir())
	var last uint64
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{Reserve: func(stream string, upto uint64) error {
		if stream == bus.DecisionStream {
			last = upto
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for range 2 { // the second time it continues
		table, err := j.Decisions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before := last
		if err := table.Keep(t.Context(), "key", []byte("value")); err != nil {
			t.Fatal(err)
		}
		if last <= before {
			t.Errorf("reserved up to %d, before up to %d", last, before)
		}
	}
}

// TestAReaderWithAnotherNameMirrorsOn: the reader's own journal has a new name, as after it was
// put back from a copy. It still mirrors the other one, and its decisions.
func TestAReaderWithAnotherNameMirrorsOn(t *testing.T) {
	a := startOwner(t, t.TempDir(), "m1-a", "127.0.0.1:0")
	addTo(t, a.journal, "one")
	decisions, err := a.journal.Decisions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i, reader := range []string{"m2-b", "m2-c"} {
		s, m := startMirror(t, dir, a.broker.Links.Addr(), "m1-a", reader)
		table, err := journal.OpenDecisions(t.Context(), s.Conn(), bus.Link{Owner: "m1-a", Reader: reader})
		if err != nil {
			t.Fatal(err)
		}
		if err := decisions.Keep(t.Context(), "key", []byte(reader)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := table.Watch(ctx, func(_ string, value []byte) {
			if string(value) == reader {
				cancel()
			}
		}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		cancel()
		seq := addTo(t, a.journal, "more")
		if list := heard(t, m, seq); len(list) != i+2 {
			t.Errorf("%s mirrors %q", reader, list)
		}
		s.Stop()
	}
}

// A mirror knows whether the owner of the journal sends its decisions; an owner of an older
// version does not have that table.
func TestOwnerOfAnOlderVersionSendsNoDecisions(t *testing.T) {
	a := startOwner(t, t.TempDir(), "m1-a", "127.0.0.1:0")
	addTo(t, a.journal, "one")
	to := bus.Link{Owner: "m1-a", Reader: "m2-b"}
	s, m := startMirror(t, t.TempDir(), a.broker.Links.Addr(), to.Owner, to.Reader)
	answered := func() bool {
		t.Helper()
		table, err := journal.OpenDecisions(t.Context(), s.Conn(), to)
		if err != nil {
			t.Fatal(err)
		}
		is, err := table.Answered(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	answered()
	heard(t, m, 1) // it was requested before the question about decisions
	if answered() {
		t.Error("there are decisions of an owner that has none")
	}
	if _, err := a.journal.Decisions(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Reopen(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "that there are", answered)
}

// TestAJournalHasAName: a journal keeps its name, and no other journal has the same.
func TestAJournalHasAName(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	name, err := journal.Name(dir)
	again, err2 := journal.Name(dir)
	third, err3 := journal.Name(other)
	if err := errors.Join(err, err2, err3, bus.CheckJournalName(name)); err != nil || name != again || name == third {
		t.Errorf("%q, again %q, another one %q: %v", name, again, third, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "id"), []byte("a.b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if name, err := journal.Name(dir); err == nil {
		t.Errorf("%q is taken", name)
	}
}
