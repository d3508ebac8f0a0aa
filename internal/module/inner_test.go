package module

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
)

// A row either runs, or says what it calls.
func TestRowsDeclareWhatTheyCall(t *testing.T) {
	for _, m := range modules {
		for _, f := range m.Functions {
			if (f.Run == nil) == (f.Calls == nil) || f.Calls != nil && (f.Calls.Read == nil || f.Calls.Run == nil) {
				t.Errorf("%s.%s: a row has Run, or Calls with Read and Run", m.Name, f.Name)
			}
		}
	}
}

// Other functions, other minions, the master's runners and the schedule are reached
// through a Caller alone, which only rows get that say what they call.
func TestEngineIsReachedByCallersOnly(t *testing.T) {
	for _, dir := range []string{".", "../runner"} {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			name := dir + "/" + file.Name()
			if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || name == "./registry.go" { // the table itself
				continue
			}
			checkCallers(t, name)
		}
	}
}

// ways are the selectors by which one gets at what a Caller is for. Reading the
// schedule is open to all.
var ways = []string{"Run", "Publisher", "SetSchedule", "RunScheduled", "ReloadSchedule", "Execute"}

func checkCallers(t *testing.T, name string) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var walk func(n ast.Node, within bool)
	walk = func(n ast.Node, within bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.FuncDecl:
				if x.Body != nil {
					walk(x.Body, hasCaller(x.Type) || x.Recv != nil && isCaller(x.Recv.List[0].Type))
				}
				return false
			case *ast.FuncLit:
				walk(x.Body, within || hasCaller(x.Type))
				return false
			case *ast.SelectorExpr:
				if !within && slices.Contains(ways, x.Sel.Name) && !harmless(x) {
					t.Errorf("%s: %s is reached without a Caller: the row must say what it calls", set.Position(x.Pos()), x.Sel.Name)
				}
			}
			return true
		})
	}
	walk(file, false)
}

// harmless are the methods of these names that are not engines: programs are run, too.
func harmless(sel *ast.SelectorExpr) bool {
	id, ok := sel.X.(*ast.Ident)
	return ok && sel.Sel.Name == "Run" && slices.Contains([]string{"p", "program", "cmd", "made"}, id.Name)
}

func hasCaller(f *ast.FuncType) bool {
	return slices.ContainsFunc(f.Params.List, func(p *ast.Field) bool { return isCaller(p.Type) })
}

func isCaller(e ast.Expr) bool {
	star, ok := e.(*ast.StarExpr)
	if !ok {
		return false
	}
	switch x := star.X.(type) {
	case *ast.Ident:
		return x.Name == "Caller"
	case *ast.SelectorExpr:
		return x.Sel.Name == "Caller"
	}
	return false
}

// readings are commands, and what is inside them: "?" is what cannot be read.
var readings = map[string]struct {
	c    salt.Command
	want string
}{
	"plain":                    {salt.Command{Function: "test.ping"}, ""},
	"unknown":                  {salt.Command{Function: "no.such"}, ""},
	"cross_test":               {command("test.cross_test", "cmd.run", []any{"id"}), "cmd.run(id)"},
	"cross_test by name":       {salt.Command{Function: "test.cross_test", Kwargs: map[string]any{"func": "cmd.run", "args": "id"}}, "cmd.run(id)"},
	"cross_test, no function":  {command("test.cross_test"), "?"},
	"try":                      {salt.Command{Function: "test.try", Args: []any{"cmd.run"}, Kwargs: map[string]any{"cmd": "id"}}, "cmd.run(cmd=id)"},
	"mine.send":                {command("mine.send", "test.ping"), "test.ping()"},
	"mine.send, another":       {salt.Command{Function: "mine.send", Args: []any{"x", "id"}, Kwargs: map[string]any{"mine_function": "cmd.run"}}, "cmd.run(id)"},
	"mine.send, by name":       {salt.Command{Function: "mine.send", Args: []any{"x"}, Kwargs: map[string]any{"mine_function": "cmd.run", "cmd": "id", "allow_tgt": "a"}}, "cmd.run(cmd=id)"},
	"mine.update":              {command("mine.update"), "?"},
	"mine.update, given":       {salt.Command{Function: "mine.update", Kwargs: map[string]any{"mine_functions": map[string]any{"x": []any{map[string]any{"mine_function": "cmd.run"}, "id"}, "test.ping": []any{}}}}, "test.ping() cmd.run(id)"},
	"schedule.add":             {salt.Command{Function: "schedule.add", Args: []any{"j"}, Kwargs: map[string]any{"function": "cmd.run", "job_args": []any{"id"}, "seconds": int64(5)}}, "cmd.run(id)"},
	"schedule.add, both args":  {salt.Command{Function: "schedule.add", Args: []any{"j"}, Kwargs: map[string]any{"function": "cmd.run", "args": []any{"uptime"}, "job_args": "id"}}, "cmd.run(id)"},
	"schedule.add, nothing":    {command("schedule.add", "j"), "?"},
	"schedule.modify":          {salt.Command{Function: "schedule.modify", Args: []any{"j"}, Kwargs: map[string]any{"function": "cmd.run"}}, "cmd.run() ?"},
	"schedule.modify, when":    {salt.Command{Function: "schedule.modify", Args: []any{"j"}, Kwargs: map[string]any{"seconds": int64(1)}}, "?"},
	"schedule.modify, all":     {salt.Command{Function: "schedule.modify", Args: []any{"j"}, Kwargs: map[string]any{"function": "cmd.run", "job_args": []any{"id"}, "job_kwargs": map[string]any{}}}, "cmd.run(id)"},
	"schedule.run_job":         {command("schedule.run_job", "j"), "?"},
	"schedule.delete":          {command("schedule.delete", "j"), ""},
	"publish":                  {command("publish.publish", "db*", "cmd.run", "id"), "db* glob: cmd.run(id)"},
	"publish several":          {salt.Command{Function: "publish.full_data", Args: []any{[]any{"a", "b"}, "test.ping,cmd.run", []any{[]any{}, []any{"id"}}, "list"}}, "a,b list: test.ping() a,b list: cmd.run(id)"},
	"publish by a master":      {salt.Command{Function: "publish.publish", Args: []any{"db*", "test.ping"}, Kwargs: map[string]any{"via_master": "m2"}}, "db* glob: test.ping() ?"},
	"publish, bad arguments":   {command("publish.publish", "db*", "test.ping,cmd.run", "id"), "?"},
	"publish.runner":           {command("publish.runner", "manage.up"), "runner manage.up()"},
	"event.fire":               {command("event.fire", map[string]any{"tag": "deploy/go"}, "here"), ""},
	"event.fire, passed on":    {command("event.fire", map[string]any{"tag": "deploy/go"}, "fire_master"), "event.send(deploy/go)"},
	"event.fire, several":      {salt.Command{Function: "event.fire", Kwargs: map[string]any{"tag": "fire_master_x", "data": map[string]any{"pretag": "p", "tag": "no", "events": []any{map[string]any{"tag": "a"}, map[string]any{"tag": "b", "data": map[string]any{}}}}}}, "event.send(a) event.send(p/a) event.send(b) event.send(p/b)"},
	"event.fire, not an event": {command("event.fire", map[string]any{"tag": int64(5)}, "fire_master"), "?"},
	"file.find":                {command("file.find", "/x"), ""},
	"file.find, exec":          {salt.Command{Function: "file.find", Args: []any{"/x"}, Kwargs: map[string]any{"exec": "rm {}"}}, "cmd.run(rm {})"},
	"saltutil.runner":          {command("saltutil.runner", "manage.up"), "runner manage.up()"},
	"saltutil.wheel":           {command("saltutil.wheel", "key.accept", "web9"), "wheel key.accept(web9)"},
	"saltutil.wheel, no name":  {command("saltutil.wheel", "key"), "?"},
	"saltutil.find_cached_job": {command("saltutil.find_cached_job", "20261121113344286549"), "runner jobs.list_job(20261121113344286549)"},
	"sys.list_runners":         {command("sys.list_runners"), "runner doc.runner()"},
}

func command(f string, args ...any) salt.Command {
	return salt.Command{Function: salt.Function(f), Args: args}
}

func TestReadings(t *testing.T) {
	for name, c := range readings {
		if got := text(modules.Read(c.c)); got != c.want {
			t.Errorf("%s: inside is %q, want %q", name, got, c.want)
		}
	}
}

func text(r function.Reading) string {
	var words []string
	for _, i := range r.Inner {
		var args []string
		for _, a := range i.Command.Args {
			args = append(args, repr(a))
		}
		for k, v := range i.Command.Kwargs {
			args = append(args, k+"="+repr(v))
		}
		word := string(i.Command.Function) + "(" + strings.ReplaceAll(strings.Join(args, ", "), "'", "") + ")"
		switch i.Way {
		case function.Published:
			word = i.Target + " " + i.TargetType + ": " + word
		case function.ByMaster:
			word = "runner " + word
		case function.Wheel:
			word = "wheel " + word
		}
		words = append(words, word)
	}
	if r.Hidden {
		words = append(words, "?")
	}
	return strings.Join(words, " ")
}

// What was not decided about does not run, whatever the master's tables said.
func TestUnjudgedIsRefused(t *testing.T) {
	ping := command("test.cross_test", "test.cross_test", []any{"test.ping"})
	deep := modules.ReachOf([]salt.Command{ping})
	if len(deep.Judged) != 2 || deep.Free || deep.Hidden != nil {
		t.Fatalf("reach is %+v", deep)
	}
	outer := salt.Reach{Judged: deep.Judged[:1]}
	for name, c := range map[string]struct {
		c     salt.Command
		reach salt.Reach
		ok    bool
	}{
		"all of it":         {ping, deep, true},
		"nothing":           {ping, salt.Reach{}, false},
		"without the inner": {ping, outer, false},
		"other arguments":   {command("test.cross_test", "test.cross_test", []any{"test.echo"}), deep, false},
		"other values":      {command("test.cross_test", "test.echo", []any{"b"}), modules.ReachOf([]salt.Command{command("test.cross_test", "test.echo", []any{"a"})}), false},
		"other keywords":    {salt.Command{Function: "test.try", Args: []any{"test.arg"}, Kwargs: map[string]any{"a": "b"}}, modules.ReachOf([]salt.Command{{Function: "test.try", Args: []any{"test.arg"}, Kwargs: map[string]any{"a": "a"}}}), false},
		"operator":          {ping, salt.Reach{Free: true}, true},
		"swallowed by try":  {command("test.try", "test.cross_test", "test.ping"), outer, false},
		"hidden":            {command("mine.update"), deep, false},
	} {
		r := Run(t.Context(), function.Call{Function: c.c.Function, Args: c.c.Args, Host: &function.Host{}, Reach: c.reach})
		if (r.Err == nil) != c.ok || !c.ok && (!errors.Is(r.Err, function.ErrRefused) || r.Retcode != 77) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	update := command("mine.update")
	r := Run(t.Context(), function.Call{Function: update.Function, Host: &function.Host{}, Reach: modules.ReachOf([]salt.Command{update})})
	if r.Err != nil {
		t.Errorf("a hidden function that was allowed: %v", r.Err)
	}
}
