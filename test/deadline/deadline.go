// Package deadline bounds what tests wait for. A test that waits for ever, for what one time in
// thousands does not come, takes the results of all others of its package with it, and says nothing of
// what was missing. It is not for goroutines beside the test, which cannot end it, and not for bubbles of
// testing/synctest, where a wait that has no end is found at once.
package deadline

import (
	"testing"
	"time"
)

// Time is how long anything may take that merely must happen: far longer than a machine stands still that
// has much to do, and far shorter than what a package's tests have.
const Time = 2 * time.Minute

// Most is how long a whole test may take. Those that somebody gives hours have a third of them.
const Most = 7 * time.Minute

// Guard ends a daemon of the test, or what else whoever waits has their answers from, when the test has
// taken far too long: questions without a deadline of their own then fail, instead of waiting for ever.
// Benchmarks take what they are given.
func Guard(t testing.TB, end func(), what string) {
	t.Helper()
	limit := Most
	if own, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		at, limited := own.Deadline()
		if !limited {
			return
		}
		limit = max(limit, time.Until(at)/3)
	}
	if _, measured := t.(*testing.B); measured {
		return
	}
	guard(t, limit, end, what)
}

func guard(t testing.TB, limit time.Duration, end func(), what string) {
	reported := make(chan struct{})
	late := time.AfterFunc(limit, func() {
		t.Errorf("the test has not ended after %s: %s is ended, and with it what waits for it", limit, what)
		close(reported)
		end()
	})
	t.Cleanup(func() {
		if !late.Stop() {
			<-reported
		}
	})
}

// Receive returns the next value of c, the zero value if c is closed. It ends the test if neither comes;
// what says what the test waits for, at least as c is called.
func Receive[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	late := time.NewTimer(Time)
	defer late.Stop()
	select {
	case v := <-c:
		return v
	case <-late.C:
		t.Fatalf("%s: nothing has come in %s", what, Time)
		panic("not reached")
	}
}

// Call calls f, such as the Wait of a WaitGroup or of a process, and ends the test if it does not return;
// f is then left behind.
func Call(t testing.TB, f func(), what string) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	late := time.NewTimer(Time)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		t.Fatalf("%s: it has not ended in %s", what, Time)
	}
}

// slowest is the longest pause between two looks of Until.
const slowest = 25 * time.Millisecond

// Until looks again and again whether something is so, and ends the test if it never is. It looks less and less
// often, since a look may cost more than what is waited for, and other tests need the processor, too.
func Until(t testing.TB, is func() bool, what string) {
	t.Helper()
	pause := time.Millisecond
	for end := time.Now().Add(Time); !is(); pause = min(pause*5/4, slowest) {
		if time.Now().After(end) {
			t.Fatalf("%s: it is not so after %s", what, Time)
		}
		time.Sleep(pause)
	}
}
