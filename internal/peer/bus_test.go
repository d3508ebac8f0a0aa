package peer_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/authz/authztest"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/mine"
	"github.com/brinebus/brine/internal/peer"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

const jid = "20260102030405678901"

// client is a minion at a real broker, where h answers an operation of minions.
func client(t *testing.T, op string, h rpc.Handler) peer.Client {
	t.Helper()
	b := bustest.Start(t)
	var table bus.Endpoints
	for _, e := range bus.MasterEndpoints {
		if e.Op == op && e.Roles[0] == bus.RoleMinion {
			table = append(table, e)
		}
	}
	s := rpc.NewServer(b.Conn(), b.Owner, table, b.Log)
	s.Handle(table[0].Handler, func(ctx context.Context, r *rpc.Request) error {
		if c := table[0].Check; !c.Early() {
			if err := r.Decide(authztest.Allow(string(c))); err != nil {
				return err
			}
		}
		return h(ctx, r)
	})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	c := b.As(t, bus.RoleMinion, "web1")
	conn := rpc.NewConn(c.Conn, c.Self)
	return peer.Client{Conn: func(string) *rpc.Conn { return conn }}
}

// TestAJobOfAPeer: the answer has a row for each minion that was meant, in the order of the
// master, with the last that was heard of it.
func TestAJobOfAPeer(t *testing.T) {
	questions := make(chan protocol.Publish, 2)
	c := client(t, protocol.OpPublish, func(ctx context.Context, r *rpc.Request) error {
		var asked protocol.Publish
		if err := r.Decode(&asked); err != nil {
			return err
		}
		questions <- asked
		if err := r.Send(ctx, job.Start{JID: jid, Minions: []salt.MinionID{"a", "b", "c"}, Missing: []salt.MinionID{"d"}}); err != nil || asked.Preview || asked.Async {
			return err
		}
		for _, lines := range [][]job.Update{
			{{ID: "a", Report: job.Report{State: job.Running}}, {ID: "b", Report: job.Report{State: job.NotConnected, Text: "since noon"}}},
			{{ID: "a", Report: job.Report{State: job.Done, Return: value.Value{V: true}, Retcode: value.Value{V: int64(0)}, Success: value.Value{V: true}}}},
		} {
			var text []byte
			for i, u := range lines {
				if i > 0 {
					text = append(text, '\n')
				}
				var err error
				if text, err = u.Append(text); err != nil {
					return err
				}
			}
			if err := r.SendRaw(ctx, text); err != nil {
				return err
			}
		}
		return nil
	})
	p := function.Publication{
		Target: "*", TargetType: "glob", Calls: []salt.Command{{Function: "test.ping", Args: []any{"x"}}}, Timeout: 3 * time.Second,
	}
	got, err := c.Publish(t.Context(), p)
	want := []function.Answer{
		{JID: jid, ID: "a", Returned: true, Return: true, Retcode: int64(0)},
		{JID: jid, ID: "b", Failed: true, Text: string(job.NotConnected) + ", since noon"},
		{JID: jid, ID: "c", Text: string(job.Silent)},
		{JID: jid, ID: "d", Text: "no accepted key has this id"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("answers %+v, %v\nwant %+v", got, err, want)
	}
	if asked := deadline.Receive(t, questions, "questions"); asked.Target != "*" || len(asked.Commands) != 1 || asked.Commands[0].Function != "test.ping" || asked.Timeout != 3 {
		t.Errorf("the master was asked %+v", asked)
	}
	p.Async = true
	if got, err = c.Publish(t.Context(), p); err != nil || len(got) != 4 || got[0].Returned || got[0].JID != jid {
		t.Errorf("started without waiting: %+v, %v", got, err)
	}
}

// A refusal of the master is an error of package function with the text of the master; so is a
// master that ends in the middle of an answer.
func TestRefusalsOfTheMasterKeepTheirText(t *testing.T) {
	for code, want := range map[rpc.Code]error{rpc.Denied: function.ErrRefused, rpc.NoMatch: function.ErrNoMatch, rpc.Unavailable: function.ErrUnavailable} {
		c := client(t, protocol.OpPublish, func(ctx context.Context, r *rpc.Request) error {
			if code == rpc.Unavailable {
				if err := r.Send(ctx, job.Start{JID: jid, Minions: []salt.MinionID{"a"}}); err != nil {
					return err
				}
			}
			return rpc.Errorf(code, "the words of the master")
		})
		if got, err := c.Publish(t.Context(), function.Publication{Target: "*"}); !errors.Is(err, want) || !strings.Contains(err.Error(), "the words of the master") {
			t.Errorf("%s: %v, %v; want %v", code, got, err, want)
		}
	}
}

// TestARunnerOfAPeer returns what the runner has returned, or why it failed.
func TestARunnerOfAPeer(t *testing.T) {
	c := client(t, protocol.OpRun, func(ctx context.Context, r *rpc.Request) error {
		var q protocol.Run
		if err := r.Decode(&q); err != nil {
			return err
		}
		if err := r.Send(ctx, protocol.RunStart{JID: jid, Tag: "salt/run/" + jid}); err != nil {
			return err
		}
		switch q.Command.Function {
		case "manage.up":
			return r.Send(ctx, protocol.RunResult{Return: value.Value{V: []any{"web1"}}, Success: true, Out: "nested"})
		case "manage.down":
			return r.Send(ctx, protocol.RunResult{Error: "you may not", Retcode: protocol.RunRefused})
		case "test.sleep":
			<-ctx.Done()
			return ctx.Err()
		}
		return r.Send(ctx, protocol.RunResult{Error: "it is broken", Retcode: 1})
	})
	call := func(name string) function.RunnerCall {
		return function.RunnerCall{Command: salt.Command{Function: salt.Function(name)}}
	}
	got, err := c.Runner(t.Context(), call("manage.up"))
	if want := (function.RunnerAnswer{JID: jid, Tag: "salt/run/" + jid, Return: []any{"web1"}, Out: "nested"}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("manage.up: %+v, %v; want %+v", got, err, want)
	}
	if _, err := c.Runner(t.Context(), call("manage.down")); !errors.Is(err, function.ErrRefused) || err.Error() != "you may not" {
		t.Errorf("a refused one: %v", err)
	}
	if _, err := c.Runner(t.Context(), call("manage.versions")); err == nil || errors.Is(err, function.ErrRefused) || err.Error() != "it is broken" {
		t.Errorf("a broken one: %v", err)
	}
	slow := call("test.sleep")
	slow.Timeout = time.Millisecond
	if _, err := c.Runner(t.Context(), slow); err == nil || !strings.Contains(err.Error(), "within 1ms") {
		t.Errorf("a slow one: %v", err)
	}
	slow.Async, slow.Timeout = true, 0
	if got, err := c.Runner(t.Context(), slow); err != nil || got.JID != jid || got.Return != nil {
		t.Errorf("started without waiting: %+v, %v", got, err)
	}
}

// TestTheMine is changed as it was asked for, and read item by item.
func TestTheMine(t *testing.T) {
	items := []mine.Item{{ID: "a", Name: "f", Data: value.Value{V: "x"}}, {ID: "b", Name: "f", Data: value.Value{V: int64(2)}}}
	reader := client(t, protocol.OpMineGet, func(ctx context.Context, r *rpc.Request) error {
		var q mine.Query
		if err := r.Decode(&q); err != nil {
			return err
		}
		if q.Target == "" {
			return rpc.Errorf(rpc.Denied, "no")
		}
		for _, i := range items {
			if err := r.Send(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
	if got, err := reader.ReadMine(t.Context(), mine.Query{Target: "*", Names: []string{"f"}}); err != nil || !reflect.DeepEqual(got, items) {
		t.Errorf("read %+v, %v; want %+v", got, err, items)
	}
	if got, err := reader.ReadMine(t.Context(), mine.Query{}); !errors.Is(err, function.ErrRefused) || got != nil {
		t.Errorf("refused: %+v, %v", got, err)
	}
	changes := make(chan mine.Change, 1)
	writer := client(t, protocol.OpMine, func(_ context.Context, r *rpc.Request) error {
		var change mine.Change
		err := r.Decode(&change)
		changes <- change
		return err
	})
	want := mine.Change{Clear: true, Put: map[string]mine.Entry{"f": {Data: value.Value{V: "x"}, Allow: "web*"}}}
	if err := writer.ChangeMine(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if got := deadline.Receive(t, changes, "changes"); !reflect.DeepEqual(got, want) {
		t.Errorf("the master was asked for %+v, want %+v", got, want)
	}
}
