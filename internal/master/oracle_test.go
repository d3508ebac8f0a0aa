package master_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/mine"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
)

// within are rules that never mean db1: by id, by a grain that it does not have, by pillar.
const within = `
autosign_file: autosign
sudo_acl: true
nodegroups: {guess: 'I@pass:h*', grains: 'G@key:s*', dbs: 'db*', webs: 'web*'}
publisher_acl:
  fred: &fred
    - 'web*': [test.*, publish.*, mine.*]
    - 'G@role:web': [disk.*]
    - 'I@tier:front': [status.*]
    - '@runner': [salt.execute, survey.hash]
  amy: *fred
external_auth:
  file: {^filename: users, fred: *fred}
peer:
  web1:
    - 'web*': [test.*, mine.*]
    - 'G@role:web': [disk.*]
    - 'I@tier:front': [status.*]
peer_run:
  web1: [salt.execute, survey.hash]
mine_get:
  web1: [kept, other]
event_acl:
  fred: {fire: [app/*], listen: [app/*]}
`

// hidden is a system with a minion that nobody's rules mean. Its states follow each other;
// jid is of the job that it runs, or of none.
type hidden struct {
	*world
	root  *rpc.Conn
	store *pki.Store
	key   *pki.PrivateKey
	conn  *upstream.Connection
	web1  *upstream.Connection
	jid   salt.JID
	let   chan struct{}
}

// states bring db1 from one state to the next. In the first there is none. Where only its key
// is another, not all is asked.
var states = []struct {
	name string
	few  bool
	next func(h *hidden)
}{
	{"there is none", false, func(*hidden) {}},
	{"its key waits", true, func(h *hidden) { h.connectPending() }},
	{"it runs a job, and has entries in the mine", false, func(h *hidden) {
		accept(h.t, h.store, "db1")
		h.is("accepted")
		h.comes(map[string]any{"key": "sesame", "role": "db", "long": strings.Repeat("x", 38), "ipv4": []any{"10.1.2.3"}}, "pass: hunter2\ntier: back\n")
		h.works()
	}},
	{"it is not connected, and says otherwise", false, func(h *hidden) {
		close(h.let)
		h.says(map[string]any{"key": "other", "role": "x"}, "pass: else\n")
		h.conn.Close()
		h.is("not connected")
	}},
	{"its key is rejected, and there are others", true, func(h *hidden) {
		if err := h.store.Delete(h.entry()); err != nil {
			h.t.Fatal(err)
		}
		h.is("unknown")
		h.connectPending()
		if err := h.store.Reject(h.entry()); err != nil {
			h.t.Fatal(err)
		}
		for i := range 20 {
			id := salt.MinionID(fmt.Sprint("app", i))
			if _, err := h.store.Submit(id, key(h.t).Public()); err != nil {
				h.t.Fatal(err)
			}
			accept(h.t, h.store, id)
		}
		h.until("the last is known", func() bool { return slices.Contains(h.accepted(), "app19") })
	}},
}

func (h *hidden) entry() pki.Entry {
	h.t.Helper()
	list, err := h.store.Of("db1")
	if err != nil || len(list) != 1 {
		h.t.Fatalf("entries of db1: %v, %v", list, err)
	}
	return list[0]
}

// connectPending connects with a key that nobody has accepted.
func (h *hidden) connectPending() {
	h.t.Helper()
	l, err := h.offerKey("db1", h.key, nil)
	if err != nil || l.State() != protocol.KeyPending {
		h.t.Fatalf("db1 connects: %v, %v", l, err)
	}
	l.Close()
}

// comes connects it, with what is known of it. Jobs it answers when it is let.
func (h *hidden) comes(grains map[string]any, pillar string) {
	h.t.Helper()
	h.conn = h.connect("db1", h.key, func(e *job.Envelope) *job.Report { <-h.let; return pong(e) })
	h.says(grains, pillar)
	h.is("connected")
}

// says has the master know these grains of it, and this pillar of it and of web1.
func (h *hidden) says(grains map[string]any, pillar string) {
	h.t.Helper()
	h.write("srv/pillar/db.sls", pillar)
	if err := h.conn.Ask(h.t.Context(), protocol.OpHello, protocol.Hello{Grains: value.Value{V: grains}}, new(protocol.Welcome)); err != nil {
		h.t.Fatal(err)
	}
	for _, c := range []*upstream.Connection{h.conn, h.web1} {
		var p protocol.Pillar
		if err := c.Ask(h.t.Context(), protocol.OpPillar, nil, &p); err != nil || len(p.Errors) > 0 || p.Data.V.(map[string]any)["pass"] == nil {
			h.t.Fatalf("pillar: %v, %v", p, err)
		}
	}
}

// works has it keep entries in the mine, and begin a job that does not end.
func (h *hidden) works() {
	h.t.Helper()
	put := map[string]mine.Entry{"kept": {Data: value.Value{V: "s"}, Allow: "db*"}, "other": {Data: value.Value{V: "s"}, Allow: "role:db", AllowType: "grain"}}
	if err := h.conn.Ask(h.t.Context(), protocol.OpMine, mine.Change{Put: put}, nil); err != nil {
		h.t.Fatal(err)
	}
	q := publication("db1", "test.sleep")
	q.Timeout = 60
	started, _ := begin(h.t, h.root, q)
	h.jid = started.JID
}

func (h *hidden) accepted() []salt.MinionID {
	h.t.Helper()
	q := publication("*")
	q.Preview = true
	var start job.Start
	if err := h.root.Ask(h.t.Context(), protocol.OpPublish, q, &start); err != nil {
		h.t.Fatal(err)
	}
	return start.Minions
}

// is waits until the master knows how it is with db1.
func (h *hidden) is(how string) {
	h.t.Helper()
	h.until("db1 is "+how, func() bool {
		there, err := run(h.t, h.root, false, "manage.present", nil, nil)
		if err != nil {
			h.t.Fatal(err)
		}
		connected, accepted := slices.Contains(there.([]any), any("db1")), slices.Contains(h.accepted(), "db1")
		switch how {
		case "connected":
			return connected
		case "accepted":
			return accepted
		case "unknown":
			return !accepted
		}
		return accepted && !connected
	})
}

func (h *hidden) until(what string, done func() bool) {
	h.t.Helper()
	for limit := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			h.t.Fatalf("waited a minute until %s", what)
		}
	}
}

// question is one that somebody asks; %JID% in it is the job of db1.
type question struct{ name, op, body string }

func asks(op, name string, body map[string]any) question {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return question{name, op, string(b)}
}

func asksRunner(fun string, args []any, kwargs map[string]any) question {
	c := map[string]any{"fun": fun, "arg": args, "kwarg": kwargs}
	return asks(protocol.OpRun, fmt.Sprint(fun, args, kwargs), map[string]any{"command": c, "wheel": strings.HasPrefix(fun, "key.")})
}

func asksFor(kind, word, fun string, more map[string]any) question {
	body := map[string]any{"tgt": word, "tgt_type": kind, "timeout": 30, "commands": []any{map[string]any{"fun": fun}}}
	maps.Copy(body, more)
	return asks(protocol.OpPublish, fmt.Sprint(kind, " ", word, " ", fun, more), body)
}

// words of targets: most of them would tell something of db1.
var words = map[string][]string{
	"glob":         {"db1", "db*", "*", "web*", "web1", "db9", "[a-d]b?", "app*", "nosuch"},
	"list":         {"db1", "web1,db1", "db9", "web1,db9", "web1", "web1,web2"},
	"pcre":         {"db1", "db[0-3]$", "web1|db1", "web1|db9", "web.*"},
	"grain":        {"key:s*", "key:x*", "role:web", "role:db", "id:db1"},
	"grain_pcre":   {"key:s.*", "key:x.*", "role:we.", "long:(?=x)(x+x+)+y"},
	"pillar":       {"pass:h*", "pass:x*", "tier:front", "tier:b*"},
	"pillar_pcre":  {"pass:h.*", "pass:x.*", "tier:front"},
	"pillar_exact": {"pass:hunter2", "pass:else", "pass:x"},
	"nodegroup":    {"guess", "grains", "dbs", "webs", "nosuch"},
	"ipcidr":       {"10.1.2.3", "10.1.0.0/16", "10.9.0.0/16"},
	"range":        {"%db", "%web"},
	"compound": {
		"db1 and I@pass:h*", "db1 and I@pass:x*", "db1 and J@pass:hunter\\d", "web* and I@pass:h*", "not I@pass:h*", "web1 or I@pass:h*",
		"db1 and G@key:s*", "db1 and not G@key:s*", "web* and not G@key:s*", "web1 or G@key:s*", "G@key:s* or web1", "web* and P@key:s.*",
		"N@guess", "web* and N@guess", "web1 or N@grains", "web* and not N@dbs", "web1 and N@webs", "N@nosuch and web1",
		"L@web1,db1", "L@web1,db9", "E@db1", "E@db1|web1", "S@10.1.0.0/16", "web1 or S@10.1.2.3", "web1 and S@10.1.2.3",
		"not web1", "not db1", "web* or ( db1 and G@key:s* )", "( web1 )", "R@%db", "web1 or R@%db", "P@long:(?=x)(x+x+)+y and web1", "db1 and P@long:(?=x)(x+x+)+y",
		"web* and I@tier:front", "G@role:web", "G@role:web and db1",
	},
}

// waysToAsk are what can be asked with a target.
func waysToAsk(kind, word string) []question {
	preview := map[string]any{"preview": true}
	inside := func(fun string, args []any, kwargs map[string]any) question {
		return asksFor("glob", "web1", "", map[string]any{"preview": true, "commands": []any{map[string]any{"fun": fun, "arg": args, "kwarg": kwargs}}})
	}
	typed, allowed := map[string]any{"tgt_type": kind}, map[string]any{"allow_tgt": word, "allow_tgt_type": kind}
	both := map[string]any{"tgt": word, "tgt_type": kind}
	return []question{
		asksFor(kind, word, "test.ping", preview), // of all words
		asksFor(kind, word, "test.ping", nil),
		asksFor(kind, word, "test.ping", map[string]any{"async": true}),
		asksFor(kind, word, "test.ping", map[string]any{"batch": map[string]any{"size": "50%"}}),
		asksFor(kind, word, "test.ping", map[string]any{"subset": 1}),
		asksFor(kind, word, "test.ping", map[string]any{"queue": 600, "async": true}),
		asksFor(kind, word, "disk.usage", preview),
		asksFor(kind, word, "status.uptime", preview),
		asksFor(kind, word, "cmd.run", preview),
		inside("publish.publish", []any{word, "test.ping"}, typed),
		inside("mine.send", []any{"test.ping"}, allowed),
		asksRunner("salt.execute", []any{word, "test.ping"}, typed),
		asksRunner("survey.hash", []any{word, "test.ping"}, typed),
		asksRunner("manage.up", nil, both),
		asksRunner("manage.status", nil, both),
		asksRunner("cache.grains", nil, both),
		asksRunner("cache.pillar", nil, both),
		asksRunner("network.wolmatch", nil, both),
	}
}

// questions about each word of a kind: all of them about the first, two about the others.
func questions(ways func(kind, word string) []question) []question {
	var list []question
	for _, kind := range slices.Sorted(maps.Keys(words)) {
		list = append(list, ways(kind, words[kind][0])...)
		for _, word := range words[kind][1:] {
			all := ways(kind, word)
			list = append(list, all[0])
			if len(all) > 1 {
				list = append(list, all[1+len(list)%(len(all)-1)])
			}
		}
	}
	return list
}

// others are questions about jobs, keys, presence and events.
func others() []question {
	var list []question
	for _, fun := range []string{
		"key.list_all", "key.finger", "key.name_match", "key.key_str", "key.list", "key.accept", "key.delete", "key.reject",
		"manage.present", "manage.alived", "manage.not_alived", "manage.versions", "manage.safe_accept", "pillar.show_pillar", "cache.mine", "state.event", "jobs.list_jobs_filter", "acl.lint", "audit.tail",
	} {
		list = append(list, asksRunner(fun, []any{"db1"}, nil))
	}
	list = append(list, asks(protocol.OpFollow, "follow", map[string]any{"jid": "%JID%"}))
	for _, tag := range []string{"salt/minion/db1/start", "salt/job/%JID%/ret/db1", "salt/presence/present", "salt/auth", "salt/key", "db1/x"} {
		list = append(list, asks(protocol.OpListen, "listen "+tag, map[string]any{"tags": []string{tag}, "until_end": true}))
	}
	for _, word := range words["glob"] {
		list = append(list, asksFor("glob", word, "test.ping", map[string]any{"preview": true}), asksFor("list", word, "test.ping", nil))
	}
	return list
}

// ownQuestions are those about what is one's own. Who asks them has started nothing.
func ownQuestions() []question {
	var list []question
	for _, fun := range []string{"lookup_jid", "list_job", "print_job", "exit_success", "follow", "cancel"} {
		list = append(list, asksRunner("jobs."+fun, []any{"%JID%"}, nil))
	}
	for _, fun := range []string{"active", "last_run", "list_jobs", "list_queued"} {
		list = append(list, asksRunner("jobs."+fun, nil, nil))
	}
	return append(list,
		asksRunner("jobs.list_jobs", nil, map[string]any{"search_target": "db1"}),
		asksRunner("jobs.list_jobs", nil, map[string]any{"search_function": "test.sleep"}),
		asksRunner("jobs.last_run", nil, map[string]any{"target": "db1"}),
		asksRunner("acl.explain", nil, map[string]any{"minion": "db1", "fun": "test.ping"}),
		asksRunner("acl.mine", nil, nil),
	)
}

// waysToExplain are what acl.explain can be asked about oneself.
func waysToExplain(kind, word string) []question {
	var list []question
	for _, fun := range []string{"test.ping", "disk.usage", "status.uptime", "cmd.run"} {
		list = append(list, asksRunner("acl.explain", nil, map[string]any{"fun": fun, "tgt": word, "tgt_type": kind}))
	}
	return list
}

// waysToRead are what a minion can ask of the mine.
func waysToRead(kind, word string) []question {
	return []question{asks(protocol.OpMineGet, "mine "+kind+" "+word, map[string]any{"tgt": word, "tgt_type": kind, "names": []string{"kept", "other"}})}
}

var numbers = regexp.MustCompile(`\b\d{20}\b`)

// told is all that is answered: every message, sorted, and how it ends.
func heard(t *testing.T, c *rpc.Conn, q question, jid salt.JID) string {
	t.Helper()
	s, err := c.Call(q.op, json.RawMessage(strings.ReplaceAll(q.body, "%JID%", string(jid))))
	if err != nil {
		return "call: " + err.Error()
	}
	defer s.Close()
	var lines []string
	for {
		b, err := s.Next(t.Context())
		if err != nil {
			slices.Sort(lines)
			return numbers.ReplaceAllString(strings.Join(append(lines, fmt.Sprintf("%s %v %s", rpc.CodeOf(err), err, salt.Hint(err))), "\n"), "JID")
		}
		lines = append(lines, string(b))
	}
}

// A principal whose rules do not cover a minion learns nothing about it: for every request all
// messages of the answer are the same, whether or not it exists, with any grains and pillar,
// connected or not, with any key, busy or idle. The same holds for pillar.
func TestNothingIsDisclosedOfHiddenMinions(t *testing.T) {
	w := start(t, within)
	w.write("autosign", "web*\n")
	if err := os.MkdirAll(filepath.Join(w.dir, "srv", "pillar"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.write("srv/pillar/top.sls", "base:\n  '*': [db]\n")
	w.users("fred")
	h := &hidden{world: w, root: w.user(), key: key(t), jid: "20260101000000000000", let: make(chan struct{})}
	var err error
	if h.store, err = pki.OpenExistingStore(w.cfg.PKIDir); err != nil {
		t.Fatal(err)
	}
	h.web1 = w.minion("web1", pong)
	login := w.user()
	if err := login.Ask(t.Context(), protocol.OpLogin, protocol.Login{Backend: "file", User: "fred", Password: "gruener-hering"}, nil); err != nil {
		t.Fatal(err)
	}
	principals := []struct {
		name      string
		conn      *rpc.Conn
		few, many []question
	}{
		{"a user", w.bySudo("fred"), others(), questions(waysToAsk)},
		{"somebody who has logged in", login, others(), nil},
		{"who looks at what is their own", w.bySudo("amy"), ownQuestions(), questions(waysToExplain)},
		{"who may nothing", w.bySudo("eve"), ownQuestions(), nil},
		{"a minion", h.web1.Conn, others(), slices.Concat(questions(waysToRead), questions(waysToAsk))},
	}
	first, answers, asked := map[string]string{}, map[string]bool{}, 0
	for _, state := range states {
		state.next(h)
		for _, a := range principals {
			list := a.few
			if !state.few {
				list = slices.Concat(a.few, a.many)
			}
			for _, q := range list {
				key, got := a.name+": "+q.name+q.body, heard(t, a.conn, q, h.jid)
				if _, known := first[key]; !known {
					first[key], answers[got] = got, true
				}
				if asked++; got != first[key] {
					t.Errorf("%s, when %s:\n%s\nand when %s:\n%s", key, states[0].name, first[key], state.name, got)
				}
			}
		}
	}
	if len(answers) < 100 {
		t.Errorf("%d questions have %d different answers: the test says little", asked, len(answers))
	}
	t.Logf("%d questions, %d different answers", asked, len(answers))
}
