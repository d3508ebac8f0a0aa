package cli_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/cli"
)

func TestWaiting(t *testing.T) {
	for _, tc := range []struct {
		name     string
		took     time.Duration
		terminal bool
		want     string
	}{
		{"short", cli.Patience - time.Millisecond, true, ""},
		{"long", time.Hour, true, `salt-try: waiting for the master at \x1b[2J` + "\n"},
		{"into a log", time.Hour, false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld("")
				w.StderrTTY = tc.terminal
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
