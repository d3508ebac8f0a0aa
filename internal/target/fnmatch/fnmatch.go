// Package fnmatch is shell patterns with the meaning of Python's fnmatch, as Salt's users
// know them: the star and the question mark match every character, dots and slashes too;
// [!x] negates; a bracket that is never closed and a backslash are literal. It is the one
// reader of such patterns, for ids, tags and names of functions alike; names of files are
// for path/filepath.
package fnmatch

import (
	"strings"
	"unicode/utf8"
)

// Pattern is a compiled pattern. The zero value is that of the empty text.
type Pattern struct {
	text   string
	tokens []Token
}

// Token is a part of a pattern.
type Token struct {
	Kind Kind
	Text string // of a Literal
	set  set
}

// Kind is what a token stands for.
type Kind int

// The kinds.
const (
	Literal Kind = iota // its text
	Star                // any text
	Any                 // any character
	OneOf               // a character of a set
)

// set holds the ranges between brackets, as pairs of bounds.
type set struct {
	negated bool
	bounds  []rune
}

func (s set) has(c rune) bool {
	for i := 0; i < len(s.bounds); i += 2 {
		if s.bounds[i] <= c && c <= s.bounds[i+1] {
			return !s.negated
		}
	}
	return s.negated
}

// Match tells whether the pattern means the whole of s.
func Match(pattern, s string) bool { return Compile(pattern).Match(s) }

// Compile never fails: there are no invalid patterns.
func Compile(pattern string) *Pattern {
	p := &Pattern{text: pattern}
	for i := 0; i < len(pattern); {
		switch pattern[i] {
		case '*':
			p.star()
			i++
		case '?':
			p.tokens = append(p.tokens, Token{Kind: Any})
			i++
		case '[':
			i += p.bracket(pattern[i:])
		default:
			n := strings.IndexAny(pattern[i:], "*?[")
			if n < 0 {
				n = len(pattern) - i
			}
			p.addText(pattern[i : i+n])
			i += n
		}
	}
	return p
}

// star adds one, unless the last token is one already.
func (p *Pattern) star() {
	if n := len(p.tokens); n == 0 || p.tokens[n-1].Kind != Star {
		p.tokens = append(p.tokens, Token{Kind: Star})
	}
}

// addText adds literal text, to the last token if that is literal too.
func (p *Pattern) addText(s string) {
	if n := len(p.tokens); n > 0 && p.tokens[n-1].Kind == Literal {
		p.tokens[n-1].Text += s
		return
	}
	p.tokens = append(p.tokens, Token{Kind: Literal, Text: s})
}

// bracket reads a set from the start of s and returns the bytes it took. A
// closing bracket that comes first is a member of the set.
func (p *Pattern) bracket(s string) int {
	start := 1
	if strings.HasPrefix(s[start:], "!") {
		start++
	}
	from := min(start+1, len(s))
	end := strings.IndexByte(s[from:], ']')
	if end < 0 {
		p.addText("[")
		return 1
	}
	end += from
	members := set{negated: start == 2, bounds: setBounds([]rune(s[start:end]))}
	p.tokens = append(p.tokens, Token{Kind: OneOf, set: members})
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

// Literal returns the text of a pattern without wildcards.
func (p *Pattern) Literal() (string, bool) {
	switch {
	case len(p.tokens) == 0:
		return "", true
	case len(p.tokens) == 1 && p.tokens[0].Kind == Literal:
		return p.tokens[0].Text, true
	}
	return "", false
}

// Match compares the whole of s. After a mismatch only the last star is
// stretched, which is enough since it can stand for all that an earlier one
// could: the cost is at most the product of the lengths.
func (p *Pattern) Match(s string) bool {
	at, token := 0, 0
	starAt, starToken := -1, -1
	for at < len(s) || token < len(p.tokens) {
		if token < len(p.tokens) && p.tokens[token].Kind == Star {
			starAt, starToken = at, token
			token++
			continue
		}
		if token < len(p.tokens) {
			if n := p.tokens[token].Consume(s[at:]); n >= 0 {
				at, token = at+n, token+1
				continue
			}
		}
		if starAt < 0 || starAt >= len(s) {
			return false
		}
		_, n := utf8.DecodeRuneInString(s[starAt:])
		if starAt = p.stretch(s, starAt+n, starToken+1); starAt < 0 {
			return false
		}
		at, token = starAt, starToken+1
	}
	return true
}

// stretch returns the first place from at on where the token after a star can
// begin, or -1. Only literal text is looked for; the rest is left to match.
func (p *Pattern) stretch(s string, at, token int) int {
	if token == len(p.tokens) || p.tokens[token].Kind != Literal {
		return at
	}
	i := strings.Index(s[at:], p.tokens[token].Text)
	if i < 0 {
		return -1
	}
	return at + i
}

// Consume returns how many bytes at the start of s the token matches, or -1.
func (t *Token) Consume(s string) int {
	if t.Kind == Literal {
		if strings.HasPrefix(s, t.Text) {
			return len(t.Text)
		}
		return -1
	}
	if s == "" {
		return -1
	}
	c, n := utf8.DecodeRuneInString(s)
	if t.Kind == Any || t.set.has(c) {
		return n
	}
	return -1
}

// String is the pattern as it was written.
func (p *Pattern) String() string { return p.text }

// Prefix is what every match begins with.
func (p *Pattern) Prefix() string {
	if len(p.tokens) > 0 && p.tokens[0].Kind == Literal {
		return p.tokens[0].Text
	}
	return ""
}

// Tokens are the parts of the pattern, for those who reason about it. They must not be
// changed.
func (p *Pattern) Tokens() []Token { return p.tokens }

// Ranges calls f for the bounds of each range of a set.
func (t *Token) Ranges(f func(from, to rune)) {
	for i := 0; i < len(t.set.bounds); i += 2 {
		f(t.set.bounds[i], t.set.bounds[i+1])
	}
}
