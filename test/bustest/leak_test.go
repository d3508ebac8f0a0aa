package bustest

import (
	"strings"
	"testing"
)

// Not parallel, as everything that looks at all goroutines.
func TestALeakIsSeen(t *testing.T) {
	before := stacks()
	if left := newer(before); len(left) > 0 {
		t.Fatalf("a leak where nothing was started:\n%s", left[0])
	}
	release, running, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		close(running)
		<-release
		close(done)
	}()
	<-running
	left := newer(before)
	if len(left) != 1 || !strings.Contains(left[0], "TestALeakIsSeen") {
		t.Errorf("the goroutine is not seen: %q", left)
	}
	close(release)
	<-done
}

func TestABusLeavesNothing(t *testing.T) {
	CheckLeaks(t)
	b := StartStore(t)
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	b.As(t, "minion", "web1")
	b.As(t, "user", "")
}
