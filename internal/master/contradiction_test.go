package master_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// everybody has rules for each kind of principal, on each kind of thing.
const everybody = `
auto_accept: true
sudo_acl: true
publisher_acl:
  fred: &fred
    - 'web*': [test.*, schedule.*, publish.*, {cmd.run: {args: [uptime]}}, {mine.update: {runs: any}}]
    - db1: [{test.arg: {args: [x], kwargs: {a: xyz}}}, test.cross_test]
    - '@manage'
    - '@runner': [{salt.cmd: {args: [test.ping]}}, salt.execute, event.send, 'pillar.*']
    - '@wheel': ['key.list.*', {key.accept: {args: [web9]}}]
publisher_acl_blacklist:
  modules: [test.echo]
external_auth:
  file:
    ^filename: users
    fred: *fred
  client:
    dash: *fred
peer:
  web1:
    - 'web*': [test.*, schedule.*, {cmd.run: {args: [uptime]}}, {mine.update: {runs: any}}]
    - db1: [{test.arg: {args: [x], kwargs: {a: xyz}}}, test.cross_test, publish.*]
peer_run:
  web1: [manage.*, {salt.cmd: {args: [test.ping]}}, salt.execute, event.send, 'pillar.*']
event_acl:
  fred: {fire: [app/*, 'salt/*'], listen: [app/*]}
  'file:fred': {fire: [app/*], listen: ['a*']}
  'client:dash': {fire: [app/*], listen: ['a*']}
  '*': {fire: [all/*]}
`

// asking is one principal: how it asks, and what acl.explain calls it.
type asking struct {
	name    string
	explain map[string]any
	ask     func(op string, body any) (rpc.Code, string)
	wheel   bool // there are wheel functions for it
	listen  bool
}

// overConn asks on a connection.
func overConn(t *testing.T, c *rpc.Conn) func(string, any) (rpc.Code, string) {
	return func(op string, body any) (rpc.Code, string) {
		s, err := c.Call(op, body)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Next(t.Context()); rpc.CodeOf(err) != "" {
			return rpc.CodeOf(err), err.Error()
		}
		return "", ""
	}
}

// users writes the file of external_auth, with one password for all.
func (w *world) users(names ...string) {
	w.t.Helper()
	text := ""
	for _, name := range names {
		text += name + ":$2b$05$g3QWkLfBQeik8mgn9tYqreTWW5S3XBr9Hq/Ue66IY.p.aflqq37RO\n"
	}
	w.write("users", text)
	if err := os.Chmod(filepath.Join(w.dir, "users"), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// principals are one of each kind, all with much the same rules.
func principals(t *testing.T, w *world) []asking {
	w.users("fred")
	local := w.bySudo("fred")
	login := w.user()
	if err := login.Ask(t.Context(), protocol.OpLogin, protocol.Login{Backend: "file", User: "fred", Password: "gruener-hering"}, nil); err != nil {
		t.Fatal(err)
	}
	nc := w.mustDial(w.client("dash", time.Time{}))
	client := func(op string, body any) (rpc.Code, string) {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		m, code := request(t, nc, "salt.client.dash.req."+op, string(b))
		return rpc.Code(code), string(m.Data)
	}
	web1 := w.minion("web1", pong)
	return []asking{
		{"a user of this machine", map[string]any{"user": "fred"}, overConn(t, local), true, true},
		{"a user of a directory", map[string]any{"user": "fred", "eauth": "file"}, overConn(t, login), true, true},
		{"a program", map[string]any{"user": "dash", "eauth": "client"}, client, true, true},
		{"a minion", map[string]any{"minion": "web1"}, overConn(t, web1.Conn), false, false},
	}
}

// acl.explain says what happens, of everybody and of everything: jobs, runners, wheel
// functions and events, whatever is inside of what.
func TestExplainNeverContradictsAnybody(t *testing.T) {
	w := start(t, everybody)
	w.minion("db1", pong)
	all := principals(t, w)
	root := w.user()
	rnd := rand.New(rand.NewPCG(5, 6))
	allowed, asked := map[string]int{}, map[string]int{}
	for i := range 240 {
		who := all[i%len(all)]
		kind, op, body, about := randomQuestion(rnd, who)
		code, text := who.ask(op, body)
		happens := code != rpc.Denied
		for k, v := range who.explain {
			about[k] = v
		}
		res, err := run(t, root, false, "acl.explain", nil, about)
		if err != nil {
			t.Fatalf("explain %v: %v", about, err)
		}
		if said := res.(map[string]any); said["allowed"] != happens {
			t.Errorf("%s, %s: acl.explain says %v of %v, and it is %v: %s %s", who.name, kind, said, about, happens, code, text)
		}
		asked[who.name+", "+kind]++
		if happens {
			allowed[who.name+", "+kind]++
		}
	}
	for what, n := range asked {
		if allowed[what] == 0 || allowed[what] == n {
			t.Errorf("%s: %d of %d were allowed: the test says little", what, allowed[what], n)
		}
	}
}

// randomQuestion is a request, and what acl.explain is asked about it.
func randomQuestion(rnd *rand.Rand, who asking) (kind, op string, body any, about map[string]any) {
	switch n := rnd.IntN(8); {
	case n < 3:
		c, tgt := randomCommand(rnd, 2), []string{"web1", "web*", "db1", "*"}[rnd.IntN(4)]
		q := publication(tgt)
		q.Commands, q.Preview = []job.Command{c}, true
		return "publish", protocol.OpPublish, q, aboutCommand("publish", c, tgt)
	case n < 5 || n == 5 && !who.wheel:
		c := randomRunner(rnd)
		return "runner", protocol.OpRun, protocol.Run{Command: c, Preview: true}, aboutCommand("runner", c, "*")
	case n == 5:
		list := []job.Command{{Function: "key.list_all"}, {Function: "key.list", Args: []any{"acc"}}, {Function: "key.accept", Args: []any{"web9"}}, {Function: "key.accept", Args: []any{"web8"}}, {Function: "key.delete", Args: []any{"web9"}}, {Function: "config.values"}}
		c := list[rnd.IntN(len(list))]
		return "wheel", protocol.OpRun, protocol.Run{Command: c, Preview: true, Wheel: true}, aboutCommand("wheel", c, "*")
	}
	tags := []string{"app/x/1", "app/y", "all/z", "other", "salt/job/x", "salt/minion/web1/start", "salt/minion/db1/start", "salt/auth"}
	tag := tags[rnd.IntN(len(tags))]
	if who.listen && rnd.IntN(2) == 0 {
		return "listen", protocol.OpListen, protocol.Listen{Tags: []string{tag}, UntilEnd: true}, map[string]any{"tag": tag, "kind": "listen"}
	}
	return "fire", protocol.OpFire, protocol.Fire{ID: bus.NewNonce(), Events: []event.Item{{Tag: tag, Data: json.RawMessage("{}")}}}, map[string]any{"tag": tag}
}

func aboutCommand(kind string, c job.Command, tgt string) map[string]any {
	return map[string]any{"kind": kind, "fun": string(c.Function), "arg": c.Args, "kwarg": c.Kwargs, "tgt": tgt}
}

// randomRunner is a runner, with functions inside some.
func randomRunner(rnd *rand.Rand) job.Command {
	plain := []job.Command{
		{Function: "manage.up"}, {Function: "manage.down", Kwargs: map[string]any{"removekeys": true}}, {Function: "jobs.list_jobs"}, {Function: "acl.mine"},
		{Function: "pillar.show_pillar", Args: []any{"web1"}}, {Function: "event.send", Args: []any{"app/x"}}, {Function: "cache.grains"},
		{Function: "salt.cmd", Args: []any{"test.ping"}}, {Function: "salt.cmd", Args: []any{"cmd.run", "id"}}, {Function: "audit.tail"},
	}
	if n := rnd.IntN(len(plain) + 4); n < len(plain) {
		return plain[n]
	}
	inner := randomCommand(rnd, 1)
	tgt := []string{"web1", "web*", "db1", "*"}[rnd.IntN(4)]
	return job.Command{Function: "salt.execute", Args: []any{tgt, string(inner.Function)}, Kwargs: map[string]any{"arg": inner.Args}}
}
