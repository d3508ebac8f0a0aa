package eauth

import (
	"fmt"
	"maps"
	"slices"
)

// Perms returns the current rules of external_auth for a login: texts, sorted, then maps; empty for
// none. They are only shown to users; nothing is decided by them.
func (g *Authenticator) Perms(login *Grant) []any {
	all, _ := g.backends.Load().rules.Value().(map[string]any)
	users, _ := all[login.Backend].(map[string]any)
	texts, others := map[string]bool{}, map[string]any{}
	for name, rules := range users {
		if !concerns(users, name, login) {
			continue
		}
		list, _ := rules.([]any)
		for _, rule := range list {
			if text, ok := rule.(string); ok {
				texts[text] = true
			} else if m, ok := rule.(map[string]any); !ok || m["@target"] == nil { // a rule with @target is about targets
				others[fmt.Sprint(rule)] = rule
			}
		}
	}
	out := []any{}
	for _, text := range slices.Sorted(maps.Keys(texts)) {
		out = append(out, text)
	}
	for _, key := range slices.Sorted(maps.Keys(others)) {
		out = append(out, others[key])
	}
	return out
}

// concerns reports whether the rules below name apply to a login: its own, those of its groups, or
// those of everybody if it has no line of its own.
func concerns(users map[string]any, name string, login *Grant) bool {
	group, isGroup := cutGroup(name)
	_, own := users[login.Name]
	switch {
	case name == "*":
		return !own
	case name == "*%":
		return len(login.Groups) > 0
	case isGroup:
		return slices.Contains(login.Groups, group)
	}
	return name == login.Name
}

func cutGroup(name string) (string, bool) {
	if len(name) > 1 && name[len(name)-1] == '%' {
		return name[:len(name)-1], true
	}
	return "", false
}
