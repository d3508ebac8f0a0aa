package structure

import (
	"go/ast"
	"strings"
	"testing"
)

// makers are the packages that may make a decision that allows. Everybody else has it
// from them: the compiler keeps others from importing seal.
var makers = []string{"authz", "authz/authztest", "authz/decision", "authz/eventacl", "authz/login"}

// TestOnlyAuthzAllows: a decision that allows is made in one function of each maker, and
// the verdict of acl, which authz makes one of, by acl alone. Who asks is for authz, too.
func TestOnlyAuthzAllows(t *testing.T) {
	made := map[string]int{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		name := s.pkg.short()
		ast.Inspect(s.tree, func(n ast.Node) bool {
			switch {
			case isCall(n, "seal", "Allow"):
				made[name]++
			case name != "acl" && !strings.HasPrefix(name, "authz") && (allows(n) || isSubject(n)):
				t.Errorf("%s: only acl and authz decide", s.at(n))
			}
			return true
		})
		for _, i := range s.tree.Imports {
			if strings.HasSuffix(strings.Trim(i.Path.Value, `"`), "/authztest") {
				t.Errorf("%s: authztest is for tests", s.at(i))
			}
		}
	}
	for _, name := range makers {
		want := 1
		if name == "authz/eventacl" {
			want = 2 // events, and what is for operators on a minion
		}
		if made[name] != want {
			t.Errorf("%s makes decisions that allow in %d places, want %d", name, made[name], want)
		}
		delete(made, name)
	}
	for name := range made {
		t.Errorf("%s makes decisions that allow", name)
	}
}

// allows says whether a node gives a decision of acl the verdict that allows.
func allows(n ast.Node) bool {
	kv, ok := n.(*ast.KeyValueExpr)
	if !ok {
		return false
	}
	key, _ := kv.Key.(*ast.Ident)
	value, _ := kv.Value.(*ast.SelectorExpr)
	return key != nil && key.Name == "Verdict" && value != nil && value.Sel.Name == "Allow"
}

// isSubject says whether a node says who somebody is.
func isSubject(n ast.Node) bool {
	lit, ok := n.(*ast.CompositeLit)
	if !ok {
		return false
	}
	typ, ok := lit.Type.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, _ := typ.X.(*ast.Ident)
	return pkg != nil && (pkg.Name == "acl" && typ.Sel.Name == "Subject" || pkg.Name == "authz" && typ.Sel.Name == "Principal")
}
