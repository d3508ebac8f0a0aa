package bustest

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// leakGrace is how long goroutines have to end after the test has closed what it
// opened; they are looked for until they are gone or this is over.
const leakGrace = 10 * time.Second

// ours marks the stacks that a test has to answer for: this module, and the two
// halves of NATS that it drives.
var ours = []string{"github.com/brinebus/brine/", "github.com/nats-io/"}

// CheckLeaks fails the test when goroutines of ours are left that were not there
// when it was called. Call it first, so that its cleanup is the last. Tests that
// run in parallel would be taken for leaks: it is for those that run alone.
func CheckLeaks(t testing.TB) {
	t.Helper()
	before := stacks()
	t.Cleanup(func() {
		deadline := time.Now().Add(leakGrace)
		for {
			left := newer(before)
			if len(left) == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("%d goroutines are left, the first:\n%s", len(left), left[0])
				return
			}
			runtime.Gosched()
			time.Sleep(time.Millisecond) // a pause between looks; nothing depends on its length
		}
	})
}

// newer returns the stacks of goroutines that are not in before, by their number.
func newer(before map[string]string) []string {
	var left []string
	for id, stack := range stacks() {
		if _, known := before[id]; !known {
			left = append(left, stack)
		}
	}
	return left
}

// stacks returns the stacks of our goroutines but for the calling one.
func stacks() map[string]string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	all := map[string]string{}
	for i, stack := range strings.Split(string(buf), "\n\n") {
		id, _, _ := strings.Cut(stack, " [")
		if i > 0 && isOurs(stack) {
			all[id] = stack
		}
	}
	return all
}

func isOurs(stack string) bool {
	if strings.Contains(stack, "testing.(*T).Run") || strings.Contains(stack, "testing.tRunner(") {
		return false // tests themselves
	}
	for _, name := range ours {
		if strings.Contains(stack, name) {
			return true
		}
	}
	return false
}
