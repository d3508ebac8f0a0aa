package saltevent

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/cli"
)

// What is asked before events are removed says which ones.
func TestOlderThan(t *testing.T) {
	for before, want := range map[string]string{
		"7d": "older than 7d", "90s": "older than 90s", "2026-11-21": "before 2026-11-21", "2026-11-21T12:00:00": "before 2026-11-21T12:00:00", "15": "before the event 15",
	} {
		_, seq, err := readSince("--before", before, time.Now())
		if got := olderThan(before, seq); err != nil || got != want {
			t.Errorf("--before %s: %q, %v; want %q", before, got, err, want)
		}
	}
}

// TestPurgeOfAJournal: what is refused is named, and nothing that was not given.
func TestPurgeOfAJournal(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"an empty name":     {[]string{"--journal", "", "--all", "-y"}, "option --journal is empty: name a journal, or leave it out"},
		"with --durable":    {[]string{"--journal", "m2", "--durable", "d"}, "option --journal does not go with --durable"},
		"both":              {[]string{"--journal", "", "--durable", "d"}, "option --journal is empty"},
		"nothing to remove": {[]string{"--journal", "m2"}, "is needed"},
	} {
		var said strings.Builder
		code := Run(t.Context(), &cli.Env{Name: "salt-event", Args: append([]string{"purge", "-c", t.TempDir()}, c.args...), Stdout: io.Discard, Stderr: &said, Getenv: func(string) string { return "" }})
		if code != cli.Usage || !strings.Contains(said.String(), c.want) {
			t.Errorf("%s: %d and %q, want %q", name, code, said.String(), c.want)
		}
	}
}
