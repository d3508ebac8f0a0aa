package scalar_test

import (
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/argument"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/grain"
	"github.com/brinebus/brine/internal/pillar"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/yamlfile/scalar"
)

// words are what people write, and what Salt reads in a file.
var words = map[string]any{
	"yes": true, "On": true, "TRUE": true, "no": false, "off": false, "y": "y", "nO": "nO",
	"~": nil, "null": nil,
	"0": int64(0), "7": int64(7), "-7": int64(-7), "+7": int64(7), "010": int64(10), "0777": int64(777), "0888": "0888", "007": int64(7),
	"0x1F": int64(31), "0b101": int64(5), "0o17": "0o17", "9223372036854775808": huge("9223372036854775808"),
	"1.5": 1.5, ".5": 0.5, "1.": 1.0, "-.5": "-.5", "1e3": "1e3", "1.0e+3": 1000.0, ".inf": math.Inf(1), "-.Inf": math.Inf(-1), ".iNF": ".iNF",
	"2026-01-02": "2026-01-02", "2026-01-02T03:04:05Z": "2026-01-02T03:04:05Z", "1.2.3": "1.2.3", "10.0.0.1": "10.0.0.1",
}

// sixties are what a file means by them. In arguments they are text, as in Salt.
var sixties = map[string]any{
	"1:30": int64(90), "-1:30": int64(-90), "12:30:45": int64(45045), "1:30.5": 90.5, "0:30": "0:30", "1:60": "1:60", "1:5:300": "1:5:300", "a:30": "a:30", "2001:db8": "2001:db8",
}

func huge(s string) *big.Int {
	i, _ := new(big.Int).SetString(s, 10)
	return i
}

// ways are all by which a word comes in from a person. What reads words by itself is
// missing here, and a defect.
var ways = map[string]func(t *testing.T, words []string) []any{
	"argument":        arguments,
	"list argument":   listArgument,
	"configuration":   configuration,
	"grains file":     grainsFile,
	"pillar":          pillarFile,
	"word by itself":  func(_ *testing.T, words []string) []any { return each(words, scalar.Value) },
	"in a file's map": func(t *testing.T, words []string) []any { return inMaps(t, words) },
}

// A plain word of YAML means the same in every file and on every command line.
func TestAScalarHasOneMeaningEverywhere(t *testing.T) {
	for way, read := range ways {
		for _, set := range []map[string]any{words, sixties} {
			var list []string
			for w := range set {
				list = append(list, w)
			}
			got := read(t, list)
			if len(got) != len(list) {
				t.Fatalf("%s: %d values of %d words", way, len(got), len(list))
			}
			for i, w := range list {
				want := set[w]
				if _, isSixties := sixties[w]; isSixties && strings.Contains(way, "argument") {
					want = w
				}
				if !reflect.DeepEqual(got[i], want) {
					t.Errorf("%s: %s is %#v, want %#v", way, w, got[i], want)
				}
			}
		}
	}
}

func each(words []string, f func(string) any) []any {
	list := make([]any, len(words))
	for i, w := range words {
		list[i] = f(w)
	}
	return list
}

func arguments(t *testing.T, words []string) []any {
	list, _, err := argument.Parse(words, argument.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func listArgument(t *testing.T, words []string) []any {
	v, err := argument.Word("[" + strings.Join(words, ", ") + "]")
	if err != nil {
		t.Fatal(err)
	}
	return v.([]any)
}

// listed is the words as the value of the key x in a file.
func listed(words []string) string { return "x: [" + strings.Join(words, ", ") + "]\n" }

func write(t *testing.T, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func configuration(t *testing.T, words []string) []any {
	cfg, _, err := config.LoadMinion(write(t, "minion", "id: a\nroot_dir: .\ngrains:\n  "+listed(words)))
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Grains["x"].([]any)
}

func grainsFile(t *testing.T, words []string) []any {
	facts, err := grain.Collect(t.Context(), grain.Options{ID: "a", GrainsFile: filepath.Join(write(t, "grains", listed(words)), "grains")})
	if err != nil {
		t.Fatal(err)
	}
	return facts["x"].([]any)
}

func pillarFile(t *testing.T, words []string) []any {
	dir := write(t, "x.sls", listed(words))
	if err := os.WriteFile(filepath.Join(dir, "top.sls"), []byte("base:\n  '*': [x]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	data, err := pillar.Compile(target.Facts{ID: "a"}, pillar.Options{Roots: map[string][]string{"base": {dir}}})
	if err != nil {
		t.Fatal(err)
	}
	return data["x"].([]any)
}

func inMaps(t *testing.T, words []string) []any {
	var b strings.Builder
	b.WriteString("id: a\nroot_dir: .\ngrains:\n")
	for i, w := range words {
		fmt.Fprintf(&b, "  k%d: %s\n", i, w)
	}
	cfg, _, err := config.LoadMinion(write(t, "minion", b.String()))
	if err != nil {
		t.Fatal(err)
	}
	list := make([]any, len(words))
	for i := range words {
		list[i] = cfg.Grains[fmt.Sprintf("k%d", i)]
	}
	return list
}

// FuzzValue: a word that is a number or a truth is one to YAML's own reader too, or a text
// of which the two versions of YAML think differently; what is text is never lost.
func FuzzValue(f *testing.F) {
	for w := range words {
		f.Add(w)
	}
	for w := range sixties {
		f.Add(w)
	}
	f.Fuzz(func(t *testing.T, word string) {
		v := scalar.Value(word)
		if text, ok := v.(string); ok && text != word {
			t.Errorf("%q became the text %q", word, text)
		}
		if v == true || v == false {
			var b bool
			if err := yaml.Unmarshal([]byte(word), &b); err != nil || b != v {
				t.Errorf("%q is %v, and %v (%v) to YAML", word, v, b, err)
			}
		}
	})
}
