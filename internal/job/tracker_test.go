package job

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

var update = flag.Bool("update", false, "write the transcripts of testdata/tracker anew")

// TestTranscripts plays each file of testdata/tracker: lines without indent are
// what happens, indented ones what the tracker says to it. -update writes those.
func TestTranscripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/tracker/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(want))
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(want) {
				t.Errorf("the tracker says:\n%s", got)
			}
		})
	}
}

// play runs a transcript and returns it with the tracker's words.
func play(t *testing.T, script string) string {
	t.Helper()
	var out strings.Builder
	var tr *Tracker
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "    ") {
			continue
		}
		out.WriteString(line + "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Fields(line)
		if f[0] == "start" { // start TIMEOUT ID...
			tr = NewTracker(ids(f[2:]), duration(t, f[1]), noon)
		} else {
			happen(t, &out, tr, f)
		}
		if tr.Finished() {
			out.WriteString("    finished\n")
		}
	}
	return out.String()
}

// happen does one line: MOMENT EVENT [ID [STATE]].
func happen(t *testing.T, out *strings.Builder, tr *Tracker, f []string) {
	t.Helper()
	now := noon.Add(duration(t, f[0]))
	id := salt.MinionID("")
	if len(f) > 2 {
		id = salt.MinionID(f[2])
	}
	switch f[1] {
	case "report":
		tell(out, tr.Report(id, Report{State: State(strings.Join(f[3:], " "))}, now))
	case "lost":
		tell(out, tr.Lost(id, now))
	case "away":
		tell(out, tr.Away(id, "last seen at noon"))
	case "wait":
		tr.Wait(now)
	case "sent":
		tr.Sent(id, now)
	case "doubt":
		tell(out, tr.Doubt(id, "the master was started anew", now))
	case "again":
		tr.Again(id, now)
	case "suspend":
		tr.Suspend(id)
	case "resume":
		tr.Resume(id, now)
	case "restart":
		tr.Restart(now)
	case "abandon":
		for _, u := range tr.Abandon("the master is stopping") {
			tell(out, &u)
		}
	case "tick":
		given, next := tr.Tick(now)
		for _, u := range given {
			tell(out, &u)
		}
		if !next.IsZero() {
			fmt.Fprintf(out, "    again at %s\n", next.Sub(noon))
		}
	default:
		t.Fatalf("unknown event %q", f[1])
	}
}

func tell(out *strings.Builder, u *Update) {
	if u == nil {
		out.WriteString("    nothing new\n")
		return
	}
	fmt.Fprintf(out, "    %s: %s", u.ID, u.State)
	if u.Text != "" {
		fmt.Fprintf(out, " (%s)", u.Text)
	}
	out.WriteString("\n")
}

func ids(names []string) []salt.MinionID {
	list := make([]salt.MinionID, len(names))
	for i, n := range names {
		list[i] = salt.MinionID(n)
	}
	return list
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Whatever happens in whatever order, every minion ends exactly once as missing
// and at most once more with its return, and the count of those awaited is right.
func FuzzTracker(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte("receipt, running, lost, tick, return"))
	states := []State{Sent, Received, Running, Done, Failed, Killed, Refused, Expired, NotTargeted, Disconnected, NotConnected, Silent, "made up"}
	f.Fuzz(func(t *testing.T, script []byte) {
		names := ids([]string{"a", "b", "c", "a"})
		tr := NewTracker(names, 5*time.Second, noon)
		now := noon
		last := map[salt.MinionID]State{}
		note := func(u Update) {
			if last[u.ID].Returned() || last[u.ID].Final() && !u.State.Final() {
				t.Errorf("%s became %q after %q", u.ID, u.State, last[u.ID])
			}
			last[u.ID] = u.State
		}
		for _, b := range script {
			id := append(names, "unknown")[int(b>>4)%5]
			var u *Update
			switch what := int(b & 15); {
			case what < len(states):
				u = tr.Report(id, Report{State: states[what]}, now)
			case what == 13:
				u = tr.Lost(id, now)
			case what == 14:
				u = tr.Away(id, "")
			default:
				now = now.Add(3 * time.Second)
				given, next := tr.Tick(now)
				for _, g := range given {
					note(g)
				}
				if next.IsZero() != tr.Finished() || !next.IsZero() && !next.After(now) {
					t.Errorf("next look at %v, now %v, finished %v", next, now, tr.Finished())
				}
			}
			if u != nil {
				note(*u)
			}
			final := 0
			for _, s := range last {
				if s.Final() {
					final++
				}
			}
			if tr.Finished() != (final == 3) {
				t.Errorf("finished is %v with %d of 3 final: %v", tr.Finished(), final, last)
			}
		}
		if last["unknown"] != "" {
			t.Errorf("a minion that was not asked is %q", last["unknown"])
		}
	})
}

func TestExpects(t *testing.T) {
	tr := NewTracker(ids([]string{"web1"}), time.Second, noon)
	if !tr.Expects("web1") || tr.Expects("web2") || tr.Expects("") {
		t.Error("the tracker does not know whom it awaits")
	}
}
