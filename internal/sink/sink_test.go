package sink

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/test/capture"
	"github.com/brinebus/brine/test/deadline"
)

func TestRulesAndFilters(t *testing.T) {
	dir := t.TempDir()
	j := newJournal()
	for range 50 {
		j.add(t, "alarm/disk", `{"level":3}`)
		j.add(t, "alarm/disk", `{"level":1}`)
		j.add(t, "note", `"level"`)
	}
	start(t, j, configure(t,
		"all: {wait: 0s, to: {file: {path: "+dir+"/all}}}",
		"high: {tag: alarm/, filter: .data.level > 2, to: {file: {path: "+dir+"/high}}}",
		"shell: {tag: '*/disk', match: fnmatch, to: {file: {path: "+dir+"/shell}}}",
		"none: {tag: nothing, to: {file: {path: "+dir+"/none}}}"))
	for rule, want := range map[string]int{"all": 150, "high": 50, "shell": 100, "none": 0} {
		j.waitFor(t, rule, 150)
		if got := len(places(t, filepath.Join(dir, rule))); got != want {
			t.Errorf("rule %q has written %d events, want %d", rule, got, want)
		}
	}
}

func TestBatchesAreNoLargerThanAsked(t *testing.T) {
	j := newJournal()
	j.fire(t, 333)
	d := &counting{}
	w := &worker{rule: Rule{Name: "r", Position: "sink/r", batch: 10, wait: time.Minute, timeout: time.Minute, to: d}, log: testLog(t)}
	w.source = j.listen(w.rule)
	ctx, cancel := context.WithCancel(t.Context())
	d.enough = func() bool {
		if d.total == 330 { // the last three wait for more
			cancel()
		}
		return false
	}
	if err := w.run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if d.largest != 10 || d.total != 330 || j.confirmed["sink/r"] != 330 {
		t.Errorf("the largest of %d had %d events, %d are confirmed", d.total, d.largest, j.confirmed["sink/r"])
	}
}

// counting is a destination that counts.
type counting struct {
	total, largest int
	enough         func() bool
}

func (d *counting) String() string                                          { return "counter" }
func (d *counting) check(context.Context) error                             { return nil }
func (d *counting) open(context.Context, *slog.Logger) (destination, error) { return d, nil }
func (d *counting) close()                                                  {}

func (d *counting) write(_ context.Context, events []Event) error {
	d.total += len(events)
	d.largest = max(d.largest, len(events))
	if d.enough() {
		return errors.New("that is enough")
	}
	return nil
}

// TestASlowDestinationGetsEachEventOnce: a batch may take longer than the timeout, which limits each
// request.
func TestASlowDestinationGetsEachEventOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 20
		j := newJournal()
		j.fire(t, events)
		d := &slow{times: map[uint64]int{}}
		w := &worker{rule: Rule{Name: "r", Position: "sink/r", batch: events, timeout: 100 * time.Millisecond, to: d}, log: testLog(t)}
		w.source = j.listen(w.rule)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		for seq := range uint64(events) {
			if n := d.times[seq+1]; n != 1 {
				t.Errorf("event %d came %d times", seq+1, n)
			}
		}
		if j.confirmed["sink/r"] != events {
			t.Errorf("%d is confirmed, want %d", j.confirmed["sink/r"], events)
		}
	})
}

// slow is a destination that takes 40 ms for each event.
type slow struct {
	counting
	times map[uint64]int
}

func (d *slow) single() bool                                            { return true }
func (d *slow) open(context.Context, *slog.Logger) (destination, error) { return d, nil }

func (d *slow) write(ctx context.Context, events []Event) error {
	for _, e := range events {
		select {
		case <-time.After(40 * time.Millisecond):
			d.times[e.Seq]++
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// TestNothingIsConfirmedThatIsNotWritten stops the sink while its destination is
// away.
func TestNothingIsConfirmedThatIsNotWritten(t *testing.T) {
	j := newJournal()
	j.fire(t, 20)
	d := &counting{enough: func() bool { return true }}
	w := &worker{rule: Rule{Name: "r", Position: "sink/r", batch: 10, timeout: time.Minute, to: d}, log: testLog(t)}
	w.source = j.listen(w.rule)
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	d.enough = func() bool {
		if tries++; tries == 2 {
			cancel()
		}
		return true
	}
	began := time.Now()
	if err := w.run(ctx); err == nil || ctx.Err() == nil {
		t.Fatalf("ended with %v", err)
	}
	if j.confirmed["sink/r"] != 0 {
		t.Errorf("%d is confirmed", j.confirmed["sink/r"])
	}
	if took := time.Since(began); took > grace {
		t.Errorf("it took %s to stop", took)
	}
}

// TestHangup reads the configuration again: a bad one changes nothing, a good one
// is taken, and files begin again.
func TestHangup(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sink.yaml")
	put := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string) string {
		return "  " + name + ": {wait: 0s, to: {file: {path: " + dir + "/" + name + ", rotate_size: 1MB}}}\n"
	}
	put("rules:\n" + file("first"))
	var out capture.Buffer
	hangup, ready := make(chan os.Signal), make(chan bool, 10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	j := newJournal()
	go func() {
		ended <- Run(ctx, Options{
			Load: func() (*Config, error) { return Load(path) }, Listen: j.listen, Hangup: hangup,
			Log: slog.New(slog.NewTextHandler(&out, nil)), Ready: func() { ready <- true },
		})
	}()
	deadline.Receive(t, ready, "ready")
	j.fire(t, 10)
	j.waitFor(t, "first", 10)

	put("rules:\n  first: {too: nowhere}\n")
	hangup <- syscall.SIGHUP
	deadline.Receive(t, ready, "ready")
	j.fire(t, 10)
	j.waitFor(t, "first", 20)
	if text := out.String(); !strings.Contains(text, path+":2") || !strings.Contains(text, "old one stays") {
		t.Errorf("the log has no word of the mistake:\n%s", text)
	}

	put("rules:\n" + file("first") + file("second"))
	hangup <- syscall.SIGHUP
	deadline.Receive(t, ready, "ready")
	j.fire(t, 10)
	j.waitFor(t, "first", 30)
	j.waitFor(t, "second", 30)
	cancel()
	if err := deadline.Receive(t, ended, "ended"); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	expectPlaces(t, allPlaces(t, filepath.Join(dir, "first")), 30)
	expectPlaces(t, places(t, filepath.Join(dir, "second")), 30)
	if old, err := rotated(filepath.Join(dir, "first")); err != nil || len(old) != 2 {
		t.Errorf("old files: %v, %v, want one for each hangup", old, err)
	}
}

// TestARuleThatFailsForGoodEndsTheSink: a position that this user may not have
// does not get better.
func TestARuleThatFailsForGoodEndsTheSink(t *testing.T) {
	c := configure(t, "r: {to: {file: {path: "+t.TempDir()+"/x}}}")
	denied := errors.New("user fred may not listen")
	err := Run(t.Context(), Options{
		Load: func() (*Config, error) { return c, nil }, Log: testLog(t), Ready: func() {},
		Listen: func(r Rule) Source { return &refusing{memory{journal: newJournal(), rule: r}, denied} },
	})
	if !errors.Is(err, denied) || !strings.Contains(err.Error(), `rule "r"`) {
		t.Errorf("ended with %v", err)
	}
}

type refusing struct {
	memory
	err error
}

func (r *refusing) Hold(context.Context) (event.Position, bool, error) { return nil, false, r.err }
