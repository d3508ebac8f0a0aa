package saltcall

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// typed runs f with the options of a command line, and returns the exit code and the words
// on standard error.
func typed(t *testing.T, line string, f func(*urcli.Context) error) (code int, said string) {
	t.Helper()
	var words strings.Builder
	env := &cli.Env{Name: "salt-call", Args: strings.Fields(line), Stdout: io.Discard, Stderr: &words, Getenv: func(string) string { return "" }}
	code = env.Run(t.Context(), cli.Spec{Flags: flags(), Output: true, Run: func(_ context.Context, _ *cli.Env, opts *urcli.Context) error { return f(opts) }})
	return code, words.String()
}

func TestCommands(t *testing.T) {
	for line, want := range map[string]job.Command{
		"test.ping":                  {Function: "test.ping"},
		"test.arg 1 two x=3":         {Function: "test.arg", Args: []any{int64(1), "two"}, Kwargs: map[string]any{"x": int64(3)}},
		"--no-parse x test.arg x=3":  {Function: "test.arg", Kwargs: map[string]any{"x": "3"}},
		"-d":                         {Function: "sys.doc"},
		"-d test":                    {Function: "sys.doc", Args: []any{"test"}},
		"-g":                         {Function: "grains.items"},
		"-g what stands behind it":   {Function: "grains.items"},
		"--local --id web1 test.arg": {Function: "test.arg"},
	} {
		var got job.Command
		code, said := typed(t, line, func(opts *urcli.Context) (err error) {
			got, err = command(opts)
			return err
		})
		if len(got.Args) == 0 {
			got.Args = nil
		}
		if len(got.Kwargs) == 0 {
			got.Kwargs = nil
		}
		if code != 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("salt-call %s runs %+v (%d %s), want %+v", line, got, code, said, want)
		}
	}
	for line, why := range map[string]string{"": "a function is needed", "ping": "ping", "--local": "a function is needed"} {
		code, said := typed(t, line, func(opts *urcli.Context) error { _, err := command(opts); return err })
		if code != cli.Usage || !strings.Contains(said, why) {
			t.Errorf("salt-call %q ends with %d and %q, want %d and %q", line, code, said, cli.Usage, why)
		}
	}
}

func TestOptionsOverTheConfiguration(t *testing.T) {
	for line, want := range map[string]map[string]any{
		"test.ping": {}, "--id web1 test.ping": {"id": "web1"}, "--id web1 --master m test.ping": {"id": "web1", "master": "m"},
	} {
		var got map[string]any
		typed(t, line, func(opts *urcli.Context) error { got = overrides(opts); return nil })
		if !reflect.DeepEqual(got, want) {
			t.Errorf("salt-call %s overrides %v, want %v", line, got, want)
		}
	}
	cfg := &config.Minion{AuthTimeout: 7 * time.Second}
	for line, want := range map[string]time.Duration{"test.ping": 7 * time.Second, "-t 0.5 test.ping": time.Second / 2, "-t 2m test.ping": 2 * time.Minute} {
		var got time.Duration
		code, said := typed(t, line, func(opts *urcli.Context) (err error) { got, err = patience(opts, cfg); return err })
		if code != 0 || got != want {
			t.Errorf("salt-call %s waits for %v (%d %s), want %v", line, got, code, said, want)
		}
	}
	if code, _ := typed(t, "-t soon test.ping", func(opts *urcli.Context) error { _, err := patience(opts, cfg); return err }); code != cli.Usage {
		t.Errorf("a time that is none ends with %d", code)
	}
}

// TestChecks: only status.master as it is answers in one line.
func TestChecks(t *testing.T) {
	for line, want := range map[string]bool{
		"status.master": true, "--local status.master": false, "--out json status.master": false, "status.master master": false, "status.master a=1": false, "status.ping_master x": false,
	} {
		var got bool
		code, said := typed(t, line, func(opts *urcli.Context) error {
			c, err := command(opts)
			got = isCheck(opts, c)
			return err
		})
		if code != 0 || got != want {
			t.Errorf("salt-call %s is a check: %v (%d %s), want %v", line, got, code, said, want)
		}
	}
}

func TestVerdictsOnADaemon(t *testing.T) {
	on, off := protocol.MasterStatus{Master: "m1", Connected: true}, protocol.MasterStatus{Master: "m2"}
	for _, test := range []struct {
		s    protocol.Status
		want client.Level
		says string
	}{
		{protocol.Status{}, client.LevelOK, "is to have no master"},
		{protocol.Status{Masters: []protocol.MasterStatus{on}, Outbox: 3}, client.LevelOK, "connected to m1; 3 messages wait"},
		{protocol.Status{Masters: []protocol.MasterStatus{on, off}}, client.LevelWarning, "not connected to m2, but to m1"},
		{protocol.Status{Masters: []protocol.MasterStatus{off}, Waiting: "its key"}, client.LevelCritical, "waits for its key"},
	} {
		if level, text := judge(test.s); level != test.want || !strings.Contains(text, test.says) {
			t.Errorf("of %+v the verdict is %v %q, want %v with %q", test.s, level, text, test.want, test.says)
		}
	}
}

// TestExitCodes: a function's own code is that of the program only where it is asked for, or
// where the codes of the function are ours.
func TestExitCodes(t *testing.T) {
	refused := fmt.Errorf("publish: %w", rpc.Errorf(rpc.Denied, "no"))
	for _, test := range []struct {
		line     string
		fun      salt.Function
		res      function.Result
		reported error
		want     int
	}{
		{"x.y", "test.ping", function.Result{Success: true}, nil, 0},
		{"x.y", "cmd.run", function.Result{Retcode: 3}, nil, cli.Failed},
		{"--retcode-passthrough x.y", "cmd.run", function.Result{Retcode: 3}, nil, 3},
		{"--retcode-passthrough x.y", "cmd.run", function.Result{Retcode: 256 + 7}, nil, 7},
		{"--retcode-passthrough x.y", "test.ping", function.Result{Success: true}, nil, 0},
		{"x.y", "publish.publish", function.Result{Retcode: 2}, nil, 2},
		{"x.y", "mine.get", function.Result{Retcode: 2}, nil, 2},
		{"x.y", "publish.publish", function.Result{Retcode: 1, Err: refused}, nil, cli.NoPermission},
		{"x.y", "test.ping", function.Result{Success: true}, cli.Exit(cli.Unavailable), cli.Unavailable},
	} {
		code, _ := typed(t, test.line, func(opts *urcli.Context) error {
			c := call{opts: opts}
			return c.verdict(job.Command{Function: test.fun}, test.res, test.reported)
		})
		if code != test.want {
			t.Errorf("%s (%s) with %+v ends with %d, want %d", test.fun, test.line, test.res, code, test.want)
		}
	}
}
