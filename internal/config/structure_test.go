package config

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/test/order"
)

var update = flag.Bool("update", false, "write doc/configuration.md anew, and what differs into the example files")

// documented is one setting as the source describes it.
type documented struct{ key, text string }

// documentedFields reads the fields with a key of one struct from the source.
func documentedFields(t *testing.T, file, name string) []documented {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var fields []documented
	ast.Inspect(tree, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != name {
			return true
		}
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			if f.Tag == nil {
				continue
			}
			key := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("yaml")
			if f.Doc == nil {
				t.Errorf("the field of %s in %s has no comment", key, name)
			}
			if key != "-" {
				fields = append(fields, documented{key, strings.Join(strings.Fields(f.Doc.Text()), " ")})
			}
		}
		return false
	})
	return fields
}

// settingTables are the three tables with the structs that they fill.
func settingTables(t *testing.T) map[string][]documented {
	return map[string][]documented{
		"Common": documentedFields(t, "common.go", "Common"),
		"Master": documentedFields(t, "master.go", "Master"),
		"Minion": documentedFields(t, "minion.go", "Minion"),
	}
}

func TestSettingsAreBoundOnce(t *testing.T) {
	for name, c := range map[string]*Common{"master": &NewMaster().Common, "minion": &NewMinion().Common} {
		keys := c.Keys()
		slices.Sort(keys)
		for i, key := range keys {
			if i > 0 && keys[i-1] == key {
				t.Errorf("%s: the key %s has two fields", name, key)
			}
			if _, both := slices.BinarySearch(saltKeys, key); both {
				t.Errorf("%s is a setting and in saltKeys", key)
			}
		}
	}
	order.Check(t, "saltKeys", saltKeys)
}

// uncomment returns an example file with its commented defaults in force: lines that begin with
// #key:, and the lines below them that are indented by two spaces.
func uncomment(text string) (string, []string) {
	var out, keys []string
	block := false
	for line := range strings.Lines(text) {
		rest, commented := strings.CutPrefix(strings.TrimRight(line, "\n"), "#")
		key, _, isKey := strings.Cut(rest, ":")
		switch {
		case commented && isKey && key != "" && !strings.ContainsAny(key, " #"):
			block = true
			keys = append(keys, key)
		case !commented || !block || !strings.HasPrefix(rest, "  "):
			block, rest = false, ""
		}
		out = append(out, rest)
	}
	return strings.Join(out, "\n"), keys
}

// examples is the directory of the example files.
const examples = "../../packaging/etc/salt"

// described gives each setting of an example file the text of its field. What follows that text, an
// example that begins with a line that ends in a colon, stays. So does the text above several
// settings.
func described(t *testing.T, text, daemon string) string {
	docs := settingTables(t)
	own := map[string]string{"master": "Master", "minion": "Minion"}[daemon]
	blocks := strings.Split(text, "\n\n")
	for i, block := range blocks {
		_, keys := uncomment(block)
		for _, d := range slices.Concat(docs["Common"], docs[own]) {
			if len(keys) == 1 && keys[0] == d.key {
				lines := strings.Split(strings.TrimLeft(block, "\n"), "\n")
				blank := block[:len(block)-len(strings.TrimLeft(block, "\n"))]
				blocks[i] = blank + prose(d.text) + "\n" + strings.Join(lines[exampleAt(lines):], "\n")
			}
		}
	}
	return strings.Join(blocks, "\n\n")
}

// exampleAt is the index of the line below the text of a setting.
func exampleAt(lines []string) int {
	for i, line := range lines {
		switch {
		case !strings.HasPrefix(line, "# "):
			return i
		case strings.HasPrefix(line, "#     ") && i > 0 && strings.HasSuffix(lines[i-1], ":"):
			return i - 1
		case strings.HasPrefix(line, "#     "):
			return i
		}
	}
	return len(lines)
}

// complete adds the settings that an example file lacks, each with its comment and its default,
// after the setting with the most similar name.
func complete(t *testing.T, text, daemon string, c *Common) string {
	docs := settingTables(t)
	own := map[string]string{"master": "Master", "minion": "Minion"}[daemon]
	blocks := strings.Split(strings.TrimRight(text, "\n"), "\n\n")
	for _, d := range slices.Concat(docs["Common"], docs[own]) {
		if _, keys := uncomment(text); hidden(d.key) || slices.Contains(keys, d.key) {
			continue
		}
		at, most := len(blocks)-1, 0
		for i, block := range blocks {
			_, keys := uncomment(block)
			for _, key := range keys {
				if n := common(key, d.key); n > most {
					at, most = i, n
				}
			}
		}
		blocks = slices.Insert(blocks, at+1, example(t, d, c))
		text = strings.Join(blocks, "\n\n") + "\n"
	}
	return text
}

// hidden reports whether the examples leave out a setting: the id is found out, and keep_jobs
// is only for old files.
func hidden(key string) bool { return key == "id" || key == "keep_jobs" }

// common returns how many bytes at the beginning of two names are equal.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// example is a setting as an example file shows it: its comment, and its default.
func example(t *testing.T, d documented, c *Common) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(prose(d.text) + "\n")
	v, _ := c.Lookup(d.key)
	if v == nil || v == "" {
		return b.String() + "#" + d.key + ":"
	}
	text, err := yaml.Marshal(map[string]any{d.key: v})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		b.WriteString("#" + line)
	}
	return strings.TrimRight(b.String(), "\n")
}

// prose is text as the lines of a comment.
func prose(text string) string {
	lines := []string{"#"}
	for _, word := range strings.Fields(text) {
		if len(lines[len(lines)-1])+1+len(word) > 78 {
			lines = append(lines, "#")
		}
		lines[len(lines)-1] += " " + word
	}
	return strings.Join(lines, "\n")
}

func TestExamples(t *testing.T) {
	load := func(daemon, text string) (*Common, []Notice) {
		o := Options{ConfigDir: write(t, map[string]string{daemon: text, "minion_id": "web1"})}
		if daemon == "master" {
			m, notices, err := o.Master()
			if err != nil {
				t.Fatal(err)
			}
			return &m.Common, notices
		}
		m, notices, err := o.Minion()
		if err != nil {
			t.Fatal(err)
		}
		return &m.Common, notices
	}
	defaults := map[string]*Common{"master": &NewMaster().Common, "minion": &NewMinion().Common}
	for daemon, want := range defaults {
		file := filepath.Join(examples, daemon)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			text = []byte(described(t, complete(t, string(text), daemon, want), daemon))
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if described(t, string(text), daemon) != string(text) {
			t.Errorf("%s describes settings otherwise than the source: run go test ./internal/config -update", daemon)
		}
		if c, notices := load(daemon, string(text)); len(notices) > 0 || len(c.Raw) > 1 {
			t.Errorf("%s as shipped sets %v; notices %v", daemon, c.Raw, notices)
		}
		all, keys := uncomment(string(text))
		got, notices := load(daemon, all)
		if len(notices) > 0 {
			t.Errorf("%s with all defaults: %v", daemon, notices)
		}
		for _, key := range want.Keys() {
			if hidden(key) {
				continue
			}
			if !slices.Contains(keys, key) {
				t.Errorf("%s does not show %s: run go test ./internal/config -update", daemon, key)
				continue
			}
			have, _ := got.Lookup(key)
			if value, _ := want.Lookup(key); !sameDefault(have, value) {
				t.Errorf("%s shows %s: %v; the default is %v", daemon, key, have, value)
			}
		}
	}
}

// sameDefault compares the value in a file with a default; nothing, an empty list and an empty
// map are equal.
func sameDefault(a, b any) bool {
	empty := func(v any) bool {
		r := reflect.ValueOf(v)
		return v == nil || v == false || v == "" || (r.Kind() == reflect.Slice || r.Kind() == reflect.Map) && r.Len() == 0
	}
	return reflect.DeepEqual(a, b) || empty(a) && empty(b)
}

const docFile = "../../doc/configuration.md"

// docMark separates the text written by people from the text generated from the source.
const docMark = "<!-- Below this line: go test ./internal/config -update -->\n"

func TestDoc(t *testing.T) {
	text, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	written, made, ok := strings.Cut(string(text), docMark)
	if !ok {
		t.Fatalf("%s has no line %q", docFile, docMark)
	}
	want := reference(t)
	if *update {
		if err := os.WriteFile(docFile, []byte(written+docMark+want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if made != want {
		t.Errorf("%s differs from the source; run go test ./internal/config -update", docFile)
	}
}

// reference is the table of all settings as Markdown.
func reference(t *testing.T) string {
	docs := settingTables(t)
	master, minion := &NewMaster().Common, &NewMinion().Common
	var b strings.Builder
	for _, part := range []struct {
		name, title string
		of          []*Common
	}{
		{"Common", "Settings of both daemons", []*Common{master, minion}},
		{"Master", "Settings of the master", []*Common{master}},
		{"Minion", "Settings of the minion", []*Common{minion}},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| setting | default | meaning |\n|---|---|---|\n", part.title)
		slices.SortFunc(docs[part.name], func(a, b documented) int { return strings.Compare(a.key, b.key) })
		for _, d := range docs[part.name] {
			var shown []string
			for _, c := range part.of {
				v, _ := c.Lookup(d.key)
				shown = append(shown, markdown(v))
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", d.key, strings.Join(slices.Compact(shown), ", "), d.text)
		}
	}
	b.WriteString("\n## Settings of Salt that are ignored\n\nA daemon names each of these at its start, and `--check` does, with what is said here.\n\n| setting | it is ignored ... |\n|---|---|\n")
	rest := slices.Clone(saltKeys)
	for _, r := range reasons {
		fmt.Fprintf(&b, "| `%s` | %s |\n", strings.Join(slices.DeleteFunc(slices.Clone(rest), func(key string) bool { return !r.is(key) }), "`, `"), strings.TrimLeft(r.why, ",: "))
		rest = slices.DeleteFunc(rest, r.is)
	}
	b.WriteString("\nThe others are `" + strings.Join(rest, "`, `") + "`.\n")
	return b.String()
}

// TestReasonsFit: each reason is for settings that are ignored, each name in it for at least one, and
// no setting has two.
func TestReasonsFit(t *testing.T) {
	given := map[string]string{}
	for _, r := range reasons {
		for _, one := range strings.Fields(r.keys) {
			fits := 0
			for _, key := range saltKeys {
				if !(reason{keys: one}).is(key) {
					continue
				}
				fits++
				if was := given[key]; was != "" {
					t.Errorf("%s has two reasons, %q and %q", key, was, r.why)
				}
				given[key] = r.why
			}
			if fits == 0 {
				t.Errorf("%s is no setting that is ignored", one)
			}
		}
	}
}

// markdown formats a default for a table.
func markdown(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		if v == "" {
			return ""
		}
	case []any:
		if len(v) == 0 {
			return ""
		}
	case map[string]any:
		var parts []string
		for env, dirs := range v {
			parts = append(parts, fmt.Sprintf("%s: %v", env, dirs))
		}
		if len(parts) == 0 {
			return ""
		}
		return "`" + strings.Join(parts, ", ") + "`"
	}
	return fmt.Sprintf("`%v`", v)
}
