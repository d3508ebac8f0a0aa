package acl

import (
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// rule allows some functions, possibly on some minions only, possibly with some arguments only.
type rule struct {
	text     string // as a path: publisher_acl: fred: web*: test.*
	where    string
	scopes   []Scope
	module   string         // of runners and wheel functions; "" is every one
	function *name          // nil is every function
	literal  string         // the one function that it names, "" for a pattern of more
	accepted []condition    // one of these; nil accepts all arguments
	target   *target.Target // nil is every minion
	pillar   [][]string     // keys that targets may use; such a rule allows no function
}

// auditModule are the runners that read the audit log. They are never for minions.
const auditModule = "audit"

// names reports whether the rule is about the function, whatever the arguments and minions. In
// a rule for one module the pattern is compared with the part after the module's name.
func (r *rule) names(scope Scope, f salt.Function) (bool, error) {
	if !slices.Contains(r.scopes, scope) {
		return false, nil
	}
	text := string(f)
	if r.module != "" {
		module, rest, _ := strings.Cut(text, ".")
		if module != r.module {
			return false, nil
		}
		text = rest
	}
	if r.function == nil {
		return true, nil
	}
	return r.function.match(text)
}

// holder is a user, group or minion with its rules.
type holder struct {
	who   who
	rules []rule
}

// who is one key of a setting: a name, a group or everybody.
type who struct {
	text  string
	name  *name    // of local users
	id    *pattern // of minions
	exact string   // of external users, compared as it is
	group string   // without the percent sign; "*" is any
	all   bool     // the star of external users
}

// groupOf returns the name of the group that a key names.
func groupOf(key string) (group string, ok bool) {
	if !strings.HasSuffix(key, "%") {
		return "", false
	}
	return strings.TrimRight(key, "%"), true
}

// holds reports whether the key matches s. For the star of external users this depends on the
// other keys; the caller decides.
func (w *who) holds(s *Subject) (bool, error) {
	switch {
	case s.Name == "":
		return false, nil
	case w.group != "":
		return slices.Contains(s.Groups, w.group) || w.group == "*" && len(s.Groups) > 0, nil
	case w.name != nil:
		return w.name.match(s.Name)
	case w.id != nil:
		return w.id.match(s.Name)
	}
	return w.exact != "" && w.exact == s.Name, nil
}

// section is one setting, or one backend of external_auth.
type section []holder

// of returns the holders that match s, in the order written. The star of external_auth is for
// those without rules by name. With permissive it applies to nobody, as in Salt, whose
// documentation says otherwise.
func (sec section) of(s *Subject, permissive bool) ([]*holder, error) {
	var found []*holder
	var all *holder
	named := false
	for i := range sec {
		h := &sec[i]
		if h.who.all {
			all = h
			continue
		}
		ok, err := h.who.holds(s)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, h)
			named = named || h.who.group == ""
		}
	}
	if all != nil && !named && !permissive && s.Name != "" {
		found = append(found, all)
	}
	return found, nil
}

// blacklist is publisher_acl_blacklist.
type blacklist struct {
	users, modules []barred
}

// barred is an entry of the blacklist.
type barred struct {
	*name
	rule  string
	where string
}

// find returns the first entry that matches text.
func find(list []barred, text string) (*barred, error) {
	for i := range list {
		if ok, err := list[i].match(text); ok || err != nil {
			return &list[i], err
		}
	}
	return nil, nil
}

// targets reads target expressions, the same one once.
type targets struct {
	opt  target.Options
	seen map[string]*target.Target
}

func (t *targets) parse(expr string) (*target.Target, error) {
	if known, ok := t.seen[expr]; ok {
		return known, nil
	}
	parsed, err := target.Parse(expr, target.Compound, t.opt)
	if err != nil {
		return nil, err
	}
	t.seen[expr] = parsed
	return parsed, nil
}
