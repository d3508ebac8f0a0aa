package saltevent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/clustertest"
	"github.com/brinebus/brine/test/deadline"
)

// eventMember is the event bus of a member of a cluster, with a configuration for the tools.
type eventMember struct {
	*system
	m      *bustest.Member
	events *eventbus.Bus
}

func startMembers(t *testing.T) (list []*eventMember) {
	t.Helper()
	needBinaries(t)
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	for _, m := range s.Members {
		list = append(list, startMember(t, m))
	}
	for _, w := range list {
		bustest.Until(t, w.m.Name+" has the journals of the others", func() bool { return len(w.events.Mirrors()) == 2 })
	}
	return list
}

func startMember(t *testing.T, m *bustest.Member) *eventMember {
	t.Helper()
	j, x := clustertest.Journal(t, m), clustertest.Exchange(t, m)
	w := &eventMember{system: systemIn(t, t.TempDir()), m: m, events: eventbus.New(j, 1<<20, m.Log)}
	member, err := w.events.Join(clustertest.Starting(t), eventbus.MemberOptions{Name: m.Name, Others: x.Others})
	if err != nil {
		t.Fatal(m.Name, err)
	}
	who := func(_ context.Context, i bus.Identity) eventacl.Principal {
		return w.events.Rules().User(i.UID(), "root", true)
	}
	w.events.Register(m.Server, who)
	w.events.RegisterFire(m.Server, who)
	if err := m.Server.Start(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(w.dir, "master"), []byte("root_dir: "+w.dir+"\nsock_dir: run\n"), 0o644), os.Mkdir(filepath.Join(w.dir, "run"), 0o755),
		m.ServeLocal(filepath.Join(w.dir, "run", "master.sock"))); err != nil {
		t.Fatal(err)
	}
	run, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); member.Run(run) }()
	server := m.Server
	t.Cleanup(sync.OnceFunc(func() {
		server.Stop()
		stop()
		deadline.Receive(t, done, "the member "+m.Name)
		x.Stop()
		j.Close()
	}))
	return w
}

// fireEach stores the numbers from first to last at each member.
func fireEach(t *testing.T, list []*eventMember, first, last int) {
	t.Helper()
	for _, w := range list {
		for n := first; n <= last; n++ {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := w.events.Store(ctx, fmt.Sprintf("my/%s/%d", w.m.Name, n), map[string]any{"n": n}, "")
			cancel()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// readLines reads the lines of a file, none if it is missing.
func readLines(t *testing.T, path string) (lines []string) {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		lines = append(lines, scan.Text())
	}
	return lines
}

// until runs a program at a member until a file has that many lines.
func (w *eventMember) until(path string, lines int, args ...string) {
	w.t.Helper()
	c := w.event(args...)
	var said strings.Builder
	c.Stderr = &said
	if err := c.Start(); err != nil {
		w.t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); len(readLines(w.t.(*testing.T), path)) < lines; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Errorf("%s has %d lines, want %d; %s", path, len(readLines(w.t.(*testing.T), path)), lines, said.String())
			break
		}
	}
	_ = c.Process.Signal(syscall.SIGTERM)
	_ = w.ended(c)
}

// TestHandlersMoveBetweenMembers: a handler and a sink that are stopped at one member and started
// at another continue there: each event of each member comes once.
func TestHandlersMoveBetweenMembers(t *testing.T) {
	list := startMembers(t)
	handled, rules := filepath.Join(t.TempDir(), "handled"), filepath.Join(t.TempDir(), "sink.yaml")
	sunk := filepath.Join(t.TempDir(), "sunk")
	if err := os.WriteFile(rules, []byte("origin: c1\nrules:\n  all: {tag: my/, to: {file: {path: "+sunk+"}}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	exec := []string{"exec", "--durable", "hands", "--tag", "my/", "--", "sh", "-c", "echo $SALT_EVENT_JOURNAL:$SALT_EVENT_SEQ $SALT_EVENT_TAG $SALT_EVENT_ID >>" + handled}
	sink := []string{"sink", "--config", rules}
	if out, err := list[0].event("listen", "--durable", "hands", "--until-end").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := list[0].event("listen", "--durable", "sink/all", "--until-end").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for i, w := range list {
		fireEach(t, list, i*10+1, i*10+10)
		w.until(handled, (i+1)*30, exec...)
		w.until(sunk, (i+1)*30, sink...)
	}
	seen, ids := map[string]int{}, map[string]bool{}
	for _, line := range readLines(t, handled) {
		f := strings.Fields(line)
		if !strings.HasPrefix(f[1], "my/"+f[0][:2]+"/") {
			t.Errorf("an event with a wrong journal: %s", line)
		}
		seen[f[0]]++
		ids[f[2]] = true
	}
	if len(seen) != 90 || len(ids) != 90 || len(readLines(t, handled)) != 90 {
		t.Errorf("%d events with %d ids were handled in %d runs, want 90 of each", len(seen), len(ids), len(readLines(t, handled)))
	}
	stored := map[string]int{}
	for _, line := range readLines(t, sunk) {
		var e event.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		stored[event.MasterOf([]byte(line))+" "+e.Tag]++
	}
	if len(stored) != 90 || len(readLines(t, sunk)) != 90 {
		t.Errorf("%d events are in %d lines of the sink, want 90 of each", len(stored), len(readLines(t, sunk)))
	}
	out, err := list[2].event("stat").CombinedOutput()
	for _, want := range []string{"of the member m3, its events are handled there", "m1, running", "its events are handled there", "m1:"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("stat does not say %q: %v\n%s", want, err, out)
		}
	}
}

// TestFormerMembersStopNoListener: the journals of members that were replaced stay, more of them than a cluster has
// members. Listeners with a position, handlers and sinks move their positions as before, and a token of all journals is
// understood.
func TestFormerMembersStopNoListener(t *testing.T) {
	const former = 12
	list := startMembers(t)
	for n := range former {
		formerMember(t, list[0].m, fmt.Sprintf("old%02d", n))
	}
	for _, w := range list {
		bustest.Until(t, w.m.Name+" has the journals of all", func() bool { return len(w.events.Mirrors()) == 2+former })
	}
	dir := t.TempDir()
	handled, sunk, rules := filepath.Join(dir, "handled"), filepath.Join(dir, "sunk"), filepath.Join(dir, "sink.yaml")
	if err := os.WriteFile(rules, []byte("origin: c1\nrules:\n  all: {tag: my/, since: all, to: {file: {path: "+sunk+"}}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	token, err := list[0].event("token").Output()
	if journals := strings.Count(string(token), ":"); err != nil || journals != 3+former {
		t.Fatalf("the token names %d journals: %v: %s", journals, err, token)
	}
	exec := []string{"exec", "--durable", "hands", "--since", "1", "--tag", "my/", "--", "sh", "-c", "echo $SALT_EVENT_TAG >>" + handled}
	for i, w := range list[:2] {
		fireEach(t, list, i*5+1, i*5+5)
		listened, err := w.event("listen", "--durable", "ears", "--since", "1", "--tag", "my/", "--until-end").CombinedOutput()
		if lines := strings.Count(string(listened), "\n"); err != nil || lines != 15+former*(1-i) {
			t.Errorf("at %s a listener hears %d events, want %d: %v: %s", w.m.Name, lines, 15+former*(1-i), err, listened)
		}
		w.until(handled, (i+1)*15+former, exec...)
		w.until(sunk, (i+1)*15+former, "sink", "--config", rules)
	}
	for _, path := range []string{handled, sunk} {
		if lines := len(readLines(t, path)); lines != 30+former {
			t.Errorf("%s has %d lines, want %d", path, lines, 30+former)
		}
	}
	out, err := list[2].event("wait", "--since-now", strings.TrimSpace(string(token)), "--tag", "my/m3/10").CombinedOutput()
	if err != nil {
		t.Errorf("wait with the token: %v: %s", err, out)
	}
}

// formerMember makes the journal of a member that is gone, with one event.
func formerMember(t *testing.T, m *bustest.Member, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	js, err := jetstream.New(m.Conn())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: journal.Stream + "_" + name, Subjects: []string{"salt.journal." + name + ".>"}, AllowDirect: true}); err != nil {
		t.Fatal(err)
	}
	e, err := event.New("my/"+name, nil, "", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "salt.journal."+name+".event", e.Text(), jetstream.WithRetryAttempts(50)); err != nil {
		t.Fatal(err)
	}
}
