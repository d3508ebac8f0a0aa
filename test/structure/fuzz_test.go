package structure

import (
	"go/ast"
	"go/types"
	"path"
	"strings"
	"testing"
)

// TestEveryRequestIsFuzzed: whoever can reach a daemon writes the body of a request, so each
// type that one is decoded into is named by a fuzz target, or among the bodies of one.
func TestEveryRequestIsFuzzed(t *testing.T) {
	decoded, fuzzed := map[string]string{}, map[string]bool{}
	fields := map[string]string{} // "package.field" to its type
	for _, s := range sources(t) {
		for _, d := range s.tree.Decls {
			switch {
			case s.test && isFuzzed(d):
				ast.Inspect(d, func(n ast.Node) bool {
					if e, ok := n.(ast.Expr); ok {
						fuzzed[typeName(s, e)] = true
					}
					return true
				})
			case !s.test:
				noteFields(s, d, fields)
			}
		}
	}
	for _, s := range sources(t) {
		for _, d := range s.tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && !s.test {
				noteDecoded(s, f, fields, decoded)
			}
		}
	}
	if len(decoded) < 20 {
		t.Errorf("only %d bodies of requests are found: %v", len(decoded), decoded)
	}
	for name, at := range decoded {
		if !fuzzed[name] {
			t.Errorf("%s: no fuzz target reads a %s", at, name)
		}
	}
}

// isFuzzed says whether a declaration of a test is a fuzz target, or the list of bodies for one.
func isFuzzed(d ast.Decl) bool {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return strings.HasPrefix(d.Name.Name, "Fuzz")
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok && v.Names[0].Name == "bodies" {
				return true
			}
		}
	}
	return false
}

// typeName is an expression that may be a type, with its package.
func typeName(s source, e ast.Expr) string {
	if id, ok := e.(*ast.Ident); ok && ast.IsExported(id.Name) {
		return strings.TrimSuffix(s.pkg.Name, "_test") + "." + id.Name
	}
	return types.ExprString(e)
}

func noteFields(s source, d ast.Decl, fields map[string]string) {
	ast.Inspect(d, func(n ast.Node) bool {
		if st, ok := n.(*ast.StructType); ok {
			for _, f := range st.Fields.List {
				for _, name := range f.Names {
					fields[s.pkg.ImportPath+"."+name.Name] = typeName(s, f.Type)
				}
			}
		}
		return true
	})
}

// noteDecoded notes the types that a function decodes requests into: what it hands to Decode
// of a request, which its parameter r or req is.
func noteDecoded(s source, f *ast.FuncDecl, fields, decoded map[string]string) {
	vars := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for _, name := range n.Names {
				if n.Type != nil {
					vars[name.Name] = typeName(s, n.Type)
				}
			}
		case *ast.CallExpr:
			if (isCall(n, "r", "Decode") || isCall(n, "req", "Decode")) && len(n.Args) == 1 {
				decoded[decodedInto(s, n.Args[0], vars, fields)] = s.at(n)
			}
		}
		return true
	})
}

func decodedInto(s source, arg ast.Expr, vars, fields map[string]string) string {
	if u, ok := arg.(*ast.UnaryExpr); ok {
		switch x := u.X.(type) {
		case *ast.Ident:
			return vars[x.Name]
		case *ast.SelectorExpr:
			return fields[s.pkg.ImportPath+"."+x.Sel.Name]
		}
	}
	return path.Base(s.pkg.ImportPath) + ": " + types.ExprString(arg)
}
