package module

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/order"
)

var update = flag.Bool("update", false, "rewrite the generated documentation")

// minionData implements function.Data.
type minionData struct{ grains, pillar map[string]any }

func (d minionData) Grains() map[string]any { return d.grains }
func (d minionData) Pillar() map[string]any { return d.pillar }
func (minionData) PillarErrors() []string   { return nil }

// dataFunc implements function.Data that changes.
type dataFunc func() minionData

func (f dataFunc) Grains() map[string]any { return f().grains }
func (f dataFunc) Pillar() map[string]any { return f().pillar }
func (dataFunc) PillarErrors() []string   { return nil }

// run calls a function on host as a job does.
func run(t testing.TB, host *function.Host, name string, kwargs map[string]any, args ...any) function.Result {
	t.Helper()
	r := Run(t.Context(), function.Call{JID: "20261121113344286549", Function: salt.Function(name), Args: args, Kwargs: kwargs, Host: host, Reach: salt.Reach{Free: true, Programs: true}})
	if _, err := value.Encode(r.Return); err != nil {
		t.Errorf("%s returned what cannot be sent: %v", name, err)
	}
	if r.Success != (r.Retcode == 0) {
		t.Errorf("%s: success %v with return code %d", name, r.Success, r.Retcode)
	}
	return r
}

// wire is a return as it arrives at the other side.
func wire(t testing.TB, v any) any {
	t.Helper()
	b, err := value.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	back, err := value.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// good calls a function that must succeed and returns its answer as it arrives
// at the other side.
func good(t testing.TB, host *function.Host, name string, kwargs map[string]any, args ...any) any {
	t.Helper()
	r := run(t, host, name, kwargs, args...)
	if !r.Success {
		t.Fatalf("%s%v: %v (retcode %d)", name, args, r.Return, r.Retcode)
	}
	return wire(t, r.Return)
}

// bad calls a function that must fail with a text that contains want.
func bad(t testing.TB, host *function.Host, name, want string, kwargs map[string]any, args ...any) function.Result {
	t.Helper()
	r := run(t, host, name, kwargs, args...)
	text, _ := r.Return.(string)
	if r.Success || r.Err == nil || !strings.Contains(text, want) {
		t.Errorf("%s%v = %v, success %v, err %v; want a failure with %q", name, args, r.Return, r.Success, r.Err, want)
	}
	return r
}

// same compares answers by their encoded form.
func same(t testing.TB, what string, got, want any) {
	t.Helper()
	g, err := value.Encode(got)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	w, err := value.Encode(want)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if string(g) != string(w) {
		t.Errorf("%s = %s, want %s", what, g, w)
	}
}

func TestTablesAreSortedAndDocumented(t *testing.T) {
	order.Check(t, "registry.go", modules.Names())
	for _, m := range modules {
		if m.Doc == "" {
			t.Errorf("%s has no documentation", m.Name)
		}
		order.Of(t, "functions of "+m.Name, m.Functions, func(f function.Function) string { return f.Name })
		for i := range m.Functions {
			checkDeclaration(t, m.Name, &m.Functions[i])
		}
	}
}

func checkDeclaration(t *testing.T, module string, f *function.Function) {
	name := module + "." + f.Name
	if _, err := salt.ParseFunction(name); err != nil {
		t.Error(err)
	}
	if f.Run == nil && f.Calls == nil || f.Doc == "" || !strings.HasSuffix(f.Doc, ".") {
		t.Errorf("%s lacks its function or a sentence of documentation", name)
	}
	if !strings.Contains(f.Example, name) {
		t.Errorf("%s: the example %q does not call it", name, f.Example)
	}
	line, optional := modules.SignatureLine(name), false
	for _, p := range f.Params {
		if !strings.Contains(line, p.Name) {
			t.Errorf("%s: %q is not in the signature %q", name, p.Name, line)
		}
		if p.Required && optional {
			t.Errorf("%s: the required %q follows an optional parameter", name, p.Name)
		}
		optional = optional || !p.Required
		if p.Default == nil {
			continue
		}
		if p.Required {
			t.Errorf("%s: %q is required and has a default", name, p.Name)
		}
		checkDefault(t, name, p)
	}
}

// checkDefault has a function of that parameter alone read it.
func checkDefault(t *testing.T, name string, p function.Param) {
	read := func(_ context.Context, c *function.Call) (any, error) {
		switch p.Kind {
		case function.String, function.Path:
			c.String(p.Name)
		case function.Int:
			c.Int(p.Name)
		case function.Float:
			c.Float(p.Name)
		case function.Bool:
			c.Bool(p.Name)
		case function.Words:
			c.Words(p.Name)
		case function.List:
			c.List(p.Name)
		case function.Map:
			c.Map(p.Name)
		}
		return nil, nil
	}
	table := function.Table{{Name: "m", Functions: []function.Function{{Name: "f", Params: []function.Param{p}, Run: read}}}}
	if r := table.Run(t.Context(), function.Call{Function: "m.f"}); r.Err != nil {
		t.Errorf("%s: the default of %q does not fit its kind: %v", name, p.Name, r.Err)
	}
}

func TestGeneratedDocumentation(t *testing.T) {
	page := modules.Markdown("Functions", "What a minion can run. Generated from the tables in `internal/module`.")
	path := filepath.Join("..", "..", "doc", "functions.md")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != page {
		t.Errorf("doc/functions.md is not what the tables say (%v): run go test ./internal/module -run Documentation -update", err)
	}
}

func TestSignatures(t *testing.T) {
	for function, want := range map[string]string{
		"test.ping":       "test.ping()",
		"test.echo":       "test.echo(text)",
		"test.rand_sleep": "test.rand_sleep(max=60)",
		"test.arg":        "test.arg(*args, **kwargs)",
		"test.exception":  "test.exception(message='Test Exception')",
		"test.try":        "test.try(module, *args, return_try_exception=False, **kwargs)",
		"config.option":   "config.option(value, default='')",
		"nosuch.fun":      "",
	} {
		if got := modules.SignatureLine(function); got != want {
			t.Errorf("SignatureLine(%q) = %q, want %q", function, got, want)
		}
	}
}

func TestPatternsSelectFunctions(t *testing.T) {
	if all := modules.Functions(""); !slices.Contains(all, "test.ping") {
		t.Errorf("all functions: %v", all)
	}
	for pattern, want := range map[string][]string{
		"test.ping":       {"test.ping"},
		"test.arg_*":      {"test.arg_clean", "test.arg_repr", "test.arg_type"},
		"test.[tf]r*":     {"test.true", "test.try"},
		"config":          {"config.get", "config.items", "config.option"},
		"tes":             {},
		"test.[":          {},
		"config.[!g]*":    {"config.items", "config.option"},
		"config.[^g]*":    {"config.get"}, // fnmatch knows no other negation than !
		"test.versions_*": {"test.versions_information", "test.versions_report"},
	} {
		if got := modules.Functions(pattern); !slices.Equal(got, want) {
			t.Errorf("Functions(%q) = %v, want %v", pattern, got, want)
		}
	}
	doc := modules.Docs("test.echo")["test.echo"]
	for _, want := range []string{"Return the argument.", "test.echo(text)", "CLI Example:", "    salt '*' test.echo"} {
		if !strings.Contains(doc, want) {
			t.Errorf("the documentation of test.echo lacks %q:\n%s", want, doc)
		}
	}
}

func TestUnknownFunction(t *testing.T) {
	for name, want := range map[string]string{
		"nosuch.fun":     "'nosuch.fun' is not available.",
		"test.pign":      "'test.pign' is not available. Did you mean test.ping?",
		"tests.ping":     "'tests.ping' is not available. Did you mean test.ping",
		"nosuch.ping":    "'nosuch.ping' is not available.",
		"schedule.purge": "'schedule.purge' is not available.", // not pkg.purge, which removes
		"pkg.remov":      "'pkg.remov' is not available.",
		"cmd.rum":        "'cmd.rum' is not available.",
		"state.apply":    "'state.apply' is not available. Brine does not have the states of Salt. Instead: pkg.*,",
		"docker.ps":      "Instead: cmd.run with docker",
		"test":           "'test' is not available.",
		"":               "'' is not available.",
	} {
		r := bad(t, nil, name, want, nil)
		var unknown *function.UnknownError
		if !errors.As(r.Err, &unknown) || r.Retcode != 1 {
			t.Errorf("%s: %v, retcode %d", name, r.Err, r.Retcode)
		}
	}
}

// TestNothingRiskyIsProposed: one letter too few never leads to what removes, ends or runs
// something; what is left out as a whole is said before a word of another module.
func TestNothingRiskyIsProposed(t *testing.T) {
	for _, name := range []string{
		"beacons.reset", "cmd.retcode", "cmd.run", "cmd.run_all", "cmd.script", "cmd.shell", "data.clear", "data.pop", "file.remove", "file.truncate", "group.delete", "mount.swapoff", "mount.umount",
		"pkg.autoremove", "pkg.del_repo", "pkg.purge", "pkg.remove", "pkg.unhold", "ps.kill_pid", "saltutil.kill_job", "saltutil.regen_keys", "saltutil.revoke_auth", "saltutil.wheel",
		"schedule.delete", "schedule.run_job", "service.stop", "shadow.lock_password", "system.reboot", "user.delete",
	} {
		if _, f := modules.Find(name); f == nil {
			t.Errorf("%s is not a function", name)
		}
		if r := run(t, nil, name[:len(name)-1], nil); strings.Contains(fmt.Sprint(r.Return), name) {
			t.Errorf("%s", r.Return)
		}
	}
	for name, want := range map[string]string{
		"schedule.purge": "'schedule.purge' is not available. Brine does not have the removal of all jobs at once. Instead: schedule.list, and schedule.delete for each job.",
		"pkg.remov":      "'pkg.remov' is not available.", "cmd.rum": "'cmd.rum' is not available.", "nosuch.ping": "'nosuch.ping' is not available.",
		"file.nosuch": "'file.nosuch' is not available.", "file.touhc": "'file.touhc' is not available. Did you mean file.touch?", "pkg.instll": "'pkg.instll' is not available. Did you mean pkg.install?",
		"service.rstrt": "'service.rstrt' is not available.", "file.reed": "'file.reed' is not available. Did you mean file.read?",
		"saltutil.sync_module": "'saltutil.sync_module' is not available. Did you mean saltutil.sync_modules?", "x509.read_certificat": "'x509.read_certificat' is not available. Did you mean x509.read_certificate?",
		"saltutil.sync_states":    "'saltutil.sync_states' is not available. Brine does not have the copying of modules of other kinds. Instead: saltutil.sync_all, which copies the kinds that Brine has: modules, grains and returners.",
		"state.orchestrate":       "'state.orchestrate' is not available. Brine does not have the orchestration of states. Instead: a script that calls salt, whose exit codes say what happened, and salt-event wait; or the reactor: see doc/reactor.md.",
		"x509.create_certificate": "'x509.create_certificate' is not available. Brine does not have the making of certificates. Instead: cmd.run with openssl.",
	} {
		same(t, name, run(t, nil, name, nil).Return, want)
	}
}

func BenchmarkPing(b *testing.B) {
	host, ctx := &function.Host{}, context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if r := Run(ctx, function.Call{Function: "test.ping", Host: host}); r.Return != true {
			b.Fatal(r)
		}
	}
}

func BenchmarkUnknown(b *testing.B) {
	for b.Loop() {
		Run(context.Background(), function.Call{Function: "nosuch.pign"})
	}
}
