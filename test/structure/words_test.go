package structure

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// coinages are words of nobody else, with the term that a reader knows already. No name in
// the code has one, and no comment and no text that people read has one of neverSaid.
var coinages = map[string]string{
	"asker":    "principal",
	"beat":     "heartbeat",
	"bury":     "add to the dead letters",
	"course":   "job run",
	"credit":   "flow-control window",
	"deed":     "key action",
	"exhume":   "retry",
	"gate":     "authenticator",
	"knock":    "connect",
	"lane":     "keyed queue",
	"ledger":   "what it counts",
	"lot":      "batch",
	"payer":    "quota",
	"porch":    "acceptor",
	"settle":   "what it does",
	"shelf":    "what it has",
	"slab":     "arena",
	"stranger": "unaccepted key",
	"told":     "what it is: an answer, a throttle, an update",
	"trail":    "audit log",
	"vouch":    "what it does",
}

// neverSaid are those that have no plain meaning beside.
var neverSaid = regexp.MustCompile(`(?i)\b(askers?|strangers?|exhumed?|audit trail|can not|unreadable word)\b`)

// isNo matches "5 is no port", which is "5 is not a port". Before it may stand "there".
var isNo = regexp.MustCompile(`(?:([A-Za-z]+)[\s/]+)?\b(?:is|are|was|were) no ([a-z]+)`)

// misused returns the words of a text that are not plain, "" if there are none.
func misused(text string) string {
	if word := neverSaid.FindString(text); word != "" {
		return word
	}
	for _, m := range isNo.FindAllStringSubmatch(text, -1) {
		usual := m[2] == "longer" || m[2] == "more" || m[2] == "better"
		if !usual && !strings.EqualFold(m[1], "there") {
			return m[0]
		}
	}
	return ""
}

// TestNamesAreTermsOfTheTrade: a private word costs every later reader. What is on the disk
// and on the wire keeps its names; those are texts.
func TestNamesAreTermsOfTheTrade(t *testing.T) {
	for _, s := range sources(t) {
		for _, id := range declared(s.tree) {
			if s.test && !strings.HasPrefix(id.Name, "Test") && !strings.HasPrefix(id.Name, "Fuzz") {
				continue // of a test only the name by which documents and logs call it
			}
			for _, word := range wordsOf(id.Name) {
				if better := coinages[strings.TrimSuffix(word, "s")]; better != "" {
					t.Errorf("%s: %s says %q: say %q", s.at(id), id.Name, word, better)
				}
			}
		}
	}
}

// TestTextsAreTermsOfTheTrade looks at comments, and at what people may read.
func TestTextsAreTermsOfTheTrade(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			for _, g := range s.tree.Comments {
				if word := neverSaid.FindString(g.Text()); word != "" {
					t.Errorf("%s: the comment says %q", s.at(g), word)
				}
			}
			continue
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok {
				if word := misused(l.Value); word != "" {
					t.Errorf("%s: %q is said to people", s.at(n), word)
				}
			}
			return true
		})
		for _, g := range s.tree.Comments {
			if word := misused(g.Text()); word != "" {
				t.Errorf("%s: the comment says %q", s.at(g), word)
			}
		}
	}
}

// TestMisused shows that the test before sees them.
func TestMisused(t *testing.T) {
	for text, want := range map[string]string{
		"5 is no port": "5 is no port", "it can not": "can not", "%q is no port": "q is no port", "they are no\n// list": "", "asker": "asker",
		"there is no port": "", "There are no ports": "", "it is no longer": "", "5 is not a port": "", "": "",
	} {
		if got := misused(text); (got == "") != (want == "") {
			t.Errorf("misused(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestWordsOfNames shows that the test before sees them.
func TestWordsOfNames(t *testing.T) {
	for name, want := range map[string]string{"tellCourse": "tell course", "OpURL": "op url", "HTTPLot": "http lot", "lanes2": "lanes2", "x": "x", "": ""} {
		if got := strings.Join(wordsOf(name), " "); got != want {
			t.Errorf("wordsOf(%q) = %q, want %q", name, got, want)
		}
	}
}

// declared are the names that a file gives: of types, functions, fields, constants and
// variables, also of those within a function.
func declared(f *ast.File) (list []*ast.Ident) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.TypeSpec:
			list = append(list, x.Name)
		case *ast.FuncDecl:
			list = append(list, x.Name)
		case *ast.Field:
			list = append(list, x.Names...)
		case *ast.ValueSpec:
			list = append(list, x.Names...)
		case *ast.AssignStmt:
			for _, e := range x.Lhs {
				if id, ok := e.(*ast.Ident); ok && x.Tok.String() == ":=" {
					list = append(list, id)
				}
			}
		}
		return true
	})
	return list
}

// wordsOf splits a name in camel case, in small letters. Capitals together are one word.
func wordsOf(name string) []string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		after := i+1 < len(runes) && unicode.IsLower(runes[i+1])
		if i > 0 && unicode.IsUpper(r) && (unicode.IsLower(runes[i-1]) || after) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Fields(b.String())
}
