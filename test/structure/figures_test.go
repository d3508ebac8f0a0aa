package structure

import (
	"flag"
	"fmt"
	"go/ast"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the figures of doc/architecture.md")

// near is how far a figure that begins with "about" may be from what is counted.
const near = 0.05

// counted is what stands in doc/architecture.md under "In figures", counted.
type counted struct {
	packages int
	methods  map[string]int // by type
	imports  map[string]int // by package
	lines    map[string]int // by package, without tests
}

func count(t *testing.T) counted {
	t.Helper()
	c := counted{methods: methods(t), imports: imports(t), lines: map[string]int{}}
	for _, p := range packages(t) {
		if !strings.HasPrefix(p.short(), "test/") && len(p.GoFiles) > 0 {
			c.packages++
		}
	}
	for _, s := range sources(t) {
		if !s.test && !strings.HasPrefix(s.pkg.short(), "test/") {
			c.lines[s.pkg.short()] += s.fset.Position(s.tree.FileEnd).Line - 1
		}
	}
	return c
}

// all is the number of lines of all packages.
func (c counted) all() (n int) {
	for _, lines := range c.lines {
		n += lines
	}
	return n
}

// largest are the packages with the most lines, the largest first.
func (c counted) largest() []string {
	return slices.SortedFunc(maps.Keys(c.lines), func(a, b string) int { return c.lines[b] - c.lines[a] })
}

// typesOf are the types with the most methods, as text.
func (c counted) typesOf(most int) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(c.methods)) {
		if c.methods[name] == most {
			names = append(names, "`"+name+"`")
		}
	}
	return strings.Join(names, ", ")
}

// beyond are the packages with more imports than most, as text.
func (c counted) beyond(most int) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(c.imports)) {
		if c.imports[name] > most {
			names = append(names, fmt.Sprintf("`%s` %d", name, c.imports[name]))
		}
	}
	return strings.Join(names, ", ")
}

// rows are the rows that can be counted, by their first cell.
func (c counted) rows() map[string]string {
	most := slices.Max(slices.Collect(maps.Values(c.methods)))
	large := c.largest()
	return map[string]string{
		"packages":                     fmt.Sprintf("about %d, without those of tests | ", c.packages),
		"methods of the largest types": fmt.Sprintf("%d: %s | %d", most, c.typesOf(most), mostMethods),
		"methods of the daemons":       fmt.Sprintf("`master.Master` %d, `minion.Minion` %d | %d", c.methods["master.Master"], c.methods["minion.Minion"], mostMethods),
		"imports of our packages":      fmt.Sprintf("%d at most, except for %s | %d; those may not grow, and each has its reason there", mostImports, c.beyond(mostImports), mostImports),
		"lines":                        fmt.Sprintf("about %d without tests; `%s` about %d, with a file for each module; then `%s` about %d | ", c.all(), large[0], c.lines[large[0]], large[1], c.lines[large[1]]),
	}
}

// about are the figures of a row that need not be exact.
var about = regexp.MustCompile(`about ([0-9]+(?:,[0-9]{3})*)`)

// sameRow says whether a row says what is counted.
func sameRow(says, want string) bool {
	if about.ReplaceAllString(says, "about") != about.ReplaceAllString(want, "about") {
		return false
	}
	is, counted := about.FindAllStringSubmatch(says, -1), about.FindAllStringSubmatch(want, -1)
	for i := range is {
		n, wrong := strconv.ParseFloat(strings.ReplaceAll(is[i][1], ",", ""), 64)
		m, _ := strconv.ParseFloat(counted[i][1], 64)
		if wrong != nil || math.Abs(n-m) > near*m {
			return false
		}
	}
	return true
}

// rounded is a row with two digits of what is about, and commas between thousands.
func rounded(row string) string {
	return about.ReplaceAllStringFunc(row, func(s string) string {
		n, _ := strconv.Atoi(strings.TrimPrefix(s, "about "))
		unit := int(math.Pow10(max(0, len(strconv.Itoa(n))-2)))
		text := strconv.Itoa((n + unit/2) / unit * unit)
		if len(text) > 3 {
			text = text[:len(text)-3] + "," + text[len(text)-3:]
		}
		return "about " + text
	})
}

// TestArchitectureFigures: the figures are those of the code. With -update it writes them.
func TestArchitectureFigures(t *testing.T) {
	file := filepath.Join(root, "doc", "architecture.md")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	_, table, _ := strings.Cut(text, "\n## In figures\n")
	for name, want := range count(t).rows() {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(name) + ` \| (.*?) *\|$`).FindStringSubmatch(table)
		switch {
		case row == nil:
			t.Errorf("doc/architecture.md has no figures of %s", name)
		case sameRow(strings.TrimRight(row[1], " "), strings.TrimRight(want, " ")):
		case *update:
			text = strings.Replace(text, row[0], strings.TrimRight("| "+name+" | "+rounded(want), " ")+" |", 1)
		default:
			t.Errorf("doc/architecture.md says of %s: %s\ncounted: %s\nwrite it with: go test ./test/structure -run Figures -update", name, row[1], want)
		}
	}
	if text != string(b) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSameRow shows that the test before sees a wrong figure, and leaves room for the rounded.
func TestSameRow(t *testing.T) {
	for says, same := range map[string]bool{
		"about 110,000 lines, 45 methods": true, "about 104,600 lines, 45 methods": true, "about 104,000 lines, 45 methods": false,
		"about 110,000 lines, 44 methods": false, "about x lines, 45 methods": false, "": false,
	} {
		if got := sameRow(says, "about 110000 lines, 45 methods"); got != same {
			t.Errorf("%q: %v, want %v", says, got, same)
		}
	}
	if got := rounded("about 112400 and about 98 of 45, about 4,"); got != "about 110,000 and about 98 of 45, about 4," {
		t.Errorf("rounded: %s", got)
	}
}

// numbers are those that a table with so many rows has in its row of figures.
var numbers = []string{"none", "one", "two", "three", "four", "five"}

// TestArchitectureCounts: a figure that is the number of rows of a table is that number.
func TestArchitectureCounts(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "doc", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for name, head := range map[string]string{"forms of a return": "| form | boundary |", "records that recognise repeated events": "| record | where | what it recognises |"} {
		_, table, found := strings.Cut(text, "\n"+head+"\n")
		table, _, _ = strings.Cut(table, "\n\n")
		rows := strings.Count(table, "\n") // the first line is that below the head
		if !found || rows >= len(numbers) || !strings.Contains(text, "\n| "+name+" | "+numbers[rows]+" |") {
			t.Errorf("doc/architecture.md: the table %s has %d rows, and the figures do not say so of %s", head, rows, name)
		}
	}
}

// declaredAt are the types, functions, constants and variables of all packages, as pkg.Name.
func declaredAt(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.tree.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					known[s.pkg.Name+"."+d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						known[s.pkg.Name+"."+spec.Name.Name] = true
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							known[s.pkg.Name+"."+name.Name] = true
						}
					}
				}
			}
		}
	}
	return known
}

// TestDocsNameWhatIsThere: types and files that the documents for maintainers name are there.
func TestDocsNameWhatIsThere(t *testing.T) {
	known, types, files := declaredAt(t), regexp.MustCompile("`([a-z]+\\.[A-Z][A-Za-z]*)`"), regexp.MustCompile("`((?:internal|client|cmd|test|scripts|packaging)/[^` ]*)")
	for _, doc := range []string{"architecture.md", "contributing.md"} {
		b, err := os.ReadFile(filepath.Join(root, "doc", doc))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range types.FindAllStringSubmatch(string(b), -1) {
			if !known[n[1]] {
				t.Errorf("doc/%s: there is no %s", doc, n[1])
			}
		}
		found := files.FindAllStringSubmatch(string(b), -1)
		if len(found) == 0 {
			t.Errorf("doc/%s names no file", doc)
		}
		for _, n := range found {
			if strings.ContainsAny(n[1], "*") || strings.Contains(n[1], "NAME") || n[1] == "internal/output/quoted.go" { // to be made by the reader
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(n[1]))); err != nil {
				t.Errorf("doc/%s: there is no %s", doc, n[1])
			}
		}
	}
}
