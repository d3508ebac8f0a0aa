package daemon

import "testing"

func TestMemoryIsGivenBackWhenTheWorkIsOver(t *testing.T) {
	const mib = 1 << 20
	var i idle
	for n, step := range []struct {
		name  string
		now   uint64
		gives bool
	}{
		{"the start", 5 * mib, true},
		{"at work at once", 9 * mib, true},
		{"idle, what was taken before is garbage now", 9*mib + 1000, true},
		{"idle", 9*mib + 2000, true},
		{"idle for longer", 9*mib + 2500, true},
		{"idle that is not a start any more", 9*mib + 3000, false},
		{"little by little", 9*mib + idleQuiet, false},
		{"a job", 60 * mib, false},
		{"still at work", 61 * mib, false},
		{"it has ended", 61*mib + 10, true},
		{"idle", 61*mib + 20, false},
	} {
		if got := i.over(step.now); got != step.gives {
			t.Errorf("step %d, %s: %t, want %t", n, step.name, got, step.gives)
		}
	}
	// What is taken slowly is worth it once it is enough.
	given := 0
	for n := range uint64(20) {
		if i.over(61*mib + 20 + n*idleQuiet/2) {
			given++
		}
	}
	if given != 2 {
		t.Errorf("memory was given back %d times, want 2", given)
	}
}

// Stop waits for the look that is under way.
func TestFreeWhenIdleStops(t *testing.T) {
	if allocated() == 0 {
		t.Error("nothing was ever taken")
	}
	FreeWhenIdle(t.Context())()
}
