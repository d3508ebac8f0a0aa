package structure

import (
	"go/ast"
	"go/token"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// notYet are settings that nothing uses so far, each with what it will be for.
var notYet = map[string]string{}

// TestSettingsAreUsed: a setting that is documented and has no effect deceives whoever sets it, above
// all one that limits or refuses something. Such a key belongs to saltKeys of package config, with
// which a daemon says that it ignores it.
//
// It sees the field of the setting in some code, or its key in some other package. So it overlooks
// one whose name something else has.
func TestSettingsAreUsed(t *testing.T) {
	fields, used := map[string]string{}, map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				used[n.Sel.Name] = true
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && s.pkg.short() != "config" {
					used[text] = true
				}
			case *ast.Field:
				if key := keyOf(n); s.pkg.short() == "config" && key != "" && len(n.Names) == 1 {
					fields[key] = n.Names[0].Name
				}
			}
			return true
		})
	}
	if len(fields) < 100 {
		t.Fatalf("only %d settings were found", len(fields))
	}
	for key, field := range fields {
		_, later := notYet[key]
		switch is := used[field] || used[key]; {
		case !is && !later:
			t.Errorf("%s has no effect: nothing uses it", key)
		case is && later:
			t.Errorf("%s has an effect now: take it out of notYet", key)
		}
	}
}

// keyOf returns the key of a setting, "" for another field.
func keyOf(f *ast.Field) string {
	if f.Tag == nil {
		return ""
	}
	key := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("yaml")
	return strings.TrimPrefix(key, "-")
}
