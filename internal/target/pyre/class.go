package pyre

import (
	"strconv"
	"strings"
	"unicode"
)

// The inside of brackets for Python's character classes. In one engine \w \d \s are ASCII, in the
// other they are those of .NET.
const (
	word       = `\p{L}\p{N}_`
	wordASCII  = `A-Za-z0-9_`
	digit      = `\p{Nd}`
	digitASCII = `0-9`
)

// The characters of str.isspace, and those of them in ASCII, as bounds of ranges.
var (
	space      = []rune{'\t', '\r', 0x1c, ' ', 0x85, 0x85, 0xa0, 0xa0, 0x1680, 0x1680, 0x2000, 0x200a, 0x2028, 0x2029, 0x202f, 0x202f, 0x205f, 0x205f, 0x3000, 0x3000}
	spaceASCII = []rune{'\t', '\r', ' ', ' '}
)

// ranges writes bounds as the inside of brackets.
func ranges(bounds []rune) string {
	var b strings.Builder
	for i := 0; i < len(bounds); i += 2 {
		b.WriteString(inClass(bounds[i]) + "-" + inClass(bounds[i+1]))
	}
	return b.String()
}

// complement returns the bounds of all characters outside the given ones.
func complement(bounds []rune) []rune {
	out := []rune{0}
	for i := 0; i < len(bounds); i += 2 {
		out = append(out, bounds[i]-1, bounds[i+1]+1)
	}
	return append(out, unicode.MaxRune)
}

// inClass writes one character within brackets.
func inClass(c rune) string {
	if strings.ContainsRune(`\]^[-&~|`, c) {
		return `\` + string(c)
	}
	return string(c)
}

// shorthand returns the inside of brackets for one of d s w D S W. For \W it is empty and outside
// is set: no union of classes is the complement of word.
func shorthand(c rune, ascii bool) (inside string, outside bool) {
	spaces, digits, words := space, digit, word
	if ascii {
		spaces, digits, words = spaceASCII, digitASCII, wordASCII
	}
	switch c {
	case 'd':
		return digits, false
	case 's':
		return ranges(spaces), false
	case 'w':
		return words, false
	case 'D':
		if ascii {
			return ranges(complement([]rune{'0', '9'})), false
		}
		return `\P{Nd}`, false
	case 'S':
		return ranges(complement(spaces)), false
	}
	if ascii {
		return ranges(complement([]rune{'0', '9', 'A', 'Z', '_', '_', 'a', 'z'})), false
	}
	return "", true
}

// boundary writes \b or \B as lookaround, since the engines define a word differently.
func boundary(c rune, ascii bool) string {
	words, _ := shorthand('w', ascii)
	w := "[" + words + "]"
	if c == 'b' {
		return "(?:(?<=" + w + ")(?!" + w + ")|(?<!" + w + ")(?=" + w + "))"
	}
	return "(?:(?<=" + w + ")(?=" + w + ")|(?<!" + w + ")(?!" + w + `)(?!\A\z))` // \B never matches the empty text
}

// set collects the inside of brackets.
type set struct {
	inside  strings.Builder
	outside bool // \W is a member
}

// text writes the set, which may be negated; the second result reports whether that needs
// lookahead.
func (s *set) text(negated bool) (string, bool) {
	in := s.inside.String()
	switch {
	case !s.outside && negated:
		return "[^" + in + "]", false
	case !s.outside:
		return "[" + in + "]", false
	case in == "" && negated:
		return "[" + word + "]", false
	case in == "":
		return "[^" + word + "]", false
	case negated:
		return "(?:(?![" + in + "])[" + word + "])", true
	}
	return "(?:[" + in + "]|[^" + word + "])", false
}

// class reads what follows an opening bracket.
func (p *parser) class(f flags) (string, error) {
	start := p.pos - 1
	negated := p.accept("^")
	var s set
	for n := 0; n == 0 || p.next() != ']'; n++ {
		if err := p.member(&s, f, start); err != nil {
			return "", err
		}
	}
	p.pos++
	text, backtracks := s.text(negated)
	p.backtracks = p.backtracks || backtracks
	return text, nil
}

// member reads one character, shorthand or range.
func (p *parser) member(s *set, f flags, start int) error {
	from := p.pos
	lo, isClass, err := p.classAtom(start)
	if err != nil {
		return err
	}
	isRange := p.next() == '-' && p.pos+1 < len(p.src) && p.src[p.pos+1] != ']'
	switch {
	case !isRange && isClass:
		inside, outside := shorthand(lo, f.ascii)
		s.inside.WriteString(inside)
		s.outside = s.outside || outside
		return nil
	case !isRange:
		s.inside.WriteString(inClass(lo))
		return nil
	}
	p.pos++
	hi, hiClass, err := p.classAtom(start)
	if err != nil {
		return err
	}
	if isClass || hiClass || hi < lo {
		return fail(from, "bad character range %s", string(p.src[from:p.pos]))
	}
	s.inside.WriteString(inClass(lo) + "-" + inClass(hi))
	return nil
}

// classAtom reads one character within brackets, or the letter of a shorthand.
func (p *parser) classAtom(start int) (c rune, shorthand bool, err error) {
	if p.eof() {
		return 0, false, fail(start, "unterminated character set")
	}
	c = p.next()
	p.pos++
	if c != '\\' {
		return c, false, nil
	}
	if p.eof() {
		return 0, false, fail(p.pos-1, "bad escape (end of pattern)")
	}
	c = p.next()
	switch {
	case strings.ContainsRune("dswDSW", c):
		p.pos++
		return c, true, nil
	case c == 'b':
		p.pos++
		return '\b', false, nil
	case c >= '0' && c <= '7':
		c, err = p.octal(3)
		return c, false, err
	}
	c, err = p.character()
	return c, false, err
}

// escape reads the text after a backslash outside of brackets.
func (p *parser) escape(f flags) (item, error) {
	if p.eof() {
		return item{}, fail(p.pos-1, "bad escape (end of pattern)")
	}
	c := p.next()
	switch {
	case strings.ContainsRune("dswDSW", c):
		p.pos++
		var s set
		inside, outside := shorthand(c, f.ascii)
		s.inside.WriteString(inside)
		s.outside = outside
		text, _ := s.text(false)
		return item{text: text}, nil
	case c == 'b' || c == 'B':
		p.pos++
		p.backtracks = true
		return item{boundary(c, f.ascii), assertion}, nil
	case c == 'A':
		p.pos++
		return item{`\A`, assertion}, nil
	case c == 'Z':
		p.pos++
		return item{`\z`, assertion}, nil
	case c >= '0' && c <= '9':
		return p.number()
	}
	c, err := p.character()
	return item{text: literal(c)}, err
}

// character reads an escape for one character.
func (p *parser) character() (rune, error) {
	start := p.pos - 1
	c := p.next()
	p.pos++
	if i := strings.IndexRune("afnrtv", c); i >= 0 {
		return rune("\a\f\n\r\t\v"[i]), nil
	}
	switch {
	case c == 'x':
		return p.hex(2, start)
	case c == 'u':
		return p.hex(4, start)
	case c == 'U':
		return p.hex(8, start)
	case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9':
		return 0, fail(start, `bad escape \%c`, c)
	}
	return c, nil
}

// hex reads exactly n digits.
func (p *parser) hex(n, start int) (rune, error) {
	end := min(p.pos+n, len(p.src))
	v, err := strconv.ParseUint(string(p.src[p.pos:end]), 16, 32)
	if err != nil || end-p.pos < n || v > unicode.MaxRune || v >= 0xd800 && v < 0xe000 {
		return 0, fail(start, "incomplete or invalid escape %s", string(p.src[start:end]))
	}
	p.pos = end
	return rune(v), nil
}

// octal reads up to n octal digits.
func (p *parser) octal(n int) (rune, error) {
	start := p.pos
	v := rune(0)
	for ; n > 0 && p.next() >= '0' && p.next() <= '7'; n-- {
		v = v*8 + p.next() - '0'
		p.pos++
	}
	if v > 0o377 {
		return 0, fail(start, `octal escape value \%s outside of range 0-0o377`, string(p.src[start:p.pos]))
	}
	return v, nil
}

// number reads an escape that begins with a digit: an octal character if it begins with 0 or has
// three octal digits, otherwise a back reference.
func (p *parser) number() (item, error) {
	start := p.pos - 1
	isOctal := p.next() == '0'
	if !isOctal && p.pos+3 <= len(p.src) {
		isOctal = strings.Trim(string(p.src[p.pos:p.pos+3]), "01234567") == ""
	}
	if isOctal {
		c, err := p.octal(3)
		return item{text: literal(c)}, err
	}
	n := 0
	for range 2 {
		if c := p.next(); c >= '0' && c <= '9' {
			n = n*10 + int(c-'0')
			p.pos++
		}
	}
	return p.backReference(n, start)
}

// backReference writes a reference to a group that is already closed.
func (p *parser) backReference(n, start int) (item, error) {
	switch {
	case n > p.groups:
		return item{}, fail(start, "invalid group reference %d", n)
	case p.open[n]:
		return item{}, fail(start, "cannot refer to an open group")
	}
	p.backtracks = true
	return item{text: `(?:\` + strconv.Itoa(n) + ")"}, nil
}
