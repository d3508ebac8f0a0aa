package yamlfile_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/argument"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/grain"
	"github.com/brinebus/brine/internal/pillar"
	"github.com/brinebus/brine/internal/reactor"
	"github.com/brinebus/brine/internal/sink"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/yamlfile"
)

// put writes a file into a new directory, and returns the directory.
func put(t *testing.T, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// setting reads a setting of a minion's configuration.
func setting(t *testing.T, text string, of func(*config.Minion) any) any {
	t.Helper()
	cfg, _, err := config.LoadMinion(put(t, "minion", "id: web1\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return of(cfg)
}

// ways are those by which words come in; each gives a word as a value.
var ways = map[string]func(t *testing.T, word string) any{
	"an argument":               func(t *testing.T, word string) any { return arguments(t, word)[0] },
	"an argument within a list": func(t *testing.T, word string) any { return arguments(t, "["+word+", 1]")[0].([]any)[0] },
	"an argument by name": func(t *testing.T, word string) any {
		_, kwargs, err := argument.Parse([]string{"x=" + word}, argument.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return kwargs["x"]
	},
	"the setting grains": func(t *testing.T, word string) any {
		return setting(t, "grains: {x: "+word+"}\n", func(c *config.Minion) any { return c.Grains["x"] })
	},
	"the setting schedule": func(t *testing.T, word string) any {
		return setting(t, "schedule:\n  x: "+word+"\n", func(c *config.Minion) any { return c.Schedule.Value().(map[string]any)["x"] })
	},
	"the setting beacons": func(t *testing.T, word string) any {
		return setting(t, "beacons:\n  x: "+word+"\n", func(c *config.Minion) any { return c.Beacons.Value().(map[string]any)["x"] })
	},
	"the setting mine_functions": func(t *testing.T, word string) any {
		return setting(t, "mine_functions:\n  x: "+word+"\n", func(c *config.Minion) any { return c.MineFunctions.Value().(map[string]any)["x"] })
	},
	"a master's setting": func(t *testing.T, word string) any {
		cfg, _, err := config.LoadMaster(put(t, "master", "nodegroups: {x: ["+word+"]}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Nodegroups.Value().(map[string]any)["x"].([]any)[0]
	},
	"the file of grains": func(t *testing.T, word string) any {
		g, err := grain.Collect(t.Context(), grain.Options{GrainsFile: filepath.Join(put(t, "grains", "x: "+word+"\n"), "grains")})
		if err != nil {
			t.Fatal(err)
		}
		return g["x"]
	},
	"pillar": func(t *testing.T, word string) any {
		dir := put(t, "top.sls", "base:\n  '*': [a]\n")
		if err := os.WriteFile(filepath.Join(dir, "a.sls"), []byte("x: "+word+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := pillar.Compile(target.Facts{ID: "web1"}, pillar.Options{Roots: map[string][]string{"base": {dir}}})
		if err != nil {
			t.Fatal(err)
		}
		return p["x"]
	},
	"a file of the reactor, and what functions keep": func(t *testing.T, word string) any {
		rules, err := config.ReadRules(filepath.Join(put(t, "job", "x: "+word+"\n"), "job"))
		if err != nil {
			t.Fatal(err)
		}
		return rules.Value().(map[string]any)["x"]
	},
}

func arguments(t *testing.T, words ...string) []any {
	t.Helper()
	args, _, err := argument.Parse(words, argument.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return args
}

// TestWordsMeanTheSameByAllWays: a word is the same value wherever it comes in. Arguments know no
// sexagesimal numbers, as in Salt: on a command line 1:30 is an address or a time.
func TestWordsMeanTheSameByAllWays(t *testing.T) {
	for word, want := range map[string]any{
		"yes": true, "No": false, "ON": true, "off": false, "true": true, "False": false, "y": "y", "null": nil, "~": nil,
		"7": int64(7), "010": int64(10), "0888": "0888", "0x1f": int64(31), "0b11": int64(3), "0o17": "0o17", "-5": int64(-5),
		"1.5": 1.5, "1e3": "1e3", "1.0e+3": 1000.0,
		"2026-01-02": "2026-01-02", "2026-01-02T10:00:00": "2026-01-02T10:00:00", "web1": "web1", "10.0.0.1": "10.0.0.1",
	} {
		for name, read := range ways {
			if got := read(t, word); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s is %#v, want %#v", name, word, got, want)
			}
		}
	}
	for name, read := range ways {
		want := any(int64(90))
		if name == "an argument" || name == "an argument by name" || name == "an argument within a list" {
			want = "1:30"
		}
		if got := read(t, "1:30"); got != want {
			t.Errorf("%s: 1:30 is %#v, want %#v", name, got, want)
		}
	}
}

// TestNumbersOfSettingsMeanTheSame: a setting of a type reads a number in each of its forms, too.
func TestNumbersOfSettingsMeanTheSame(t *testing.T) {
	const limit = 90 * time.Second
	for _, word := range []string{"90", "0x5a", "1:30", "9_0", "90.0"} {
		cfg, _, err := config.LoadMaster(put(t, "master", "timeout: "+word+"\n"))
		if err != nil || cfg.Timeout != limit {
			t.Errorf("%s: %v, %v of a setting", word, cfg, err)
		}
		rules, err := reactor.Parse(located(t, "reactor: [{my/tag: [{run: [/bin/true], time_limit: "+word+", retries: 0x10}]}]\n"), "/")
		if err != nil || rules[0].Limit != limit || rules[0].Retries != 16 {
			t.Errorf("%s: %+v, %v of the reactor", word, rules, err)
		}
		const rule = "rules: {x: {wait: %s, batch: 0x10, to: {file: {path: /x, compress: yes}}}}\n"
		if _, err := sink.Load(filepath.Join(put(t, "sink", fmt.Sprintf(rule, word)), "sink")); err != nil {
			t.Errorf("%s: %v of a sink", word, err)
		}
		if _, err := sink.Load(filepath.Join(put(t, "sink", fmt.Sprintf(rule, "1:00:01")), "sink")); err == nil || !strings.Contains(err.Error(), "1:00:01 is not within 0s and 1h0m0s") {
			t.Errorf("more than an hour: %v", err)
		}
	}
}

// located is the only setting of a text.
func located(t *testing.T, text string) config.Located {
	t.Helper()
	cfg, _, err := config.LoadMaster(put(t, "master", text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Reactor
}

// TestWhatFunctionsKeepIsReadAgain: what a function has changed stays what it was after a start.
func TestWhatFunctionsKeepIsReadAgain(t *testing.T) {
	want := map[string]any{"job": map[string]any{"job_args": []any{"yes", "010", "1:30", "0xdeadbeefdeadbeefdeadbeef", 1e6, int64(7), nil}, "seconds": 1e20}}
	text, err := config.DropIn("schedule", want)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := config.ReadRules(filepath.Join(put(t, "_schedule.conf", text), "_schedule.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if got := rules.Value().(map[string]any)["schedule"]; !reflect.DeepEqual(got, any(want)) {
		b, _ := json.Marshal(got)
		t.Errorf("%s\nis read as %s", text, b)
	}
	if yamlfile.Plain("1:30") != "90" || yamlfile.Plain("90s") != "90s" || yamlfile.Plain(".inf") != ".inf" {
		t.Error("a word that counts units is not in plain digits, or one with a unit is changed")
	}
}
