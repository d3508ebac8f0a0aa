package journal_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
)

// TestALeaderThatIsNoneAnyMore: for some seconds after a member was cut off, one server answers that leads,
// and another that led before, and lacks the newest messages. What is stored, and whose answers were lost,
// is not stored again because of that.
func TestALeaderThatIsNoneAnyMore(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	j := openMember(t, s.Members[0])
	if _, err := j.Append(inTime(t), filled("a", "x", 1), "web1/0"); err != nil {
		t.Fatal(err)
	}
	restore := j.DropAnswers()
	j.MissFor(3 * time.Second) // several questions
	const n = 17
	var all []*journal.Pending
	for i := range n {
		p, err := j.Begin(filled(fmt.Sprintf("b/%02d", i), "x", 1), fmt.Sprintf("web1/%d", i+1))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	restore()
	for _, p := range all {
		if _, err := p.Wait(inTime(t)); err != nil {
			t.Error(err)
		}
	}
	seen := map[string]int{}
	if err := j.Read(inTime(t), journal.Query{}, func(e event.Event) error { seen[e.Tag]++; return nil }); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if tag := fmt.Sprintf("b/%02d", i); seen[tag] != 1 {
			t.Errorf("%s is stored %d times", tag, seen[tag])
		}
	}
}
