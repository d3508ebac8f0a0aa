package module

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// others is a Publisher that remembers what it was asked.
type others struct {
	asked   function.Publication
	ran     function.RunnerCall
	answers []function.Answer
	err     error
	begun   function.RunnerAnswer
}

func (o *others) Publish(_ context.Context, p function.Publication) ([]function.Answer, error) {
	o.asked = p
	return o.answers, o.err
}

func (o *others) Runner(_ context.Context, q function.RunnerCall) (function.RunnerAnswer, error) {
	o.ran = q
	if q.Async {
		return function.RunnerAnswer{JID: "7", Tag: "salt/run/7"}, o.err
	}
	return o.begun, o.err
}

func TestPublish(t *testing.T) {
	ok := function.Answer{JID: "1", ID: "db1", Retcode: int64(0), Returned: true, Return: true, Out: "txt"}
	broken := function.Answer{ID: "db2", Returned: true, Failed: true, Return: "ERROR"}
	silent := function.Answer{JID: "1", ID: "db3", Text: "no response"}
	refused := fmt.Errorf("%w: not permitted", function.ErrRefused)
	for name, c := range map[string]struct {
		fun     string
		answers []function.Answer
		err     error
		want    string
		code    int
	}{
		"all answer":         {"publish.publish", []function.Answer{ok}, nil, "{'db1': True}", 0},
		"one failed":         {"publish.publish", []function.Answer{ok, broken}, nil, "{'db1': True, 'db2': 'ERROR'}", 1},
		"one did not return": {"publish.publish", []function.Answer{silent, broken, ok}, nil, "{'#missing': {'db3': 'Minion did not return. [no response]'}, 'db1': True, 'db2': 'ERROR'}", 3},
		"full":               {"publish.full_data", []function.Answer{ok, silent}, nil, "{'db1': {'jid': '1', 'out': 'txt', 'ret': True, 'retcode': 0}, 'db3': {'error': 'Minion did not return. [no response]', 'jid': '1'}}", 3},
		"refused":            {"publish.publish", nil, refused, "'ERROR: refused: not permitted'", 77},
		"nobody":             {"publish.publish", nil, function.ErrNoMatch, "'ERROR: no minion matched'", 2},
		"another failure":    {"publish.publish", nil, errors.New("lost"), "'ERROR: lost'", 1},
		"check":              {"publish.check", []function.Answer{{ID: "db1"}}, nil, "{'allowed': True, 'minions': ['db1'], 'reason': ''}", 0},
		"check, refused":     {"publish.check", nil, refused, "{'allowed': False, 'minions': [], 'reason': 'refused: not permitted'}", 77},
		"runner":             {"publish.runner", nil, nil, "'ran'", 0},
		"runner, refused":    {"publish.runner", nil, refused, "'ERROR: refused: not permitted'", 77},
	} {
		o := &others{answers: c.answers, err: c.err, begun: function.RunnerAnswer{JID: "7", Return: "ran"}}
		args := []any{"db*", "test.ping"}
		if c.fun == "publish.runner" {
			args = []any{"manage.up"}
		}
		res := Run(t.Context(), function.Call{Function: salt.Function(c.fun), Args: args, Host: &function.Host{Publisher: o}, Reach: salt.Reach{Free: true}})
		if got := value.Repr(res.Return); got != c.want || res.Retcode != c.code || res.Success != (c.code == 0) {
			t.Errorf("%s: %s, return code %d; want %s, %d", name, got, res.Retcode, c.want, c.code)
		}
	}
}

// The id of a run, a failure and a run that nobody waits for each have a form of their own,
// which no return of a runner has.
func TestPublishRunner(t *testing.T) {
	done := function.RunnerAnswer{JID: "7", Return: "ran", Out: "txt"}
	failed := function.RunnerAnswer{JID: "7", Retcode: 1}
	broken := function.RunnerAnswer{JID: "7", Return: false, Retcode: 1}
	refused := fmt.Errorf("%w: not permitted", function.ErrRefused)
	full, async := map[string]any{"full_return": true}, map[string]any{"asynchronous": true}
	for name, c := range map[string]struct {
		begun  function.RunnerAnswer
		err    error
		kwargs map[string]any
		want   string
		code   int
	}{
		"plain":                   {done, nil, nil, "'ran'", 0},
		"full":                    {done, nil, full, "{'jid': '7', 'out': 'txt', 'ret': 'ran', 'retcode': 0}", 0},
		"failed":                  {failed, errors.New("boom"), nil, "'ERROR: boom'", 1},
		"failed, full":            {failed, errors.New("boom"), full, "{'error': 'boom', 'jid': '7', 'retcode': 1}", 1},
		"refused inside, full":    {failed, refused, full, "{'error': 'refused: not permitted', 'jid': '7', 'retcode': 77}", 77},
		"refused before, full":    {function.RunnerAnswer{}, refused, full, "'ERROR: refused: not permitted'", 77},
		"returned a failure":      {broken, nil, nil, "False", 1},
		"returned a failure full": {broken, nil, full, "{'jid': '7', 'ret': False, 'retcode': 1}", 1},
		"asynchronous":            {done, nil, async, "{'jid': '7', 'tag': 'salt/run/7'}", 0},
		"asynchronous, refused":   {function.RunnerAnswer{}, refused, async, "'ERROR: refused: not permitted'", 77},
	} {
		o := &others{err: c.err, begun: c.begun}
		res := Run(t.Context(), function.Call{Function: "publish.runner", Args: []any{"manage.up"}, Kwargs: c.kwargs, Host: &function.Host{Publisher: o}, Reach: salt.Reach{Free: true}})
		if got := value.Repr(res.Return); got != c.want || res.Retcode != c.code {
			t.Errorf("%s: %s, return code %d; want %s, %d", name, got, res.Retcode, c.want, c.code)
		}
	}
}

// saltutil.wheel asks for a wheel function, saltutil.find_cached_job for a job: of that it
// returns what is this minion's, and nothing of others.
func TestSaltutilAsksTheMaster(t *testing.T) {
	o := &others{begun: function.RunnerAnswer{JID: "7", Return: "ran"}}
	host := &function.Host{ID: "web1", Publisher: o}
	same(t, "wheel", good(t, host, "saltutil.wheel", nil, "key.list", "accepted"), "ran")
	if !o.ran.Wheel || o.ran.Function != "key.list" || repr(o.ran.Args) != "['accepted']" {
		t.Errorf("the master was asked for %+v", o.ran)
	}
	if good(t, host, "saltutil.runner", nil, "manage.up"); o.ran.Wheel {
		t.Errorf("saltutil.runner asked for a wheel function: %+v", o.ran)
	}
	const jid = "20261121113344286549"
	o.begun.Return = map[string]any{"Function": "test.arg", "Arguments": []any{"a"}, "User": "fred", "Result": map[string]any{
		"web1": map[string]any{"return": int64(1), "retcode": int64(0), "success": true}, "db1": map[string]any{"return": "secret"},
	}}
	same(t, "find_cached_job", good(t, host, "saltutil.find_cached_job", nil, jid),
		map[string]any{"jid": jid, "fun": "test.arg", "fun_args": []any{"a"}, "return": 1, "retcode": 0, "success": true})
	if o.ran.Wheel || o.ran.Function != "jobs.list_job" || repr(o.ran.Args) != "['"+jid+"']" {
		t.Errorf("the master was asked for %+v", o.ran)
	}
	bad(t, &function.Host{ID: "web2", Publisher: o}, "saltutil.find_cached_job", "web2 has returned nothing for job", nil, jid)
	bad(t, host, "saltutil.find_cached_job", "", nil, "nosuch")
	o.err = fmt.Errorf("%w: not permitted", function.ErrRefused)
	for name, arg := range map[string]string{"saltutil.wheel": "key.list", "saltutil.find_cached_job": jid} {
		if r := run(t, host, name, nil, arg); r.Retcode != function.CodeRefused {
			t.Errorf("%s, refused: %+v", name, r)
		}
	}
}

// Below the id of a peer is what it returned, whatever that is, and nothing else.
func TestPeersThatDidNotAnswerAreListedApart(t *testing.T) {
	text := "Minion did not return. [no response]"
	answers := []function.Answer{
		{JID: "1", ID: "liar", Returned: true, Return: text, Retcode: int64(0)},
		{JID: "1", ID: "mimic", Returned: true, Return: map[string]any{"#missing": map[string]any{"db3": text}}, Retcode: int64(0)},
		{JID: "1", ID: "db3", Text: "no response"},
	}
	o := &others{answers: answers}
	res := Run(t.Context(), function.Call{Function: "publish.publish", Args: []any{"*", "test.echo"}, Host: &function.Host{Publisher: o}, Reach: salt.Reach{Free: true}})
	got := res.Return.(map[string]any)
	if missing := got[missingPeers].(map[string]any); len(missing) != 1 || missing["db3"] != text || got["liar"] != text || res.Retcode != codeNoReturn {
		t.Errorf("%s, return code %d", value.Repr(got), res.Retcode)
	}
	if _, heard := got["db3"]; heard {
		t.Errorf("db3, which was silent, has a return: %s", value.Repr(got))
	}
	if _, err := salt.ParseMinionID(missingPeers); err == nil {
		t.Errorf("a minion may be called %s", missingPeers)
	}
}

func TestPublication(t *testing.T) {
	ping := salt.Command{Function: "test.ping"}
	for name, c := range map[string]struct {
		args   []any
		kwargs map[string]any
		want   function.Publication
		fails  string
	}{
		"plain":             {[]any{"*", "test.ping"}, nil, function.Publication{Target: "*", TargetType: "glob", Calls: []salt.Command{ping}}, ""},
		"type":              {[]any{"a or b", "test.ping"}, map[string]any{"tgt_type": "compound"}, function.Publication{Target: "a or b", TargetType: "compound", Calls: []salt.Command{ping}}, ""},
		"old name of it":    {[]any{"a or b", "test.ping"}, map[string]any{"expr_form": "compound"}, function.Publication{Target: "a or b", TargetType: "compound", Calls: []salt.Command{ping}}, ""},
		"list":              {[]any{[]any{"a", "b"}, "test.ping", nil, "list"}, nil, function.Publication{Target: "a,b", TargetType: "list", Calls: []salt.Command{ping}}, ""},
		"one argument":      {[]any{"*", "test.arg", "a,b"}, nil, function.Publication{Target: "*", TargetType: "glob", Calls: []salt.Command{{Function: "test.arg", Args: []any{"a,b"}}}}, ""},
		"arguments":         {[]any{"*", "test.arg", []any{"a", int64(1)}}, nil, function.Publication{Target: "*", TargetType: "glob", Calls: []salt.Command{{Function: "test.arg", Args: []any{"a", int64(1)}}}}, ""},
		"empty text":        {[]any{"os:Debian", "test.ping", "", "grain"}, nil, function.Publication{Target: "os:Debian", TargetType: "grain", Calls: []salt.Command{ping}}, ""},
		"a list as text":    {[]any{"*", "test.arg", `["a","b, c",1]`}, nil, function.Publication{Target: "*", TargetType: "glob", Calls: []salt.Command{{Function: "test.arg", Args: []any{"a", "b, c", int64(1)}}}}, ""},
		"other text":        {[]any{"*", "test.arg", "{a: [1]}"}, nil, function.Publication{Target: "*", TargetType: "glob", Calls: []salt.Command{{Function: "test.arg", Args: []any{"{a: [1]}"}}}}, ""},
		"half a list":       {[]any{"*", "test.arg", "[a"}, nil, function.Publication{Target: "*", TargetType: "glob", Calls: []salt.Command{{Function: "test.arg", Args: []any{"[a"}}}}, ""},
		"a deep list":       {[]any{"*", "test.arg", strings.Repeat("[", 5000) + strings.Repeat("]", 5000)}, nil, function.Publication{}, "arg: "},
		"lists as text":     {[]any{"*", "test.ping,test.arg", "[[], [a]]"}, nil, function.Publication{Target: "*", TargetType: "glob", Compound: true, Calls: []salt.Command{{Function: "test.ping", Args: []any{}}, {Function: "test.arg", Args: []any{"a"}}}}, ""},
		"compound":          {[]any{"*", "test.ping,test.arg", []any{[]any{}, []any{"a"}}}, nil, function.Publication{Target: "*", TargetType: "glob", Compound: true, Calls: []salt.Command{{Function: "test.ping", Args: []any{}}, {Function: "test.arg", Args: []any{"a"}}}}, ""},
		"compound, no list": {[]any{"*", "test.ping,test.arg", "a"}, nil, function.Publication{}, "a list of 2 lists"},
		"no function":       {[]any{"*", "ping"}, nil, function.Publication{}, "invalid function name"},
		"another master":    {[]any{"*", "test.ping"}, map[string]any{"via_master": "m2"}, function.Publication{}, "not available here"},
	} {
		o := &others{}
		res := Run(t.Context(), function.Call{Function: "publish.publish", Args: c.args, Kwargs: c.kwargs, Host: &function.Host{Publisher: o}, Reach: salt.Reach{Free: true}})
		if c.fails != "" {
			if res.Err == nil || !strings.Contains(res.Err.Error(), c.fails) || o.asked.Target != "" {
				t.Errorf("%s: %v, asked %+v; want an error with %q and no question", name, res.Err, o.asked, c.fails)
			}
			continue
		}
		c.want.Timeout = 5 * time.Second
		if !reflect.DeepEqual(o.asked, c.want) {
			t.Errorf("%s: asked %+v, want %+v (%v)", name, o.asked, c.want, res.Err)
		}
	}
	if res := Run(t.Context(), function.Call{Function: "publish.publish", Args: []any{"*", "test.ping"}, Reach: salt.Reach{Free: true}}); !errors.Is(res.Err, function.ErrUnavailable) {
		t.Errorf("without a master: %v, want ErrUnavailable", res.Err)
	}
}

// several is a MasterConnection to masters with these names.
type several []string

func (s several) Masters() []string                  { return s }
func (s several) Ping(context.Context, string) error { return nil }

func TestViaMaster(t *testing.T) {
	masters := several{"m1", "m2:4510", "[::1]:4506", "10.0.0.1"}
	for via, want := range map[string]string{
		"m1": "m1", "m1:4506": "m1", "m2": "m2:4510", "m2:4510": "m2:4510", "::1": "[::1]:4506", "[::1]": "[::1]:4506", "10.0.0.1:4506": "10.0.0.1",
		"m2:4506": "", "m3": "", "10.0.0.2": "", "m": "", ":4510": "",
	} {
		o := &others{answers: []function.Answer{{ID: "a", Returned: true}}}
		res := Run(t.Context(), function.Call{Function: "publish.publish", Args: []any{"*", "test.ping"}, Kwargs: map[string]any{"via_master": via}, Host: &function.Host{Publisher: o, Services: &Services{Master: masters}}, Reach: salt.Reach{Free: true}})
		if o.asked.Via != want || (res.Err == nil) != (want != "") {
			t.Errorf("via %q: asked %q (%v), want %q", via, o.asked.Via, res.Err, want)
		}
	}
}
