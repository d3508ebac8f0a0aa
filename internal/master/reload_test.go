package master_test

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// reload puts other settings in force.
func (w *world) reload(root *rpc.Conn, settings string) {
	w.t.Helper()
	w.write("master", "root_dir: "+w.dir+"\ninterface: 127.0.0.1\n"+settings)
	if _, err := run(w.t, root, false, "config.reload", nil, nil); err != nil {
		w.t.Fatal(err)
	}
}

// bySudo is somebody who has come by sudo.
func (w *world) bySudo(name string) *rpc.Conn {
	w.t.Helper()
	c, err := rpc.DialBySudo(filepath.Join(w.cfg.SockDir, master.SocketName), name)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

// begin starts a job. What it returns waits for its end.
func begin(t *testing.T, c *rpc.Conn, q protocol.Publish) (job.Start, func() map[salt.MinionID]job.State) {
	t.Helper()
	s, err := c.Call(protocol.OpPublish, q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	var start job.Start
	if err := s.Decode(ctx, &start); err != nil {
		t.Fatal(err)
	}
	return start, func() map[salt.MinionID]job.State {
		got := map[salt.MinionID]job.State{}
		for {
			var u job.Update
			if s.Decode(ctx, &u) != nil {
				return got
			}
			if u.ID != "" { // else it is about the batch
				got[u.ID] = u.State
			}
		}
	}
}

const sudoACL = "auto_accept: true\nsudo_acl: true\n"

// A rule that is taken away takes nothing from what was allowed before: the later parts of a
// batch run, unless somebody withdraws them. All that is asked from then on is refused.
func TestRulesGoWhileJobsAreUnderWay(t *testing.T) {
	w := start(t, sudoACL+"publisher_acl: {fred: [test.*]}\n")
	let := make(chan struct{})
	var mu sync.Mutex
	heard := map[salt.Function]int{}
	answer := func(e *job.Envelope) *job.Report {
		mu.Lock()
		heard[e.Commands[0].Function]++
		mu.Unlock()
		<-let
		return pong(e)
	}
	w.minion("web1", answer)
	w.minion("web2", answer)
	root, fred := w.user(), w.bySudo("fred")
	inTurn := func(functions ...string) protocol.Publish {
		q := publication("*", functions...)
		q.Timeout, q.Batch = 60, job.BatchOptions{Size: "1"}
		return q
	}
	_, goesOn := begin(t, fred, inTurn("test.ping", "test.arg"))
	withdrawn, ends := begin(t, fred, inTurn("test.version"))

	w.reload(root, sudoACL+"publisher_acl: {fred: [test.arg]}\n")
	for _, q := range []protocol.Publish{publication("web1", "test.ping"), publication("*", "test.arg", "test.ping"), inTurn("test.version")} {
		if _, _, err := publish(t, fred, q); rpc.CodeOf(err) != rpc.Denied {
			t.Errorf("%v after the rule is gone: %v, want a refusal", q.Commands, err)
		}
	}
	if _, err := run(t, root, false, "jobs.cancel", []any{string(withdrawn.JID)}, nil); err != nil {
		t.Fatal(err)
	}
	close(let)
	if got := goesOn(); got["web1"] != job.Done || got["web2"] != job.Done {
		t.Errorf("the batch that was allowed: %v, want it done on both", got)
	}
	if got := ends(); slices.Compare(slices.Sorted(maps.Values(got)), []job.State{job.Cancelled, job.Done}) != 0 {
		t.Errorf("the batch that was withdrawn: %v, want one done and one cancelled", got)
	}
	mu.Lock()
	defer mu.Unlock()
	if heard["test.ping"] != 2 || heard["test.version"] != 1 {
		t.Errorf("the minions heard %v", heard)
	}
}

// Who came by sudo and is held to rules by sudo_acl is not an operator, whatever asks for one:
// tokens of others, the address of a login, the minions that acl.explain tells, the settings
// of returners, jobs of others.
func TestSudoACLMakesNoOperators(t *testing.T) {
	w := start(t, sudoACL+"external_auth: {file: {^filename: users, steve: [test.ping]}}\n"+
		"publisher_acl: {fred: [{'web*': [test.ping]}, '@auth', '@acl']}\n")
	w.users("steve")
	w.minion("web1", pong)
	w.minion("db1", pong)
	root, fred := w.user(), w.bySudo("fred")
	started, ended := begin(t, root, publication("web1", "test.ping"))
	ended()
	settings := publication("web1", "test.ping")
	settings.ReturnConfig = "other"
	for _, c := range []struct {
		name, op string
		body     any
	}{
		{"a token of another", protocol.OpRun, runs("auth.mk_token", map[string]any{"username": "steve", "eauth": "file"})},
		{"the address of a login", protocol.OpLogin, protocol.Login{Backend: "file", User: "steve", Password: "gruener-hering", Address: "192.0.2.1"}},
		{"settings of returners", protocol.OpPublish, settings},
		{"a job of another", protocol.OpFollow, protocol.Follow{JID: started.JID}},
	} {
		for who, conn := range map[string]*rpc.Conn{"fred": fred, "root": w.user()} {
			if code, text := answer(t, conn, c.op, c.body); (code == rpc.Denied) != (who == "fred") {
				t.Errorf("%s, as %s: %q %s", c.name, who, code, text)
			}
		}
	}
	if err := fred.Ask(t.Context(), protocol.OpKeyAction, protocol.KeyAction{Act: "accept"}, nil); err != nil {
		t.Errorf("to say which keys one's files change: %v", err)
	}
	for _, c := range []struct {
		about string
		conn  *rpc.Conn
		tgt   string
		want  int // minions that are told
	}{
		{"root", fred, "*", 0}, {"root", root, "*", 2}, {"eve", fred, "*", 0}, {"fred", fred, "web*", 0}, {"fred", root, "web*", 1},
		{"", fred, "web*", 1}, {"sudo_fred", fred, "web*", 1}, {"sudo_fred", root, "web*", 1}, {"", fred, "*", 0},
	} {
		about := map[string]any{"fun": "test.ping", "tgt": c.tgt}
		if c.about != "" {
			about["user"] = c.about
		}
		res, err := run(t, c.conn, false, "acl.explain", nil, about)
		if err != nil {
			t.Fatal(err)
		}
		if reported := res.(map[string]any); len(reported["minions"].([]any)) != c.want || reported["outside"] != nil && c.conn == fred {
			t.Errorf("acl.explain about %q on %s tells %v, want %d minions", c.about, c.tgt, reported, c.want)
		}
	}
	// The name that jobs and the audit log have is one to ask about.
	res, err := run(t, root, false, "acl.explain", nil, map[string]any{"user": "sudo_fred", "fun": "cmd.run", "tgt": "web1"})
	if err != nil || res.(map[string]any)["allowed"] != false {
		t.Errorf("acl.explain about sudo_fred: %v, %v", res, err)
	}
	w.reload(root, strings.Replace(sudoACL, "sudo_acl: true", "sudo_acl: false", 1))
	res, err = run(t, root, false, "acl.explain", nil, map[string]any{"user": "sudo_fred", "fun": "cmd.run", "tgt": "web1"})
	if err != nil || res.(map[string]any)["allowed"] != true {
		t.Errorf("without sudo_acl acl.explain about sudo_fred: %v, %v", res, err)
	}
	if code, text := answer(t, fred, protocol.OpPublish, publication("db1", "test.ping")); code != "" {
		t.Errorf("without sudo_acl, on the same connection: %q %s", code, text)
	}
}

func runs(fun salt.Function, kwargs map[string]any) protocol.Run {
	return protocol.Run{Command: job.Command{Function: fun, Kwargs: kwargs}}
}

// answer is the refusal of a request, "" for none: also one that a runner meets.
func answer(t *testing.T, c *rpc.Conn, op string, body any) (rpc.Code, string) {
	t.Helper()
	s, err := c.Call(op, body)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if op != protocol.OpRun {
		_, err = s.Next(t.Context())
		if code := rpc.CodeOf(err); code != "" {
			return code, err.Error()
		}
		return "", ""
	}
	var begun protocol.RunStart
	var res protocol.RunResult
	if err = s.Decode(t.Context(), &begun); err == nil {
		err = s.Decode(t.Context(), &res)
	}
	if res.Error != "" && res.Retcode == protocol.RunRefused {
		return rpc.Denied, res.Error
	}
	if err != nil {
		return rpc.CodeOf(err), err.Error()
	}
	return "", res.Error
}
