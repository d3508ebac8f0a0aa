package eventhandler

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
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

// TestAProgramThatIsStoppedAtItsEnd: a program that has ended with 0 has done its work, also if it
// was to end meanwhile; otherwise its event comes again. One that ran too long has failed.
func TestAProgramThatIsStoppedAtItsEnd(t *testing.T) {
	stop := errors.New("stopped")
	for _, test := range []struct {
		trap  string
		limit time.Duration
		want  error
	}{
		{`trap "exit 0" TERM`, time.Minute, nil},
		{`trap "exit 1" TERM`, time.Minute, stop},
		{`:`, time.Minute, stop},
		{`trap "exit 0" TERM`, 300 * time.Millisecond, context.DeadlineExceeded},
	} {
		began := filepath.Join(t.TempDir(), "began")
		p := Program{Args: []string{"sh", "-c", test.trap + "; touch " + began + "; while :; do sleep 0.02; done"}, Limit: test.limit, Stdout: io.Discard, Stderr: io.Discard}
		ctx, cancel := context.WithCancelCause(t.Context())
		if test.limit == time.Minute {
			go func() {
				for _, err := os.Stat(began); err != nil; _, err = os.Stat(began) {
					time.Sleep(time.Millisecond)
				}
				cancel(stop)
			}()
		}
		_, err := p.Run(ctx, nil, nil)
		if tooLong := test.want == context.DeadlineExceeded; tooLong && (err == nil || !strings.Contains(err.Error(), "it ran longer")) || !tooLong && !errors.Is(err, test.want) {
			t.Errorf("%q with %s: %v, want %v", test.trap, test.limit, err, test.want)
		}
		cancel(nil)
	}
}
