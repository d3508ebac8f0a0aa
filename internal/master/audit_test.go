package master_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
)

// run runs a runner and returns what it returned.
func run(t *testing.T, c *rpc.Conn, wheel bool, fun string, args []any, kwargs map[string]any) (any, error) {
	t.Helper()
	s, err := c.Call(protocol.OpRun, protocol.Run{Wheel: wheel, Command: job.Command{Function: salt.Function(fun), Args: args, Kwargs: kwargs}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var begun protocol.RunStart
	if err := s.Decode(t.Context(), &begun); err != nil {
		return nil, err
	}
	var res protocol.RunResult
	if err := s.Decode(t.Context(), &res); err != nil {
		return nil, err
	}
	if res.Error != "" {
		t.Fatalf("%s: %s", fun, res.Error)
	}
	return res.Return.V, nil
}

// entries are what audit.search finds.
func entries(t *testing.T, c *rpc.Conn, kwargs map[string]any) []map[string]any {
	t.Helper()
	v, err := run(t, c, false, "audit.search", nil, kwargs)
	if err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	for _, one := range v.([]any) {
		list = append(list, one.(map[string]any))
	}
	return list
}

// only expects one entry with these values.
func only(t *testing.T, c *rpc.Conn, query, want map[string]any) map[string]any {
	t.Helper()
	list := entries(t, c, query)
	if len(list) != 1 {
		t.Fatalf("%v finds %d entries, want one: %v", query, len(list), list)
	}
	for name, v := range want {
		if list[0][name] != v {
			t.Errorf("%v: %s is %v, want %v", query, name, list[0][name], v)
		}
	}
	return list[0]
}

func verified(t *testing.T, c *rpc.Conn) map[string]any {
	t.Helper()
	v, err := run(t, c, false, "audit.verify", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := v.(map[string]any)
	if r["ok"] != true {
		t.Errorf("audit.verify: %v", r)
	}
	return r
}

// Every decision is in the audit log: whose, about what, and why.
func TestAuditLog(t *testing.T) {
	w := start(t, peers+"audit_file: audit.jsonl\nevent_acl: {}\n")
	web1 := w.minion("web1", pong)
	w.minion("db1", pong)
	root := w.user()

	marked := publication("*", "test.ping")
	marked.Commands[0].Args = []any{"a-marker"}
	started, _, err := publish(t, root, marked)
	if err != nil {
		t.Fatal(err)
	}
	e := only(t, root, map[string]any{"jid": string(started.JID)}, map[string]any{
		"kind": "publish", "verdict": "allowed", "user": "root", "uid": int64(0), "fun": "test.ping", "tgt": "*", "tgt_type": "glob", "count": int64(2), "rule": "operator",
	})
	if list, ok := e["minions"].([]any); !ok || len(list) != 2 {
		t.Errorf("minions %v", e["minions"])
	}
	if source, _ := e["source"].(string); !strings.HasPrefix(source, "process ") {
		t.Errorf("source %q", source)
	}

	_, _, _ = publish(t, root, publication("nosuch", "test.ping"))
	if e := only(t, root, map[string]any{"tgt": "nosuch"}, map[string]any{"verdict": "allowed"}); e["jid"] != nil {
		t.Errorf("a job for nobody has the id %v", e["jid"])
	}

	words := publication("db1", "cmd.run")
	words.Commands[0].Args = []any{"uptime", "5", "cwd=/tmp"}
	if _, _, err := publish(t, web1.Conn, words); err != nil {
		t.Fatal(err)
	}
	only(t, root, map[string]any{"minion": "web1", "fun": "cmd.*"}, map[string]any{"verdict": "allowed", "user": "minion:web1", "tgt": "db1"})
	only(t, root, map[string]any{"arg": []any{"uptime", int64(5)}, "kwarg": map[string]any{"cwd": "/tmp"}}, map[string]any{"fun": "cmd.run"})
	_, _, _ = publish(t, web1.Conn, publication("db1", "state.apply"))
	e = only(t, root, map[string]any{"fun": "state.apply"}, map[string]any{"verdict": "refused", "minion": "web1"})
	if reason, _ := e["reason"].(string); !strings.Contains(reason, "no rule of peer") {
		t.Errorf("reason %q", reason)
	}
	_, _ = run(t, web1.Conn, false, "audit.tail", nil, nil)
	only(t, root, map[string]any{"fun": "audit.tail"}, map[string]any{"verdict": "refused", "minion": "web1", "kind": "runner"})

	if err := web1.Ask(t.Context(), protocol.OpFire, protocol.Fire{Events: []event.Item{{Tag: "salt/auth"}}}, nil); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("web1 fires salt/auth: %v", err)
	}
	only(t, root, map[string]any{"kind": "fire"}, map[string]any{"verdict": "refused", "minion": "web1"})

	if _, err := run(t, root, true, "key.delete", []any{"db1"}, nil); err != nil {
		t.Fatal(err)
	}
	w.until("the deletion is in the audit log", func() bool { return len(entries(t, root, map[string]any{"fun": "key.delete", "kind": "key"})) == 1 })
	only(t, root, map[string]any{"fun": "key.delete", "kind": "key"}, map[string]any{"user": "root", "verdict": "allowed"})
	only(t, root, map[string]any{"fun": "key.delete", "kind": "wheel"}, map[string]any{"user": "root", "verdict": "allowed"})
	if err := web1.Ask(t.Context(), protocol.OpRevoke, nil, &protocol.Revoked{}); err != nil {
		t.Fatal(err)
	}
	w.until("the revocation is in the audit log", func() bool { return len(entries(t, root, map[string]any{"fun": "key.delete", "minion": "web1"})) == 1 })
	if e := only(t, root, map[string]any{"fun": "key.delete", "minion": "web1"}, map[string]any{"minion": "web1"}); !strings.HasPrefix(e["source"].(string), "127.0.0.1:") {
		t.Errorf("a key that its minion has revoked: %v", e)
	}
	for _, e := range entries(t, root, map[string]any{"fun": "key.accept"}) {
		if e["rule"] != "auto_accept" || !strings.HasPrefix(e["source"].(string), "127.0.0.1:") {
			t.Errorf("an accepted key: %v", e)
		}
	}
	verified(t, root)

	w.stop()
	text, err := os.ReadFile(filepath.Join(w.dir, "audit.jsonl"))
	if err != nil || strings.Contains(string(text), "a-marker") || !strings.Contains(string(text), string(started.JID)) {
		t.Errorf("audit_file: %v\n%s", err, text)
	}
	w.run()
	again := w.user()
	verified(t, again)
	exported, err := run(t, again, false, "audit.export", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(exported.(string), string(text)) {
		t.Error("audit.export and audit_file differ")
	}
}

// The audit log that was cut is found out at the next start, too.
func TestAuditLogThatWasCut(t *testing.T) {
	w := start(t, "")
	verified(t, w.user())
	w.stop()
	if err := os.RemoveAll(filepath.Join(w.cfg.CacheDir, "journal")); err != nil {
		t.Fatal(err)
	}
	w.run()
	v, err := run(t, w.user(), false, "audit.verify", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := v.(map[string]any); r["ok"] != false || !strings.Contains(r["problems"].([]any)[0].(string), "missing") {
		t.Errorf("audit.verify: %v", r)
	}
}

// What a runner fires has its principal as the sender; a minion fires with it what it
// may fire without, and nobody fires in the audit log.
func TestEventOfARunner(t *testing.T) {
	w := start(t, "auto_accept: true\npeer_run: {web1: [event.send]}\n")
	web1 := w.minion("web1", pong)
	root := w.user()
	if _, err := run(t, root, false, "event.send", []any{"my/tag"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, web1.Conn, false, "event.send", []any{"web1/tag"}, nil); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		from *rpc.Conn
		tag  string
	}{
		"a minion, of the master": {web1.Conn, "salt/job/20261121113344286549/ret/db1"},
		"a minion, of another":    {web1.Conn, "salt/minion/db1/start"},
		"root, of the audit log":  {root, "salt/audit/allowed"},
	} {
		s, err := c.from.Call(protocol.OpRun, protocol.Run{Command: job.Command{Function: "event.send", Args: []any{c.tag}}})
		if err != nil {
			t.Fatal(err)
		}
		var begun protocol.RunStart
		var res protocol.RunResult
		if err := s.Decode(t.Context(), &begun); err != nil {
			t.Fatal(err)
		}
		if err := s.Decode(t.Context(), &res); err != nil || res.Error == "" {
			t.Errorf("%s: %+v, %v; want a refusal", name, res, err)
		}
		s.Close()
	}
	for tag, from := range map[string]string{"my/tag": "user:root", "web1/tag": "web1"} {
		if list := listenSince(t, root, tag); len(list) != 1 || list[0].From != from {
			t.Errorf("%s: %v, want one from %s", tag, list, from)
		}
	}
	if list := listenSince(t, root, "salt/minion/db1/start"); len(list) != 0 {
		t.Errorf("web1 has fired %v", list)
	}
}

// Key files that Salt left behind are named once, and open nothing.
func TestOldKeyFiles(t *testing.T) {
	w := start(t, "")
	w.stop()
	for _, name := range []string{".root_key", ".fred_key"} {
		if err := os.WriteFile(filepath.Join(w.cfg.CacheDir, name), []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.run()
	verified(t, w.user())
}

func (w *world) until(what string, f func() bool) {
	w.t.Helper()
	deadline.Until(w.t, f, what)
}

// Who is refused again and again fills neither the log nor the audit log: of each kind a
// hundred refusals in a minute are told, and the number of the others.
func TestRefusedAgainAndAgain(t *testing.T) {
	w := start(t, peers+"file_roots: {base: [srv]}\n")
	web1 := w.minion("web1", pong)
	const times, most = 250, 100
	asks := map[string]func() error{
		"refused": func() error { _, _, err := publish(t, web1.Conn, publication("db1", "state.apply")); return err },
		"event refused": func() error {
			return web1.Ask(t.Context(), protocol.OpFire, protocol.Fire{Events: []event.Item{{Tag: "salt/auth"}}}, nil)
		},
		"file refused": func() error {
			return web1.Ask(t.Context(), protocol.OpFile, protocol.GetFile{Environment: "base", Path: "../master"}, nil)
		},
		"return refused: the minion was not sent this job": func() error {
			return web1.Ask(t.Context(), "ret.20260101000000000000", job.Report{State: job.Done}, nil)
		},
	}
	for name, ask := range asks {
		for range times {
			if err := ask(); rpc.CodeOf(err) != rpc.Denied {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	root := w.user()
	for _, kind := range []string{"publish", "fire", "file", "return"} {
		if n := len(entries(t, root, map[string]any{"kind": kind, "minion": "web1", "verdict": "refused", "limit": int64(times)})); n != most {
			t.Errorf("%d refusals of the kind %s are in the audit log, want %d", n, kind, most)
		}
	}
	w.stop()
	for name := range asks {
		if n := strings.Count(w.said(), "level=WARN msg=\""+name+"\"") + strings.Count(w.said(), "level=WARN msg="+name+" "); n != most {
			t.Errorf("%q is in the log %d times, want %d", name, n, most)
		}
	}
	if n := strings.Count(w.said(), "repeated=150"); n != len(asks) {
		t.Errorf("the log tells the number of the others %d times, want %d:\n%s", n, len(asks), w.said()[max(0, len(w.said())-3000):])
	}
	w.run()
	if list := entries(t, w.user(), map[string]any{"kind": "file", "limit": int64(times)}); len(list) != most+1 {
		t.Errorf("the audit log has %d entries, want the last one with the number of the others", len(list))
	}
}
