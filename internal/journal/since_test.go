package journal_test

import (
	"testing"
	"time"
)

// TestSequenceAt: with nothing from a time on, the answer is the end. A server that led before may say that
// there is nothing; then no answer is better than one by which newer events would be removed.
func TestSequenceAt(t *testing.T) {
	t.Parallel()
	j := open(t, startStore(t, t.TempDir()))
	const stored = 5
	if seq, err := j.SequenceAt(inTime(t), time.Now()); err != nil || seq != 1 {
		t.Errorf("in an empty journal: %d, %v", seq, err)
	}
	begun := time.Now()
	for range stored {
		if _, err := j.Append(inTime(t), filled("a", "x", 1), ""); err != nil {
			t.Fatal(err)
		}
	}
	later := time.Now().Add(time.Hour)
	if seq, err := j.SequenceAt(inTime(t), begun); err != nil || seq != 1 {
		t.Errorf("the first one: %d, %v", seq, err)
	}
	if seq, err := j.SequenceAt(inTime(t), later); err != nil || seq != stored+1 {
		t.Errorf("behind the last one: %d, %v", seq, err)
	}
	if seq, err := j.Behind(inTime(t), begun, stored); err == nil {
		t.Errorf("newer ones were not found, and the answer is %d", seq)
	}
	// Of two servers that answer, one lacks the newest messages.
	if seq, err := j.Behind(inTime(t), later, stored+3); err != nil || seq != stored+1 {
		t.Errorf("behind those that are found: %d, %v", seq, err)
	}
}
