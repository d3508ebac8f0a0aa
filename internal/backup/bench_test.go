package backup_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/backup"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

var measured = flag.Int("events", 0, "measure how long so many events of 200 bytes take to move, for doc/operating.md")

// TestMeasure says how long a backup and restores take.
func TestMeasure(t *testing.T) {
	if *measured == 0 {
		t.Skip("for -events")
	}
	b := bustest.StartStore(t)
	j := alone(t, b)
	text := `{"text":"` + strings.Repeat("x", 90) + `"}`
	drafts := func(yield func(journal.Draft) bool) {
		for n := range *measured {
			e := newEvent(t, fmt.Sprintf("app/%d", n%7), n)
			e.Data = append([]byte(text[:len(text)-1]), e.Data[0:0]...)
			e.Data = append(e.Data, '}')
			if !yield(journal.Draft{Tag: e.Tag, Text: e.Text()}) {
				return
			}
		}
	}
	p, err := j.BeginAll(journal.Batch{Count: *measured, Drafts: drafts})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(inTime(t)); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	say := func(what string) {
		t.Logf("%s: %s", what, time.Since(begun).Round(10*time.Millisecond))
		begun = time.Now()
	}
	dir, m := write(t, b.Conn(), "")
	say("backup, read back and verified")
	t.Logf("%d bytes", m.Bytes())
	a := bustest.StartStore(t)
	begun = time.Now()
	restore(t, a.Conn(), dir, backup.Target{})
	say("restore alone")
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	begun = time.Now()
	restore(t, s.Members[0].Conn(), dir, member(s, s.Members[0]))
	say("restore with three copies")
	write(t, s.Members[0].Conn(), "m1")
	say("backup of a cluster")
}
