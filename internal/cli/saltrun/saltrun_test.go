package saltrun

import (
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/salt"
)

// typed is what a command line asks of the master, and the exit code and the words of a
// refusal.
func typed(t *testing.T, args ...string) (q request, code int, said string) {
	t.Helper()
	var words strings.Builder
	env := &cli.Env{Name: "salt-run", Args: args, Stdout: io.Discard, Stderr: &words, Getenv: func(string) string { return "" }}
	code = env.Run(t.Context(), cli.Spec{Flags: flags(), Output: true, Run: func(ctx context.Context, _ *cli.Env, opts *urcli.Context) (err error) {
		if q, err = readRequest(opts); err != nil {
			return err
		}
		_, cancel, err := bounded(ctx, opts)
		if err == nil {
			cancel()
		}
		return err
	}})
	return q, code, words.String()
}

func TestRequests(t *testing.T) {
	for line, want := range map[string]request{
		"manage.status":                         {command: brine.Command{Function: "manage.status"}},
		"jobs.list_jobs since=2h":               {command: brine.Command{Function: "jobs.list_jobs", Kwargs: map[string]any{"since": "2h"}}},
		"--async jobs.lookup_jid 7":             {async: true, command: brine.Command{Function: "jobs.lookup_jid", Args: []any{int64(7)}}},
		"--wheel key.accept 1 --no-parse=x x=1": {wheel: true, command: brine.Command{Function: "key.accept", Args: []any{int64(1)}, Kwargs: map[string]any{"x": "1"}}},
		"-d":                                    {command: brine.Command{Function: "doc.runner"}},
		"-d manage":                             {command: brine.Command{Function: "doc.runner", Args: []any{"manage"}}},
		"-d --wheel":                            {command: brine.Command{Function: "doc.wheel"}}, // which is a runner
		"-t 1s manage.up":                       {command: brine.Command{Function: "manage.up"}},
	} {
		got, code, said := typed(t, strings.Fields(line)...)
		if len(got.command.Args) == 0 {
			got.command.Args = nil
		}
		if len(got.command.Kwargs) == 0 {
			got.command.Kwargs = nil
		}
		if code != 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("salt-run %s\n asks %+v, %d %s\n want %+v", line, got, code, said, want)
		}
	}
}

func TestRefusedCommandLines(t *testing.T) {
	for line, why := range map[string]string{
		"": "a runner is needed", "--wheel": "a runner is needed", "status": "status", "-t soon manage.up": "soon", "-t -1 manage.up": "-1",
	} {
		if _, code, said := typed(t, strings.Fields(line)...); code != cli.Usage || !strings.Contains(said, why) {
			t.Errorf("salt-run %q ends with %d and %q, want %d and %q", line, code, said, cli.Usage, why)
		}
	}
}

// TestFollowedJobs: a job is shown as salt shows it only where nothing else was asked for.
func TestFollowedJobs(t *testing.T) {
	const jid = "20261121113344286549"
	for line, want := range map[string]salt.JID{
		"jobs.follow " + jid:                  jid,
		"jobs.follow jid=" + jid:              jid,
		"jobs.follow":                         "",
		"jobs.follow web1":                    "",
		"jobs.follow " + jid + " x":           "",
		"jobs.follow " + jid + " outputter=x": "",
		"--async jobs.follow " + jid:          "",
		"--wheel jobs.follow " + jid:          "",
		"jobs.lookup_jid " + jid:              "",
	} {
		q, code, said := typed(t, strings.Fields(line)...)
		if got, ok := followed(q); code != 0 || ok != (want != "") || ok && got != want {
			t.Errorf("salt-run %s follows %q, %v (%d %s), want %q", line, got, ok, code, said, want)
		}
	}
}

func TestChecks(t *testing.T) {
	for line, want := range map[string]bool{
		"status.health": true, "status.health age=1m": true, "--async status.health": false, "--wheel status.health": false, "status.other": false,
	} {
		if q, _, _ := typed(t, strings.Fields(line)...); isCheck(q) != want {
			t.Errorf("salt-run %s is a check: %v, want %v", line, !want, want)
		}
	}
}

// TestATimeLimitThatEnds: the end of --timeout is not a failure of the runner, whose return is
// still to come; every other error stays what it is.
func TestATimeLimitThatEnds(t *testing.T) {
	err := bound(context.DeadlineExceeded, brine.RunnerJob{Tag: "salt/run/7"})
	if cli.Code(err) != cli.NoReturn || !strings.Contains(salt.Hint(err), "salt/run/7/ret") {
		t.Errorf("%v, %d, hint %q", err, cli.Code(err), salt.Hint(err))
	}
	if other := errors.New("other"); bound(other, brine.RunnerJob{}) != other {
		t.Error("another error is taken for the end of the time")
	}
}

func TestWatching(t *testing.T) {
	for line, want := range map[string]watching{
		"state.event":                               {tags: "*", count: -1},
		"state.event salt/job/* 3 pretty=True":      {tags: "salt/job/*", count: 3, pretty: true},
		"state.event * 1 True None True master":     {tags: "*", count: 1, quiet: true, pretty: true},
		"state.event tagmatch=x quiet=True count=0": {tags: "x", count: 0, quiet: true},
	} {
		q, _, _ := typed(t, strings.Fields(line)...)
		if got, err := readWatching(q.command); err != nil || got != want || !watches(q) {
			t.Errorf("salt-run %s watches %+v, %v, want %+v", line, got, err, want)
		}
	}
	for line, why := range map[string]string{
		"state.event * many": "whole number", "state.event quiet=yes_please": "True or False", "state.event node=minion": "bus of the master",
		"state.event color=red": "no argument", "state.event a 1 False None False master x": "at most 6",
	} {
		q, _, _ := typed(t, strings.Fields(line)...)
		if got, err := readWatching(q.command); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("salt-run %s watches %+v, %v, want an error with %q", line, got, err, why)
		}
	}
	for _, line := range []string{"--async state.event", "--wheel state.event", "state.other"} {
		if q, _, _ := typed(t, strings.Fields(line)...); watches(q) {
			t.Errorf("salt-run %s watches by itself", line)
		}
	}
}
