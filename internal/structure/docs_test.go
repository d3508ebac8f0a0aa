package structure

import (
	"os"
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

// link is a reference of Markdown to something that is no web page.
var link = regexp.MustCompile(`\]\(([^):* ]+)\)`)

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
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
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
