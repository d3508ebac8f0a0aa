package acl

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// hosts are the minions of these tests with their roles; the grains of blank are not known.
var hosts = fleet{
	{ID: "web1", Grains: map[string]any{"role": "web"}}, {ID: "web2", Grains: map[string]any{"role": "web"}},
	{ID: "db1", Grains: map[string]any{"role": "db"}}, {ID: "blank"},
}

// rules parses settings written as a configuration file has them.
func rules(t testing.TB, text string) *Rules {
	t.Helper()
	r, err := parse(t, text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func parse(t testing.TB, text string) (*Rules, error) {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	return Parse(configOf(&doc))
}

// configOf takes the settings from a document of any kind.
func configOf(doc *yaml.Node) Config {
	c := Config{Nodegroups: map[string]any{"webs": "web*"}}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return c
	}
	top := doc.Content[0].Content
	for i := 0; i+1 < len(top); i += 2 {
		s := Setting{Key: top[i].Value, Node: top[i+1], File: func(*yaml.Node) string { return "master" }}
		switch top[i].Value {
		case "publisher_acl":
			c.PublisherACL = s
		case "publisher_acl_blacklist":
			c.PublisherACLBlacklist = s
		case "external_auth":
			c.ExternalAuth = s
		case "peer":
			c.Peer = s
		case "peer_run":
			c.PeerRun = s
		case "mine_get":
			c.MineGet = s
		case "sudo_acl":
			c.SudoACL = true
		}
	}
	return c
}

// ask makes a question from text: the functions, separated by commas, and the minions.
func ask(s Subject, functions string, minions ...salt.MinionID) Question {
	q := Question{Subject: s, Minions: minions, Fleet: hosts, Functions: tables{}}
	for f := range strings.SplitSeq(functions, ",") {
		q.Commands = append(q.Commands, salt.Command{Function: salt.Function(f)})
	}
	return q
}

func local(name string, groups ...string) Subject {
	return Subject{Kind: Local, Name: name, Groups: groups}
}

const document = `
publisher_acl:
  thatch: [.*]
  fred:
    - test.ping
    - web*:
      - test.*
      - pkg.*
    - G@role:db:
      - mysql.status
    - 'not G@role:db':
      - disk.usage
    - N@webs: [status.uptime]
  admin|manager_.*: [saltutil.*]
  ops%: [service.restart]
  '*%': [sys.doc]
  jo?: [grains.items]
  user_.*:
    - web*:
      - 'my_mod.*':
          args: ['a.*', null]
          kwargs: {'kwa': 'kwa.*', 'kwb': 'kwb'}
      - cmd.run: [{args: [uptime]}, {args: [id, '.*']}]
publisher_acl_blacklist:
  users: [eve, 'mallory.*']
  modules: [cmd.exec_code.*]
external_auth:
  file:
    ^filename: /etc/users
    steve: [test.*, '@jobs', {'@runner': [manage.up]}, {'@wheel': [{key.list: {args: [accepted]}}]}]
    ops%: ['@wheel']
    '*': [test.ping]
peer:
  web\d+: [{db1: [mysql.status]}, test.ping]
peer_run:
  web1: [manage.up, {jobs.lookup_jid: {args: ['\d{20}']}}]
  db1: [.*]
  db\d: [{'@wheel': [key.list]}]
`

func TestDecide(t *testing.T) {
	r := rules(t, document)
	root := Subject{Kind: Local, Name: "root", Operator: true}
	steve := Subject{Kind: External, Backend: "file", Name: "steve"}
	args := func(q Question, kwargs map[string]any, args ...any) Question {
		q.Commands[0].Args, q.Commands[0].Kwargs = args, kwargs
		return q
	}
	on := func(scope Scope, q Question) Question { q.Scope = scope; return q }
	kw := map[string]any{"kwa": "kwax", "kwb": "kwb"}
	for name, c := range map[string]struct {
		q     Question
		allow bool
		say   string // must occur in the rule or in the reason
	}{
		"everything":                       {ask(local("thatch"), "cmd.run", "web1", "db1", "blank"), true, "publisher_acl: thatch: .*"},
		"no rule":                          {ask(local("nobody"), "test.ping", "web1"), false, "publisher_acl has no rule for nobody"},
		"any minion":                       {ask(local("fred"), "test.ping", "db1"), true, "publisher_acl: fred: test.ping"},
		"anchored":                         {ask(local("fred"), "test.ping_all", "db1"), false, "does not cover all"},
		"target":                           {ask(local("fred"), "pkg.install", "web1", "web2"), true, "fred: web*: pkg.*"},
		"partly covered":                   {ask(local("fred"), "pkg.install", "web1", "db1"), false, "fred: web*: pkg.*, does not fit: its target does not cover"},
		"two rules do not add up":          {ask(local("fred"), "test.echo", "web1", "db1"), false, ""},
		"grain":                            {ask(local("fred"), "mysql.status", "db1"), true, "G@role:db"},
		"grain not known":                  {ask(local("fred"), "mysql.status", "blank"), false, ""},
		"not a grain":                      {ask(local("fred"), "disk.usage", "web1"), true, ""},
		"not a grain that is not known":    {ask(local("fred"), "disk.usage", "blank"), false, "does not cover"},
		"nodegroup":                        {ask(local("fred"), "status.uptime", "web1"), true, "N@webs"},
		"nobody is meant":                  {ask(local("fred"), "pkg.install"), true, ""},
		"nobody is meant, not the rules":   {ask(local("fred"), "cmd.run"), false, ""},
		"compound":                         {ask(local("fred"), "test.ping,pkg.install", "web1"), true, "test.ping; publisher_acl: fred: web*"},
		"hidden in a compound":             {ask(local("fred"), "test.ping,cmd.run,test.ping", "web1"), false, "cmd.run"},
		"alternatives are anchored":        {ask(local("adminx"), "saltutil.sync", "web1"), false, ""},
		"alternative":                      {ask(local("manager_x"), "saltutil.sync_all", "web1"), true, "admin|manager_.*"},
		"name within a name":               {ask(local("xfred"), "test.ping", "web1"), false, ""},
		"glob":                             {ask(local("joe"), "grains.items", "web1"), true, "jo?"},
		"group":                            {ask(local("ann", "ops"), "service.restart", "web1"), true, "ops%"},
		"other group":                      {ask(local("ann", "op"), "service.restart", "web1"), false, ""},
		"user of a group's name":           {ask(local("ops%"), "service.restart", "web1"), false, ""},
		"any group":                        {ask(local("ann", "users"), "sys.doc", "web1"), true, "*%"},
		"no group":                         {ask(local("ann"), "sys.doc", "web1"), false, ""},
		"arguments":                        {args(ask(local("user_1"), "my_mod.x", "web1"), kw, "abc", int64(5)), true, "args: [a.*, null]"},
		"argument differs":                 {args(ask(local("user_1"), "my_mod.x", "web1"), kw, "xabc", "b"), false, "argument 1 does not match a.*"},
		"argument too many":                {args(ask(local("user_1"), "my_mod.x", "web1"), kw, "abc", "b", "c"), false, "2 positional arguments, not 3"},
		"argument missing":                 {args(ask(local("user_1"), "my_mod.x", "web1"), kw, "abc"), false, "2 positional arguments, not 1"},
		"keyword missing":                  {args(ask(local("user_1"), "my_mod.x", "web1"), map[string]any{"kwa": "kwa"}, "a", "b"), false, `asks for the keyword argument "kwb"`},
		"keyword differs":                  {args(ask(local("user_1"), "my_mod.x", "web1"), map[string]any{"kwa": "kwa", "kwb": "kwbx"}, "a", "b"), false, `"kwb" does not match`},
		"keyword not listed":               {args(ask(local("user_1"), "cmd.run", "web1"), map[string]any{"runas": "root"}, "uptime"), false, "positional"},
		"keyword not listed, one":          {args(ask(local("user_1"), "cmd.run", "web1"), map[string]any{"runas": "root"}, "id", "x"), false, `does not list the keyword argument "runas"`},
		"alternative conditions":           {args(ask(local("user_1"), "cmd.run", "web1"), nil, "id", "-u"), true, " or "},
		"arguments, but another minion":    {args(ask(local("user_1"), "my_mod.x", "db1"), kw, "abc", "b"), false, "does not cover"},
		"second line":                      {args(ask(local("user_1"), "cmd.run", "web1"), nil, "uptime\nid"), false, ""},
		"root":                             {ask(root, "cmd.run", "web1"), true, "operator"},
		"root on the blacklist of modules": {ask(root, "cmd.exec_code_all", "web1"), false, "publisher_acl_blacklist: modules: cmd.exec_code.*"},
		"in a compound":                    {ask(root, "test.ping,cmd.exec_code", "web1"), false, "blacklist"},
		"blacklisted user":                 {ask(local("mallory2"), "test.ping", "web1"), false, "publisher_acl_blacklist: users: mallory.*"},
		"blacklisted user, runner":         {on(Runner, ask(local("eve"), "manage.up")), false, "blacklist"},
		"runner of a local user":           {on(Runner, ask(local("thatch"), "manage.up")), false, "no rule"},
		"root's runner":                    {on(Runner, ask(root, "cmd.exec_code")), true, "operator"},
		"external":                         {ask(steve, "test.echo", "web1"), true, "external_auth: file: steve: test.*"},
		"star is for those without a name": {ask(Subject{Kind: External, Backend: "file", Name: "ann"}, "test.ping", "web1"), true, "file: *: test.ping"},
		"star is not for all":              {ask(Subject{Kind: External, Backend: "file", Name: "ann"}, "test.echo", "web1"), false, ""},
		"another backend":                  {ask(Subject{Kind: External, Backend: "pam", Name: "steve"}, "test.ping", "web1"), false, "external_auth: pam has no rule"},
		"an external is not a local user":  {ask(local("steve"), "test.ping", "web1"), false, ""},
		"module of runners":                {on(Runner, ask(steve, "jobs.list_jobs")), true, "@jobs"},
		"module of wheels":                 {on(Wheel, ask(steve, "jobs.list_jobs")), true, "@jobs"},
		"one runner":                       {on(Runner, ask(steve, "manage.up")), true, "@runner: manage.up"},
		"another runner":                   {on(Runner, ask(steve, "manage.down")), false, ""},
		"a runner is not a function":       {ask(steve, "jobs.list_jobs", "web1"), false, ""},
		"wheel with arguments":             {args(on(Wheel, ask(steve, "key.list")), nil, "accepted"), true, "@wheel"},
		"wheel with other arguments":       {args(on(Wheel, ask(steve, "key.list")), nil, "all"), false, "argument 1"},
		"wheel by group":                   {on(Wheel, ask(Subject{Kind: External, Backend: "file", Name: "ann", Groups: []string{"ops"}}, "key.delete")), true, "ops%: @wheel"},
		"peer":                             {ask(Subject{Kind: Peer, Name: "web1"}, "mysql.status", "db1"), true, `peer: web\d+: db1: mysql.status`},
		"peer, another target":             {ask(Subject{Kind: Peer, Name: "web1"}, "mysql.status", "db1", "web1"), false, "does not cover"},
		"peer without rules":               {ask(Subject{Kind: Peer, Name: "db1"}, "test.ping", "db1"), false, "peer has no rule for db1"},
		"peer is not a user":               {ask(Subject{Kind: Peer, Name: "thatch"}, "test.ping", "db1"), false, ""},
		"peer runs a runner":               {on(Runner, ask(Subject{Kind: Peer, Name: "web1"}, "manage.up")), true, "peer_run: web1: manage.up"},
		"peer runs with arguments":         {args(on(Runner, ask(Subject{Kind: Peer, Name: "web1"}, "jobs.lookup_jid")), nil, "20240101000000000000"), true, ""},
		"peer runs with other arguments":   {args(on(Runner, ask(Subject{Kind: Peer, Name: "web1"}, "jobs.lookup_jid")), nil, "1"), false, ""},
		"peer has no wheel":                {on(Wheel, ask(Subject{Kind: Peer, Name: "web1"}, "key.list")), false, "no rule of peer_run allows key.list to web1"},
		"peer has a wheel function":        {on(Wheel, ask(Subject{Kind: Peer, Name: "db1"}, "key.list")), true, `peer_run: db\d: @wheel: key.list`},
		"peer has no other by a pattern":   {on(Wheel, ask(Subject{Kind: Peer, Name: "db1"}, "key.accept")), false, "no rule of peer_run allows key.accept to db1"},
		"peer has no runner by @wheel":     {on(Runner, ask(Subject{Kind: Peer, Name: "db2"}, "key.list")), false, "no rule of peer_run allows key.list to db2"},
		"nobody":                           {ask(Subject{}, "test.ping", "web1"), false, "the user is not known"},
		"an operator who is nobody":        {ask(Subject{Operator: true}, "test.ping", "web1"), false, "the user is not known"},
		"empty name":                       {ask(local(""), "test.ping", "web1"), false, "the user is not known"},
		"no function":                      {Question{Subject: root}, false, "nothing to run"},
		"no such function name":            {ask(root, "test.ping\n", "web1"), false, "invalid function name"},
		"too many functions":               {ask(root, strings.Repeat("test.ping,", 100)+"test.ping", "web1"), false, "at most 100"},
	} {
		t.Run(name, func(t *testing.T) {
			d := r.Decide(c.q)
			if (d.Verdict == Allow) != c.allow || !strings.Contains(d.Rule+" "+d.Reason, c.say) {
				t.Errorf("Decide = %v, %q, %q; want %v and %q", d.Verdict, d.Rule, d.Reason, c.allow, c.say)
			}
			if d.Verdict == Allow && d.Rule == "" || d.Reason == "" {
				t.Errorf("the decision %+v does not say why", d)
			}
		})
	}
}

func TestPlaces(t *testing.T) {
	r := rules(t, document)
	if d := r.Decide(ask(local("fred"), "pkg.install", "web1")); d.Where != "master:8" {
		t.Errorf("the rule is at %q, want master:8", d.Where)
	}
	d := r.Decide(ask(local("fred"), "pkg.install", "web1", "db1", "blank"))
	if fmt.Sprint(d.Outside) != "[db1 blank]" || strings.Contains(d.Reason, "db1") {
		t.Errorf("a refusal for db1 and blank: outside %v, reason %q", d.Outside, d.Reason)
	}
}

// A nil *Rules, and one without settings, refuse everybody but operators. A user on the
// blacklist is barred under any name that they log in with.
func TestBarredByTheirUnixName(t *testing.T) {
	r := rules(t, "external_auth: {file: {steve: [.*]}}\npublisher_acl_blacklist: {users: [eve]}\n")
	for unix, allow := range map[string]bool{"eve": false, "bob": true} {
		s := Subject{Kind: External, Backend: "file", Name: "steve", Unix: []string{"wheel", unix}}
		if d := r.Decide(ask(s, "test.ping", "web1")); (d.Verdict == Allow) != allow {
			t.Errorf("steve, who is %s on this machine: %+v", unix, d)
		}
	}
}

func TestNoRules(t *testing.T) {
	for name, r := range map[string]*Rules{"nil": nil, "empty": rules(t, "{}"), "null": rules(t, "publisher_acl: {}")} {
		if d := r.Decide(ask(local("fred"), "test.ping", "web1")); d.Verdict != Deny {
			t.Errorf("%s: fred: %+v", name, d)
		}
		if d := r.Decide(ask(Subject{Kind: Local, Name: "root", Operator: true}, "test.ping", "web1")); d.Verdict != Allow {
			t.Errorf("%s: root: %+v", name, d)
		}
	}
}

// Minions may not use functions that publish, nor find out the pillar of others.
func TestPeerLimits(t *testing.T) {
	r := rules(t, "peer: {web1: [.*]}")
	web1 := Subject{Kind: Peer, Name: "web1"}
	for _, f := range []string{"publish.publish", "publish.full_data", "publish.runner", "test.ping,publish.publish", "saltutil.cmd", "saltutil.runner", "saltutil.wheel"} {
		if d := r.Decide(ask(web1, f, "db1")); d.Verdict == Allow || !strings.Contains(d.Reason, "publish again") {
			t.Errorf("%s: %+v", f, d)
		}
	}
	for expr, allow := range map[string]bool{
		"web1": true, "I@role:db": false, "I@role:d*": false, "not I@role:d*": false, "J@role:db": false, "I|@role|d?": false,
		"web1 or ( G@role:d* and I@a:[x]y )": false, "N@secret": false,
	} {
		parsed, err := target.Parse(expr, target.Compound, target.Options{Nodegroups: map[string]any{"secret": "I@role:d*"}})
		if err != nil {
			t.Fatal(err)
		}
		q := ask(web1, "test.ping", "db1")
		q.Target = parsed
		if d := r.Decide(q); (d.Verdict == Allow) != allow {
			t.Errorf("%s: %+v, want allowed %v", expr, d, allow)
		}
	}
	for kind, allow := range map[target.Kind]bool{target.Pillar: false, target.PillarPCRE: false, target.PillarExact: false, target.Grain: true} {
		parsed, err := target.Parse("role:d*", kind, target.Options{})
		if err != nil {
			t.Fatal(err)
		}
		q := ask(web1, "test.ping", "db1")
		q.Target = parsed
		if d := r.Decide(q); (d.Verdict == Allow) != allow {
			t.Errorf("%s: %+v, want allowed %v", kind, d, allow)
		}
	}
}

func TestMine(t *testing.T) {
	const held = "mine_get: {web1: ['network\\..*', roles]}"
	for name, c := range map[string]struct {
		text, minion string
		entries      []string
		expr         string
		allow        bool
	}{
		"without the setting":             {"{}", "web1", []string{"roles", "any name at all"}, "*", true},
		"a rule":                          {held, "web1", []string{"roles", "network.ip_addrs"}, "*", true},
		"one of them has none":            {held, "web1", []string{"roles", "secret"}, "*", false},
		"the whole name":                  {held, "web1", []string{"roles2"}, "*", false},
		"another minion":                  {held, "web2", []string{"roles"}, "*", false},
		"an empty setting":                {"mine_get: {}", "web1", []string{"roles"}, "*", false},
		"nothing":                         {"{}", "web1", nil, "*", false},
		"a pattern of pillar":             {"{}", "web1", []string{"roles"}, "I@role:d*", false},
		"a value of pillar":               {"{}", "web1", []string{"roles"}, "I@role:db", false},
		"peer is for publishing":          {"peer: {web1: [.*]}\nmine_get: {}", "web1", []string{"roles"}, "*", false},
		"and mine_get not for peer_run's": {"peer_run: {web1: [.*]}\nmine_get: {}", "web1", []string{"roles"}, "*", false},
	} {
		parsed, err := target.Parse(c.expr, target.Compound, target.Options{})
		if err != nil {
			t.Fatal(err)
		}
		q := Question{Subject: Subject{Kind: Peer, Name: c.minion}, Scope: Mine, Target: parsed, Fleet: hosts}
		for _, e := range c.entries {
			q.Commands = append(q.Commands, salt.Command{Function: salt.Function(e)})
		}
		if d := rules(t, c.text).Decide(q); (d.Verdict == Allow) != c.allow {
			t.Errorf("%s: %+v, want allowed %v", name, d, c.allow)
		}
		q.Subject = Subject{Kind: Local, Name: "fred"}
		if d := rules(t, c.text).Decide(q); d.Verdict == Allow {
			t.Errorf("%s: a user is allowed: %+v", name, d)
		}
	}
	for _, text := range []string{"mine_get: [a]", "mine_get: {web1: roles}", "mine_get: {web1: ['(']}", "mine_get: {web1: [{a: {args: [b]}}]}", "mine_get: {'*': [a]}"} {
		if _, err := parse(t, text); err == nil || !strings.Contains(err.Error(), "master:1:") {
			t.Errorf("%s: %v, want a mistake with its place", text, err)
		}
	}
	if d := rules(t, held).Decide(Question{Subject: Subject{Kind: Peer, Name: "web1"}, Commands: []salt.Command{{Function: "network.ip_addrs"}}, Fleet: hosts}); d.Verdict == Allow {
		t.Errorf("a rule of mine_get lets a minion publish: %+v", d)
	}
}

func TestSudo(t *testing.T) {
	sudo := func(name string) Subject {
		return Subject{Kind: Local, Name: "root", Operator: true, Sudo: name}
	}
	const acl = "publisher_acl: {fred: [test.ping]}\n"
	for name, c := range map[string]struct {
		text  string
		s     Subject
		fun   string
		allow bool
	}{
		"without sudo_acl sudo is root":       {acl, sudo("fred"), "cmd.run", true},
		"with it fred stays fred":             {acl + "sudo_acl: true", sudo("fred"), "cmd.run", false},
		"and has their rules":                 {acl + "sudo_acl: true", sudo("fred"), "test.ping", true},
		"others have none":                    {acl + "sudo_acl: true", sudo("eve"), "test.ping", false},
		"root alone":                          {acl + "sudo_acl: true", sudo(""), "cmd.run", true},
		"all who do not come by sudo are out": {"publisher_acl_blacklist: {users: ['^(?!sudo_).*$']}", sudo(""), "test.ping", false},
		"who comes by sudo is not":            {"publisher_acl_blacklist: {users: ['^(?!sudo_).*$']}", sudo("fred"), "test.ping", true},
		"of their groups too":                 {"sudo_acl: true\npublisher_acl: {ops%: [cmd.run]}", Subject{Kind: Local, Name: "root", Operator: true, Sudo: "fred", Groups: []string{"ops"}}, "cmd.run", true},
		"barred by the own name":              {acl + "sudo_acl: true\npublisher_acl_blacklist: {users: [fred]}", sudo("fred"), "test.ping", false},
		"and as one who comes by sudo":        {acl + "sudo_acl: true\npublisher_acl_blacklist: {users: [sudo_fred]}", sudo("fred"), "test.ping", false},
		"barred, but without sudo_acl":        {acl + "publisher_acl_blacklist: {users: [fred]}", sudo("fred"), "test.ping", true},
		"a user cannot say so":                {acl + "publisher_acl_blacklist: {users: [fred]}", Subject{Kind: Local, Name: "fred", Sudo: "ann"}, "test.ping", false},
	} {
		if d := rules(t, c.text).Decide(ask(c.s, c.fun, "web1")); (d.Verdict == Allow) != c.allow {
			t.Errorf("%s: %+v, want allowed %v", name, d, c.allow)
		}
	}
}

// The runners of the audit log are only for those whose rule names them.
func TestAuditRunners(t *testing.T) {
	const text = `
external_auth:
  pam:
    ann: ['@runner', '@runners', '@wheel']
    bob: ['@audit']
    eve: [{'@runner': [.*, audit.*]}]
peer_run:
  .*: [.*, audit.*]
`
	user := func(name string) Subject { return Subject{Kind: External, Backend: "pam", Name: name} }
	for name, c := range map[string]struct {
		s     Subject
		allow bool
	}{
		"all runners":            {user("ann"), false},
		"by name":                {user("bob"), true},
		"a pattern over runners": {user("eve"), false},
		"a minion":               {Subject{Kind: Peer, Name: "web1"}, false},
		"root":                   {Subject{Kind: Local, Name: "root", Operator: true}, true},
	} {
		q := ask(c.s, "audit.search")
		q.Scope = Runner
		if d := rules(t, text).Decide(q); (d.Verdict == Allow) != c.allow {
			t.Errorf("%s: %+v, want allowed %v", name, d, c.allow)
		}
	}
}

func TestMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want string // the text of the error
		hint string
	}{
		"no mapping":           {"publisher_acl: [fred]", "master:1:16: publisher_acl: publisher_acl is a mapping, but this is a list", ""},
		"string for a list":    {"publisher_acl:\n  fred: test.*", `master:2:9: publisher_acl: fred: the rules of somebody is a list, but this is the text "test.*"`, "write it in brackets: ['test.*']"},
		"nothing":              {"publisher_acl:\n  fred:", "publisher_acl: fred: the rules of somebody is a list, but this is nothing", "write [] to allow nothing"},
		"pattern":              {"publisher_acl:\n  fred:\n  - test.(", "master:3:5: publisher_acl: fred: functions are regular expressions: invalid regular expression", ""},
		"star":                 {"publisher_acl: {fred: ['*']}", "nothing to repeat", "every function is .*"},
		"name":                 {"publisher_acl: {'fred(': [.*]}", `master:1:17: publisher_acl: user "fred(": it is neither a name nor a glob nor a regular expression`, ""},
		"bracket":              {"publisher_acl: {'[': [.*]}", "unterminated", ""},
		"number":               {"publisher_acl: {fred: [5]}", "a rule is a function or a mapping", ""},
		"number for a name":    {"publisher_acl: {5: [.*]}", "text is wanted, but this is 5", "write it in quotes: '5'"},
		"truth for a name":     {"publisher_acl: {yes: [.*]}", "text is wanted", ""},
		"two keys":             {"publisher_acl: {fred: [{web*: [.*], db*: [.*]}]}", "a mapping within a list has one key, but this has 2", "make each key an item of its own"},
		"args not indented":    {"publisher_acl:\n  fred:\n  - web*:\n    - x.y:\n      args: [a]", "has one key, but this has 2", "indent args and kwargs further"},
		"target":               {"publisher_acl: {fred: [{'web* and (': [.*]}]}", "target: invalid target expression", ""},
		"empty target":         {"publisher_acl: {fred: [{'': [.*]}]}", "target: ", ""},
		"unknown nodegroup":    {"publisher_acl: {fred: [{N@dbs: [.*]}]}", "it is not defined", "the nodegroups are webs"},
		"no target":            {"publisher_acl: {fred: [{my_mod.x: {args: [a]}}]}", "args and kwargs belong to a function below a target", "for every minion"},
		"string below target":  {"publisher_acl: {fred: [{web*: .*}]}", "publisher_acl: fred: web*: what is allowed is a list", ""},
		"list within":          {"publisher_acl: {fred: [{web*: [[.*]]}]}", "a function is text, or a mapping", ""},
		"no condition":         {"publisher_acl: {fred: [{web*: [{x.y: }]}]}", "below a function stands a mapping with args and kwargs, but this is nothing", ""},
		"list for a condition": {"publisher_acl: {fred: [{web*: [{x.y: [a]}]}]}", "but this is a list", ""},
		"unknown condition":    {"publisher_acl: {fred: [{web*: [{x.y: {arg: [a]}}]}]}", `unknown key "arg"`, "args and kwargs"},
		"string for args":      {"publisher_acl: {fred: [{web*: [{x.y: {args: a}}]}]}", "args is a list", ""},
		"null args":            {"publisher_acl: {fred: [{web*: [{x.y: {args: }}]}]}", "args is a list", ""},
		"null kwargs":          {"publisher_acl: {fred: [{web*: [{x.y: {kwargs: }}]}]}", "kwargs is a mapping", ""},
		"number for a pattern": {"publisher_acl: {fred: [{web*: [{x.y: {args: [5]}}]}]}", "text is wanted, but this is 5", "'5'"},
		"pattern of a value":   {"publisher_acl: {fred: [{web*: [{x.y: {kwargs: {a: '['}}}]}]}", "kwargs: a: invalid regular expression", ""},
		"at":                   {"publisher_acl: {fred: ['@']}", "neither @runner nor @wheel nor the name of a module", ""},
		"at function":          {"publisher_acl: {fred: ['@jobs.list_jobs']}", "neither @runner", "single functions are listed below"},
		"group without a name": {"publisher_acl: {'%': [.*]}", `"%" names no group`, "'*%'"},
		"blacklist key":        {"publisher_acl_blacklist: {user: [eve]}", `unknown key "user"`, "users and modules"},
		"blacklist string":     {"publisher_acl_blacklist: {users: eve}", "users is a list", "['eve']"},
		"blacklist pattern":    {"publisher_acl_blacklist: {modules: ['cmd.(']}", `function "cmd.(": it is neither`, ""},
		"blacklist null":       {"publisher_acl_blacklist: {users: [~]}", "text is wanted, but this is nothing", ""},
		"backend":              {"external_auth: {pam: [fred]}", "a backend is a mapping", ""},
		"peer id":              {"peer: {'*': [.*]}", "ids of minions are regular expressions", "every minion is .*"},
		"peer runner":          {"peer: {web1: ['@runner']}", "@runner is not a target", "peer_run"},
		"peer_run target":      {"peer_run: {web1: [{'*': [manage.up]}]}", "functions are regular expressions", ""},
		"peer_run list":        {"peer_run: {web1: manage.up}", "is a list", ""},
		"peer_run wheel alone": {"peer_run: {web1: ['@wheel']}", "alone grants a minion nothing", "key.list"},
	} {
		r, err := parse(t, c.text)
		if r != nil || err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(salt.Hint(err), c.hint) {
			t.Errorf("%s: %v, %v, hint %q; want %q, hint %q", name, r, err, salt.Hint(err), c.want, c.hint)
		}
		if e := (*Error)(nil); !errors.As(err, &e) || e.Line == 0 || e.File != "master" {
			t.Errorf("%s: %v has no place", name, err)
		}
	}
}

func TestManyMistakes(t *testing.T) {
	_, err := parse(t, "publisher_acl: {fred: ["+strings.Repeat("'(', ", 50)+"]}")
	if n := strings.Count(err.Error(), "\n"); n != maxErrors || !strings.HasSuffix(err.Error(), "and 30 mistakes more") {
		t.Errorf("%d lines: %v", n+1, err)
	}
}

// A function can be written like a user: as it is, as a glob, or as a regular expression.
func TestFunctionForms(t *testing.T) {
	for pattern, c := range map[string]struct{ yes, no string }{
		"test.p*":           {"test.ping test.p test.pp", "test.xp xtest.ping"},
		"test.v?rsion":      {"test.version test.vrsion test.rsion", "test.vversion2 test.vxxrsion"},
		"*":                 {"", ""},
		"test*":             {"test.ping testing.x", "atest.ping"},
		"pkg.list_[a-z]*":   {"pkg.list_pkgs", "pkg.list_9"},
		`test\.(ping|echo)`: {"test.ping test.echo", "test.pingx testxping"},
		"test.ping":         {"test.ping", "test.pin test.pingx"},
	} {
		r, err := parse(t, "publisher_acl: {fred: ['"+pattern+"']}")
		if (err != nil) != (c.yes == "") {
			t.Errorf("%s: %v", pattern, err)
		}
		for _, list := range []string{c.yes, c.no} {
			for f := range strings.FieldsSeq(list) {
				if d := r.Decide(ask(local("fred"), f, "web1")); (d.Verdict == Allow) != (list == c.yes) {
					t.Errorf("%s: %s: %+v", pattern, f, d)
				}
			}
		}
	}
}

// TestLintOfRulesThatGrantNothing: a pattern does not grant a function that is to be named, and nothing grants a minion the audit log.
func TestLintOfRulesThatGrantNothing(t *testing.T) {
	const byName, closed = "that a rule grants by their names", "the audit log is not for minions"
	for text, want := range map[string]string{
		`publisher_acl: {fred: [{'@runner': ['audit.*']}]}`:          byName + " or that of the module, not by a pattern, such as audit.tail",
		`publisher_acl: {fred: [{'@runner': ['audit\..*']}]}`:        byName,
		`publisher_acl: {fred: [{'@runner': ['salt.*']}]}`:           byName,
		`publisher_acl: {fred: [{'@salt': ['c.*']}]}`:                byName,
		`publisher_acl: {fred: [{'@runner': [audit.tail, .*]}]}`:     "",
		`publisher_acl: {fred: ['@audit', {'@audit': ['t.*']}]}`:     "",
		`publisher_acl: {fred: [{'@runner': ['manage\..*', '.*']}]}`: "",
		`peer_run: {.*: ['.*', audit.tail]}`:                         closed,
		`peer_run: {web1: ['audit\..*']}`:                            closed,
		`peer_run: {web1: [salt.cmd, manage.up]}`:                    "",
		`peer_run: {web1: ['salt\..*']}`:                             byName + ", not by",
	} {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		for _, added := range [][]string{nil, {"site"}} {
			c := configOf(&doc)
			c.Runners, c.Added, c.Functions = []salt.Function{"audit.tail", "manage.up", "salt.cmd"}, added, tables{}
			r, err := Parse(c)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			list := r.Lint()
			if want == "" && len(list) > 0 || want != "" && (len(list) != 1 || !list[0].Dead || !strings.Contains(list[0].Text, want)) {
				t.Errorf("%s, with the modules %v: %+v, want %q", text, added, list, want)
			}
		}
	}
}

// A rule for an unknown function gives a warning: it is probably a mistake.
func TestLintOfUnknownRunners(t *testing.T) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte("publisher_acl: {fred: ['@runer', '@jobs', '@mine', {'@runner': [mange.up, 'jobs.*']}]}\npeer_run: {web1: [manage.up, manage.upp]}"), &doc); err != nil {
		t.Fatal(err)
	}
	for _, added := range [][]string{nil, {"mine"}} {
		c := configOf(&doc)
		c.Runners, c.Wheel, c.Added = []salt.Function{"jobs.list_jobs", "manage.up"}, []salt.Function{"key.list"}, added
		r, err := Parse(c)
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, w := range r.Lint() {
			if w.Dead && strings.Contains(w.Text, "no runner and no wheel function") {
				keys = append(keys, fmt.Sprintf("%s:%d", w.Key, w.Column))
			}
		}
		want := "[publisher_acl: fred:24 publisher_acl: fred:43 publisher_acl: fred: @runner:65 peer_run: web1:30]"
		if added != nil {
			want = "[publisher_acl: fred:24]"
		}
		if fmt.Sprint(keys) != want {
			t.Errorf("with %v: %v, want %s", added, keys, want)
		}
	}
}

// For peers, a single text is a list of one, where Salt accepts it.
func TestLonePeer(t *testing.T) {
	r := rules(t, "peer: {web1: test.ping, web2: [{db1: mysql.status}]}")
	web1, web2 := Subject{Kind: Peer, Name: "web1"}, Subject{Kind: Peer, Name: "web2"}
	if d := r.Decide(ask(web1, "test.ping", "db1")); d.Verdict != Allow {
		t.Errorf("%+v", d)
	}
	if d := r.Decide(ask(web1, "test.version", "db1")); d.Verdict == Allow {
		t.Errorf("%+v", d)
	}
	if d := r.Decide(ask(web2, "mysql.status", "db1")); d.Verdict != Allow {
		t.Errorf("%+v", d)
	}
}

func TestLint(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want string
		dead bool
	}{
		"open dot":            {"publisher_acl: {fred: [test.*]}", `functions of the module test alone are test\..*`, false},
		"module alone":        {"publisher_acl: {fred: [test]}", `write test\..*`, true},
		"empty function":      {"publisher_acl: {fred: ['']}", "matches no function", true},
		"empty list":          {"publisher_acl: {fred: []}", "allows nothing", true},
		"empty list below":    {"publisher_acl: {fred: [{'*': []}]}", "allows nothing", true},
		"runner below target": {"publisher_acl: {fred: [{'*': ['@runner']}]}", "directly below the user", true},
		"letters":             {"publisher_acl: {fred: ['@RUNNER']}", "@runner", true},
		"slip":                {"publisher_acl: {fred: ['@run']}", "this means the module run", false},
		"module twice":        {"publisher_acl: {fred: [{'@jobs': [jobs.list_jobs]}]}", "without their module", true},
		"no arguments":        {"publisher_acl: {fred: [{'*': [{x.y: {args: []}}]}]}", "no argument is allowed", false},
		"open end":            {"publisher_acl: {fred: [{E@web1: ['x\\.y']}]}", "end it with $", false},
		"regexp as a glob":    {"publisher_acl: {fred: [{web.*: ['x\\.y']}]}", "write E@web.*", false},
		"peer glob":           {"peer: {'web*': ['x\\.y']}", "ids are regular expressions", false},
		"peer nobody":         {"peer: {'': ['x\\.y']}", "matches no minion", true},
		"external pattern":    {"external_auth: {pam: {'steve|admin.*': ['x\\.y']}}", "compared as they are", true},
		"group pattern":       {"external_auth: {pam: {'op*%': ['x\\.y']}}", "names of groups are compared", true},
		"blacklist module":    {"publisher_acl_blacklist: {modules: [cmd]}", "the module is cmd.*", true},
		"blacklist nothing":   {"publisher_acl_blacklist: {users: ['']}", "refuses nothing", true},
		"blacklist all":       {"publisher_acl_blacklist: {users: ['^(?!sudo_).*$']}", "root included", false},
	} {
		list := rules(t, c.text).Lint()
		if len(list) != 1 || !strings.Contains(list[0].Text, c.want) || list[0].Dead != c.dead || list[0].Where != "master:1" {
			t.Errorf("%s: %+v; want %q, dead %v", name, list, c.want, c.dead)
		}
	}
	clean := `{publisher_acl: {fred: [.*, 'test\.ping', {web*: ['pkg\..*', x.y]}, '@runner']}, publisher_acl_blacklist: {users: [eve], modules: [cmd.*]}, peer: {web\d: ['x\.y']}}`
	if list := rules(t, clean).Lint(); len(list) > 0 {
		t.Errorf("nothing is wrong with %s: %+v", clean, list)
	}
}

func TestPermissive(t *testing.T) {
	c := Config{ExternalAuth: yamlSetting(t, "external_auth", "{pam: {'*': [test.ping]}}"), PermissiveACL: true}
	r, err := Parse(c)
	if err != nil || len(r.Lint()) != 1 || r.Decide(ask(Subject{Kind: External, Backend: "pam", Name: "ann"}, "test.ping", "web1")).Verdict == Allow {
		t.Errorf("%v: the star must be for nobody with permissive_acl, with a warning: %+v", err, r.Lint())
	}
}

// A pattern that takes too long refuses the request at once, and is not tried again for each
// rule.
func TestExpensive(t *testing.T) {
	r := rules(t, `publisher_acl: {fred: [{'*': [{x.y: {args: ['(?=a)(a+)+b']}}, {x.y: {args: ['(?=a)(a+)+c']}}, {x.y: {args: ['.*']}}]}]}`)
	q := ask(local("fred"), "x.y", "web1")
	q.Commands[0].Args = []any{strings.Repeat("a", 60)}
	if d := r.Decide(q); d.Verdict == Allow || !strings.Contains(d.Reason, "took too long") {
		t.Errorf("%+v", d)
	}
}

func TestStarts(t *testing.T) {
	for expr, want := range map[string]string{
		"test.ping": "[test]", `^test\.ping$`: "[test]", "admin|manager_.*": "[admin manager_]", "ro*": "[r]", "a?b": "[]", ".*": "[]", "": "[]",
		"(?i)test": "[]", "(a|b)": "[]", "ab|": "[]", "test(x)": "[test]", "ab{2}": "[a]", `a\|b`: "[]", "[ab]c": "[]", "über": "[]",
	} {
		if got := fmt.Sprint(starts(expr)); got != want {
			t.Errorf("starts(%q) = %s, want %s", expr, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(document)
	f.Add("publisher_acl: {fred: [{web*: [{x.y: [{args: [a, ~]}, {kwargs: {k: v}}]}]}]}")
	f.Add("peer: &a {web1: *a}")
	f.Add("publisher_acl_blacklist: {users: ['[!a', 'a|b\\Z']}")
	f.Fuzz(func(t *testing.T, text string) {
		var doc yaml.Node
		if yaml.Unmarshal([]byte(text), &doc) != nil {
			return
		}
		r, err := Parse(configOf(&doc))
		if (r == nil) != (err != nil) {
			t.Fatalf("rules %v, error %v", r, err)
		}
		if err != nil {
			return
		}
		for _, s := range []Subject{{}, {Kind: Local}, {Kind: Peer}, {Operator: true}, {Kind: External, Backend: "pam"}} {
			if d := r.Decide(ask(s, "test.ping", "web1")); d.Verdict == Allow {
				t.Errorf("%+v is nobody and allowed: %+v", s, d)
			}
		}
		q := ask(local("fred", "ops"), "test.ping", "web1", "db1")
		if d := r.Decide(q); d.Verdict == Allow {
			q.Minions = q.Minions[:1]
			if d := r.Decide(q); d.Verdict != Allow {
				t.Errorf("allowed on two minions and not on one of them: %+v", d)
			}
		}
	})
}

// FuzzStarts compares the shortcut with the full match.
func FuzzStarts(f *testing.F) {
	f.Add("admin|man*_?", "admin")
	f.Add("[!a]b", "cb")
	f.Fuzz(func(t *testing.T, expr, s string) {
		if n, err := newName(expr); err == nil {
			slow := *n
			slow.starts = nil
			got, err1 := n.match(s)
			want, err2 := slow.match(s)
			if err1 == nil && err2 == nil && got != want {
				t.Errorf("name %q on %q: %v with the shortcut, %v without", expr, s, got, want)
			}
		}
		if p, err := newPattern(expr); err == nil && begins(s, p.starts) != true {
			if ok, err := p.re.Match(s); ok && err == nil {
				t.Errorf("pattern %q matches %q, which begins with none of %q", expr, s, p.starts)
			}
		}
	})
}
