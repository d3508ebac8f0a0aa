package acl

import (
	"errors"
	"fmt"
	"strings"

	"github.com/brinebus/brine/internal/target/pyre"
)

// pattern is a regular expression that must match a whole text.
type pattern struct {
	text   string
	re     *pyre.Regexp
	starts []string // each match begins with one of these; nil if not known
}

func newPattern(text string) (*pattern, error) {
	re, err := pyre.CompileFull(text)
	if err != nil {
		return nil, err
	}
	return &pattern{text: text, re: re, starts: starts(text)}, nil
}

// match returns an error if there was no answer within the limits of package pyre.
func (p *pattern) match(s string) (bool, error) {
	if !begins(s, p.starts) {
		return false, nil
	}
	return p.re.Match(s)
}

// begins reports whether s begins with one of starts. It saves running the engine for most
// rules of a long list.
func begins(s string, starts []string) bool {
	for _, start := range starts {
		if strings.HasPrefix(s, start) {
			return true
		}
	}
	return starts == nil
}

// starts returns texts, one of which begins every match of the expression, read as a regular
// expression or as a glob; nil if that cannot be seen easily.
func starts(expr string) []string {
	if strings.Contains(expr, "|") && strings.ContainsAny(expr, `([\`) || strings.Contains(expr, "(?") {
		return nil
	}
	var out []string
	for alternative := range strings.SplitSeq(expr, "|") {
		alternative = strings.TrimPrefix(alternative, "^")
		n := strings.IndexFunc(alternative, func(r rune) bool { return !isPlain(r) })
		if n < 0 {
			n = len(alternative)
		} else if n > 0 && strings.IndexByte("*?+{", alternative[n]) >= 0 {
			n-- // the last character may be absent
		}
		if n == 0 {
			return nil
		}
		out = append(out, alternative[:n])
	}
	return out
}

// isPlain reports whether r matches only itself in globs and regular expressions.
func isPlain(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_'
}

// name is a pattern of user names: a name, a glob, or a regular expression,
// whichever fits.
type name struct {
	text   string
	glob   *pyre.Regexp // nil if the text has no wildcard
	re     *pyre.Regexp // nil if the text is only a glob
	starts []string
	exact  bool // only the text itself matches
}

// newFunction reads a pattern of functions: a name, a glob or a regular expression. It must be
// a valid regular expression: otherwise *.ping would mean every function of that name as a
// glob, and nothing as a regular expression.
func newFunction(text string) (*name, error) {
	re, err := pyre.CompileFull(text)
	if err != nil {
		return nil, err
	}
	n := &name{text: text, re: re, starts: starts(text), exact: isExact(text)}
	if strings.ContainsAny(text, "*?[") {
		n.glob, err = pyre.CompileFull(globToRegexp(text))
	}
	return n, err
}

// newName reads a pattern of names.
func newName(text string) (*name, error) { return compileName(text, false) }

// newBarred reads a pattern of the blacklist. In doubt it matches more: in a|b, Salt anchors
// only the beginning of a and the end of b, so root|eve also refuses rootx. Users may rely on
// that, so Brine refuses it too.
func newBarred(text string) (*name, error) { return compileName(text, true) }

func compileName(text string, loose bool) (*name, error) {
	n := &name{text: text, starts: starts(text), exact: isExact(text)}
	var err error
	if strings.ContainsAny(text, "*?[") {
		if n.glob, err = pyre.CompileFull(globToRegexp(text)); err != nil {
			return nil, err
		}
	}
	re, err := pyre.CompileFull(text)
	if err == nil {
		// Anchored as in Salt; if that does not compile, there is no expression.
		var saltRe *pyre.Regexp
		saltRe, err = pyre.Compile(`\A` + text + `\Z`)
		if loose {
			re = saltRe
		}
	}
	if err == nil {
		n.re = re
	}
	if err != nil && (n.glob == nil || strings.ContainsAny(text, `\^$|+(){}`) || strings.Contains(text, "[") && !bracketsClose(text)) {
		return nil, fmt.Errorf("it is neither a name nor a glob nor a regular expression: %w", reason(err))
	}
	return n, nil
}

// reason removes the pattern from the compiler's error, which repeats it.
func reason(err error) error {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}

// bracketsClose reports whether every bracket of a glob is closed.
func bracketsClose(glob string) bool {
	i := strings.LastIndexByte(glob, '[')
	return strings.IndexByte(glob[min(i+2, len(glob)):], ']') >= 0
}

// isExact reports whether the pattern matches nothing but its own text.
func isExact(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return !isPlain(r) && r != '-' }) < 0
}

func (n *name) match(s string) (bool, error) {
	if s == n.text {
		return true, nil
	}
	if n.exact || !begins(s, n.starts) {
		return false, nil
	}
	for _, re := range []*pyre.Regexp{n.glob, n.re} {
		if re == nil {
			continue
		}
		if ok, err := re.Match(s); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// globToRegexp writes a shell pattern as a regular expression: star and question mark match any
// character, [!x] matches any but x, and an open bracket that is never closed matches itself.
func globToRegexp(glob string) string {
	var b strings.Builder
	b.WriteString("(?s)")
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; c {
		case '*':
			b.WriteString(".*")
		case '?':
			b.WriteByte('.')
		case '[':
			set, n := globSet(glob[i+1:])
			b.WriteString(set)
			i += n
		default:
			if strings.IndexByte(`\^$.|+(){}]#&~-`, c) >= 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}
	}
	return b.String()
}

// globSet translates the set that begins after a bracket, and returns how many bytes it read.
func globSet(s string) (set string, n int) {
	negated := strings.HasPrefix(s, "!")
	from := 0
	if negated {
		from = 1
	}
	end := strings.IndexByte(s[min(from+1, len(s)):], ']')
	if end < 0 || from >= len(s) {
		return `\[`, 0
	}
	end += from + 1
	members := s[from:end]
	set = strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `^`, `\^`, `&`, `\&`, `~`, `\~`, `|`, `\|`).Replace(members)
	if negated {
		set = "^" + set
	}
	return "[" + set + "]", end + 1
}
