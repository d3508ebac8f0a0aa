package reactor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
)

// files writes a configuration with the setting reactor and what it names; files
// that begin with #! are executable.
func files(t testing.TB, setting string, more map[string]string) config.Located {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "reactor"), 0o755); err != nil {
		t.Fatal(err)
	}
	more["master"] = "root_dir: " + dir + "\nreactor:\n" + setting
	for name, text := range more {
		mode := os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	cfg, _, err := config.LoadMaster(dir)
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Reactor
}

func parse(t testing.TB, setting string, more map[string]string) ([]*Rule, error) {
	t.Helper()
	s := files(t, setting, more)
	return Parse(s, filepath.Dir(s.File))
}

const script = "#!/bin/sh\n"

func TestParse(t *testing.T) {
	rules, err := parse(t, `
  - 'salt/auth':
    - reactor/x
    - run: [reactor/y, --flag, '{{7*7}}']
      name: second
      from: [web*, db1]
      parallel: 2
      time_limit: 1m30s
      retries: 0
      backoff: 5
  - 'salt/minion/*/start': reactor/j.yaml
    other: [reactor/x]
`, map[string]string{"reactor/x": script, "reactor/y": script, "reactor/j.yaml": "target: '*'\nfunction: test.ping\n"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range rules {
		names = append(names, r.Name)
	}
	if want := []string{"salt/auth:x", "second", "salt/minion/*/start:j.yaml", "other:x"}; !reflect.DeepEqual(names, want) {
		t.Fatalf("handlers %q, want %q", names, want)
	}
	r := rules[1]
	if r.Parallel != 2 || r.Limit != 90*time.Second || r.Retries != 0 || r.Backoff != 5*time.Second || !reflect.DeepEqual(r.Program[1:], []string{"--flag", "{{7*7}}"}) {
		t.Errorf("read as %+v", r)
	}
	for _, test := range []struct {
		rule      int
		tag, from string
		want      bool
	}{
		{0, "salt/auth", "web1", true}, {0, "salt/auth/x", "", false}, {0, "xsalt/auth", "", false}, {0, "salt/auth", "", true},
		{1, "salt/auth", "web1", true}, {1, "salt/auth", "xweb1", false}, {1, "salt/auth", "", false}, {1, "salt/auth", "user:web1", false},
		{2, "salt/minion/a/start", "a", true}, {2, "salt/minion/start", "a", false},
	} {
		if got := rules[test.rule].Matches(event.Head{Tag: test.tag, From: test.from}); got != test.want {
			t.Errorf("%s matches %q from %q: %t", rules[test.rule].Name, test.tag, test.from, got)
		}
	}
	again, err := parse(t, "  a: [reactor/x]\n", map[string]string{"reactor/x": script})
	if err != nil || again[0].Same(rules[0]) || !again[0].Same(again[0]) {
		t.Errorf("what is the same is told wrong, %v", err)
	}
}

func TestMistakes(t *testing.T) {
	const good = "target: '*'\nfunction: test.ping\n"
	for _, test := range []struct{ name, setting, job, want string }{
		{"a text", "  here\n", "", "master:3:3: reactor: a map from a tag"},
		{"no handler", "  a: []\n", "", "master:3:6: reactor: \"a\" has no handler"},
		{"a missing program", "  a:\n  - /missing\n", "", "master:4:5: reactor: stat /missing: no such file"},
		{"no program", "  a: reactor/x\n", "", "is not a program: it is not executable"},
		{"a directory", "  a: reactor\n", "", "is not a program: it is a directory"},
		{"a state file", "  a: reactor/x.sls\n", "", "state files are not run"},
		{"of the file server", "  a: salt://x\n", "", "files of the file server are not run"},
		{"an unknown word", "  a: [{runs: reactor/x}]\n", "", `there is no setting "runs"`},
		{"run is missing", "  a: [{name: b}]\n", "", "run is missing"},
		{"a number", "  a: [{run: reactor/j.yaml, parallel: 0}]\n", good, `parallel: "0" is not a number from 1 to 256`},
		{"a time", "  a: [{run: reactor/j.yaml, time_limit: long}]\n", good, `time_limit: "long" is not a time`},
		{"the same name", "  a: [reactor/j.yaml, reactor/j.yaml]\n", good, `there is a handler with the name "a:j.yaml" already, in`},
		{"an empty tag", "  '': [reactor/j.yaml]\n", good, "invalid event tag"},
		{"an empty job", "  a: reactor/j.yaml\n", " ", "j.yaml: it is empty"},
		{"a job without function", "  a: reactor/j.yaml\n", "target: x\n", "j.yaml:1: function is missing"},
		{"a job without target", "  a: reactor/j.yaml\n", "function: test.ping\n", "j.yaml:1: target is missing"},
		{"a word in a job", "  a: reactor/j.yaml\n", good + "tgt: x\n", "j.yaml:3: tgt: there is no such setting"},
		{"a bad function", "  a: reactor/j.yaml\n", "target: x\nfunction: ping\n", "j.yaml:2: function: invalid function name"},
		{"a bad expression", "  a: reactor/j.yaml\n", "function: test.ping\ntarget: {event: '.['}\n", "j.yaml:2: target: \".[\" is not a jq expression"},
		{"a bad target", "  a: reactor/j.yaml\n", "function: test.ping\ntarget: '['\ntgt_type: pcre\n", "target: "},
		{"a kind for ids", "  a: reactor/j.yaml\n", "function: test.ping\ntarget: {event: .from}\ntgt_type: glob\n", ""},
		{"another kind for ids", "  a: reactor/j.yaml\n", "function: test.ping\ntarget: {event: .from}\ntgt_type: compound\n", "tgt_type is not for it"},
		{"args are not a list", "  a: reactor/j.yaml\n", good + "args: x\n", "j.yaml:3: args: a list is wanted"},
		{"a command of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run\nargs: [{event: .data.x}]\n", "must not come from an event"},
		{"by keyword", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run\nkwargs: {cmd: {event: .data.x}}\n", "must not come from an event"},
		{"a first word of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run\nargs: [[{event: .data.x}, a]]\n", "must not come from an event"},
		{"a list for the shell", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run\nargs: [[echo, {event: .data.x}]]\nkwargs: {python_shell: true}\n", "must not come from an event"},
		{"a shell of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run\nargs: [ls]\nkwargs: {shell: {event: .data.x}}\n", "must not come from an event"},
		{"within another root of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run_chroot\nargs: [/srv/chroot, {event: .data.x}]\n", "must not come from an event"},
		{"another root of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run_chroot\nargs: [{event: .data.x}, [ls]]\n", "must not come from an event"},
		{"code of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.exec_code\nargs: [sh, {event: .data.x}]\n", "must not come from an event"},
		{"code by keyword of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.exec_code_all\nkwargs: {lang: sh, code: {event: .data.x}}\n", "must not come from an event"},
		{"an interpreter of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.exec_code\nargs: [{event: .data.x}, id]\n", "must not come from an event"},
		{"a script of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.script\nkwargs: {source: {event: .data.x}}\n", "must not come from an event"},
		{"another script of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.script_retcode\nargs: [{jinja: '{{ data.x }}'}]\n", "must not come from an event"},
		{"a user by position of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run\nargs: [id, /, '', {event: .data.x}]\n", "must not come from an event"},
		{"a shell by position of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run\nargs: [ls, /, '', null, null, {event: .data.x}]\n", "must not come from an event"},
		{"a list for the shell, by position of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run\nargs: [[echo, {event: .data.x}], null, null, null, null, null, true]\n", "must not come from an event"},
		{"a list for cmd.shell of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.shell\nargs: [[echo, {event: .data.x}]]\n", "must not come from an event"},
		{"a list that is a template of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run\nargs: [[echo, {event: .data.x}]]\nkwargs: {template: jinja}\n", "must not come from an event"},
		{"names in the environment of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run\nargs: [ls]\nkwargs: {env: {event: .data.x}}\n", "must not come from an event"},
		{"a directory of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run\nargs: [ls]\nkwargs: {cwd: {event: .data.x}}\n", "must not come from an event"},
		{"arguments that are no parameter of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run\nkwargs: {cmd: [ls], args: {event: .data.x}}\n", "must not come from an event"},
		{"a list within another root", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run_chroot\nargs: [/srv/chroot, [echo, {event: .data.x}]]\n", ""},
		{"a list with a user", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run\nargs: [[echo, {event: .data.x}]]\nkwargs: {runas: nobody, python_shell: false}\n", ""},
		{"a list by keyword", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run\nkwargs: {cmd: [echo, {event: .data.x}]}\n", ""},
		{"a value in the environment", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run\nargs: [ls]\nkwargs: {env: {X: {event: .data.x}}}\n", ""},
		{"arguments of a script", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.script\nargs: [/srv/x.sh, {event: .data.x}]\n", ""},
		{"arguments of code", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.exec_code\nargs: [sh, echo]\nkwargs: {args: [{event: .data.x}]}\n", ""},
		{"text for a terminal", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.tty\nargs: [tty1, {event: .data.x}]\n", ""},
		{"a list without shell", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run\nargs: [[echo, {event: .data.x}]]\n", ""},
		{"input of an event", "  a: reactor/j.yaml\n", "target: x\nfunction: cmd.run\nargs: [cat]\nkwargs: {stdin: {event: .data.x}}\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			rules, err := parse(t, test.setting, map[string]string{"reactor/x": "no program", "reactor/j.yaml": test.job})
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || rules != nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestFilesOfOthers: what somebody else could have written is not run.
func TestFilesOfOthers(t *testing.T) {
	for name, text := range map[string]string{"x": script, "j.yaml": "target: '*'\nfunction: test.ping\n"} {
		s := files(t, "  a: reactor/"+name+"\n", map[string]string{"reactor/" + name: text})
		root := filepath.Dir(s.File)
		if _, err := Parse(s, root); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(root, "reactor", name), 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(s, root); err == nil || !strings.Contains(err.Error(), "lets others write it") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// jobOf reads a job file.
func jobOf(t testing.TB, text string) *Job {
	t.Helper()
	rules, err := parse(t, "  a: reactor/j.yaml\n", map[string]string{"reactor/j.yaml": text})
	if err != nil {
		t.Fatal(err)
	}
	return rules[0].Job
}

// TestDataStaysData hands hostile events to jobs.
func TestDataStaysData(t *testing.T) {
	j := jobOf(t, `
target: {event: .data.id}
function: test.arg
args:
  - '{{ data.x }} {{7*7}} $(id)'
  - event: .data.x
  - [a, {event: .data.x}]
kwargs:
  key: {event: .data.x}
  'event.x': 1
timeout: 10
queue: 2h
`)
	for _, x := range []string{"{{7*7}}", "$(touch /tmp/x)", "`id`", "; rm -rf /", "a\nb", "5", "true", "k=v", "--option", "{event: .tag}", `"'\`, "*", "\x00"} {
		data, err := json.Marshal(map[string]any{"id": "web1", "x": x})
		if err != nil {
			t.Fatal(err)
		}
		q, err := j.Publish(t.Context(), []byte(`{"tag":"a","from":"web1","data":`+string(data)+`,"seq":7}`))
		if err != nil {
			t.Fatal(err)
		}
		want := []job.Command{{Function: "test.arg", Args: []any{"{{ data.x }} {{7*7}} $(id)", x, []any{"a", x}}, Kwargs: map[string]any{"key": x, "event.x": int64(1)}}}
		if got := q.Commands; !reflect.DeepEqual(normal(t, got), normal(t, want)) {
			t.Errorf("%q became %#v", x, got)
		}
		if q.Target != "web1" || q.TargetType != "list" || q.Timeout != 10 || q.Queue != 7200 {
			t.Errorf("%q: the job is %+v", x, q)
		}
	}
}

func normal(t *testing.T, v any) (out any) {
	b, err := json.Marshal(v)
	if err != nil || json.Unmarshal(b, &out) != nil {
		t.Fatal(err)
	}
	return out
}

// TestTargetsOfEventsAreIDs: nothing in an event makes a job go to more minions.
func TestTargetsOfEventsAreIDs(t *testing.T) {
	j := jobOf(t, "target: {event: .data.id}\nfunction: test.ping\n")
	for data, want := range map[string]string{
		`{"id":"web1"}`:                 "web1",
		`{"id":["web2","web1","web1"]}`: "web1,web2",
		`{"id":"*"}`:                    "",
		`{"id":"web*"}`:                 "",
		`{"id":"web1,web2"}`:            "",
		`{"id":"web1 or *"}`:            "",
		`{"id":"G@os:Linux"}`:           "G@os:Linux", // an id of that name, which nobody has
		`{"id":["web1","*"]}`:           "",
		`{"id":"[a-z]"}`:                "",
		`{"id":"../x"}`:                 "",
		`{"id":""}`:                     "",
		`{"id":[]}`:                     "",
		`{"id":5}`:                      "",
		`{"id":{"a":1}}`:                "",
		`{"id":null}`:                   "",
		`{}`:                            "",
		`"web1"`:                        "",
	} {
		q, err := j.Publish(t.Context(), []byte(`{"tag":"a","data":`+data+`,"seq":1}`))
		if q.Target != want || (err == nil) != (want != "") {
			t.Errorf("%s: target %q, %v; want %q", data, q.Target, err, want)
		}
		if err == nil && q.TargetType != "list" {
			t.Errorf("%s: a target of the kind %s", data, q.TargetType)
		}
	}
}

func TestQueries(t *testing.T) {
	for expression, want := range map[string]string{
		".tag": `"a/b"`, ".data.n": "12345678901234567890", ".seq": "3", `"\(.from)-\(.seq)"`: `"web1-3"`, ".data.none": "", ".data.none // 7": "7",
		".data, .tag": "", "def f: f; f": "", "$ENV.HOME": "", "env.HOME": "", "empty": "", ".data": `{"n":12345678901234567890}`,
	} {
		j := jobOf(t, "target: x\nfunction: test.arg\nargs: [{event: '"+expression+"'}]\n")
		q, err := j.Publish(t.Context(), []byte(`{"tag":"a/b","from":"web1","data":{"n":12345678901234567890},"seq":3}`))
		if (err == nil) != (want != "") {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if err != nil {
			continue
		}
		b, err := json.Marshal(q.Commands[0])
		if err != nil || !strings.Contains(string(b), "["+want+"]") {
			t.Errorf("%s: %s, %v, want %s", expression, b, err, want)
		}
	}
}

// FuzzAim: a target of an event is a list of ids, whatever it says.
func FuzzAim(f *testing.F) {
	for _, id := range []string{"web1", "*", "a,b", "web1 and *", "", "[", "é"} {
		f.Add(id)
	}
	j := jobOf(f, "target: {event: .data}\nfunction: test.ping\n")
	f.Fuzz(func(t *testing.T, id string) {
		data, err := json.Marshal(id)
		if err != nil {
			t.Skip()
		}
		q, err := j.Publish(t.Context(), []byte(`{"tag":"a","data":`+string(data)+`}`))
		if err != nil {
			return
		}
		if q.TargetType != "list" || strings.ContainsAny(q.Target, ", *?[]()") {
			t.Errorf("%q is aimed at %q", id, q.Target)
		}
	})
}
