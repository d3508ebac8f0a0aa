package daemon

import "testing"

func TestMemoryIsGivenBackWhenTheWorkIsOver(t *testing.T) {
	const mib = 1 << 20
	var r rest
	for i, step := range []struct {
		name  string
		now   uint64
		gives bool
	}{
		{"the start", 5 * mib, true},
		{"at work at once", 9 * mib, true},
		{"rest, what was taken before is garbage now", 9*mib + 1000, true},
		{"rest", 9*mib + 2000, true},
		{"rest for longer", 9*mib + 2500, true},
		{"rest that is no start any more", 9*mib + 3000, false},
		{"little by little", 9*mib + restQuiet, false},
		{"a job", 60 * mib, false},
		{"still at work", 61 * mib, false},
		{"it has ended", 61*mib + 10, true},
		{"rest", 61*mib + 20, false},
	} {
		if got := r.over(step.now); got != step.gives {
			t.Errorf("step %d, %s: %t, want %t", i, step.name, got, step.gives)
		}
	}
	// What is taken slowly is worth it once it is enough.
	given := 0
	for n := range uint64(20) {
		if r.over(61*mib + 20 + n*restQuiet/2) {
			given++
		}
	}
	if given != 2 {
		t.Errorf("memory was given back %d times, want 2", given)
	}
}

// Stop waits for the look that is under way.
func TestRestStops(t *testing.T) {
	if allocated() == 0 {
		t.Error("nothing was ever taken")
	}
	Rest(t.Context())()
}
