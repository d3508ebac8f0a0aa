package structure

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// The tools and salt-api talk to a master through the packages that client is made of: they hand
// on lines, positions and values as they came, which no stable package could promise to others.
// These tests keep client complete instead: whatever a tool can ask for, a program can.

// tools are the packages that talk to a master for people and programs.
var tools = []string{"cli/client", "cli/jobview", "cli/saltapi", "cli/saltcmd", "cli/saltcp", "cli/saltevent", "cli/saltkey", "cli/saltrun", "netapi"}

// notAsked are the operations that client leaves out, with the reason.
var notAsked = map[string]string{
	"OpComplete":  "words for a shell, which asks the tool",
	"OpKeyAction": "salt-key changes files, and tells who does; client changes keys by wheel functions",
}

// notSet are the fields of requests that client leaves out, with the reason.
var notSet = map[string]string{
	"Fire.Form":        "of minions",
	"Fire.ID":          "Series names events, too",
	"Fire.Pretag":      "of minions",
	"Publish.Internal": "never sent",
	"Publish.Via":      "for the daemon of a minion",
}

// requests are the bodies of what client asks for.
var requests = []string{"Confirm", "Dead", "Fire", "Follow", "Listen", "Login", "Publish", "Purge", "Run"}

// protocolNames are the names of package protocol in a file that begin so.
func protocolNames(s source, prefix string) (names []string) {
	ast.Inspect(s.tree, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || !strings.HasPrefix(sel.Sel.Name, prefix) {
			return true
		}
		if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "protocol" {
			names = append(names, sel.Sel.Name)
		}
		return true
	})
	return names
}

func TestClientAsksForWhatTheToolsAskFor(t *testing.T) {
	asked, offered := map[string]string{}, map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, op := range protocolNames(s, "Op") {
			if s.pkg.short() == "client" {
				offered[op] = true
			} else if slices.Contains(tools, s.pkg.short()) {
				asked[op] = s.pkg.short()
			}
		}
	}
	if len(asked) < 10 {
		t.Errorf("the tools ask for %v only", asked)
	}
	for op, by := range asked {
		if reason := notAsked[op]; !offered[op] && reason == "" {
			t.Errorf("%s asks for protocol.%s, and client cannot: offer it, or say why not in notAsked", by, op)
		}
	}
	for op := range notAsked {
		if offered[op] || asked[op] == "" {
			t.Errorf("notAsked has %s for nothing", op)
		}
	}
}

// fieldsOf are the fields of the structs of package protocol, by type.
func fieldsOf(t *testing.T) map[string][]string {
	fields := map[string][]string{}
	for _, s := range sources(t) {
		if s.test || s.pkg.short() != "protocol" {
			continue
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if st, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range st.Fields.List {
					for _, name := range f.Names {
						fields[spec.Name.Name] = append(fields[spec.Name.Name], name.Name)
					}
				}
			}
			return true
		})
	}
	return fields
}

// setBy adds the fields that a file sets: of a literal as Type.Field, of an assignment as .Field.
func setBy(s source, set map[string]bool) {
	ast.Inspect(s.tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			sel, ok := n.Type.(*ast.SelectorExpr)
			for _, e := range n.Elts {
				if kv, isField := e.(*ast.KeyValueExpr); ok && isField {
					if key, ok := kv.Key.(*ast.Ident); ok {
						set[sel.Sel.Name+"."+key.Name] = true
					}
				}
			}
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				for sel, ok := l.(*ast.SelectorExpr); ok; sel, ok = sel.X.(*ast.SelectorExpr) {
					set["."+sel.Sel.Name] = true
				}
			}
		}
		return true
	})
}

func TestClientSaysWhatTheToolsSay(t *testing.T) {
	set := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test && s.pkg.short() == "client" {
			setBy(s, set)
		}
	}
	fields, left := fieldsOf(t), map[string]bool{}
	for _, name := range requests {
		if len(fields[name]) == 0 {
			t.Errorf("there is no request %s", name)
		}
		for _, f := range fields[name] {
			full := name + "." + f
			if set[full] || set["."+f] {
				continue
			}
			left[full] = true
			if notSet[full] == "" {
				t.Errorf("client never sets protocol.%s: offer it, or say why not in notSet", full)
			}
		}
	}
	for full := range notSet {
		if !left[full] {
			t.Errorf("notSet has %s for nothing", full)
		}
	}
}
