package structure

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// Whatever our tools ask a master for on behalf of somebody is asked by package client, as other programs do. These tests
// keep it so: a tool has the connection of client and no other, but for the requests listed here; and client leaves out
// nothing of a request that a program could have a use for.

// tools are the packages that talk to a master for people and programs.
var tools = []string{"cli/client", "cli/jobview", "cli/saltapi", "cli/saltcmd", "cli/saltcp", "cli/saltevent", "cli/saltkey", "cli/saltrun", "netapi"}

// askedBeside are the operations that a package of the tools names itself, with the reason.
var askedBeside = map[string]string{
	"cli/client OpComplete":   "words for a shell, for who types at a terminal: whoever completes a command line asks the tool",
	"cli/saltkey OpKeyAction": "salt-key changes the files of keys, and tells the master who does: no request of a program, which changes keys by wheel functions",
	"cli/saltevent OpConfirm": inCredentials, "cli/saltevent OpEnd": inCredentials, "cli/saltevent OpFire": inCredentials, "cli/saltevent OpFollow": inCredentials,
	"cli/saltevent OpListen": inCredentials, "cli/saltevent OpLogin": inCredentials, "cli/saltevent OpPublish": inCredentials, "cli/saltevent OpRun": inCredentials,
}

const inCredentials = "a name in client.json, which tells programs in other languages the subjects; nothing is asked by it"

// connectedBeside are the packages of the tools that import rpc, the way below client, with the reason.
var connectedBeside = map[string]string{
	"cli/client":  "for completion, and for the requests of a minion's own tools and of profiles, none of which a program of users has",
	"cli/saltkey": "for who changes keys, see askedBeside",
	"netapi":      "for the bound of what a body may be built of; it connects to nobody",
}

// notSet are the fields of requests that client leaves out, with the reason.
var notSet = map[string]string{
	"Fire.Form":        "of minions",
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

func TestToolsAskByClient(t *testing.T) {
	named, connected, built := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		tool := s.pkg.short()
		if s.test || !slices.Contains(tools, tool) {
			continue
		}
		for _, op := range protocolNames(s, "Op") {
			named[tool+" "+op] = true
		}
		for _, i := range s.tree.Imports {
			switch strings.Trim(i.Path.Value, `"`) {
			case internal + "rpc":
				connected[tool] = true
			case module + "client":
				built[tool] = true
			}
		}
	}
	for _, tool := range tools {
		if !built[tool] {
			t.Errorf("%s is not built on client", tool)
		}
	}
	agree(t, "names an operation itself: ask by client, or say in askedBeside why not", named, askedBeside)
	agree(t, "imports rpc: connect by client, or say in connectedBeside why not", connected, connectedBeside)
}

// agree holds what was found to what is listed.
func agree(t *testing.T, what string, found map[string]bool, listed map[string]string) {
	t.Helper()
	for name := range found {
		if listed[name] == "" {
			t.Errorf("%s: %s", name, what)
		}
	}
	for name := range listed {
		if !found[name] {
			t.Errorf("%s is listed for nothing", name)
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

func TestClientLeavesNothingOut(t *testing.T) {
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
