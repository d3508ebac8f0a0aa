package master_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/deadline"
)

func publication(target string, functions ...string) protocol.Publish {
	q := protocol.Publish{Target: target, TargetType: "glob", Timeout: 60, Compound: len(functions) > 1}
	for _, f := range functions {
		q.Commands = append(q.Commands, job.Command{Function: salt.Function(f)})
	}
	return q
}

const peers = `
auto_accept: true
peer:
  web1: [test.*, {db1: [{cmd.run: {args: [uptime, '5'], kwargs: {cwd: /tmp}}}]}]
peer_run:
  web1: [test.arg]
publisher_acl_blacklist:
  modules: [cmd.exec_code]
`

// A minion publishes what peer allows, as itself, and nothing else.
func TestPeerPublish(t *testing.T) {
	w := start(t, peers)
	seen := make(chan *job.Envelope, 10)
	web1 := w.minion("web1", pong)
	db1 := w.minion("db1", func(e *job.Envelope) *job.Report { seen <- e; return pong(e) })
	_, got, err := publish(t, web1.Conn, publication("*", "test.ping"))
	if err != nil || len(got) != 2 || got["db1"].State != job.Done || got["web1"].State != job.Done {
		t.Fatalf("web1 publishes test.ping: %v, %v", got, err)
	}
	if e := deadline.Receive(t, seen, "seen"); e.From != "web1" || e.User != "minion:web1" {
		t.Errorf("the job came from %q as %q, want web1 as minion:web1", e.From, e.User)
	}
	words := publication("db1", "cmd.run")
	words.Commands[0].Args = []any{"uptime", "5", "cwd=/tmp"}
	if _, got, err := publish(t, web1.Conn, words); err != nil || got["db1"].State != job.Done {
		t.Errorf("web1 publishes cmd.run with the arguments of its rule: %v, %v", got, err)
	}
	if e := deadline.Receive(t, seen, "seen"); e.Commands[0].Args[1] != int64(5) || e.Commands[0].Kwargs["cwd"] != "/tmp" {
		t.Errorf("the words became %v %v", e.Commands[0].Args, e.Commands[0].Kwargs)
	}
	extra := publication("db1", "cmd.run")
	extra.Commands[0].Args = []any{"uptime", "5", "cwd=/tmp", "runas=root"}
	for name, c := range map[string]struct {
		from *rpc.Conn
		q    protocol.Publish
		code rpc.Code
	}{
		"an argument more":      {web1.Conn, extra, rpc.Denied},
		"another function":      {web1.Conn, publication("db1", "state.apply"), rpc.Denied},
		"a function like it":    {web1.Conn, publication("db1", "testing.x.y"), rpc.Usage},
		"hidden in a compound":  {web1.Conn, publication("db1", "test.ping", "state.apply"), rpc.Denied},
		"recursion":             {web1.Conn, publication("db1", "publish.publish"), rpc.Denied},
		"recursion, hidden":     {web1.Conn, publication("db1", "test.ping", "publish.runner"), rpc.Denied},
		"a minion without":      {db1.Conn, publication("db1", "test.ping"), rpc.Denied},
		"nobody is meant":       {web1.Conn, publication("nosuch*", "test.ping"), rpc.NoMatch},
		"nobody, not permitted": {web1.Conn, publication("nosuch*", "state.apply"), rpc.Denied},
		"a mistake":             {web1.Conn, protocol.Publish{Target: "db1", TargetType: "nodegroup", Commands: []job.Command{{Function: "test.ping"}}}, rpc.Usage},
		"a mistake of others":   {db1.Conn, protocol.Publish{Target: "db1", TargetType: "nodegroup", Commands: []job.Command{{Function: "test.ping"}}}, rpc.Denied},
	} {
		if _, got, err := publish(t, c.from, c.q); rpc.CodeOf(err) != c.code {
			t.Errorf("%s: %v, %v (%s), want %s", name, got, err, rpc.CodeOf(err), c.code)
		}
	}
	select {
	case e := <-seen:
		t.Errorf("db1 got a job that was refused: %s", e.Fun())
	default:
	}
}

func TestPeerRun(t *testing.T) {
	w := start(t, peers)
	web1, db1 := w.minion("web1", pong), w.minion("db1", pong)
	ask := func(c *rpc.Conn, fun string, args ...any) (protocol.RunResult, error) {
		s, err := c.Call(protocol.OpRun, protocol.Run{Command: job.Command{Function: salt.Function(fun), Args: args}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var begun protocol.RunStart
		if err := s.Decode(t.Context(), &begun); err != nil {
			return protocol.RunResult{}, err
		}
		var res protocol.RunResult
		return res, s.Decode(t.Context(), &res)
	}
	res, err := ask(web1.Conn, "test.arg", "a", "k=v")
	if err != nil || value.Repr(res.Return.V) != "{'args': ['a'], 'kwargs': {'k': 'v'}}" {
		t.Errorf("web1 runs test.arg: %s, %v", value.Repr(res.Return.V), err)
	}
	if _, err := ask(web1.Conn, "manage.up"); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("web1 runs manage.up: %v, want a refusal", err)
	}
	if _, err := ask(db1.Conn, "test.arg"); rpc.CodeOf(err) != rpc.Denied || !strings.Contains(err.Error(), "Authorization error occurred.") {
		t.Errorf("db1 runs test.arg: %v, want a refusal", err)
	}
}

// Runners that nobody waits for are bounded by who has started them: no request stays open
// for them. A refusal comes before they begin.
func TestRunnersNobodyWaitsFor(t *testing.T) {
	w := start(t, "auto_accept: true\npeer_run:\n  .*: [test.sleep, test.arg]\n")
	web1, db1 := w.minion("web1", pong), w.minion("db1", pong)
	begin := func(c *rpc.Conn, fun string, args ...any) (protocol.RunStart, error) {
		s, err := c.Call(protocol.OpRun, protocol.Run{Async: true, Command: job.Command{Function: salt.Function(fun), Args: args}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var begun protocol.RunStart
		if err := s.Decode(t.Context(), &begun); err != nil {
			return begun, err
		}
		if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("%s: more than the start is answered: %v", fun, err)
		}
		return begun, nil
	}
	if _, err := begin(web1.Conn, "manage.up"); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("manage.up: %v, want a refusal", err)
	}
	for i := range 100 {
		if begun, err := begin(web1.Conn, "test.sleep", 600); err != nil || begun.JID == "" || begun.Tag != "salt/run/"+string(begun.JID) {
			t.Fatalf("runner %d: %+v, %v", i, begun, err)
		}
	}
	if _, err := begin(web1.Conn, "test.arg"); rpc.CodeOf(err) != rpc.Busy {
		t.Errorf("one more: %v, want it refused for now", err)
	}
	if _, err := begin(db1.Conn, "test.arg"); err != nil {
		t.Errorf("another minion: %v", err)
	}
}

// The blacklist holds for root too.
func TestBlacklistOfRoot(t *testing.T) {
	w := start(t, peers)
	w.minion("web1", pong)
	if _, _, err := publish(t, w.user(), publication("web1", "test.ping", "cmd.exec_code")); rpc.CodeOf(err) != rpc.Denied || !strings.Contains(err.Error(), "blacklist") {
		t.Errorf("%v, want a refusal by the blacklist", err)
	}
}

// A master with a mistake in its rules does not start, and says where it is.
func TestBadRules(t *testing.T) {
	w := &world{t: t, dir: t.TempDir()}
	w.write("master", "root_dir: "+w.dir+"\ninterface: 127.0.0.1\npublisher_acl:\n  fred: test.ping\n")
	cfg, _, err := config.LoadMaster(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := master.New(context.Background(), master.Options{Config: cfg, Log: logger(t)})
	if m != nil || err == nil || !strings.Contains(err.Error(), "master:4:9: publisher_acl: fred: ") {
		t.Errorf("New = %v, %v; want the place of the mistake", m, err)
	}
}
