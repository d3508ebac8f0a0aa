package deadline

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// recorder is a test that records its failures.
type recorder struct {
	testing.TB
	said []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func TestWaitsHaveAnEnd(t *testing.T) {
	for name, c := range map[string]struct {
		wait func(t testing.TB)
		want string
	}{
		"a value":          {func(t testing.TB) { c := make(chan int, 1); c <- 1; Receive(t, c, "x") }, ""},
		"a closed channel": {func(t testing.TB) { c := make(chan int); close(c); Receive(t, c, "x") }, ""},
		"no value":         {func(t testing.TB) { Receive(t, make(chan int), "the answer") }, "the answer: nothing has come in 2m0s"},
		"what ends":        {func(t testing.TB) { Call(t, func() {}, "x") }, ""},
		"what is so":       {func(t testing.TB) { Until(t, func() bool { return true }, "x") }, ""},
		"what is never so": {func(t testing.TB) { Until(t, func() bool { return false }, "the file") }, "the file: it is not so after 2m0s"},
		"what does not end": {func(t testing.TB) {
			end := make(chan struct{})
			time.AfterFunc(2*Time, func() { close(end) })
			Call(t, func() { <-end }, "the flood")
		}, "the flood: it has not ended in 2m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, done := &recorder{TB: t}, make(chan struct{})
				go func() {
					defer close(done)
					c.wait(r)
				}()
				<-done
				if got := strings.Join(r.said, " "); got != c.want {
					t.Errorf("said %q, want %q", got, c.want)
				}
				time.Sleep(2 * Time) // for what is left behind
			})
		})
	}
}

// A guard ends what the test waits for, and says so; one whose test has ended does nothing.
func TestGuard(t *testing.T) {
	var r *recorder
	for _, late := range []bool{true, false} {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			r = &recorder{TB: t}
			ended := make(chan struct{})
			limit := time.Hour
			if late {
				limit = time.Millisecond
			}
			guard(r, limit, func() { close(ended) }, "the bus")
			if late {
				Receive(t, ended, "its end")
			}
		})
		if want := map[bool]string{true: "the test has not ended after 1ms: the bus is ended, and with it what waits for it"}[late]; strings.Join(r.said, " ") != want {
			t.Errorf("said %q, want %q", r.said, want)
		}
	}
}
