package saltcmd

import (
	"context"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/jobview"
	"github.com/brinebus/brine/internal/config"
)

// typed is what a command line asks of the master whose timeout is 7 seconds, and the exit
// code and the words of a refusal.
func typed(t *testing.T, stdin string, args ...string) (q request, code int, said string) {
	t.Helper()
	var words strings.Builder
	env := &cli.Env{Name: "salt", Args: args, Stdin: strings.NewReader(stdin), Stdout: io.Discard, Stderr: &words, Getenv: func(string) string { return "" }}
	cfg := &config.Master{}
	cfg.Timeout = 7 * time.Second
	code = env.Run(t.Context(), cli.Spec{Flags: flags(), Output: true, Run: func(_ context.Context, env *cli.Env, opts *urcli.Context) (err error) {
		q, err = readRequest(env, opts, cfg)
		return err
	}})
	return q, code, words.String()
}

func ping() []brine.Command { return []brine.Command{{Function: "test.ping", Args: []any{}}} }

// asks is a request without options, changed by change.
func asks(change func(*request)) request {
	q := request{target: brine.Target{Expr: "*", Type: "glob", Delimiter: ":"}, commands: ping(), options: brine.RunOptions{Timeout: 7 * time.Second}}
	change(&q)
	return q
}

func TestRequests(t *testing.T) {
	for line, change := range map[string]func(*request){
		"* test.ping":                              func(*request) {},
		"-L * test.ping":                           func(q *request) { q.target.Type = "list" },
		"--preview-target *":                       func(q *request) { q.preview, q.commands = true, nil },
		"-t 0.5 * test.ping":                       func(q *request) { q.options.Timeout = 500 * time.Millisecond },
		"-t 2m * test.ping":                        func(q *request) { q.options.Timeout = 2 * time.Minute },
		"--queue 2h * test.ping":                   func(q *request) { q.options.Queue = 2 * time.Hour },
		"-b 10% --max-fail 3 * test.ping":          func(q *request) { q.options.Batch, q.options.BatchMaxFail = "10%", "3" },
		"-b 2 --failhard --max-fail 3 * test.ping": func(q *request) { q.options.Batch, q.options.BatchMaxFail = "2", "0" },
		"--batch-safe-limit 5 * test.ping":         func(q *request) { q.options.SafeLimit, q.options.SafeSize = 5, 8 },
		"--batch-safe-size 3 * test.ping":          func(*request) {}, // nothing without its limit
		"--subset 2 * test.ping":                   func(q *request) { q.options.Subset = 2 },
		`--metadata {"a":1} * test.ping`:           func(q *request) { q.options.Metadata = map[string]any{"a": int64(1)} },
		"--return=x --tag=y * test.ping":           func(q *request) { q.options.Returners, q.options.ReturnTag = "x", "y" },
		"-d test.ping":                             func(q *request) { q.commands = []brine.Command{{Function: "sys.doc", Args: []any{"test.ping"}}} },
		"-d web1 test": func(q *request) {
			q.target.Expr, q.commands = "web1", []brine.Command{{Function: "sys.doc", Args: []any{"test"}}}
		},
		"-d web1": func(q *request) { q.target.Expr, q.commands = "web1", []brine.Command{{Function: "sys.doc"}} },
		"-d":      func(q *request) { q.commands = []brine.Command{{Function: "sys.doc"}} },
		"* test.arg 1 two x=3": func(q *request) {
			q.commands = []brine.Command{{Function: "test.arg", Args: []any{int64(1), "two"}, Kwargs: map[string]any{"x": int64(3)}}}
		},
		"--no-parse x * test.arg 1 x=3": func(q *request) {
			q.commands = []brine.Command{{Function: "test.arg", Args: []any{int64(1)}, Kwargs: map[string]any{"x": "3"}}}
		},
		"* test.arg,test.ping 1 , --out raw": func(q *request) {
			q.compound, q.commands = true, []brine.Command{{Function: "test.arg", Args: []any{int64(1)}}, {Function: "test.ping", Args: []any{}}}
		},
	} {
		got, code, said := typed(t, "", strings.Fields(line)...)
		if want := asks(change); code != 0 || !reflect.DeepEqual(plain(got), plain(want)) {
			t.Errorf("salt %s\n asks %+v, %d %s\n want %+v", line, got, code, said, want)
		}
	}
}

// plain is a request in which no arguments and an empty list are the same.
func plain(q request) request {
	for i, c := range q.commands {
		if len(c.Args) == 0 {
			q.commands[i].Args = nil
		}
		if len(c.Kwargs) == 0 {
			q.commands[i].Kwargs = nil
		}
	}
	return q
}

func TestArgumentsFromStandardInput(t *testing.T) {
	q, code, said := typed(t, "2\nthree\n", "*", "test.arg", "1", "--args-stdin")
	if code != 0 || !reflect.DeepEqual(q.commands[0].Args, []any{int64(1), int64(2), "three"}) {
		t.Errorf("%+v, %d %s", q.commands, code, said)
	}
}

// TestRefusedCommandLines: what cannot be meant ends with 64, before anybody is asked.
func TestRefusedCommandLines(t *testing.T) {
	for line, why := range map[string]string{
		"":                               "a target and a function are needed",
		"*":                              "a target and a function are needed",
		"-L -G * test.ping":              "exclude each other: list and grain",
		"-G --delimiter= a:b test.ping":  "--delimiter is empty",
		"--tag=x * test.ping":            "--tag needs --return",
		"--subset=0 * test.ping":         "not a number of minions above zero",
		"--subset=-1 * test.ping":        "not a number of minions above zero",
		"-t soon * test.ping":            "soon",
		"--queue never * test.ping":      "never",
		"--batch-wait x * test.ping":     "batch-wait",
		"--metadata=7 * test.ping":       "is not a map",
		"--return_kwargs=[] * test.ping": "is not a map",
		"* ping":                         "ping",
		"* test.ping,test":               "test",
		"* test.ping,test.arg 1 , 2 , 3": "more arguments than commands",
		"\xff test.ping":                 "the target",
	} {
		if _, code, said := typed(t, "", strings.Fields(line)...); code != cli.Usage || !strings.Contains(said, why) {
			t.Errorf("salt %q ends with %d and %q, want %d and %q", line, code, said, cli.Usage, why)
		}
	}
}

func TestHowMuchOfAJobIsShown(t *testing.T) {
	for _, test := range []struct {
		q    request
		want jobview.End
	}{{request{}, jobview.Whole}, {request{options: brine.RunOptions{Detach: true}}, jobview.Started}, {request{preview: true, options: brine.RunOptions{Detach: true}}, jobview.Previewed}} {
		if got := test.q.end(); got != test.want {
			t.Errorf("of %+v is seen %v, want %v", test.q, got, test.want)
		}
	}
}
