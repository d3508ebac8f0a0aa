package pyre

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// maxDepth limits the nesting of groups: each level costs stack here and in both engines.
const maxDepth = 100

// flags are the active letters of (?aimsx).
type flags struct{ ascii, ignore, multi, dotall, verbose bool }

// parser reads one pattern and writes it in the syntax that both engines share. Everything that
// differs from Python is written out: the classes \w \d \s, the dot, the flags, the numbers of
// groups.
type parser struct {
	src        []rune
	pos        int
	depth      int
	groups     int            // capturing groups opened so far
	names      map[string]int // their names
	open       map[int]bool   // groups that are not closed yet
	conds      []int          // groups that (?(1)...) refers to
	ignoreAll  bool           // (?i) at the start
	backtracks bool           // the output needs backtracking
	dollar     bool           // the output has a $
}

// item is one element of a sequence, to which a quantifier can be added.
type item struct {
	text string
	kind itemKind
}

type itemKind int

const (
	plain     itemKind = iota
	assertion          // matches a position, not text: it cannot be repeated
	repeated           // already has a quantifier
)

// fail returns an error with Python's words and the position, counted in characters.
func fail(pos int, format string, args ...any) error {
	return fmt.Errorf("%s at position %d", fmt.Sprintf(format, args...), pos)
}

func (p *parser) eof() bool { return p.pos >= len(p.src) }

// next returns the next character, or -1 at the end.
func (p *parser) next() rune {
	if p.eof() {
		return -1
	}
	return p.src[p.pos]
}

// accept skips s if it comes next.
func (p *parser) accept(s string) bool {
	rs := []rune(s)
	if len(p.src)-p.pos < len(rs) || string(p.src[p.pos:p.pos+len(rs)]) != s {
		return false
	}
	p.pos += len(rs)
	return true
}

// pattern reads the whole source.
func (p *parser) pattern() (string, error) {
	text, err := p.alternatives(flags{}, true)
	if err != nil {
		return "", err
	}
	if !p.eof() {
		return "", fail(p.pos, "unbalanced parenthesis")
	}
	for _, n := range p.conds {
		if n > p.groups {
			return "", fmt.Errorf("invalid group reference %d", n)
		}
	}
	if p.ignoreAll {
		text = "(?i:" + text + ")"
	}
	return text, nil
}

// alternatives reads a|b|c up to a closing parenthesis or the end.
func (p *parser) alternatives(f flags, top bool) (string, error) {
	if p.depth++; p.depth > maxDepth {
		return "", fail(p.pos, "more than %d groups within each other", maxDepth)
	}
	defer func() { p.depth-- }()
	var branches []string
	for {
		s, err := p.sequence(&f, top && branches == nil)
		if err != nil {
			return "", err
		}
		branches = append(branches, s)
		if !p.accept("|") {
			return strings.Join(branches, "|"), nil
		}
	}
}

// sequence reads items up to a bar, a closing parenthesis or the end. If first is set, flags for
// the whole pattern may be at its beginning; they change f.
func (p *parser) sequence(f *flags, first bool) (string, error) {
	var items []item
	for !p.eof() && p.next() != '|' && p.next() != ')' {
		if f.verbose && p.blank() {
			continue
		}
		done, err := p.quantifier(items)
		if err != nil {
			return "", err
		}
		if done {
			continue
		}
		it, err := p.item(f, first && items == nil)
		if err != nil {
			return "", err
		}
		if it.text != "" {
			items = append(items, it)
		}
	}
	var b strings.Builder
	for _, it := range items {
		b.WriteString(it.text)
	}
	return b.String(), nil
}

// blank skips white space or a comment of a verbose pattern.
func (p *parser) blank() bool {
	switch c := p.next(); {
	case strings.ContainsRune(" \t\n\r\f\v", c):
		p.pos++
	case c == '#':
		for !p.eof() && p.next() != '\n' {
			p.pos++
		}
	default:
		return false
	}
	return true
}

// item reads one element; its text is empty for a comment or for flags.
func (p *parser) item(f *flags, first bool) (item, error) {
	c := p.next()
	p.pos++
	switch c {
	case '\\':
		return p.escape(*f)
	case '[':
		text, err := p.class(*f)
		return item{text: text}, err
	case '(':
		return p.group(f, first)
	case '.':
		if f.dotall {
			return item{text: "(?s:.)"}, nil
		}
		return item{text: `[^\n]`}, nil
	case '^':
		if f.multi {
			return item{"(?m:^)", assertion}, nil
		}
		return item{`\A`, assertion}, nil
	case '$':
		if f.multi {
			return item{"(?m:$)", assertion}, nil
		}
		p.dollar = true
		return item{"$", assertion}, nil
	}
	return item{text: literal(c)}, nil
}

// literal writes one literal character.
func literal(c rune) string {
	if strings.ContainsRune(`\.+*?()|[]{}^$-`, c) {
		return `\` + string(c)
	}
	return string(c)
}

// quantifier reads * + ? {m,n} with an optional ? or + after it, and adds it to the last of the
// items. It reports whether there was one.
func (p *parser) quantifier(items []item) (bool, error) {
	start := p.pos
	count, ok, err := p.count()
	if err != nil || !ok {
		return false, err
	}
	if len(items) == 0 || items[len(items)-1].kind == assertion {
		return false, fail(start, "nothing to repeat")
	}
	last := &items[len(items)-1]
	if last.kind == repeated {
		return false, fail(start, "multiple repeat")
	}
	switch {
	case p.accept("?"):
		last.text += count + "?"
	case p.accept("+"):
		p.backtracks = true
		last.text = "(?>" + last.text + count + ")"
	default:
		last.text += count
	}
	last.kind = repeated
	return true, nil
}

// count reads the number of repetitions. A brace that does not begin a valid one is literal.
func (p *parser) count() (string, bool, error) {
	for _, s := range []string{"*", "+", "?"} {
		if p.accept(s) {
			return s, true, nil
		}
	}
	start := p.pos
	if !p.accept("{") || p.next() == '}' {
		p.pos = start
		return "", false, nil
	}
	lo := p.digits()
	hi := lo
	if p.accept(",") {
		hi = p.digits()
	}
	if !p.accept("}") {
		p.pos = start
		return "", false, nil
	}
	s, err := repetitions(lo, hi, start)
	return s, err == nil, err
}

func (p *parser) digits() string {
	start := p.pos
	for c := p.next(); c >= '0' && c <= '9'; c = p.next() {
		p.pos++
	}
	return string(p.src[start:p.pos])
}

// repetitions writes {lo,hi}; an empty lo is 0, an empty hi no limit.
func repetitions(lo, hi string, pos int) (string, error) {
	number := func(s string, empty int) (int, error) {
		if s == "" {
			return empty, nil
		}
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			return 0, fail(pos, "the repetition number is too large")
		}
		return int(n), nil
	}
	from, err := number(lo, 0)
	if err != nil {
		return "", err
	}
	to, err := number(hi, math.MaxInt32)
	switch {
	case err != nil:
		return "", err
	case to < from:
		return "", fail(pos, "min repeat greater than max repeat")
	case hi == "":
		return fmt.Sprintf("{%d,}", from), nil
	}
	return fmt.Sprintf("{%d,%d}", from, to), nil
}

// group reads the text after an opening parenthesis.
func (p *parser) group(f *flags, first bool) (item, error) {
	start := p.pos - 1
	if !p.accept("?") {
		return p.capture(*f, "", start)
	}
	switch {
	case p.accept("P<"):
		name, err := p.name('>')
		if err != nil {
			return item{}, err
		}
		if _, twice := p.names[name]; twice {
			return item{}, fail(start, "redefinition of group name %q", name)
		}
		return p.capture(*f, name, start)
	case p.accept("P="):
		name, err := p.name(')')
		if err != nil {
			return item{}, err
		}
		n, ok := p.names[name]
		if !ok {
			return item{}, fail(start, "unknown group name %q", name)
		}
		return p.backReference(n, start)
	case p.accept("#"):
		return item{}, p.comment(start)
	case p.accept("("):
		return p.conditional(*f, start)
	}
	for _, kind := range []string{":", ">", "=", "!", "<=", "<!"} {
		if p.accept(kind) {
			p.backtracks = p.backtracks || kind != ":"
			return p.enclosed("(?"+kind, *f, start)
		}
	}
	return p.flagGroup(f, first, start)
}

// enclosed reads the inside of a group up to its closing parenthesis.
func (p *parser) enclosed(opening string, f flags, start int) (item, error) {
	text, err := p.alternatives(f, false)
	if err != nil {
		return item{}, err
	}
	if !p.accept(")") {
		return item{}, fail(start, "missing ), unterminated subpattern")
	}
	return item{text: opening + text + ")"}, nil
}

// capture reads a numbered group. Names are converted to numbers, because regexp2 numbers named
// groups last and Python numbers all groups in order.
func (p *parser) capture(f flags, name string, start int) (item, error) {
	p.groups++
	n := p.groups
	if name != "" {
		p.names[name] = n
	}
	p.open[n] = true
	it, err := p.enclosed("(", f, start)
	delete(p.open, n)
	return it, err
}

// name reads a name up to the given character.
func (p *parser) name(end rune) (string, error) {
	start := p.pos
	for !p.eof() && p.next() != end {
		p.pos++
	}
	if p.eof() {
		return "", fail(start, "missing %c, unterminated name", end)
	}
	name := string(p.src[start:p.pos])
	p.pos++
	if name == "" {
		return "", fail(start, "missing group name")
	}
	for i, c := range name {
		if c != '_' && !unicode.IsLetter(c) && (i == 0 || !unicode.IsDigit(c)) {
			return "", fail(start, "bad character in group name %q", name)
		}
	}
	return name, nil
}

func (p *parser) comment(start int) error {
	for !p.eof() {
		if p.accept(")") {
			return nil
		}
		p.pos++
	}
	return fail(start, "missing ), unterminated comment")
}

// conditional reads (?(1)yes|no) and (?(name)yes|no).
func (p *parser) conditional(f flags, start int) (item, error) {
	n, err := p.condition(start)
	if err != nil {
		return item{}, err
	}
	text, err := p.alternatives(f, false)
	if err != nil {
		return item{}, err
	}
	if !p.accept(")") {
		return item{}, fail(start, "missing ), unterminated subpattern")
	}
	if branches(text) > 2 {
		return item{}, fail(start, "conditional backref with more than two branches")
	}
	p.backtracks = true
	p.conds = append(p.conds, n)
	return item{text: fmt.Sprintf("(?(%d)%s)", n, text)}, nil
}

// condition reads the group that a conditional refers to.
func (p *parser) condition(start int) (int, error) {
	digits := p.digits()
	if digits != "" && p.accept(")") {
		n, err := strconv.Atoi(digits)
		if err != nil || n == 0 || n > 99 {
			return 0, fail(start, "bad group number")
		}
		return n, nil
	}
	name, err := p.name(')')
	if err != nil {
		return 0, err
	}
	n, ok := p.names[name]
	if !ok {
		return 0, fail(start, "unknown group name %q", name)
	}
	return n, nil
}

// branches counts the alternatives of text that this parser wrote.
func branches(text string) int {
	n, depth, inClass, escaped := 1, 0, false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case inClass:
			inClass = c != ']'
		case c == '[':
			inClass = true
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == '|' && depth == 0:
			n++
		}
	}
	return n
}

// flagGroup reads (?i) at the start of the pattern, and (?i-s:...) anywhere.
func (p *parser) flagGroup(f *flags, first bool, start int) (item, error) {
	inner := *f
	on, err := p.flagLetters(&inner, true)
	if err != nil {
		return item{}, err
	}
	if p.accept(")") {
		if on == "" {
			return item{}, fail(start, "unknown extension ?)")
		}
		if !first {
			return item{}, fail(start, "global flags not at the start of the expression")
		}
		p.ignoreAll = p.ignoreAll || inner.ignore
		*f = inner
		return item{}, nil
	}
	if p.accept("-") {
		off, err := p.flagLetters(&inner, false)
		if err != nil {
			return item{}, err
		}
		if off == "" || strings.ContainsAny(off, "au") || strings.ContainsAny(on, off) {
			return item{}, fail(p.pos, "bad inline flags")
		}
	} else if on == "" {
		return item{}, p.unknownExtension(start)
	}
	if !p.accept(":") {
		return item{}, fail(p.pos, "missing :")
	}
	if inner.ignore {
		return p.enclosed("(?i:", inner, start)
	}
	return p.enclosed("(?-i:", inner, start)
}

// unknownExtension returns the error for a letter that no group begins with.
func (p *parser) unknownExtension(start int) error {
	if p.eof() {
		return fail(p.pos, "unexpected end of pattern")
	}
	return fail(start, "unknown extension ?%c", p.next())
}

// flagLetters reads letters and sets their flags in f to on.
func (p *parser) flagLetters(f *flags, on bool) (string, error) {
	start := p.pos
	for {
		switch p.next() {
		case 'i':
			f.ignore = on
		case 'm':
			f.multi = on
		case 's':
			f.dotall = on
		case 'x':
			f.verbose = on
		case 'a':
			f.ascii = on
		case 'u':
			f.ascii = !on
		case 'L':
			return "", fail(p.pos, "bad inline flags: cannot use 'L' flag with a str pattern")
		default:
			return string(p.src[start:p.pos]), nil
		}
		p.pos++
	}
}
