package acl

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/brinebus/brine/internal/salt"
)

// Common mistakes of people who write globs where regular expressions are expected, and vice
// versa. Each check finds one and suggests a correction.

// strayStar is a star that repeats an ordinary character: web*.
var strayStar = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Za-z0-9_-]\*`) })

// openDot is the habit of writing module.* for all functions of a module.
var openDot = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([A-Za-z0-9_]+)\.\*$`) })

// lintFunction looks at a pattern of functions below what base says.
func (p *parser) lintFunction(a at, base rule) {
	text := a.Value
	switch {
	case text == "":
		p.warn(a, true, "an empty pattern matches no function")
	case slices.Contains(base.scopes, Mine): // their owners choose the names
	case strings.HasPrefix(text, "@"):
		p.warn(a, true, "%s belongs directly below the user, not below a target", text)
	case base.module != "":
		if strings.HasPrefix(text, base.module+".") || strings.HasPrefix(text, base.module+`\.`) {
			p.warn(a, true, "below @%s functions are written without their module", base.module)
		}
	case !strings.ContainsAny(text, `.\[(*?`):
		p.warn(a, true, "the whole name of a function is compared, and it has a dot: write %s", suggestion(text))
	case openDot().MatchString(text):
		module := openDot().FindStringSubmatch(text)[1]
		p.warn(a, false, `the dot stands for any character, so this allows %sing.x too; functions of the module %s alone are %s\..*`, module, module, module)
	}
}

// lintKnown warns about a rule for unknown functions of the master: @runer. It reports whether it has warned about one that
// matches functions and grants none of them.
func (p *parser) lintKnown(a at, r *rule) bool {
	if slices.Contains(p.added, r.module) {
		return false
	}
	seen, why := 0, ""
	for _, scope := range r.scopes {
		seen += len(p.known[scope])
		for _, f := range p.known[scope] {
			ok, err := r.names(scope, f)
			if err != nil {
				return false
			}
			if ok {
				if why = p.ungranted(r, scope, f); why == "" {
					return false
				}
			}
		}
	}
	unknown := len(p.added) > 0 && r.function != nil // it may match functions that are not known
	switch {
	case why != "" && unknown && r.literal == "" && p.does == nil: // with it, such functions are granted by name only
	case why != "":
		p.warn(a, true, "%s", why)
		return true
	case seen > 0 && !unknown:
		p.warn(a, true, "no runner and no wheel function of this master matches it")
	}
	return false
}

// ungranted is why a rule that matches a function of the master does not grant it, "" if it does.
func (p *parser) ungranted(r *rule, scope Scope, f salt.Function) string {
	switch {
	case p.minions && scope == Runner && f.Module() == auditModule:
		return auditClosed
	case p.does == nil || r.grants(p.does.Read(scope, salt.Command{Function: f}).Naming, f):
		return ""
	case p.minions:
		return "it matches only functions that a rule grants by their names, not by a pattern, such as " + string(f)
	}
	return "it matches only functions that a rule grants by their names or that of the module, not by a pattern, such as " + string(f)
}

// suggestion returns the pattern that was probably meant by a bare module or a glob.
func suggestion(text string) string { return strings.TrimRight(text, "*") + `\..*` }

// lintTarget looks at the target of a rule.
func (p *parser) lintTarget(a at, text string) {
	for word := range strings.FieldsSeq(text) {
		switch {
		case strings.HasPrefix(word, "E@") && !strings.HasSuffix(word, "$") && !strings.HasSuffix(word, ".*"):
			p.warn(a, false, "%s compares the beginning of an id: end it with $ to mean the whole", word)
		case !strings.Contains(word, "@") && strings.Contains(word, ".*"):
			p.warn(a, false, "targets are compound expressions, where %s is a glob: for a regular expression write E@%s", word, word)
		}
	}
}

// lintID looks at the regular expression of an id.
func (p *parser) lintID(a at) {
	switch {
	case a.Value == "":
		p.warn(a, true, "an empty expression matches no minion")
	case strayStar().MatchString(a.Value):
		p.warn(a, false, "ids are regular expressions here: the star of a shell is .*")
	}
}

// lintModule looks at the name after @.
func (p *parser) lintModule(a at, text string) {
	switch lower := strings.ToLower(text); lower {
	case "runner", "runners", "wheel", "wheels":
		p.warn(a, true, "the name is written in lower case: @%s", lower)
	case "run", "runne", "whee":
		p.warn(a, false, "this means the module %s; all runners are @runner, all wheel functions @wheel", text)
	}
}

// lintBarred looks at an entry of the blacklist.
func (p *parser) lintBarred(a at, what string, n *name) {
	switch {
	case n.text == "":
		p.warn(a, true, "an empty pattern refuses nothing")
	case what == "function" && n.glob == nil && !strings.ContainsAny(n.text, `.\(`):
		p.warn(a, true, "this refuses nothing, since functions have a dot: the module is %s.*", n.text)
	case what == "user" && strings.HasPrefix(n.text, "^(?!sudo_)"):
		p.warn(a, false, "this locks out everybody who does not come by sudo, root included")
	}
}
