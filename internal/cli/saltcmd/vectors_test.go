package saltcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/documented"
)

// different are the command lines that salt reads in another way than Salt's does.
var different = map[string][]string{
	"a number below zero is an argument, not an option": {"0523"},
	"a name that is not a function is refused":          {"0555", "0556", "0582"},
}

// TestCommandLinesAsInSalt has the command read what Salt's has read.
func TestCommandLinesAsInSalt(t *testing.T) {
	text, err := os.ReadFile("testdata/salt_cli.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			ID            string
			Argv          []string
			TgtType       string `json:"tgt_type"`
			Tgt, Fun, Arg value.Value
			Exit          int
			Options       map[string]string
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	documented.Differences(t, slices.Collect(maps.Keys(different))...)
	differs := map[string]string{}
	for reason, ids := range different {
		for _, id := range ids {
			differs["cli_args-"+id] = reason
		}
	}
	var count documented.Comparison
	for _, c := range file.Cases {
		q, code := read(t, c.Argv)
		got, want := map[string]any{"refused": code != cli.OK}, map[string]any{"refused": c.Exit != 0}
		if code == cli.OK {
			maps.Copy(got, asked(q))
			got["options"] = optionsOf(q, c.Options)
		}
		if c.Exit == 0 {
			maps.Copy(want, map[string]any{"tgt": c.Tgt, "tgt_type": c.TgtType, "fun": c.Fun, "arg": c.Arg, "options": c.Options})
		}
		a, b := wire(t, got), wire(t, want)
		reason, listed := differs[c.ID]
		delete(differs, c.ID)
		switch {
		case a == b && listed:
			t.Errorf("%s agrees with Salt, but is listed as different: %s", c.ID, reason)
		case a != b && !listed:
			t.Errorf("%s %q:\n got %s\nwant %s", c.ID, c.Argv, a, b)
		}
		count.Count(documented.Refusal(a == b, code == cli.OK, c.Exit == 0))
		if code != cli.OK && code != cli.Usage {
			t.Errorf("%s %q: ends with %d", c.ID, c.Argv, code)
		}
	}
	for id := range differs {
		t.Errorf("%s is listed as different, and is not a case", id)
	}
	count.Stands(t, "command lines of `salt`")
}

// read is the command up to where it would ask the master.
func read(t *testing.T, argv []string) (q request, code int) {
	var said bytes.Buffer
	env := &cli.Env{Name: "salt", Args: argv, Stdin: strings.NewReader(""), Stdout: &said, Stderr: &said, Getenv: func(string) string { return "" }}
	code = env.Run(t.Context(), spec(func(_ context.Context, env *cli.Env, opts *urcli.Context) (err error) {
		q, err = readRequest(env, opts, config.NewMaster())
		return err
	}))
	if code != cli.OK && !strings.Contains(said.String(), "salt: error: ") {
		t.Errorf("%q is refused without a word: %s", argv, said.String())
	}
	return q, code
}

// asked is a request as Salt's configuration has it.
func asked(q request) map[string]any {
	funs, args := []any{}, []any{}
	for _, c := range q.commands {
		funs, args = append(funs, c.Function), append(args, argumentsOf(c))
	}
	m := map[string]any{"tgt": any(q.target.Expr), "tgt_type": q.target.Type, "fun": any(funs), "arg": any(args)}
	if q.target.Type == "list" {
		m["tgt"] = value.Texts(strings.Split(q.target.Expr, ","))
		if q.target.Expr == "" {
			m["tgt"] = []any{}
		}
	}
	if !q.compound {
		m["fun"], m["arg"] = funs[0], args[0]
	}
	return m
}

// argumentsOf are those of a command in one list, the keywords as its last item.
func argumentsOf(c brine.Command) any {
	list := append([]any{}, c.Args...)
	if len(c.Kwargs) == 0 {
		return list
	}
	last := maps.Clone(c.Kwargs)
	last["__kwarg__"] = true
	return append(list, last)
}

// TestJobIDsAreText: a job id among the arguments of a function is text, as Salt sends it.
func TestJobIDsAreText(t *testing.T) {
	const jid = "20240101000000000000"
	q, _ := read(t, []string{"web1", "test.arg", jid, "jid=" + jid})
	if c := q.commands[0]; c.Args[0] != jid || c.Kwargs["jid"] != jid {
		t.Errorf("sent as %v %v, want text", c.Args, c.Kwargs)
	}
}

// optionsOf are those of the options that a case has.
func optionsOf(q request, of map[string]string) map[string]string {
	all := map[string]string{"delimiter": q.target.Delimiter, "batch": q.options.Batch}
	maps.DeleteFunc(all, func(name, _ string) bool { _, asked := of[name]; return !asked })
	if len(of) == 0 {
		return nil
	}
	return all
}

func wire(t *testing.T, v map[string]any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestOptionsThatAreRefused gives options of Salt that would not do here what they say.
func TestOptionsThatAreRefused(t *testing.T) {
	for option, want := range map[string]string{
		"-R%x": "--range: there are no range servers", "--range=%x": "no range servers", "--gather-job-timeout=3": "say so by themselves",
		"-H": "there are no rosters", "--module-executors=[sudo]": "--module-executors: there are no executors", "--executor-opts={}": "--executor-opts: there are no executors",
		"-u%root": "hears from the kernel", "--user=root": "hears from the kernel",
	} {
		var said bytes.Buffer
		env := &cli.Env{Name: "salt", Args: append(strings.Split(option, "%"), "*", "test.ping"), Stdout: &said, Stderr: &said, Getenv: func(string) string { return "" }}
		if code := Run(t.Context(), env); code != cli.Usage || !strings.Contains(said.String(), want) || !strings.Contains(said.String(), "hint: ") {
			t.Errorf("%s: ends with %d\n%s", option, code, said.String())
		}
	}
}
