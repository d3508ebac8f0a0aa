package cli_test

import (
	"testing"
	"testing/synctest"
	"time"

	"brine/internal/cli"
)

func TestWaiting(t *testing.T) {
	for _, tc := range []struct {
		name string
		took time.Duration
		want string
	}{
		{"short", cli.Patience - time.Millisecond, ""},
		{"long", time.Hour, `salt-try: waiting for the master at \x1b[2J` + "\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld("")
				stop := w.Waiting(t.Context(), cli.Patience, func() string { return "the master at \x1b[2J" })
				time.Sleep(tc.took)
				stop()
				stop()
				time.Sleep(time.Hour)
				if got := w.err.String(); got != tc.want {
					t.Errorf("printed %q, want %q", got, tc.want)
				}
			})
		})
	}
}
