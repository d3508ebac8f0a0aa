package journal_test

import (
	"errors"
	"testing"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// TestFiveMembersGoOnWithoutTwo: with five copies, the others store and read on when one member is killed, and
// when a second one is. Without a third one nothing is stored.
func TestFiveMembersGoOnWithoutTwo(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 5)
	s.Leader(t)
	five := func(o *journal.Options) { o.Copies = 5 }
	first, last := openMember(t, s.Members[0], five), openMember(t, s.Members[4], five)
	var tables []*journal.Table
	for _, j := range []*journal.Journal{first, last} {
		table, err := j.Table(inTime(t), "grains")
		if err != nil {
			t.Fatal(err)
		}
		tables = append(tables, table)
	}
	stored := uint64(0)
	stores := func(when string) {
		t.Helper()
		stored++
		for _, j := range []*journal.Journal{first, last} {
			if seq, err := j.Append(inTime(t), filled(when, "x", 10), ""); err != nil || seq != stored {
				t.Fatalf("%s: event %d is stored as %d, %v", when, stored, seq, err)
			}
		}
		if err := tables[0].Put(inTime(t), "web1", []byte(when)); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if b, err := tables[1].Get(inTime(t), "web1"); err != nil || string(b) != when {
			t.Errorf("%s: another member reads %q, %v", when, b, err)
		}
	}
	stores("five run")
	s.Members[1].Kill(t)
	stores("four run")
	s.Members[2].Kill(t)
	stores("three run")
	s.Members[3].Kill(t)
	for _, m := range []*bustest.Member{s.Members[0], s.Members[4]} {
		bustest.Until(t, m.Name+" knows that too few run", func() bool { return errors.Is(m.Store().Err(), broker.ErrMinority) })
	}
	if _, err := first.Append(inTime(t), filled("two run", "x", 10), ""); err == nil {
		t.Error("two of five store an event")
	}
}
