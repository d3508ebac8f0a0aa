package cli_test

import (
	"context"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/cli"
)

func TestComplete(t *testing.T) {
	s := spec()
	s.Complete = func(_ context.Context, _ *cli.Env, c cli.Completion) []string {
		before, _ := c.Last()
		return []string{before + "web1", before + "web2", "of:" + c.Flag, "n" + string(rune('0'+len(c.Words))), "t" + c.Opts.String("list"),
			"$(reboot)", "a b", "`id`", "--yes", "web3;id", "web4\nid", "*", "~root", "web'"}
	}
	for _, tc := range []struct{ name, typed, want string }{
		{"no word", "", ""},
		{"an option", "--ti", "--timeout"},
		{"all options, none that is hidden", "--s", ""},
		{"a value of its own word", "--out js", "json jsonl"},
		{"an attached value", "--out=jsonl", "--out=jsonl"},
		{"a level", "web1 -l all --log-level c", "critical"},
		{"a value of the program", "--list of", "of:list"},
		{"by a short name", "-l of", "of:list"},
		{"in a cluster", "-yl of", "of:list"},
		{"a value that is given is none to complete", "-l all of", "of:"},
		{"options before it", "-l all t", "tall"},
		{"options are not words", "web1 -y --timeout 5 x n", "n2"},
		{"behind the end of options", "-- -y n", "n1"},
		{"a list that goes on", "db1,", "db1,web1 db1,web2"},
		{"nothing that a shell would not take", "web", "web1 web2"},
		{"a wrong option before it", "--bogus web", "web1 web2"},
		{"an incomplete option before it", "--timeout=x n", "n0"},
	} {
		var args []string
		if tc.typed != "" {
			args = strings.Split(tc.typed, " ")
		}
		w := newWorld("", append([]string{cli.CompleteFlag}, args...)...)
		code := w.Run(t.Context(), s)
		got := strings.Fields(w.out.String())
		if strings.Join(got, " ") != tc.want || code != 0 || w.err.Len() > 0 {
			t.Errorf("%s: %q: %q, code %d, stderr %q; want %q", tc.name, tc.typed, got, code, w.err.String(), tc.want)
		}
	}
}

// TestCompleteDoesNotWait: a daemon that does not answer holds up nobody who types.
func TestCompleteDoesNotWait(t *testing.T) {
	s := spec()
	end := make(chan struct{})
	defer close(end)
	s.Complete = func(context.Context, *cli.Env, cli.Completion) []string { <-end; return []string{"late"} }
	w := newWorld("", cli.CompleteFlag, "l")
	if code := w.Run(t.Context(), s); code != 0 || w.out.Len()+w.err.Len() > 0 {
		t.Errorf("code %d, %q, %q", code, w.out.String(), w.err.String())
	}
}
