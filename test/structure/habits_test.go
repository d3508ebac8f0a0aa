package structure

import (
	"go/ast"
	"path/filepath"
	"strings"
	"testing"
)

func TestPackagesSayWhatTheyAreFor(t *testing.T) {
	for _, p := range packages(t) {
		want := "Package " + p.Name + " "
		switch {
		case p.Name == "main":
			want = "Command " + filepath.Base(p.ImportPath) + " "
		case len(p.GoFiles) == 0:
			continue // tests only
		}
		if !strings.HasPrefix(p.Doc, want) {
			t.Errorf("the doc comment of %s is %q, want it to begin with %q", p.short(), p.Doc, want)
		}
	}
}

// TestMainsAreShort keeps the programs callable from tests: main is where the
// process begins and ends, nothing else.
func TestMainsAreShort(t *testing.T) {
	const most = 20
	for _, s := range sources(t) {
		if !strings.HasPrefix(s.pkg.ImportPath, command) {
			continue
		}
		if lines := s.fset.Position(s.tree.End()).Line; lines >= most {
			t.Errorf("%s: %d lines, want fewer than %d", s.at(s.tree), lines, most)
		}
	}
}

// TestNothingEndsTheProcess: os.Exit skips what was deferred and cannot be
// tested, so it is for main alone, and log.Fatal for nobody.
func TestNothingEndsTheProcess(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.tree, func(n ast.Node) bool {
			if isCall(n, "os", "Exit") && s.pkg.Name != "main" && !s.test {
				t.Errorf("%s: os.Exit outside of a main package", s.at(n))
			}
			if isCall(n, "log", "Fatal") || isCall(n, "log", "Panic") {
				t.Errorf("%s: the log does not end a process", s.at(n))
			}
			return true
		})
	}
}

// TestLogsAreHandedIn: a global logger can be neither silenced nor read by a test.
func TestLogsAreHandedIn(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.tree, func(n ast.Node) bool {
			for _, f := range []string{"Debug", "Info", "Warn", "Error", "Log", "Default", "SetDefault"} {
				if isCall(n, "slog", f) {
					t.Errorf("%s: use the logger that was handed in", s.at(n))
				}
			}
			return true
		})
	}
}

// TestTestsWaitForThings: a test that sleeps is slow when the pause is long, and
// fails on a busy machine when it is short. A pause within a loop is none of that:
// it looks for the thing, or disturbs it at random moments. In a synctest bubble
// time is free.
func TestTestsWaitForThings(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test || s.imports("testing/synctest") {
			continue
		}
		looping := map[ast.Node]bool{}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.ForStmt, *ast.RangeStmt:
				ast.Inspect(n, func(inner ast.Node) bool {
					looping[inner] = true
					return true
				})
			}
			if isCall(n, "time", "Sleep") && !looping[n] {
				t.Errorf("%s: wait for the thing instead of sleeping", s.at(n))
			}
			return true
		})
	}
}

// TestRegexpsAreCompiledWhenUsed: a regular expression at package level is compiled at each
// start of each program that links the package, and stays on the heap of the daemons. One with a
// count such as {0,63} takes 50 KB and 150,000 instructions.
func TestRegexpsAreCompiledWhenUsed(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.pkg.ImportPath, module+"test/") {
			continue
		}
		for _, d := range s.tree.Decls {
			if _, isVar := d.(*ast.GenDecl); !isVar {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if isCall(n, "regexp", "MustCompile") {
					t.Errorf("%s: compile it when it is used, for example in a sync.OnceValue", s.at(n))
				}
				_, later := n.(*ast.FuncLit)
				return !later
			})
		}
	}
}
