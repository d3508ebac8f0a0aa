package event

import (
	"regexp"
	"strings"
)

// glob is a shell pattern as Python's fnmatch reads it: * and ? match every
// character, slashes too, and a bracket that is never closed stands for itself.
// It always compares with the whole text, in linear time.
type glob struct {
	text string
	re   *regexp.Regexp
}

// newGlob never fails: there are no invalid patterns.
func newGlob(pattern string) glob {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for rest := pattern; rest != ""; {
		n := 1
		switch rest[0] {
		case '*':
			b.WriteString(".*")
		case '?':
			b.WriteString(".")
		case '[':
			n = writeSet(&b, rest)
		default:
			if n = strings.IndexAny(rest, "*?["); n < 0 {
				n = len(rest)
			}
			b.WriteString(regexp.QuoteMeta(rest[:n]))
		}
		rest = rest[n:]
	}
	b.WriteString(`\z`)
	re, err := regexp.Compile(b.String())
	if err != nil { // a range that goes backwards: it matches nothing, as in fnmatch
		re = regexp.MustCompile(`[^\x00-\x{10FFFF}]`)
	}
	return glob{pattern, re}
}

// writeSet writes the set at the beginning of s and returns how long it is there.
func writeSet(b *strings.Builder, s string) int {
	start := 1
	if strings.HasPrefix(s[start:], "!") {
		start++
	}
	from := start
	if strings.HasPrefix(s[from:], "]") { // the first one is a member
		from++
	}
	end := strings.IndexByte(s[from:], ']')
	if end < 0 {
		b.WriteString(`\[`)
		return 1
	}
	end += from
	b.WriteByte('[')
	if start == 2 {
		b.WriteByte('^')
	}
	for _, r := range s[start:end] {
		if strings.ContainsRune(`\]^[&~|`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	b.WriteByte(']')
	return end + 1
}

func (g glob) match(s string) bool { return g.re.MatchString(s) }

// prefix is what every match begins with.
func (g glob) prefix() string {
	if n := strings.IndexAny(g.text, "*?["); n >= 0 {
		return g.text[:n]
	}
	return g.text
}
