package structure

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// namedTest matches what a document calls a test, and the packages between.
var namedTest = regexp.MustCompile("`((?:internal|test|cmd)/[a-z0-9/]+|client)`|\\b((?:Test|Fuzz)[A-Z]\\w+)|\\b([a-z0-9]+\\.txtar)\\b|;")

// TestDocumentsNameTests: a test that a document names is there, and in the package that stands
// before it.
func TestDocumentsNameTests(t *testing.T) {
	known := testFunctions(t)
	docs, err := filepath.Glob(filepath.Join(root, "doc", "*.md"))
	if err != nil || len(docs) == 0 {
		t.Fatal(docs, err)
	}
	found := 0
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(line, "    func Test") { // it is shown whole, for the reader to write
				continue
			}
			names, missing := namedIn(line, known)
			found += names
			for _, name := range missing {
				t.Errorf("%s:%d: there is no test %s", filepath.Base(doc), n+1, name)
			}
		}
	}
	if found < 200 {
		t.Errorf("the documents name %d tests only: are they still found?", found)
	}
}

// TestGuaranteesAreShown: each row of a table of guarantees names what shows it.
func TestGuaranteesAreShown(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "doc", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows, within := 0, false
	for _, line := range strings.Split(string(text), "\n") {
		switch {
		case !strings.HasPrefix(line, "| "):
			within = within && strings.HasPrefix(line, "|-")
		case strings.HasPrefix(line, "| what holds | shown by |"):
			within = true
		case within:
			rows++
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			shown := cells[len(cells)-1]
			if names, _ := namedIn(shown, nil); names == 0 && !strings.HasPrefix(shown, "the same") {
				t.Errorf("doc/guarantees.md: no test shows: %s", cells[0])
			}
		}
	}
	if rows < 60 {
		t.Errorf("%d rows: are the tables still found?", rows)
	}
}

// TestNamedIn shows that the tests before see what is missing.
func TestNamedIn(t *testing.T) {
	known := map[string]bool{"TestAny": true, "internal/a TestAny": true, "a.txtar": true}
	for line, want := range map[string]string{
		"| x | `internal/a` TestAny, a.txtar |": "", "TestAny/case": "", "`internal/b` TestAny": "internal/b TestAny",
		"`internal/b`; TestAny": "", "TestBoth and b.txtar": "TestBoth b.txtar", "nothing": "",
	} {
		if _, missing := namedIn(line, known); strings.Join(missing, " ") != want {
			t.Errorf("%q lacks %q, want %q", line, missing, want)
		}
	}
}

// namedIn counts the tests and scripts that a line names, and returns those that are not known.
func namedIn(line string, known map[string]bool) (names int, missing []string) {
	pkg := ""
	for _, m := range namedTest.FindAllStringSubmatch(line, -1) {
		name := m[2] + m[3]
		switch {
		case name == "":
			pkg = m[1] // none after a semicolon
			continue
		case pkg != "" && m[2] != "":
			name = pkg + " " + name
		}
		names++
		if !known[name] {
			missing = append(missing, name)
		}
	}
	return names, missing
}

// testFunctions are all tests, alone and with the package before them, and the end-to-end scripts.
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test && f.Recv == nil {
				known[f.Name.Name], known[strings.TrimPrefix(s.pkg.ImportPath, module)+" "+f.Name.Name] = true, true
			}
		}
	}
	scripts, err := filepath.Glob(filepath.Join(root, "test", "e2e", "testdata", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range scripts {
		known[filepath.Base(name)] = true
	}
	return known
}
