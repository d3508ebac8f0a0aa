package structure

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// root is the root of the module.
const root = "../.."

// Prefixes of our own packages.
const (
	module   = "github.com/brinebus/brine/"
	internal = module + "internal/"
	command  = module + "cmd/"
)

// listed is a package as 'go list' tells of it.
type listed struct {
	ImportPath   string
	Dir          string
	Name         string
	Doc          string
	Standard     bool
	Imports      []string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
}

// short is the name of one of our packages in the tables here.
func (p listed) short() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, internal), module)
}

// goList runs 'go list' for the patterns.
func goList(t *testing.T, args ...string) []listed {
	t.Helper()
	c := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Name,Doc,Standard,Imports,GoFiles,TestGoFiles,XTestGoFiles"}, args...)...)
	c.Dir = root
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	var list []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

// packages returns all packages of the project.
func packages(t *testing.T) []listed {
	t.Helper()
	loadOnce(t)
	return ours.packages
}

// sources returns all files of the project, parsed.
func sources(t *testing.T) []source {
	t.Helper()
	loadOnce(t)
	return ours.sources
}

var ours struct {
	once     sync.Once
	packages []listed
	sources  []source
}

func loadOnce(t *testing.T) {
	t.Helper()
	ours.once.Do(func() {
		openDirs(t)
		ours.packages = goList(t, "./...")
		for _, p := range ours.packages {
			ours.sources = append(ours.sources, parse(t, p)...)
		}
	})
	if len(ours.sources) == 0 {
		t.Fatal("the project could not be read")
	}
}

// openDirs opens every directory, so that 'go test', which remembers a result for
// as long as what the test has opened stays the same, notices a new package. What
// go list opens it does not see.
func openDirs(t *testing.T) {
	t.Helper()
	for _, top := range []string{"cmd", "internal", "test"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(string, fs.DirEntry, error) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// source is a parsed file.
type source struct {
	pkg  listed
	test bool
	fset *token.FileSet
	tree *ast.File
}

// at names the place of a node.
func (s source) at(n ast.Node) string {
	p := s.fset.Position(n.Pos())
	return p.String()
}

// imports says whether the file imports the package with this path.
func (s source) imports(path string) bool {
	for _, i := range s.tree.Imports {
		if i.Path.Value == `"`+path+`"` {
			return true
		}
	}
	return false
}

// parse parses the files of a package, its tests too.
func parse(t *testing.T, p listed) []source {
	t.Helper()
	var list []source
	for i, names := range [][]string{p.GoFiles, p.TestGoFiles, p.XTestGoFiles} {
		for _, name := range names {
			s := source{pkg: p, test: i > 0, fset: token.NewFileSet()}
			var err error
			if s.tree, err = parser.ParseFile(s.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution); err != nil {
				t.Fatal(err)
			}
			list = append(list, s)
		}
	}
	return list
}

// isCall says whether n is a call of a function of the imported package whose name
// begins like this.
func isCall(n ast.Node, pkg, function string) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg && strings.HasPrefix(sel.Sel.Name, function)
}
