package structure

import (
	"go/ast"
	"strings"
	"testing"
)

// mostMethods is how many methods a type may have. With more there are two nouns in it:
// whoever reads one of them must keep the fields of both in mind, and a test of one needs
// the whole. Declare the one to three methods that a part needs of the rest, as an
// interface, and move the part to a package of its own.
const mostMethods = 45

// largeTypes still have more, which may become fewer and not more.
var largeTypes = map[string]exception{}

// mostImports is how many of our own packages one may import. With more nobody can say what
// a change elsewhere means to it. What puts the others together needs more, and does little
// else.
const mostImports = 15

// assemblies import more, because they put the others together; their figures may become
// smaller and not larger.
var assemblies = map[string]exception{
	"minion": {16, "the daemon: it opens each part of a minion, once, and hands it to those that need it"},
	"module": {16, "each of its files is about something else of the machine, and all of them are of any system"},
}

// exception is a present figure beyond a limit, and what is to be said of it.
type exception struct {
	now int
	why string
}

func TestNoTypeDoesEverything(t *testing.T) {
	keep(t, "methods", methods(t), mostMethods, largeTypes)
}

// methods are the numbers of methods of all types, as pkg.Type.
func methods(t *testing.T) map[string]int {
	t.Helper()
	methods := map[string]int{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, d := range s.tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				methods[s.pkg.short()+"."+receiver(f)]++
			}
		}
	}
	return methods
}

func TestNoPackageNeedsAllOthers(t *testing.T) {
	keep(t, "imports", imports(t), mostImports, assemblies)
}

// imports are how many of our own packages each imports.
func imports(t *testing.T) map[string]int {
	t.Helper()
	imports := map[string]int{}
	for _, p := range packages(t) {
		for _, path := range p.Imports {
			if strings.HasPrefix(path, internal) {
				imports[p.short()]++
			}
		}
	}
	return imports
}

// keep holds figures to a limit, and those that exceed it to what they are.
func keep(t *testing.T, what string, figures map[string]int, most int, exceptions map[string]exception) {
	t.Helper()
	for name, n := range figures {
		e, excepted := exceptions[name]
		switch {
		case excepted && n <= most:
			t.Errorf("%s has %d %s, which anybody may have: take it out of the exceptions", name, n, what)
		case excepted && n > e.now:
			t.Errorf("%s has %d %s, and had %d: it is too large already, so put what is new elsewhere", name, n, what, e.now)
		case !excepted && n > most:
			t.Errorf("%s has %d %s, at most %d are allowed: move a part out that has a noun of its own", name, n, what, most)
		}
	}
	for name, e := range exceptions {
		if figures[name] == 0 {
			t.Errorf("there is no %s any more: take it out of the exceptions", name)
		}
		if e.why == "" {
			t.Errorf("%s is an exception without a reason", name)
		}
	}
}

// receiver is the name of the type of a method.
func receiver(f *ast.FuncDecl) string {
	e := f.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return "?"
		}
	}
}
