package eventhandler

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestProgramGetsItsInputAtOnce: nothing of it is still to come when the program
// begins, whatever becomes of who started it.
func TestProgramGetsItsInputAtOnce(t *testing.T) {
	for _, size := range []int{0, 1, 100_000, 3 << 20} {
		var out bytes.Buffer
		p := Program{Args: []string{"sh", "-c", "stat -L -c '%F %s' /dev/fd/0; wc -c"}, Limit: time.Minute, Stdout: &out, Stderr: &out}
		if _, err := p.Run(t.Context(), []byte(strings.Repeat("x", size)), nil); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 || !strings.HasPrefix(lines[0], "regular") || !strings.HasSuffix(lines[0], " "+strings.TrimSpace(lines[1])) {
			t.Errorf("%d bytes: the program saw %q", size, out.String())
		}
	}
}

func TestProgramIsEndedWithItsChildren(t *testing.T) {
	var out, errs bytes.Buffer
	p := Program{Args: []string{"sh", "-c", "sleep 1000 & echo words >&2; wait"}, Limit: 300 * time.Millisecond, Stdout: &out, Stderr: &errs}
	stderr, err := p.Run(t.Context(), nil, nil)
	if err == nil || !strings.Contains(err.Error(), "it ran longer than 300ms") || stderr != "words\n" {
		t.Errorf("ended with %v, %q", err, stderr)
	}
}
