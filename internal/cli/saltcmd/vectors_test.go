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

	"github.com/brinebus/brine/internal/argument"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/documented"
)

// different are the command lines that salt reads in another way than Salt's does.
var different = map[string][]string{
	"a number below zero is an argument, not an option": {"0523"},
	"a name that is no function is refused":             {"0555", "0556", "0582"},
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
		if code != cli.OK && code != cli.Usage {
			t.Errorf("%s %q: ends with %d", c.ID, c.Argv, code)
		}
	}
	for id := range differs {
		t.Errorf("%s is listed as different, and is no case", id)
	}
}

// read is the command up to where it would ask the master.
func read(t *testing.T, argv []string) (q protocol.Publish, code int) {
	var said bytes.Buffer
	env := &cli.Env{Name: "salt", Args: argv, Stdin: strings.NewReader(""), Stdout: &said, Stderr: &said, Getenv: func(string) string { return "" }}
	code = env.Run(t.Context(), spec(func(_ context.Context, env *cli.Env, opts *urcli.Context) (err error) {
		q, err = request(env, opts, config.NewMaster())
		return err
	}))
	if code != cli.OK && !strings.Contains(said.String(), "salt: error: ") {
		t.Errorf("%q is refused without a word: %s", argv, said.String())
	}
	return q, code
}

// asked is a request as Salt's configuration has it.
func asked(q protocol.Publish) map[string]any {
	funs, args := []any{}, []any{}
	for _, c := range q.Commands {
		funs, args = append(funs, string(c.Function)), append(args, argument.Condition(c.Args, c.Kwargs))
	}
	m := map[string]any{"tgt": any(q.Target), "tgt_type": q.TargetType, "fun": any(funs), "arg": any(args)}
	if q.TargetType == "list" {
		m["tgt"] = value.Texts(strings.Split(q.Target, ","))
		if q.Target == "" {
			m["tgt"] = []any{}
		}
	}
	if !q.Compound {
		m["fun"], m["arg"] = funs[0], args[0]
	}
	return m
}

// optionsOf are those of the options that a case has.
func optionsOf(q protocol.Publish, of map[string]string) map[string]string {
	all := map[string]string{"delimiter": q.Delimiter, "batch": q.Batch.Size}
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
		"-u%root": "hears from the kernel", "--user=root": "hears from the kernel",
	} {
		var said bytes.Buffer
		env := &cli.Env{Name: "salt", Args: append(strings.Split(option, "%"), "*", "test.ping"), Stdout: &said, Stderr: &said, Getenv: func(string) string { return "" }}
		if code := Run(t.Context(), env); code != cli.Usage || !strings.Contains(said.String(), want) || !strings.Contains(said.String(), "hint: ") {
			t.Errorf("%s: ends with %d\n%s", option, code, said.String())
		}
	}
}
