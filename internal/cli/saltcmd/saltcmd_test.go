package saltcmd

import (
	"context"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/jobview"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
)

// typed is what a command line asks of the master whose timeout is 7 seconds, and the exit
// code and the words of a refusal.
func typed(t *testing.T, stdin string, args ...string) (q protocol.Publish, code int, said string) {
	t.Helper()
	var words strings.Builder
	env := &cli.Env{Name: "salt", Args: args, Stdin: strings.NewReader(stdin), Stdout: io.Discard, Stderr: &words, Getenv: func(string) string { return "" }}
	cfg := &config.Master{}
	cfg.Timeout = 7 * time.Second
	code = env.Run(t.Context(), cli.Spec{Flags: flags(), Output: true, Run: func(_ context.Context, env *cli.Env, opts *urcli.Context) (err error) {
		q, err = request(env, opts, cfg)
		return err
	}})
	return q, code, words.String()
}

func ping() []job.Command { return []job.Command{{Function: "test.ping", Args: []any{}}} }

// asks is a request without options, changed by change.
func asks(change func(*protocol.Publish)) protocol.Publish {
	q := protocol.Publish{Target: "*", TargetType: "glob", Delimiter: ":", Timeout: 7, Lines: true, Commands: ping()}
	change(&q)
	return q
}

func TestRequests(t *testing.T) {
	for line, change := range map[string]func(*protocol.Publish){
		"* test.ping":                              func(*protocol.Publish) {},
		"-L * test.ping":                           func(q *protocol.Publish) { q.TargetType = "list" },
		"--preview-target *":                       func(q *protocol.Publish) { q.Preview, q.Commands = true, nil },
		"-t 0.5 * test.ping":                       func(q *protocol.Publish) { q.Timeout = 0.5 },
		"-t 2m * test.ping":                        func(q *protocol.Publish) { q.Timeout = 120 },
		"--queue 2h * test.ping":                   func(q *protocol.Publish) { q.Queue = 7200 },
		"-b 10% --max-fail 3 * test.ping":          func(q *protocol.Publish) { q.Batch.Size, q.Batch.MaxFail = "10%", "3" },
		"-b 2 --failhard --max-fail 3 * test.ping": func(q *protocol.Publish) { q.Batch.Size, q.Batch.MaxFail = "2", "0" },
		"--batch-safe-limit 5 * test.ping":         func(q *protocol.Publish) { q.Batch.SafeLimit, q.Batch.SafeSize = 5, 8 },
		"--batch-safe-size 3 * test.ping":          func(*protocol.Publish) {}, // nothing without its limit
		"--subset 2 * test.ping":                   func(q *protocol.Publish) { q.Subset = 2 },
		`--metadata {"a":1} * test.ping`:           func(q *protocol.Publish) { q.Metadata.V = map[string]any{"a": int64(1)} },
		"--return=x --tag=y * test.ping":           func(q *protocol.Publish) { q.Returner, q.ReturnTag = "x", "y" },
		"-d test.ping":                             func(q *protocol.Publish) { q.Commands = []job.Command{{Function: "sys.doc", Args: []any{"test.ping"}}} },
		"-d web1 test": func(q *protocol.Publish) {
			q.Target, q.Commands = "web1", []job.Command{{Function: "sys.doc", Args: []any{"test"}}}
		},
		"-d web1": func(q *protocol.Publish) { q.Target, q.Commands = "web1", []job.Command{{Function: "sys.doc"}} },
		"-d":      func(q *protocol.Publish) { q.Commands = []job.Command{{Function: "sys.doc"}} },
		"* test.arg 1 two x=3": func(q *protocol.Publish) {
			q.Commands = []job.Command{{Function: "test.arg", Args: []any{int64(1), "two"}, Kwargs: map[string]any{"x": int64(3)}}}
		},
		"--no-parse x * test.arg 1 x=3": func(q *protocol.Publish) {
			q.Commands = []job.Command{{Function: "test.arg", Args: []any{int64(1)}, Kwargs: map[string]any{"x": "3"}}}
		},
		"* test.arg,test.ping 1 , --out raw": func(q *protocol.Publish) {
			q.Compound, q.Commands = true, []job.Command{{Function: "test.arg", Args: []any{int64(1)}}, {Function: "test.ping", Args: []any{}}}
		},
	} {
		got, code, said := typed(t, "", strings.Fields(line)...)
		if want := asks(change); code != 0 || !reflect.DeepEqual(plain(got), plain(want)) {
			t.Errorf("salt %s\n asks %+v, %d %s\n want %+v", line, got, code, said, want)
		}
	}
}

// plain is a request in which no arguments and an empty list are the same.
func plain(q protocol.Publish) protocol.Publish {
	for i, c := range q.Commands {
		if len(c.Args) == 0 {
			q.Commands[i].Args = nil
		}
		if len(c.Kwargs) == 0 {
			q.Commands[i].Kwargs = nil
		}
	}
	return q
}

func TestArgumentsFromStandardInput(t *testing.T) {
	q, code, said := typed(t, "2\nthree\n", "*", "test.arg", "1", "--args-stdin")
	if code != 0 || !reflect.DeepEqual(q.Commands[0].Args, []any{int64(1), int64(2), "three"}) {
		t.Errorf("%+v, %d %s", q.Commands, code, said)
	}
}

// TestRefusedCommandLines: what cannot be meant ends with 64, before anybody is asked.
func TestRefusedCommandLines(t *testing.T) {
	for line, why := range map[string]string{
		"":                               "a target and a function are needed",
		"*":                              "a target and a function are needed",
		"-L -G * test.ping":              "exclude each other: list and grain",
		"-G --delimiter= a:b test.ping":  "--delimiter has nothing in it",
		"--tag=x * test.ping":            "--tag needs --return",
		"--subset=0 * test.ping":         "no number of minions above zero",
		"--subset=-1 * test.ping":        "no number of minions above zero",
		"-t soon * test.ping":            "soon",
		"--queue never * test.ping":      "never",
		"--batch-wait x * test.ping":     "batch-wait",
		"--metadata=7 * test.ping":       "is no map",
		"--return_kwargs=[] * test.ping": "is no map",
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

func TestWhatIsSeenOfAJob(t *testing.T) {
	for _, test := range []struct {
		q    protocol.Publish
		want jobview.End
	}{{protocol.Publish{}, jobview.Whole}, {protocol.Publish{Async: true}, jobview.Started}, {protocol.Publish{Preview: true, Async: true}, jobview.Previewed}} {
		if got := end(test.q); got != test.want {
			t.Errorf("of %+v is seen %v, want %v", test.q, got, test.want)
		}
	}
}
