package structure

import (
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestExamplesInDocs: what a document shows is what a test runs.
func TestExamplesInDocs(t *testing.T) {
	for doc, example := range map[string]string{"doc/clients.md": "scripts/events/client.js"} {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(doc)))
		if err != nil {
			t.Fatal(err)
		}
		code, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(example)))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\n"+string(code)+"```\n") {
			t.Errorf("%s does not show %s as it is", doc, example)
		}
	}
}

// TestArchitectureNamesPackages: the table of packages is whole.
func TestArchitectureNamesPackages(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "doc", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## The packages\n")
	table, _, _ = strings.Cut(table, "\n## ")
	dirs, err := os.ReadDir(filepath.Join(root, "internal"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if d.IsDir() && !strings.Contains(table, "`"+d.Name()+"`") {
			t.Errorf("doc/architecture.md: the table of packages does not name %s", d.Name())
		}
	}
}

// TestAttacksHaveTests: each row of the list of attacks names tests, and they are there.
func TestAttacksHaveTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "doc", "attacks.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := testNames(t)
	named := regexp.MustCompile("`([^`]+)`")
	_, tables, _ := strings.Cut(string(text), "\n## ")
	for _, line := range strings.Split(tables, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasSuffix(line, "tried by |") {
			continue
		}
		tests := cells[len(cells)-1]
		names := named.FindAllStringSubmatch(tests, -1)
		if len(names) == 0 && !strings.HasPrefix(tests, "none: ") {
			t.Errorf("doc/attacks.md has no test for %s", cells[0])
		}
		for _, n := range names {
			if !known[n[1]] {
				t.Errorf("doc/attacks.md: there is no test %s", n[1])
			}
		}
	}
}

// testNames are all tests, as that document names them.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test && strings.HasPrefix(f.Name.Name, "Test") {
				known[filepath.Base(s.pkg.ImportPath)+"."+f.Name.Name] = true
			}
		}
		if s.pkg.short() != "test/attack" {
			continue
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			if field, ok := n.(*ast.KeyValueExpr); ok && isName(field.Key) {
				if text, ok := field.Value.(*ast.BasicLit); ok {
					known["attack "+strings.Trim(text.Value, `"`)] = true
				}
			}
			return true
		})
	}
	scripts, err := filepath.Glob(filepath.Join(root, "test", "e2e", "testdata", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range scripts {
		known["e2e "+strings.TrimSuffix(filepath.Base(name), ".txtar")] = true
	}
	return known
}

func isName(e ast.Expr) bool {
	i, ok := e.(*ast.Ident)
	return ok && i.Name == "name"
}

// TestReadmeNamesPrograms: whoever reads the README knows each program.
func TestReadmeNamesPrograms(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	programs, err := os.ReadDir(filepath.Join(root, "cmd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		if !strings.Contains(string(text), "\n| `"+p.Name()+"` |") {
			t.Errorf("README.md: the table of programs does not name %s", p.Name())
		}
	}
}

// link is a reference of Markdown to something that is not a web page.
var link = regexp.MustCompile(`\]\(([^):* ]+)\)`)

// code is what a document shows and does not say: blocks, and words of a program.
var code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")

// TestLinksInDocs: what a document refers to is there, and every page is
// reached from the README.
func TestLinksInDocs(t *testing.T) {
	docs, err := filepath.Glob(filepath.Join(root, "doc", "*.md"))
	if err != nil || len(docs) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	readme := filepath.Join(root, "README.md")
	linked := map[string]bool{}
	for _, doc := range append(docs, readme) {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), "x"), -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			target := doc
			if path != "" {
				target = filepath.Join(filepath.Dir(doc), filepath.FromSlash(path))
			}
			if doc == readme {
				linked[target] = true
			}
			if !refersTo(target, anchor) {
				t.Errorf("%s: nothing is at %s", filepath.Base(doc), m[1])
			}
		}
	}
	for _, doc := range docs {
		if !linked[doc] {
			t.Errorf("README.md has no link to %s", filepath.Base(doc))
		}
	}
}

// refersTo says whether the file is there, and has a heading of that anchor.
func refersTo(file, anchor string) bool {
	if anchor == "" {
		_, err := os.Stat(file)
		return err == nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	drop := regexp.MustCompile(`[^\w -]`)
	for _, line := range strings.Split(string(text), "\n") {
		heading, is := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if is && strings.HasPrefix(line, "#") &&
			strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(heading), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}

// lines of the picture of packages: a label, and names.
var pictureLine = regexp.MustCompile(`(?m)^    ([a-z]+(?:,? [a-z]+)*) {2,}([a-z ]+)$`)

// pictured is the name of a package in the picture: one directly below internal, or client.
func pictured(path string) (string, bool) {
	if path == module+"client" {
		return "client", true
	}
	name, own := strings.CutPrefix(path, internal)
	return name, own && !strings.Contains(name, "/")
}

// TestArchitecturePicture: the picture has every package once, and none imports one that
// stands above it.
func TestArchitecturePicture(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "doc", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, picture, _ := strings.Cut(string(text), "\nThe packages form layers.")
	picture, _, _ = strings.Cut(picture, "\nA part of a daemon")
	line := map[string]int{}
	for i, m := range pictureLine.FindAllStringSubmatch(picture, -1) {
		for _, name := range strings.Fields(m[2]) {
			if _, twice := line[name]; twice {
				t.Errorf("doc/architecture.md: the picture has %s twice", name)
			}
			line[name] = i
		}
	}
	exists := map[string]bool{}
	for _, p := range packages(t) {
		name, own := pictured(p.ImportPath)
		if !own {
			continue
		}
		exists[name] = true
		if _, known := line[name]; !known {
			t.Errorf("doc/architecture.md: the picture does not have %s", name)
			continue
		}
		for _, path := range p.Imports {
			below, own := pictured(path)
			if at, known := line[below]; own && known && at < line[name] {
				t.Errorf("doc/architecture.md: %s imports %s, which stands above it in the picture", name, below)
			}
		}
	}
	for name := range line {
		if !exists[name] {
			t.Errorf("doc/architecture.md: the picture has %s, which is not a package", name)
		}
	}
}

// TestArchitectureNamesFunctions: the ways through the packages name what is there.
func TestArchitectureNamesFunctions(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "doc", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil && !s.test {
				known[s.pkg.Name+"."+receiver(f)+"."+f.Name.Name] = true
			}
		}
	}
	names := regexp.MustCompile("`([a-z]+\\.[A-Z][A-Za-z]*\\.[A-Za-z]+)`").FindAllStringSubmatch(string(text), -1)
	if len(names) == 0 {
		t.Error("doc/architecture.md names no function")
	}
	for _, n := range names {
		if !known[n[1]] {
			t.Errorf("doc/architecture.md: there is no function %s", n[1])
		}
	}
}

// TestReadmeNamesGo: README.md quotes the message of a Go that is too old for go.mod. The Go here
// is asked for the message with a go.mod that needs a newer one still.
func TestReadmeNamesGo(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go ((\d+\.\d+)\.\d+)$`).FindStringSubmatch(string(mod))
	if version == nil {
		t.Fatal("go.mod names no version of Go")
	}
	const demand = "go.mod requires go >= "
	for _, want := range []string{"Go " + version[2] + " or newer", "`" + demand + version[1] + "`", "`invalid go version '" + version[1] + "'`"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("README.md does not say: %s", want)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module x\n\ngo 9.99.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("go", "list")
	c.Dir = dir
	c.Env = append(os.Environ(), "GOTOOLCHAIN=local", "GOFLAGS=", "GOWORK=off")
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), demand+"9.99.0") {
		t.Errorf("a Go that is too old says %s (%v)", out, err)
	}
}

// TestChangelogNamesTheRelease: what is being developed, or released, has its part.
func TestChangelogNamesTheRelease(t *testing.T) {
	code, err := os.ReadFile(filepath.Join(root, "internal", "version", "version.go"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	release := regexp.MustCompile(`const Release = "(.*)"`).FindStringSubmatch(string(code))
	if release == nil || !regexp.MustCompile(`(?m)^## `+regexp.QuoteMeta(release[1])+`\b`).Match(text) {
		t.Errorf("CHANGELOG.md has nothing of %q", release)
	}
}
