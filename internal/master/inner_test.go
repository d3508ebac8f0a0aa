package master_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// acl.explain says of a minion what happens when it asks, whatever is inside of what.
func TestExplainNeverContradicts(t *testing.T) {
	w := start(t, `
auto_accept: true
peer:
  web1:
    - 'web*': [test.*, schedule.*, {cmd.run: {args: [uptime]}}, {mine.update: {runs: any}}]
    - db1: [{test.arg: {args: [x], kwargs: {a: xyz}}}, test.cross_test, publish.*]
`)
	web1 := w.minion("web1", pong)
	w.minion("db1", pong)
	root := w.user()
	rnd := rand.New(rand.NewPCG(1, 2))
	allowed := 0
	for range 300 {
		c, tgt := randomCommand(rnd, 3), []string{"web1", "web*", "db1", "*"}[rnd.IntN(4)]
		q := publication(tgt)
		q.Commands, q.Preview = []job.Command{c}, true
		_, _, err := publish(t, web1.Conn, q)
		happens := rpc.CodeOf(err) != rpc.Denied
		res, err := run(t, root, false, "acl.explain", nil, map[string]any{
			"minion": "web1", "fun": string(c.Function), "arg": c.Args, "kwarg": c.Kwargs, "tgt": tgt,
		})
		if err != nil {
			t.Fatalf("explain %v: %v", c, err)
		}
		said := res.(map[string]any)
		if said["allowed"] != happens {
			t.Errorf("%v on %s: acl.explain says %v, and it is %v", c, tgt, said, happens)
		}
		if happens {
			allowed++
		}
	}
	if allowed < 20 || allowed > 280 {
		t.Errorf("%d of 300 were allowed: the test says little", allowed)
	}
}

// randomCommand is a command with others inside, depth deep at most.
func randomCommand(rnd *rand.Rand, depth int) job.Command {
	plain := []job.Command{
		{Function: "test.ping"}, {Function: "cmd.run", Args: []any{"uptime"}}, {Function: "cmd.run", Args: []any{"id"}}, {Function: "mine.update"},
		{Function: "schedule.run_job", Args: []any{"j"}}, {Function: "test.arg", Args: []any{"x", "a=xyz"}}, {Function: "test.arg", Args: []any{"x", "a=abc"}},
	}
	if depth == 0 || rnd.IntN(3) == 0 {
		return plain[rnd.IntN(len(plain))]
	}
	inner := randomCommand(rnd, depth-1)
	args := inner.Args
	if args == nil {
		args = []any{}
	}
	switch rnd.IntN(4) {
	case 0:
		return job.Command{Function: "test.cross_test", Args: []any{string(inner.Function), args}}
	case 1:
		return job.Command{Function: "test.try", Args: append([]any{string(inner.Function)}, args...), Kwargs: inner.Kwargs}
	case 2:
		return job.Command{Function: "schedule.add", Args: []any{fmt.Sprint("j", depth)}, Kwargs: map[string]any{"function": string(inner.Function), "job_args": args, "seconds": int64(60)}}
	}
	return job.Command{Function: salt.Function("publish.publish"), Args: []any{"db1", string(inner.Function), args}}
}
