package master_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// narrow are rules of one kind for each kind of principal: some functions on web*, one of
// them with one argument, and some runners.
const narrow = `
auto_accept: true
sudo_acl: true
nodegroups: {hidden: 'I@pw:x*', dbs: 'db*'}
publisher_acl:
  fred: &fred
    - 'web*': &few [test.*, mine.*, schedule.*, event.fire, {cmd.run: {args: ['echo .*']}}]
    - '@runner': &runners ['manage.*', 'salt.*', 'survey.*', event.send]
publisher_acl_blacklist:
  modules: [test.outputter]
external_auth:
  file: {^filename: users, fred: *fred}
  client: {dash: *fred}
peer:
  web1: ['web*': *few]
peer_run:
  web1: *runners
event_acl:
  fred: {fire: [app/*]}
  'file:fred': {fire: [app/*]}
  'client:dash': {fire: [app/*]}
`

// way is a way around the rules: the message, as JSON below what the rows share.
type way struct{ name, op, body string }

const onWeb1 = `"tgt":"web1","tgt_type":"glob","timeout":1,`

// waysAround are requests that nobody with the narrow rules may be served.
func waysAround() []way {
	list := []way{
		{"two functions, one refused", "publish", onWeb1 + `"compound":true,"commands":[{"fun":"test.ping"},{"fun":"cmd.run","arg":["id"]}]`},
		{"the refused one first", "publish", onWeb1 + `"compound":true,"commands":[{"fun":"cmd.run","arg":["id"]},{"fun":"test.ping"}]`},
		{"without saying that they are several", "publish", onWeb1 + `"commands":[{"fun":"test.ping"},{"fun":"cmd.run","arg":["id"]}]`},
		{"asynchronous", "publish", onWeb1 + `"async":true,"commands":[{"fun":"cmd.run","arg":["id"]}]`},
		{"a preview of others", "publish", `"tgt":"*","tgt_type":"glob","preview":true,"timeout":1,"commands":[]`},
		{"a key of JSON twice", "publish", onWeb1 + `"commands":[{"fun":"test.ping"}],"commands":[{"fun":"cmd.run","arg":["id"]}]`},
		{"a key in capitals", "publish", onWeb1 + `"commands":[{"fun":"test.ping"}],"COMMANDS":[{"fun":"cmd.run","arg":["id"]}]`},
		{"a target twice", "publish", `"tgt":"web1","tgt":"db1","tgt_type":"glob","timeout":1,"commands":[{"fun":"test.ping"}]`},
		{"the blacklist, inside", "run", `"command":{"fun":"salt.cmd","arg":["test.outputter","x"]}`},
		{"the master as a minion", "run", `"command":{"fun":"salt.cmd","arg":["test.ping"]}`},
		{"and asynchronously", "run", `"async":true,"command":{"fun":"salt.cmd","arg":["test.ping"]}`},
		{"a runner as a wheel function", "run", `"wheel":true,"command":{"fun":"key.list_all"}`},
		{"others through a runner", "run", `"command":{"fun":"salt.execute","arg":["db1","test.ping"]}`},
		{"more through a runner", "run", `"command":{"fun":"salt.execute","arg":["web1","cmd.run"],"kwarg":{"arg":["id"]}}`},
		{"by keywords", "run", `"command":{"fun":"salt.execute","kwarg":{"tgt":"web1","fun":"cmd.run","arg":["id"]}}`},
		{"several in a text", "run", `"command":{"fun":"salt.execute","arg":["web1","test.ping,cmd.run"]}`},
		{"several in a list", "run", `"command":{"fun":"salt.execute","arg":["web1",["test.ping","cmd.run"]]}`},
		{"one inside another through a runner", "run", `"command":{"fun":"salt.execute","arg":["web1","test.cross_test"],"kwarg":{"arg":["cmd.run","id"]}}`},
		{"a survey", "run", `"command":{"fun":"survey.hash","arg":["web1","cmd.run","id"]}`},
		{"keys: yes", "run", `"command":{"fun":"manage.down","kwarg":{"removekeys":"yes"}}`},
		{"keys: 1", "run", `"command":{"fun":"manage.down","kwarg":{"removekeys":1}}`},
		{"keys, by place", "run", `"command":{"fun":"manage.down","arg":[true]}`},
		{"keys that are accepted", "run", `"command":{"fun":"manage.safe_accept","arg":["web9","aa:bb"]}`},
		{"a runner in capitals", "run", `"command":{"fun":"Manage.up"}`},
		{"the events of all", "run", `"command":{"fun":"state.event","kwarg":{"count":1}}`},
		{"the audit log", "run", `"command":{"fun":"audit.tail"}`},
		{"the configuration", "run", `"command":{"fun":"config.values"}`},
		{"a tag of the master", "fire", `"id":"aaaaaaaaaaaaaaaaaaaaaa","events":[{"tag":"salt/job/20260101000000000000/ret/web1","data":{}}]`},
		{"a tag of another among own ones", "fire", `"id":"aaaaaaaaaaaaaaaaaaaaab","events":[{"tag":"app/x","data":{}},{"tag":"salt/minion/db1/start","data":{}}]`},
	}
	for _, tgt := range []string{"WEB1", "we[a-b]1", "*", "db1", "?eb1", "[!d]*"} {
		list = append(list, target(tgt, "glob"))
	}
	for _, tgt := range []string{"web1 or G@id:db1", "not web1", "web1 or ( db1 and not db2 )", "web1 or N@dbs", "web1 and N@hidden", "web1 and I@pw:x*", "L@web1,db1", "E@web1|db1", "( web1 ) or db1", "web1 or S@127.0.0.1"} {
		list = append(list, target(tgt, "compound"))
	}
	list = append(list, target("web1,db1", "list"), target("web1|db1", "pcre"), target("web1$|.*", "pcre"), target("(?i)WEB1|db1", "pcre"), target("id:web1", "grain"), target("pw:x", "pillar_exact"), target("dbs", "nodegroup"))
	for _, args := range []string{`["id"]`, `[["echo fine"]]`, `[{"echo fine":1}]`, `["echo fine\nid"]`, `["\necho fine"]`, `["echo fine","x"]`, `[{"__kwarg__":true,"cmd":"id"}]`, `["echo fine",{"__kwarg__":true,"runas":"root"}]`, `[null]`, `[]`} {
		list = append(list, way{"arguments " + args, "publish", onWeb1 + `"commands":[{"fun":"cmd.run","arg":` + args + `}]`})
	}
	for _, kwargs := range []string{`{"cmd":"id"}`, `{"runas":"root"}`, `{"__pub_user":"root"}`, `{"":"x"}`} {
		list = append(list, way{"keywords " + kwargs, "publish", onWeb1 + `"commands":[{"fun":"cmd.run","arg":["echo fine"],"kwarg":` + kwargs + `}]`})
	}
	for _, name := range []string{"Cmd.run", "cmd.Run", "cmd.run ", " test.ping", "test.ping\\n", "test․ping", "ｔest.ping", "test.ping.x", "test/../cmd.run", "test", ".", "test.", "test.*", "*", "", "test.ping\\u0000"} {
		list = append(list, way{"the function " + name, "publish", onWeb1 + `"commands":[{"fun":"` + name + `"}]`})
		list = append(list, way{"inside another, " + name, "publish", onWeb1 + `"commands":[{"fun":"test.cross_test","arg":["` + strings.Replace(name, "test", "cmd", 1) + `"]}]`})
	}
	for name, c := range map[string]string{
		"by keyword":             `{"fun":"test.cross_test","kwarg":{"func":"cmd.run","args":["id"]}}`,
		"as a list":              `{"fun":"test.cross_test","arg":[["cmd.run"],["id"]]}`,
		"deep":                   `{"fun":"test.try","arg":["test.try","test.cross_test","test.try",["cmd.run","id"]]}`,
		"in the mine":            `{"fun":"mine.update","kwarg":{"mine_functions":{"test.ping":[],"cmd.run":["id"]}}}`,
		"in the mine, renamed":   `{"fun":"mine.update","kwarg":{"mine_functions":{"x":[{"mine_function":"test.ping"},{"mine_function":"cmd.run"},"id"]}}}`,
		"in the mine, by place":  `{"fun":"mine.update","arg":[false,{"x":{"mine_function":"cmd.run","cmd":"id"}}]}`,
		"in the schedule":        `{"fun":"schedule.add","arg":["j"],"kwarg":{"function":"cmd.run","args":["echo x"],"job_args":["id"],"seconds":9}}`,
		"in the schedule, twice": `{"fun":"schedule.add","arg":["j"],"kwarg":{"function":"schedule.add","job_args":["k"],"job_kwargs":{"function":"cmd.run","job_args":["id"],"seconds":9},"seconds":9}}`,
		"as an event":            `{"fun":"schedule.add","arg":["j"],"kwarg":{"function":"test.ping","tag":"deploy/go","returner":"master_bus","seconds":9}}`,
		"what is configured":     `{"fun":"schedule.reload"}`,
		"what is passed on":      `{"fun":"event.fire","arg":[{"tag":"deploy/go"},"fire_master"]}`,
		"one of many passed on":  `{"fun":"event.fire","kwarg":{"tag":"fire_masters","data":{"events":[{"tag":"a"},{"tag":"b"}],"pretag":"x"}}}`,
		"what is stored":         `{"fun":"schedule.enable"}`,
		"what is stored by name": `{"fun":"schedule.run_job","arg":["j"],"kwarg":{"force":true}}`,
	} {
		list = append(list, way{"inside another, " + name, "publish", onWeb1 + `"commands":[` + c + `]`})
	}
	return append(list, way{"as an event", "publish", onWeb1 + `"ret":"master_bus","ret_tag":"salt/job/1/new","commands":[{"fun":"test.ping"}]`},
		way{"settings of returners", "publish", onWeb1 + `"ret":"file","ret_kwargs":{"path":"/etc/cron.d/x"},"commands":[{"fun":"test.ping"}]`})
}

func target(tgt, kind string) way {
	b, _ := json.Marshal(tgt)
	return way{"the target " + kind + " " + tgt, "publish", fmt.Sprintf(`"tgt":%s,"tgt_type":%q,"timeout":1,"commands":[{"fun":"test.ping"}]`, b, kind)}
}

// Each attempt to bypass a rule is refused or is not a valid request, and no minion gets it.
func TestRulesCannotBeBypassed(t *testing.T) {
	w := start(t, narrow)
	heard := make(chan any, 1000)
	note := func(e *job.Envelope) *job.Report { heard <- e.Fun(); return pong(e) }
	w.minion("db1", note)
	w.minion("web2", note)
	ways := waysAround()
	for _, who := range principals(t, w) {
		if code, text := who.ask(protocol.OpPublish, raw(onWeb1+`"commands":[{"fun":"cmd.run","arg":["echo fine"]}]`)); code == rpc.Denied {
			t.Fatalf("%s may not what the rule allows: %s", who.name, text)
		}
		for _, way := range ways {
			if code, text := who.ask(way.op, raw(way.body)); code != rpc.Denied && code != rpc.Usage {
				t.Errorf("%s: %s: %q %s", who.name, way.name, code, text)
			}
		}
	}
	select {
	case fun := <-heard:
		t.Errorf("a minion got %v", fun)
	default:
	}
	t.Logf("%d ways", len(ways))
}

func raw(members string) json.RawMessage { return json.RawMessage("{" + members + "}") }
