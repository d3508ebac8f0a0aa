package runner

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/order"
)

// newKeys returns a real key store with web1 and web2 pending and db1 accepted.
func newKeys(t *testing.T) *pki.Store {
	t.Helper()
	store, err := pki.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []salt.MinionID{"web1", "web2", "db1"} {
		submit(t, store, id)
	}
	entries, _, err := store.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.ID == "db1" {
			if err := store.Accept(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	return store
}

func submit(t *testing.T, store *pki.Store, id salt.MinionID) pki.PublicKey {
	t.Helper()
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Submit(id, key.Public()); err != nil {
		t.Fatal(err)
	}
	return key.Public()
}

func call(t *testing.T, table function.Table, fun string, args []any, kwargs map[string]any) function.Result {
	t.Helper()
	return table.Run(context.Background(), function.Call{Function: salt.Function(fun), Args: args, Kwargs: kwargs, Reach: salt.Reach{Free: true}})
}

func TestKeys(t *testing.T) {
	all := func(accepted, denied, pending, rejected []any) map[string]any {
		return map[string]any{"minions": accepted, "minions_denied": denied, "minions_pre": pending, "minions_rejected": rejected, "local": []any{"master.pem", "master.pub"}}
	}
	none := []any{}
	for _, test := range []struct {
		name   string
		fun    string
		args   []any
		kwargs map[string]any
		want   any
		err    string
		after  map[string]any
	}{
		{"list all", "key.list_all", nil, nil, all([]any{"db1"}, none, []any{"web1", "web2"}, none), "", nil},
		{"list one state", "key.list", []any{"pre"}, nil, map[string]any{"minions_pre": []any{"web1", "web2"}}, "", nil},
		{"list no state", "key.list", []any{"wrong"}, nil, nil, `"wrong" is not a state of keys`, nil},
		{"name match", "key.name_match", []any{"*1"}, nil, map[string]any{"minions": []any{"db1"}, "minions_pre": []any{"web1"}}, "", nil},
		{"finger of nobody", "key.finger", []any{"ghost"}, nil, map[string]any{}, "", nil},
		{"accept one", "key.accept", []any{"web1"}, nil, map[string]any{"minions": []any{"web1"}}, "", all([]any{"db1", "web1"}, none, []any{"web2"}, none)},
		{"accept nobody", "key.accept", []any{"mail*"}, nil, nil, "does not match any unaccepted keys", all([]any{"db1"}, none, []any{"web1", "web2"}, none)},
		{"accepted is not rejected by itself", "key.reject", []any{"db1"}, nil, nil, "does not match any unaccepted keys", all([]any{"db1"}, none, []any{"web1", "web2"}, none)},
		{"unless it is included", "key.reject", []any{"db1"}, map[string]any{"include_accepted": true}, map[string]any{"minions_rejected": []any{"db1"}}, "", all(none, none, []any{"web1", "web2"}, []any{"db1"})},
		{"delete in every state", "key.delete", []any{"*"}, nil, map[string]any{"minions": []any{"db1"}, "minions_pre": []any{"web1", "web2"}}, "", all(none, none, none, none)},
		{"accept listed", "key.accept_dict", []any{map[string]any{"minions_pre": []any{"web2"}}}, nil, map[string]any{"minions": []any{"web2"}}, "", all([]any{"db1", "web2"}, none, []any{"web1"}, none)},
		{"listed in another state", "key.accept_dict", []any{map[string]any{"minions_rejected": []any{"web2"}}}, nil, nil, "does not match any", nil},
		{"no state", "key.delete_dict", []any{map[string]any{"minons": []any{"web2"}}}, nil, nil, `"minons" is not a state`, nil},
		{"a path is not an id", "key.delete", []any{"../minions/db1"}, nil, nil, "does not match any keys", all([]any{"db1"}, none, []any{"web1", "web2"}, none)},
	} {
		t.Run(test.name, func(t *testing.T) {
			table := Wheel(&Host{Keys: newKeys(t)})
			res := call(t, table, test.fun, test.args, test.kwargs)
			switch {
			case test.err != "":
				if res.Err == nil || !strings.Contains(res.Err.Error(), test.err) {
					t.Errorf("error is %v, want %q", res.Err, test.err)
				}
			case res.Err != nil:
				t.Error(res.Err)
			case !reflect.DeepEqual(res.Return, test.want):
				t.Errorf("returned %v, want %v", res.Return, test.want)
			}
			if test.after == nil {
				return
			}
			if now := call(t, table, "key.list_all", nil, nil); !reflect.DeepEqual(now.Return, any(test.after)) {
				t.Errorf("afterwards the keys are %v, want %v", now.Return, test.after)
			}
		})
	}
}

func TestAFingerprintNamesTheKey(t *testing.T) {
	store := newKeys(t)
	right := submit(t, store, "mail1")
	table := Table(&Host{Keys: store, Log: slog.New(slog.DiscardHandler)})
	wrong := strings.Repeat("00:", 31) + "00"
	if res := call(t, table, "manage.safe_accept", []any{"mail1", wrong}, nil); res.Err == nil {
		t.Errorf("a key with another fingerprint was accepted: %v", res.Return)
	}
	res := call(t, table, "manage.safe_accept", []any{"mail1", right.SHA256()}, nil)
	if res.Err != nil || !reflect.DeepEqual(res.Return, any(map[string]any{"minions": []any{"mail1"}})) {
		t.Errorf("returned %v, %v", res.Return, res.Err)
	}
}

func TestGroupsOfAnswers(t *testing.T) {
	rets := map[salt.MinionID]any{"a": "x", "b": int64(1), "c": "x", "d": "y"}
	down, up := group(rets, false), group(rets, true)
	names := func(pools []pool) (list [][]any) {
		for _, p := range pools {
			list = append(list, p.minions)
		}
		return list
	}
	if want := [][]any{{"a", "c"}, {"b"}, {"d"}}; !reflect.DeepEqual(names(down), want) {
		t.Errorf("down is %v, want %v", names(down), want)
	}
	if want := [][]any{{"b"}, {"d"}, {"a", "c"}}; !reflect.DeepEqual(names(up), want) {
		t.Errorf("up is %v, want %v", names(up), want)
	}
}

func TestWake(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, text := range []string{"08:00:27:13:69:77", "08-00-27-13-69-77", "080027136977"} {
		if err := wake(t.Context(), text, "127.0.0.1", conn.LocalAddr().(*net.UDPAddr).Port); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 200)
		n, _, err := conn.ReadFrom(b)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Concat([]byte("\xff\xff\xff\xff\xff\xff"), []byte(strings.Repeat("\x08\x00\x27\x13\x69\x77", 16)))
		if !slices.Equal(b[:n], want) {
			t.Errorf("%s: sent %x", text, b[:n])
		}
	}
	for _, text := range []string{"", "08:00:27:13:69", "08:00:27:13:69:7g", "x"} {
		if err := wake(t.Context(), text, "127.0.0.1", 9); err == nil {
			t.Errorf("%q was taken for an address", text)
		}
	}
}

// TestTablesAreSorted holds what the search for a function relies on, and that
// each has its words.
func TestTablesAreSorted(t *testing.T) {
	for _, table := range []function.Table{Table(&Host{}), Wheel(&Host{})} {
		order.Check(t, "modules", table.Names())
		for _, m := range table {
			order.Of(t, "functions of "+m.Name, m.Functions, func(f function.Function) string { return f.Name })
			for _, f := range m.Functions {
				if f.Doc == "" || !strings.Contains(f.Example, m.Name+"."+f.Name) {
					t.Errorf("%s.%s has no sentence, or no example of its own", m.Name, f.Name)
				}
			}
		}
	}
}

var update = flag.Bool("update", false, "write the generated documentation")

func TestGeneratedDocumentation(t *testing.T) {
	page := Table(&Host{Functions: module.Builtin()}).Markdown("Runners", "What `salt-run` can run on the master. Generated from the tables in `internal/runner`, as is the part on [wheel functions](#wheel-functions).") +
		"\n" + Wheel(&Host{}).Markdown("Wheel functions", "What `salt-run --wheel` can run: they manage the master itself.")
	path := filepath.Join("..", "..", "doc", "runners.md")
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != page {
		t.Errorf("doc/runners.md is not what the tables say (%v): run go test ./internal/runner -run Documentation -update", err)
	}
}

func TestFileserverAndOwnRunners(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "", "d/e/b": "", "_runners/mine": "#!/bin/sh\necho '{\"functions\": {\"f\": {\"doc\": \"Own.\"}}}'\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	custom := extension.New(extension.Runners, slog.New(slog.DiscardHandler), filepath.Join(dir, "_runners"))
	h := &Host{Files: fileserver.NewRoots(map[string][]string{"base": {dir}}), Custom: custom}
	for name, want := range map[salt.Function]string{
		"fileserver.file_list": "[_runners/mine a d/e/b]", "fileserver.dir_list": "[_runners d d/e]", "fileserver.envs": "[base]", "fileserver.update": "true",
		"saltutil.sync_runners": "[runners.mine]", "saltutil.sync_all": "map[runners:[runners.mine]]",
	} {
		r := Table(h).Run(t.Context(), function.Call{Function: name, Host: &function.Host{Custom: custom}})
		if got := fmt.Sprint(r.Return); !r.Success || got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	r := Table(h).Run(t.Context(), function.Call{Function: "mine.f", Host: &function.Host{Custom: custom}})
	if got, ok := r.Return.(value.Map); !r.Success || !ok || got[0].Key != "functions" {
		t.Errorf("mine.f: %+v", r)
	}
	docs := Table(h).Run(t.Context(), function.Call{Function: "doc.runner", Args: []any{"mine"}, Host: &function.Host{}})
	if got := docs.Return.(map[string]string)["mine.f"]; !strings.HasPrefix(got, "Own.") {
		t.Errorf("doc.runner: %q", got)
	}
}

// Every function of the master says what it amounts to, and runs or says what it
// calls.
func TestRowsHaveAClass(t *testing.T) {
	for _, table := range []function.Table{Table(&Host{}), Wheel(&Host{})} {
		for _, m := range table {
			for _, f := range m.Functions {
				if f.Class == function.Unclassed {
					t.Errorf("%s.%s has no class", m.Name, f.Name)
				}
				if (f.Run == nil) == (f.Calls == nil) {
					t.Errorf("%s.%s: a row has Run or Calls", m.Name, f.Name)
				}
			}
		}
	}
}

// What runs as the daemon, or reads its secrets, is among these; a change here is a
// change of who may do what.
func TestGrantedByNameOnly(t *testing.T) {
	var names []string
	for _, table := range []function.Table{Table(&Host{}), Wheel(&Host{})} {
		for _, m := range table {
			for _, f := range m.Functions {
				if f.Class.ByName() {
					names = append(names, m.Name+"."+f.Name)
				}
			}
		}
	}
	want := "acl.explain acl.lint audit.export audit.repair audit.search audit.tail audit.verify cache.mine cache.pillar cluster.backup cluster.leave cluster.remove cluster.remove_file cluster.restore cluster.step_down config.get config.reload http.query journal.backup mine.get network.wollist pillar.show_pillar reactor.list reactor.retry salt.cmd config.values"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("granted by name only: %s\nwant: %s", got, want)
	}
}

// http.query runs what minions have, with its arguments, on the master's machine.
func TestQueryOfTheMaster(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/nosuch" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"said": %q}`, r.Method+r.URL.Query().Get("a"))
	}))
	defer web.Close()
	table := Table(&Host{Functions: module.Builtin(), Machine: &function.Host{}})
	res := call(t, table, "http.query", []any{web.URL}, map[string]any{"params": map[string]any{"a": "b"}, "decode": true, "status": true})
	want := map[string]any{"body": `{"said": "GETb"}`, "dict": map[string]any{"said": "GETb"}, "status": 200}
	if !res.Success || !reflect.DeepEqual(res.Return, any(want)) {
		t.Errorf("http.query: %+v", res)
	}
	if res := call(t, table, "http.query", []any{web.URL + "/nosuch"}, nil); res.Success || res.Retcode != 1 {
		t.Errorf("a page that there is not: %+v", res)
	}
	if res := call(t, table, "http.query", []any{web.URL}, map[string]any{"nosuch": 1}); res.Success || !strings.Contains(fmt.Sprint(res.Err), "nosuch") {
		t.Errorf("an argument that there is not: %+v", res)
	}
}

func TestReadings(t *testing.T) {
	for name, c := range map[string]struct {
		c    salt.Command
		want string
	}{
		"http.query":              {salt.Command{Function: "http.query", Args: []any{"http://x/"}}, "http.query[http://x/]@4"},
		"salt.cmd":                {salt.Command{Function: "salt.cmd", Args: []any{"cmd.run", "id"}}, "cmd.run[id]@4"},
		"salt.cmd of another":     {salt.Command{Function: "salt.cmd", Args: []any{"test.cross_test", "cmd.run", "id"}}, "test.cross_test[cmd.run id]@4 salt.cmd[cmd.run id]@0"},
		"salt.cmd of the hidden":  {salt.Command{Function: "salt.cmd", Args: []any{"mine.update"}}, "mine.update[]@4 ?"},
		"salt.execute":            {salt.Command{Function: "salt.execute", Args: []any{"db*", "cmd.run", []any{"id"}}}, "db* cmd.run[id]@1"},
		"survey":                  {salt.Command{Function: "survey.hash", Args: []any{"db*", "cmd.run", "id"}, Kwargs: map[string]any{"tgt_type": "glob"}}, "db* cmd.run[id]@1"},
		"manage.down":             {salt.Command{Function: "manage.down"}, ""},
		"manage.down, keys":       {salt.Command{Function: "manage.down", Args: []any{true, "web*"}}, "key.delete[web*]@3"},
		"manage.down, by a grain": {salt.Command{Function: "manage.down", Args: []any{true, "os:x", "grain"}}, "key.delete[os:x]@3 ?"},
		"manage.safe_accept":      {salt.Command{Function: "manage.safe_accept", Args: []any{"web1", "aa"}}, "key.accept[web1]@3"},
	} {
		var words []string
		r := Table(&Host{Functions: module.Builtin()}).Read(c.c)
		for _, i := range r.Inner {
			words = append(words, strings.TrimSpace(fmt.Sprintf("%s %s%v@%d", i.Target, i.Command.Function, i.Command.Args, i.Way)))
		}
		if r.Hidden {
			words = append(words, "?")
		}
		if got := strings.Join(words, " "); got != c.want {
			t.Errorf("%s: inside is %q, want %q", name, got, c.want)
		}
	}
}
