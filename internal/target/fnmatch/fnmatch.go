// Package fnmatch implements shell patterns with the meaning of Python's fnmatch, as Salt's users
// know them: the star and the question mark match every character, also dots and slashes; [!x]
// negates; an unclosed bracket and a backslash are literal. All such patterns use this package, for
// ids, tags and function names; file names use path/filepath.
package fnmatch

import (
	"strings"
	"unicode/utf8"
)

// Pattern is a compiled pattern. The zero value matches the empty text.
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

// Kind is the kind of a token.
type Kind int

// The kinds of tokens.
const (
	Literal Kind = iota // its text
	Star                // any text
	Any                 // any character
	OneOf               // one character of a set
)

// set holds the ranges in brackets, as pairs of bounds.
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

// Match reports whether the pattern matches all of s.
func Match(pattern, s string) bool { return Compile(pattern).Match(s) }

// Compile compiles a pattern. It never fails: there are no invalid patterns.
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

// star adds a star, unless the last token is a star.
func (p *Pattern) star() {
	if n := len(p.tokens); n == 0 || p.tokens[n-1].Kind != Star {
		p.tokens = append(p.tokens, Token{Kind: Star})
	}
}

// addText adds literal text; it extends the last token if that is literal.
func (p *Pattern) addText(s string) {
	if n := len(p.tokens); n > 0 && p.tokens[n-1].Kind == Literal {
		p.tokens[n-1].Text += s
		return
	}
	p.tokens = append(p.tokens, Token{Kind: Literal, Text: s})
}

// bracket parses a set at the start of s and returns its length in bytes. A closing bracket at the
// first position is a member of the set.
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

// setBounds parses the inside of brackets. A backward range is empty; a hyphen at either end, or
// after a range, is literal.
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

// Match reports whether the pattern matches all of s. After a mismatch only the last star is
// extended, which is enough since it can match everything that an earlier star could: the cost is
// at most the product of the lengths.
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

// stretch returns the first position, at or after at, where the token after a star can begin, or
// -1. It searches only for literal text; match checks the rest.
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

// String returns the pattern as it was written.
func (p *Pattern) String() string { return p.text }

// Prefix returns the text that every match begins with.
func (p *Pattern) Prefix() string {
	if len(p.tokens) > 0 && p.tokens[0].Kind == Literal {
		return p.tokens[0].Text
	}
	return ""
}

// Tokens returns the parts of the pattern, for proofs about it. They must not be changed.
func (p *Pattern) Tokens() []Token { return p.tokens }

// Ranges calls f for the bounds of each range of a set.
func (t *Token) Ranges(f func(from, to rune)) {
	for i := 0; i < len(t.set.bounds); i += 2 {
		f(t.set.bounds[i], t.set.bounds[i+1])
	}
}
