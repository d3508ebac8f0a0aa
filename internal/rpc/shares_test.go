package rpc

import "testing"

// TestShares: a key gets no more than its share, nor all together more than there is, and what is
// given back can be taken again.
func TestShares(t *testing.T) {
	s := NewShares(3, 5)
	for _, step := range []struct {
		key  string
		n    int
		want bool
	}{{"a", 3, true}, {"a", 1, false}, {"b", 3, false}, {"b", 2, true}, {"c", 1, false}} {
		if got := s.Take(step.key, step.n); got != step.want {
			t.Errorf("%d for %s: %v", step.n, step.key, got)
		}
	}
	s.Give("a", 3)
	if !s.Take("c", 3) || s.Take("a", 1) {
		t.Error("what was given back is not there once")
	}
	s.Give("b", 2)
	s.Give("c", 3)
	if len(s.held) > 0 || s.sum != 0 {
		t.Errorf("%v and %d are left", s.held, s.sum)
	}
}
