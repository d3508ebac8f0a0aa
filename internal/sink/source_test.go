package sink

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/test/deadline"
)

// journal takes the place of the daemon: events in memory, and how far each rule
// has come.
type journal struct {
	mu        sync.Mutex
	lines     [][]byte
	grown     chan struct{}
	confirmed map[string]uint64
	dead      []uint64
	holders   map[string]*memory
	freed     chan struct{} // closed when a holder has left
	waiting   int           // for a position
}

func newJournal() *journal {
	return &journal{grown: make(chan struct{}), confirmed: map[string]uint64{}, holders: map[string]*memory{}, freed: make(chan struct{})}
}

// fire stores n events.
func (j *journal) fire(t testing.TB, n int) {
	t.Helper()
	for range n {
		j.add(t, "num/x", fmt.Sprintf(`{"n":%d}`, j.last()+1))
	}
}

func (j *journal) last() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.lines)
}

func (j *journal) add(t testing.TB, tag, data string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, makeEvent(t, tag, data, uint64(len(j.lines)+1)).Line)
	close(j.grown)
	j.grown = make(chan struct{})
}

// waitFor returns when the rule has confirmed seq.
func (j *journal) waitFor(t testing.TB, rule string, seq uint64) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		j.mu.Lock()
		have := j.confirmed["sink/"+rule]
		j.mu.Unlock()
		if have >= seq {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("rule %q has confirmed %d, want %d", rule, have, seq)
		}
	}
}

func (j *journal) listen(r Rule) Source {
	j.mu.Lock()
	defer j.mu.Unlock()
	return &memory{journal: j, rule: r}
}

// memory is the Source of one rule.
type memory struct {
	*journal
	rule Rule
	seq  uint64
}

func (m *memory) Close() { m.Pause() }

// Hold waits until no other source has the position.
func (m *memory) Hold(ctx context.Context) (event.Position, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.holders[m.rule.Position] != m {
		if m.holders[m.rule.Position] == nil {
			m.holders[m.rule.Position] = m
			m.seq = max(m.seq, m.confirmed[m.rule.Position])
			return event.Position{"": m.confirmed[m.rule.Position]}, true, nil
		}
		freed := m.freed
		m.waiting++
		m.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
		}
		m.mu.Lock()
		m.waiting--
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
	}
	return nil, false, nil
}

func (m *memory) Pause() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.holders[m.rule.Position] == m {
		delete(m.holders, m.rule.Position)
		close(m.freed)
		m.freed = make(chan struct{})
	}
}

func (m *memory) Back(to event.Position) {
	m.Pause()
	m.seq = to[""]
}

func (m *memory) Next(ctx context.Context) ([][]byte, event.Position, error) {
	match, err := event.NewMatcher(m.rule.Match, m.rule.Tags)
	if err != nil {
		return nil, nil, err
	}
	for {
		m.mu.Lock()
		some := m.lines[m.seq:min(m.seq+70, uint64(len(m.lines)))]
		grown := m.grown
		m.mu.Unlock()
		if len(some) > 0 {
			m.seq += uint64(len(some))
			return slices.DeleteFunc(slices.Clone(some), func(line []byte) bool {
				h, err := event.HeadOf(line)
				ok, _ := match.Match(h.Tag)
				return err != nil || !ok
			}), event.Position{"": m.seq}, nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

func (m *memory) Confirm(_ context.Context, done event.Position) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.confirmed[m.rule.Position] = max(m.confirmed[m.rule.Position], done[""])
	return nil
}

func (m *memory) KeepDead(_ context.Context, e Event, _ error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = append(m.dead, e.Seq)
	return nil
}

var moment = time.Date(2026, 11, 21, 12, 0, 0, 123456000, time.UTC)

// makeEvent returns an event as it comes from the journal.
func makeEvent(t testing.TB, tag, data string, seq uint64) Event {
	t.Helper()
	e, err := event.New(tag, json.RawMessage(data), "web1", moment)
	if err != nil {
		t.Fatal(err)
	}
	line := event.AppendStored(nil, e.Append(nil), seq)
	got, err := parseEvent(line)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func makeEvents(t testing.TB, first, count int) (list []Event) {
	t.Helper()
	for n := first; n < first+count; n++ {
		list = append(list, makeEvent(t, "num/x", fmt.Sprintf(`{"n":%d}`, n), uint64(n)))
	}
	return list
}

// configure writes a configuration and loads it. Each line is a rule.
func configure(t testing.TB, rules ...string) *Config {
	t.Helper()
	return loadText(t, "origin: master1\nrules:\n  "+strings.Join(rules, "\n  ")+"\n")
}

func loadText(t testing.TB, text string) *Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sink.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c
}

// openOne opens the destination of the one rule in a configuration.
func openOne(t testing.TB, rule string) destination {
	t.Helper()
	d, err := configure(t, rule).Rules[0].to.open(t.Context(), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	return d
}

func testLog(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// start runs a sink until stop is called, or the end of the test. Its log is in
// out.
func start(t testing.TB, j *journal, c *Config) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		ended <- Run(ctx, Options{
			Load: func() (*Config, error) { return c, nil }, Listen: j.listen, Log: testLog(t),
			Ready: func() { close(ready) },
		})
	}()
	deadline.Receive(t, ready, "ready")
	stop = sync.OnceFunc(func() {
		cancel()
		if err := deadline.Receive(t, ended, "the end of the sink"); err != context.Canceled {
			t.Errorf("the sink ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}
