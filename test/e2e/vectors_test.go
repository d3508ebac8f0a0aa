package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/brinebus/brine/internal/argument"
	"github.com/brinebus/brine/internal/output"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/value"
)

// The cases answered by Salt 3006 are compared with the packages by the tests
// there, which list what differs. The commands here see to it that the programs
// answer as the packages do: nothing is lost between a command line, the master,
// the minions and what is printed.

// words gives each case of internal/argument to salt-call on a minion of fleet.
func words(_ *system, ts *testscript.TestScript, _ []string) error {
	var file struct {
		Cases []struct {
			ID, Kind string
			Words    []any
			NoParse  []string `json:"no_parse"`
		}
	}
	if err := loadCases("argument/testdata/cli_args.json", &file); err != nil {
		return err
	}
	json, err := output.New("json", output.Options{})
	if err != nil {
		return err
	}
	return each(file.Cases, func(i int) error {
		c := file.Cases[i]
		list, ok := texts(c.Words)
		if c.Kind != "words" || !ok {
			return nil
		}
		args, kwargs, err := argument.Parse(list, argument.Options{NoParse: c.NoParse})
		if err != nil {
			return nil // the tests of the tools have those
		}
		maps.DeleteFunc(kwargs, func(name string, _ any) bool { return strings.HasPrefix(name, "__") }) // no function gets them
		want, err := json.Format(map[string]any{"local": map[string]any{"args": args, "kwargs": kwargs}})
		if err != nil {
			return err
		}
		command := []string{"salt-call", "--config-dir=web1", "--local", "--out=json", "--no-parse=" + strings.Join(c.NoParse, ","), "--", "test.arg"}
		got, err := printed(ts, append(command, list...)...)
		if err == nil && strings.TrimSpace(got) != strings.TrimSpace(want) {
			err = fmt.Errorf("printed %s, want %s", got, want)
		}
		return wrap(c.ID, err)
	})
}

// texts returns a list of texts, or that it is none. A NUL cannot be in the
// arguments of a program.
func texts(list []any) ([]string, bool) {
	var out []string
	for _, v := range list {
		s, ok := v.(string)
		if !ok || strings.ContainsRune(s, 0) {
			return nil, false
		}
		out = append(out, s)
	}
	return out, true
}

// fixture is the file of cases of internal/target.
type fixture struct {
	Minions []struct {
		ID             string
		Grains, Pillar value.Value
	}
	Nodegroups value.Value
	Cases      []struct {
		ID        string
		Tgt       value.Value
		TgtType   string `json:"tgt_type"`
		Delimiter string
	}
}

// letters are the options of salt by the kind of target.
var letters = map[string]string{
	"glob": "", "pcre": "-E", "list": "-L", "grain": "-G", "grain_pcre": "-P", "pillar": "-I", "pillar_pcre": "-J",
	"nodegroup": "-N", "ipcidr": "-S", "compound": "-C",
}

// loadCases reads a file below internal.
func loadCases(path string, into any) error {
	b, err := os.ReadFile(filepath.Join("..", "..", "internal", path))
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// fleet sets up a master and the minions of internal/target, with their grains, their
// pillar and the nodegroups.
func fleet(s *system, ts *testscript.TestScript, _ []string) error {
	var f fixture
	if err := loadCases("target/testdata/targeting.json", &f); err != nil {
		return err
	}
	var ids []string
	top := map[string]any{}
	pillars := filepath.Join(s.work, "master", "pillar")
	for _, m := range f.Minions {
		if _, err := salt.ParseMinionID(m.ID); err != nil {
			continue
		}
		ids = append(ids, m.ID)
		name := "m" + strings.ReplaceAll(m.ID, ".", "_")
		top["L@"+m.ID] = []any{map[string]any{"match": "compound"}, name}
		if err := writeJSON(filepath.Join(pillars, name+".sls"), m.Pillar.V); err != nil {
			return err
		}
	}
	if err := setup(s, ts, ids); err != nil {
		return err
	}
	for _, m := range f.Minions {
		if !slices.Contains(ids, m.ID) {
			continue
		}
		grains := maps.Clone(m.Grains.V.(map[string]any))
		delete(grains, "id")
		if err := writeJSON(filepath.Join(s.work, m.ID, "minion.d", "grains.conf"), map[string]any{"grains": grains}); err != nil {
			return err
		}
	}
	return errors.Join(
		writeJSON(filepath.Join(pillars, "top.sls"), map[string]any{"base": top}),
		writeJSON(filepath.Join(s.work, "master", "master.d", "fleet.conf"), map[string]any{
			"nodegroups": f.Nodegroups.V, "pillar_roots": map[string]any{"base": []any{pillars}},
		}),
		start(s, ts, append([]string{"master"}, ids...)),
		accept(s, ts, ids))
}

func writeJSON(path string, v any) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	text, err := output.New("json", output.Options{})
	if err != nil {
		return err
	}
	b, err := text.Format(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(b), 0o644)
}

// targets gives each case of internal/target to salt. The minions that ran the job must
// be those that package target means, by the facts that the master shows.
func targets(_ *system, ts *testscript.TestScript, _ []string) error {
	var f fixture
	if err := loadCases("target/testdata/targeting.json", &f); err != nil {
		return err
	}
	facts, err := shown(ts)
	if err != nil {
		return err
	}
	groups := f.Nodegroups.V.(map[string]any)
	var matched atomic.Int64
	err = each(f.Cases, func(i int) error {
		c := f.Cases[i]
		letter, known := letters[c.TgtType]
		expr, ok := c.Tgt.V.(string)
		if list, is := c.Tgt.V.([]any); is && c.TgtType == "list" {
			var words []string
			words, ok = texts(list)
			expr = strings.Join(words, ",")
		}
		if !known || !ok || strings.ContainsRune(expr, 0) {
			return nil
		}
		command := []string{"salt", "--static", "--timeout=60", "--out=json"}
		if c.Delimiter != "" {
			command = append(command, "--delimiter="+c.Delimiter)
		}
		if letter != "" {
			command = append(command, letter)
		}
		got, _ := printed(ts, append(command, "--", expr, "test.ping")...)
		ran := returned(got)
		if c.TgtType == "list" {
			expr = withoutBlanks(expr)
		}
		if want := meant(expr, c.TgtType, target.Options{Delimiter: c.Delimiter, Nodegroups: groups}, facts); !slices.Equal(ran, want) {
			return fmt.Errorf("%s: %s %q: %v ran it, want %v", c.ID, c.TgtType, expr, ran, want)
		}
		matched.Add(int64(len(ran)))
		return nil
	})
	if err == nil && matched.Load() < int64(len(f.Cases)) {
		err = fmt.Errorf("%d cases mean %d minions only: the facts of the fleet are missing", len(f.Cases), matched.Load())
	}
	return err
}

// shown are the facts that the master has.
func shown(ts *testscript.TestScript) ([]target.Facts, error) {
	tables := [2]map[string]any{}
	for i, fun := range []string{"cache.grains", "cache.pillar"} {
		text, err := printed(ts, "salt-run", fun, "--out=json")
		if err != nil {
			return nil, err
		}
		v, err := value.Decode([]byte(text))
		if err != nil {
			return nil, err
		}
		tables[i], _ = v.(map[string]any)
	}
	var facts []target.Facts
	for _, id := range slices.Sorted(maps.Keys(tables[0])) {
		grains, _ := tables[0][id].(map[string]any)
		pillar, _ := tables[1][id].(map[string]any)
		facts = append(facts, target.Facts{ID: salt.MinionID(id), Grains: grains, Pillar: pillar})
	}
	return facts, nil
}

// meant are the ids that a target matches, sorted; none where it is refused.
func meant(expr, kindName string, o target.Options, facts []target.Facts) []string {
	kind, err := target.ParseKind(kindName)
	if err != nil {
		return nil
	}
	t, err := target.Parse(expr, kind, o)
	if err != nil || len(t.Impossible()) > 0 {
		return nil
	}
	var ids []string
	for _, f := range facts {
		if ok, err := t.Match(f); ok && err == nil {
			ids = append(ids, string(f.ID))
		}
	}
	return ids
}

// withoutBlanks is a list as salt gives it on: people put blanks between names.
func withoutBlanks(list string) string {
	if strings.Contains(list, ",") {
		return strings.ReplaceAll(list, " ", "")
	}
	return strings.Join(strings.Fields(list), ",")
}

// returned are the ids whose return is true, sorted.
func returned(text string) []string {
	var all map[string]any
	if json.Unmarshal([]byte(text), &all) != nil {
		return nil
	}
	var ids []string
	for id, v := range all {
		if v == true {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// printed runs a program and returns its standard output.
func printed(ts *testscript.TestScript, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), runTime)
	defer cancel()
	c, err := (&invocation{args: args}).cmd(ctx, ts)
	if err != nil {
		return "", err
	}
	out, err := c.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	return string(out), err
}

// each calls f for each case, some at a time, and joins what it complains about.
func each[T any](cases []T, f func(int) error) error {
	errs := make([]error, len(cases))
	next := make(chan int)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range next {
				errs[i] = f(i)
			}
		})
	}
	for i := range cases {
		next <- i
	}
	close(next)
	all.Wait()
	return errors.Join(errs...)
}

func wrap(id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", id, err)
}

// outputs gives each case of internal/output, whose data can stand on a command line, to
// a minion, which returns it, and salt prints it.
func outputs(_ *system, ts *testscript.TestScript, _ []string) error {
	var file struct {
		Cases []struct {
			ID   string
			Out  string
			Opts map[string]any
			Data json.RawMessage
		}
	}
	if err := loadCases("output/testdata/outputters.json", &file); err != nil {
		return err
	}
	var shown atomic.Int64
	err := each(file.Cases, func(i int) error {
		c := file.Cases[i]
		color, ok := c.Opts["color"].(bool)
		if !ok || len(c.Opts) > 1 || !slices.Contains(output.Names(), c.Out) {
			return nil
		}
		data, word, ok := onCommandLine(c.Data)
		if !ok {
			return nil
		}
		want, err := whole(c.Out, color, data)
		if err != nil {
			return err
		}
		command := []string{"salt", "--static", "--timeout=60", "--out=" + c.Out, map[bool]string{true: "--force-color", false: "--no-color"}[color]}
		got, err := printed(ts, append(command, "--", "web1", "test.outputter", word)...)
		if err == nil && got != want {
			err = fmt.Errorf("printed %q, want %q", got, want)
		}
		shown.Add(1)
		return wrap(c.ID, err)
	})
	if err == nil && shown.Load() < int64(len(file.Cases))/2 {
		err = fmt.Errorf("only %d of %d cases were shown", shown.Load(), len(file.Cases))
	}
	return err
}

// onCommandLine returns what web1 returns in a case, and the word of a command
// line that means it; false if no word does, or if it means a failure.
func onCommandLine(raw json.RawMessage) (data any, word string, ok bool) {
	if strings.Contains(string(raw), `"$`) {
		return nil, "", false // a value that JSON does not know
	}
	all, err := value.Decode(raw)
	minions, one := all.(map[string]any)
	data, there := minions["web1"]
	if err != nil || !one || !there || len(minions) > 1 {
		return nil, "", false
	}
	if m, is := data.(map[string]any); is && (m["result"] == false || m["success"] == false) {
		return nil, "", false
	}
	b, err := value.Encode(data)
	if err != nil {
		return nil, "", false
	}
	args, kwargs, err := argument.Parse([]string{string(b)}, argument.Options{})
	if err != nil || len(args) != 1 || len(kwargs) > 0 {
		return nil, "", false
	}
	back, err := value.Encode(args[0])
	return data, string(b), err == nil && string(back) == string(b)
}

// whole is what package output prints for a return of web1.
func whole(name string, color bool, data any) (string, error) {
	var b strings.Builder
	w, err := output.NewWriter(&b, name, output.Options{Color: color, Static: true})
	if err != nil {
		return "", err
	}
	err = errors.Join(w.Return(output.Return{ID: "web1", Value: data}), w.Close())
	return b.String(), err
}
