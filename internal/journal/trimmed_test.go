package journal_test

import (
	"fmt"
	"sync"
	"testing"
)

// TestOlderValuesAreRemoved: whichever members replace an entry, and however often, few of its values are left, the
// newest one counts, and a removal takes all.
func TestOlderValuesAreRemoved(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	tables := openTables(t, s, "facts")
	var writers sync.WaitGroup
	for i, table := range tables {
		writers.Go(func() {
			own := fmt.Sprint("own", i)
			var revision uint64
			for n := range 300 {
				if err := table.Put(inTime(t), "shared", fmt.Append(nil, i, n)); err != nil {
					t.Error(err)
				}
				var err error
				if revision, err = table.Update(inTime(t), own, fmt.Append(nil, n), revision); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	if err := tables[0].Put(inTime(t), "shared", []byte("last")); err != nil {
		t.Fatal(err)
	}
	nc := s.Members[0].Conn()
	if n := messagesOf(t, nc, "facts"); n > 300 { // it is about 16 as a rule
		t.Errorf("%d values of 4 entries are left", n)
	}
	want := map[string]string{"shared": "last", "own0": "299", "own1": "299", "own2": "299"}
	got := map[string]string{}
	if err := tables[1].Each(inTime(t), func(key string, value []byte) { got[key] = string(value) }); err != nil {
		t.Fatal(err)
	}
	for key, value := range want {
		one, err := tables[2].Get(inTime(t), key)
		if err != nil || string(one) != value || got[key] != value {
			t.Errorf("%s is %q, %v, and %q among all, want %q", key, one, err, got[key], value)
		}
		if err := tables[0].Remove(inTime(t), key); err != nil {
			t.Fatal(err)
		}
	}
	if n := entriesOf(t, nc, "facts"); len(got) != len(want) || n != 1 { // the last message of the table
		t.Errorf("there were %d entries, and %d are left after the removal", len(got), n)
	}
}
