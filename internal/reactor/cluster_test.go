package reactor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/clustertest"
	"github.com/brinebus/brine/test/deadline"
)

// record is what the reactors of all members do.
type record struct {
	mu    sync.Mutex
	begun []reacted
	done  []reacted
}

// reacted is one event that a member handles.
type reacted struct {
	by, journal string
	seq         uint64
	id          string
	at          time.Time
}

func (r *record) begin(one reacted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = append(r.begun, one)
}

func (r *record) end(one reacted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one.at = time.Now()
	r.done = append(r.done, one)
}

// of returns what was done with the events of a journal from a sequence on, by sequence.
func (r *record) of(journal string, from uint64) map[uint64][]reacted {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := map[uint64][]reacted{}
	for _, one := range r.done {
		if one.journal == journal && one.seq >= from {
			list[one.seq] = append(list[one.seq], one)
		}
	}
	return list
}

// memberWorld is the reactor of a member of a cluster.
type memberWorld struct {
	*world
	m      *bustest.Member
	others func() []string
	record *record

	mu   sync.Mutex
	hold chan struct{} // not nil: nothing is completed until it is closed
	slow time.Duration // how long each takes
}

func startMember(t *testing.T, m *bustest.Member, r *record) *memberWorld {
	t.Helper()
	j, x := clustertest.Journal(t, m), clustertest.Exchange(t, m)
	w := &memberWorld{m: m, others: x.Others, record: r, world: &world{t: t, events: eventbus.New(j, 1<<20, m.Log)}}
	member, err := w.events.Join(clustertest.Starting(t), eventbus.MemberOptions{Name: m.Name, Others: x.Others})
	if err != nil {
		t.Fatal(m.Name, err)
	}
	run, stop := context.WithCancel(context.Background())
	w.Reactor = New(run, Options{Events: w.events, DeadLetters: w.events.DeadLetters(), Log: m.Log, Start: w.start})
	ended := make(chan struct{})
	go func() { defer close(ended); member.Run(run) }()
	w.stop = sync.OnceFunc(func() {
		stop()
		deadline.Receive(t, ended, "the member "+m.Name)
		deadline.Call(t, w.Wait, "the reactor of "+m.Name)
		x.Stop()
		j.Close()
	})
	t.Cleanup(w.stop)
	w.Set(w.rulesOf("  - 'my/*':\n    - {run: reactor/job.yaml, name: echo, retries: 0}\n"))
	return w
}

// start is what the reactor asks its master for.
func (w *memberWorld) start(ctx context.Context, _ string, q protocol.Publish) error {
	if w.refuse.Load() {
		return errors.New("no rule allows it")
	}
	meta := q.Metadata.V.(map[string]any)
	one := reacted{by: w.m.Name, journal: meta["event_journal"].(string), seq: meta["event_seq"].(uint64), id: meta["event_id"].(string)}
	w.record.begin(one)
	w.mu.Lock()
	hold, slow := w.hold, w.slow
	w.mu.Unlock()
	select {
	case <-hold:
	case <-time.After(slow):
		if hold != nil {
			<-ctx.Done()
		}
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.record.end(one)
	return nil
}

func startMembers(t *testing.T) (*bustest.System, *record, []*memberWorld) {
	t.Helper()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	r := &record{}
	var list []*memberWorld
	for _, m := range s.Members {
		list = append(list, startMember(t, m, r))
	}
	for _, w := range list {
		bustest.Until(t, w.m.Name+" knows the others", func() bool { return len(w.others()) == 2 && len(w.events.Mirrors()) == 2 })
	}
	return s, r, list
}

// fireMany stores n events, and returns the sequences of the first and the last.
func (w *memberWorld) fireMany(n int) (first, last uint64) {
	w.t.Helper()
	for i := range n {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		seq, err := w.events.Store(ctx, "my/tag", map[string]any{"x": fmt.Sprint(i)}, "")
		cancel()
		if err != nil {
			w.t.Fatal(w.m.Name, err)
		}
		if i == 0 {
			first = seq
		}
		last = seq
	}
	return first, last
}

// once checks that each of the events is handled once, by this member.
func (r *record) once(t *testing.T, by, journal string, first, last uint64) {
	t.Helper()
	bustest.Until(t, fmt.Sprintf("%s handles the events %d to %d of %s", by, first, last, journal), func() bool { return len(r.of(journal, first)) >= int(last-first+1) })
	for seq, list := range r.of(journal, first) {
		if seq <= last && (len(list) != 1 || list[0].by != by) {
			t.Errorf("the event %d of %s was handled as %+v, want once by %s", seq, journal, list, by)
		}
	}
}

// TestEachEventIsHandledByOneMember: events are handled by the member of their journal, once; those
// of one that was killed by the first member that runs, from where the killed one was, with the
// same id; when it is back, by itself.
func TestEachEventIsHandledByOneMember(t *testing.T) {
	t.Parallel()
	s, r, list := startMembers(t)
	for _, w := range list {
		first, last := w.fireMany(20)
		r.once(t, w.m.Name, w.m.Name, first, last)
	}
	m1 := list[0]
	m1.mu.Lock()
	m1.hold, m1.slow = make(chan struct{}), time.Hour
	m1.mu.Unlock()
	first, last := m1.fireMany(30)
	begun := func() []reacted {
		r.mu.Lock()
		defer r.mu.Unlock()
		var list []reacted
		for _, one := range r.begun {
			if one.journal == "m1" && one.seq == first {
				list = append(list, one)
			}
		}
		return list
	}
	bustest.Until(t, "m1 is at the first of them", func() bool { return len(begun()) == 1 })
	m1.m.Kill(t)
	killed := time.Now()
	m1.stop()
	r.once(t, "m2", "m1", first, last)
	t.Logf("the last of 30 events of a killed member was handled %s after the kill", time.Since(killed))
	if twice := begun(); len(twice) != 2 || twice[0].id != twice[1].id {
		t.Errorf("the event that was under way at the kill was handled as %+v", twice)
	}
	s.Rejoin(m1.m)
	m1.m.Start(t)
	s.Linked(t)
	s.Leader(t)
	m1 = startMember(t, m1.m, r)
	bustest.Until(t, "m1 handles its events again", func() bool {
		seq, _ := m1.fireMany(1)
		bustest.Until(t, "the event is handled", func() bool { return len(r.of("m1", seq)) == 1 })
		return r.of("m1", seq)[seq][0].by == "m1"
	})
	first, last = m1.fireMany(20)
	r.once(t, "m1", "m1", first, last)
	for _, w := range list {
		for seq, all := range r.of(w.m.Name, 1) {
			if len(all) != 1 {
				t.Errorf("the event %d of %s was handled %d times: %+v", seq, w.m.Name, len(all), all)
			}
		}
	}
}

// TestTwoMembersNeverHandleOneJournal: a member that is cut off ends what it does before another
// one begins with its events. What it has handled meanwhile may be handled again, with the same id;
// nothing is left out. Dead letters are the same at each member.
func TestTwoMembersNeverHandleOneJournal(t *testing.T) {
	t.Parallel()
	s, r, list := startMembers(t)
	m1, m3 := list[0], list[2]
	m3.refuse.Store(true)
	dead, _ := m3.fireMany(1)
	for _, w := range list {
		letters := w.deadLetters(1)
		if l := letters[0]; l.Journal != "m3" || l.Seq != dead {
			t.Errorf("at %s the dead letter is %+v", w.m.Name, l)
		}
	}
	if done, err := m1.Retry(t.Context(), "echo", dead); err != nil || len(done) != 1 {
		t.Errorf("retried at m1: %d, %v", done, err)
	}
	for _, w := range list {
		w.deadLetters(0)
	}
	m1.mu.Lock()
	m1.slow = 100 * time.Millisecond
	m1.mu.Unlock()
	first, last := m1.fireMany(300)
	bustest.Until(t, "m1 has handled some", func() bool { return len(r.of("m1", first)) > 10 })
	s.Isolate(t, m1.m)
	cut := time.Now()
	bustest.Until(t, "all events of m1 are handled", func() bool { return len(r.of("m1", first)) == int(last-first+1) })
	var theirs, own time.Time
	twice := 0
	for seq, all := range r.of("m1", first) {
		for _, one := range all {
			if one.by == "m1" && one.at.After(own) {
				own = one.at
			}
			if one.by == "m2" && (theirs.IsZero() || one.at.Before(theirs)) {
				theirs = one.at
			}
			if one.id != all[0].id {
				t.Errorf("the event %d has two ids: %+v", seq, all)
			}
		}
		if len(all) > 1 {
			twice++
		}
	}
	t.Logf("after the cut m1 worked for %s, and m2 began after %s; %d of %d events were handled twice", own.Sub(cut), theirs.Sub(cut), twice, last-first+1)
	if !own.Before(theirs) {
		t.Errorf("m1 worked for %s after m2 had begun", own.Sub(theirs))
	}
}

// TestADeadLetterIsRetriedByOneMember: while one does, the others leave it alone. If that one is
// killed, the dead letter is still there, and another one retries it when the lease has ended.
func TestADeadLetterIsRetriedByOneMember(t *testing.T) {
	t.Parallel()
	_, r, list := startMembers(t)
	m1, m2 := list[0], list[1]
	m1.refuse.Store(true)
	dead, _ := m1.fireMany(1)
	m2.deadLetters(1)
	m1.refuse.Store(false)
	m1.mu.Lock()
	m1.hold, m1.slow = make(chan struct{}), time.Hour
	m1.mu.Unlock()
	m1.retry(t.Context())
	begun := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.begun)
	}
	bustest.Until(t, "m1 retries it", func() bool { return begun() == 1 })
	if done, err := m2.Retry(t.Context(), "echo", dead); rpc.CodeOf(err) != rpc.Busy || len(done) != 0 {
		t.Errorf("retried by m2 while m1 does: %d, %v", done, err)
	}
	m1.m.Kill(t)
	m1.stop()
	m2.deadLetters(1)
	var err error
	var done []uint64
	bustest.Until(t, "m2 retries it after the kill of m1", func() bool {
		done, err = m2.Retry(t.Context(), "echo", dead)
		return err == nil
	})
	if all := r.of("m1", dead)[dead]; len(done) != 1 || len(all) != 1 || all[0].by != "m2" || begun() != 2 {
		t.Errorf("m2 has retried %d; it was handled as %+v", done, all)
	}
	m2.deadLetters(0)
}
