package journal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// bounded opens a journal with a limit, and runs Tend until the test, or its store, ends.
func bounded(t *testing.T, b *broker.Broker, limit int64) (j *journal.Journal, end func()) {
	t.Helper()
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{MaxBytes: limit})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { j.Tend(ctx, bustest.Log(t)) })
	end = func() {
		cancel()
		deadline.Call(t, running.Wait, "Tend")
	}
	t.Cleanup(end)
	return j, end
}

// returned is the event that the master stores for a return of a minion.
func returned(n int, minion string, size int) event.Event {
	return event.Event{Tag: fmt.Sprintf("salt/job/2026010112000%07d/ret/%s", n, minion), Data: json.RawMessage(`"` + strings.Repeat("r", size) + `"`)}
}

func appendTo(t *testing.T, j *journal.Journal, e event.Event) {
	t.Helper()
	if _, err := j.Append(t.Context(), e, ""); err != nil {
		t.Fatal(err)
	}
}

// flood stores about that many bytes in events of 200 KB, as one sender.
func flood(t *testing.T, j *journal.Journal, from string, total int) {
	t.Helper()
	const size = 200 << 10
	var last *journal.Pending
	for n := range total / size {
		e := filled(fmt.Sprintf("flood/%d", n%7), "f", size)
		e.From = from
		p, err := j.Begin(e, "")
		if err != nil {
			t.Fatal(err)
		}
		last = p
	}
	if _, err := last.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, j *journal.Journal, match func(event.Event) bool) (n int) {
	t.Helper()
	for _, e := range readAll(t, j, journal.Query{}) {
		if match(e) {
			n++
		}
	}
	return n
}

func from(sender string) func(event.Event) bool {
	return func(e event.Event) bool { return e.From == sender && !strings.HasPrefix(e.Tag, "flood/") }
}

const mib = 1 << 20

func TestAFloodEvictsNothingOfOthers(t *testing.T) {
	b := startStore(t, t.TempDir())
	j, _ := bounded(t, b, 16*mib)
	for n := range 20 {
		appendTo(t, j, returned(n, "web1", 1000))
		appendTo(t, j, filled(fmt.Sprintf("app/%d", n), "a", 10_000))
	}
	flood(t, j, "evil", 50*mib)
	appendTo(t, j, filled("app/late", "a", 10_000))

	returns := count(t, j, func(e event.Event) bool { return strings.HasSuffix(e.Tag, "/ret/web1") })
	if events := count(t, j, from("web1")); returns != 20 || events != 21 {
		t.Errorf("of web1 %d returns and %d events are left, want 20 and 21", returns, events)
	}
	if e, ok, err := j.First(t.Context(), event.Subject(returned(3, "web1", 0).Tag)); !ok || err != nil {
		t.Errorf("the return of a job: %v, %v, %v", e.Tag, ok, err)
	}
	x, err := j.Extent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if x.Bytes > 18*mib || x.Dropped == 0 || x.Limit != 16*mib {
		t.Errorf("the journal has %d bytes, dropped %d messages, limit %d", x.Bytes, x.Dropped, x.Limit)
	}
	if n := count(t, j, func(e event.Event) bool { return e.From == "evil" }); n < 20 {
		t.Errorf("%d events of the flood are left: as long as there is room they stay", n)
	}
}

// The warning is stored before events are dropped: it precedes in the journal what was stored
// when it was full, and its figures are right.
func TestAWarningComesBeforeEventsAreDropped(t *testing.T) {
	b := startStore(t, t.TempDir())
	j, _ := bounded(t, b, 8*mib)
	shown := false // as the alert for Prometheus has it
	for n := 0; ; n++ {
		x, err := j.Extent(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		shown = shown || x.Dropped == 0 && float64(x.Bytes) > 0.9*float64(x.Limit)
		e := filled(fmt.Sprintf("flood/%d", n), "f", 50_000)
		e.From = "evil"
		appendTo(t, j, e)
		if j.Dropped().Messages > 0 {
			break
		}
		if n > 1000 {
			t.Fatal("50 MB in a journal of 8, and nothing was dropped")
		}
	}
	if !shown {
		t.Error("the size of the journal has not shown that something will be dropped")
	}
	reported := map[string]string{}
	for _, e := range readAll(t, j, journal.Query{Subjects: []string{"salt.event.salt.journal"}}) {
		reported[e.Tag] += string(e.Data)
	}
	for _, tag := range []string{"salt/journal/filling", "salt/journal/drop"} {
		if !strings.Contains(reported[tag], `"from":"evil"`) || !strings.Contains(reported[tag], `"dropped":0,`) {
			t.Errorf("%s says %q", tag, reported[tag])
		}
	}
	if err := event.CheckMinionTag("web1", "salt/journal/drop"); err == nil {
		t.Error("a minion may speak as the journal")
	}
}

// Returns have a share of the journal apart from events, divided between minions: neither the
// events of many senders nor the returns of one minion use it up.
func TestReturnsHaveAShareOfTheirOwn(t *testing.T) {
	b := startStore(t, t.TempDir())
	j, _ := bounded(t, b, 16*mib)
	appendTo(t, j, returned(1, "web1", 1000))
	for n := range 30 { // each stays below its share of a sixteenth
		flood(t, j, fmt.Sprintf("minion%d", n), 900<<10)
	}
	for n := range 100 {
		appendTo(t, j, returned(100+n, "evil", 300<<10))
	}
	if n := count(t, j, func(e event.Event) bool { return strings.HasSuffix(e.Tag, "/ret/web1") }); n != 1 {
		t.Error("the return of web1 is gone")
	}
	if n := count(t, j, func(e event.Event) bool { return strings.HasPrefix(e.From, "minion") }); n < 30 {
		t.Errorf("%d events are left", n)
	}
}

// A user who starts jobs with large arguments also has a share.
func TestJobsOfOneUserHaveAShare(t *testing.T) {
	b := startStore(t, t.TempDir())
	j, _ := bounded(t, b, 16*mib)
	started := func(n int, user string, size int) event.Event {
		data := fmt.Sprintf(`{"fun":"test.arg","arg":[%q],"user":%q}`, strings.Repeat("x", size), user)
		return event.Event{Tag: fmt.Sprintf("salt/job/2026010112000%07d/new", n), Data: json.RawMessage(data)}
	}
	appendTo(t, j, started(1, "fred", 10))
	for n := range 100 {
		appendTo(t, j, started(100+n, "evil", 400<<10))
	}
	if _, ok, err := j.First(t.Context(), event.Subject(started(1, "", 0).Tag)); !ok || err != nil {
		t.Errorf("the job of fred is gone: %v", err)
	}
}

// What the daemon stores because of a user counts towards their share, whatever names the user:
// audit entries with their targets, and the lists of minions of their jobs.
func TestEventsAboutAUserCountForThatUser(t *testing.T) {
	reported := map[string]func(j *journal.Journal, n int, user, text string) (*journal.Pending, error){
		"the audit log": func(j *journal.Journal, n int, user, text string) (*journal.Pending, error) {
			data := fmt.Sprintf(`{"n":%d,"user":%q,"tgt":%q}`, n, user, text)
			return j.Begin(event.Event{Tag: "salt/audit/allowed", Data: json.RawMessage(data)}, "")
		},
		"lists of minions": func(j *journal.Journal, n int, user, text string) (*journal.Pending, error) {
			e := event.Event{Tag: fmt.Sprintf("2026010112000%07d", n), Data: json.RawMessage(fmt.Sprintf(`{"minions":[%q]}`, user+text))}
			return j.BeginFor(e, user)
		},
	}
	for name, tell := range reported {
		b := startStore(t, t.TempDir())
		j, _ := bounded(t, b, 8*mib)
		appendTo(t, j, filled("app/1", "a", 1000))
		for n := range 100 {
			user, text := "evil", strings.Repeat("x", 200<<10)
			if n%2 == 0 { // between them are events of other users with the same tag
				user, text = "fred", ""
			}
			p, err := tell(j, n, user, text)
			if err == nil {
				_, err = p.Wait(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if j.Dropped().Messages == 0 {
			t.Errorf("%s: nothing was dropped", name)
		}
		if n := count(t, j, from("web1")); n != 1 {
			t.Errorf("%s: the event of web1 is gone", name)
		}
		if n := count(t, j, func(e event.Event) bool { return strings.Contains(string(e.Data), `"fred`) }); n != 50 {
			t.Errorf("%s: %d events that tell of fred are left of 50", name, n)
		}
	}
}

// The owners are known again after a start.
func TestSharesOverAStart(t *testing.T) {
	dir := t.TempDir()
	b := startStore(t, dir)
	j, end := bounded(t, b, 16*mib)
	appendTo(t, j, filled("app/1", "a", 1000))
	appendTo(t, j, returned(1, "web1", 1000))
	flood(t, j, "evil", 12*mib)
	end()
	b.Stop()
	b = startStore(t, dir)
	j, _ = bounded(t, b, 16*mib)
	flood(t, j, "evil", 30*mib)
	if n := count(t, j, func(e event.Event) bool { return e.Tag == "app/1" || strings.HasSuffix(e.Tag, "/ret/web1") }); n != 2 {
		t.Errorf("%d of the two events of web1 are left", n)
	}
}

// A journal that an older version of the daemon has filled can be read, and is kept within its
// limit.
func TestAnOlderFullJournal(t *testing.T) {
	dir := t.TempDir()
	b := startStore(t, dir)
	flood(t, open(t, b), "web1", 20*mib)
	b.Stop()
	b = startStore(t, dir)
	j, _ := bounded(t, b, 16*mib)
	flood(t, j, "evil", 10*mib)
	appendTo(t, j, filled("app/1", "a", 1000))
	deadline := time.Now().Add(time.Minute)
	for {
		x, err := j.Extent(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if x.Bytes <= 16*mib && x.Count > 20 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it has %d bytes in %d messages", x.Bytes, x.Count)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if n := count(t, j, from("web1")); n != 1 {
		t.Error("the newest event is gone")
	}
}
