package process

import (
	"slices"
	"strings"
	"testing"
)

func TestCaptureIsBounded(t *testing.T) {
	overflows := 0
	c := &capture{limit: 1000, overflow: func() { overflows++ }}
	chunk := make([]byte, 300)
	for range 5 {
		if n, err := c.Write(chunk); n != len(chunk) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	if overflows != 1 || c.text.Len() != 900 {
		t.Errorf("%d overflows, %d bytes kept", overflows, c.text.Len())
	}
}

func TestRunKeepsTheStreamsApart(t *testing.T) {
	p := Program{Args: []string{"/bin/sh", "-c", "cat; echo err >&2; exit 3"}, Stdin: new(string)}
	*p.Stdin = "in\x00put"
	e, err := p.Run(t.Context())
	if err != nil || e.Stdout != "in\x00put" || e.Stderr != "err\n" || e.Code != 3 || e.PID == 0 {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestRunEndsAProgramThatSaysTooMuch(t *testing.T) {
	p := Program{Args: []string{"/bin/sh", "-c", "while :; do echo 0123456789; done"}, Limit: 1 << 16}
	if _, err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the output exceeds") {
		t.Errorf("%v", err)
	}
}

// watcher notes what a Watcher is told.
type watcher struct{ told []string }

func (w *watcher) Began()             { w.told = append(w.told, "began") }
func (w *watcher) Ended()             { w.told = append(w.told, "ended") }
func (w *watcher) Wrote(bool, []byte) {}

// TestAWatcherKnowsWhatRuns, also of a program that cannot be started.
func TestAWatcherKnowsWhatRuns(t *testing.T) {
	for _, program := range []string{"true", "/no/such/program"} {
		w := new(watcher)
		p := Program{Args: []string{program}, Watcher: w}
		if _, err := p.Run(t.Context()); (err == nil) != (program == "true") {
			t.Errorf("%s: %v", program, err)
		}
		if !slices.Equal(w.told, []string{"began", "ended"}) {
			t.Errorf("%s: %q", program, w.told)
		}
	}
}
