package target

import (
	"strings"
	"unicode/utf8"
)

// glob is a compiled shell pattern with the meaning of Python's fnmatch: the
// star and the question mark match every character, dots and slashes too; [!x]
// negates; a bracket that is never closed and a backslash are literal.
type glob struct{ tokens []globToken }

type globToken struct {
	kind globKind
	text string // of a literal
	set  globSet
}

type globKind int

const (
	globText  globKind = iota
	globStar           // any text
	globAny            // any character
	globOneOf          // a character of the set
)

// globSet holds the ranges between brackets, as pairs of bounds.
type globSet struct {
	negated bool
	bounds  []rune
}

func (s globSet) has(c rune) bool {
	for i := 0; i < len(s.bounds); i += 2 {
		if s.bounds[i] <= c && c <= s.bounds[i+1] {
			return !s.negated
		}
	}
	return s.negated
}

// compileGlob never fails: fnmatch has no invalid patterns.
func compileGlob(pattern string) *glob {
	g := &glob{}
	for i := 0; i < len(pattern); {
		switch pattern[i] {
		case '*':
			g.star()
			i++
		case '?':
			g.tokens = append(g.tokens, globToken{kind: globAny})
			i++
		case '[':
			i += g.bracket(pattern[i:])
		default:
			n := strings.IndexAny(pattern[i:], "*?[")
			if n < 0 {
				n = len(pattern) - i
			}
			g.text(pattern[i : i+n])
			i += n
		}
	}
	return g
}

// star adds one, unless the last token is one already.
func (g *glob) star() {
	if n := len(g.tokens); n == 0 || g.tokens[n-1].kind != globStar {
		g.tokens = append(g.tokens, globToken{kind: globStar})
	}
}

// text adds literal text, to the last token if that is literal too.
func (g *glob) text(s string) {
	if n := len(g.tokens); n > 0 && g.tokens[n-1].kind == globText {
		g.tokens[n-1].text += s
		return
	}
	g.tokens = append(g.tokens, globToken{kind: globText, text: s})
}

// bracket reads a set from the start of s and returns the bytes it took. A
// closing bracket that comes first is a member of the set.
func (g *glob) bracket(s string) int {
	start := 1
	if strings.HasPrefix(s[start:], "!") {
		start++
	}
	from := min(start+1, len(s))
	end := strings.IndexByte(s[from:], ']')
	if end < 0 {
		g.text("[")
		return 1
	}
	end += from
	set := globSet{negated: start == 2, bounds: setBounds([]rune(s[start:end]))}
	g.tokens = append(g.tokens, globToken{kind: globOneOf, set: set})
	return end + 1
}

// setBounds reads the inside of brackets. A range that runs backwards is empty;
// a hyphen at either end, or after a range, is literal.
func setBounds(in []rune) []rune {
	var bounds []rune
	for i := 0; i < len(in); {
		if i+2 < len(in) && in[i+1] == '-' {
			if in[i] <= in[i+2] {
				bounds = append(bounds, in[i], in[i+2])
			}
			i += 3
			continue
		}
		bounds = append(bounds, in[i], in[i])
		i++
	}
	return bounds
}

// literal returns the text of a pattern without wildcards.
func (g *glob) literal() (string, bool) {
	switch {
	case len(g.tokens) == 0:
		return "", true
	case len(g.tokens) == 1 && g.tokens[0].kind == globText:
		return g.tokens[0].text, true
	}
	return "", false
}

// match compares the whole of s. After a mismatch only the last star is
// stretched, which is enough since it can stand for all that an earlier one
// could: the cost is at most the product of the lengths.
func (g *glob) match(s string) bool {
	at, token := 0, 0
	starAt, starToken := -1, -1
	for at < len(s) || token < len(g.tokens) {
		if token < len(g.tokens) && g.tokens[token].kind == globStar {
			starAt, starToken = at, token
			token++
			continue
		}
		if token < len(g.tokens) {
			if n := g.tokens[token].consume(s[at:]); n >= 0 {
				at, token = at+n, token+1
				continue
			}
		}
		if starAt < 0 || starAt >= len(s) {
			return false
		}
		_, n := utf8.DecodeRuneInString(s[starAt:])
		if starAt = g.stretch(s, starAt+n, starToken+1); starAt < 0 {
			return false
		}
		at, token = starAt, starToken+1
	}
	return true
}

// stretch returns the first place from at on where the token after a star can
// begin, or -1. Only literal text is looked for; the rest is left to match.
func (g *glob) stretch(s string, at, token int) int {
	if token == len(g.tokens) || g.tokens[token].kind != globText {
		return at
	}
	i := strings.Index(s[at:], g.tokens[token].text)
	if i < 0 {
		return -1
	}
	return at + i
}

// consume returns how many bytes at the start of s the token matches, or -1.
func (t *globToken) consume(s string) int {
	if t.kind == globText {
		if strings.HasPrefix(s, t.text) {
			return len(t.text)
		}
		return -1
	}
	if s == "" {
		return -1
	}
	c, n := utf8.DecodeRuneInString(s)
	if t.kind == globAny || t.set.has(c) {
		return n
	}
	return -1
}
