package output

import (
	"strings"
	"unicode/utf8"

	"github.com/brinebus/brine/internal/value"
)

// pprintWidth is the line width at which pprint breaks lines, as in Python.
const pprintWidth = 80

// formatPprint is pprint: a value as Python writes it, in lines of at most 80 characters if
// possible.
func formatPprint(o Options, data any) (string, error) {
	p := pprinter{step: o.indentOr(1)}
	if p.step < 0 {
		p.step = 1
	}
	p.value(data, 0, 0, true)
	return p.String(), nil
}

type pprinter struct {
	strings.Builder
	step int // blanks for each level
}

// value writes v, which begins at column indent; allowance is the room needed after its last line
// for closing brackets.
func (p *pprinter) value(v any, indent, allowance int, top bool) {
	rep := value.Repr(sorted(v))
	if utf8.RuneCountInString(rep) <= pprintWidth-indent-allowance {
		p.WriteString(rep)
		return
	}
	switch x := v.(type) {
	case map[string]any, value.Map:
		m, _ := value.Sorted(v)
		p.dict(m, indent, allowance+1)
	case []any:
		p.list(x, '[', ']', indent, allowance+1)
	case value.Tuple:
		p.list(x, '(', ')', indent, allowance+1)
	case value.Set:
		p.list(x, '{', '}', indent, allowance+1)
	case string:
		p.text(x, indent, allowance, top)
	default:
		p.WriteString(rep)
	}
}

// sorted returns v with its maps sorted by their keys, the only order of pprint.
func sorted(v any) any {
	switch x := v.(type) {
	case value.Map:
		m, _ := value.Sorted(x)
		for i := range m {
			m[i].V = sorted(m[i].V)
		}
		return m
	case []any:
		return each(x)
	case value.Tuple:
		return value.Tuple(each(x))
	}
	return v
}

func each(list []any) []any {
	items := make([]any, len(list))
	for i, v := range list {
		items[i] = sorted(v)
	}
	return items
}

func (p *pprinter) open(bracket byte) {
	p.WriteByte(bracket)
	p.WriteString(strings.Repeat(" ", max(p.step-1, 0)))
}

func (p *pprinter) dict(m value.Map, indent, allowance int) {
	p.open('{')
	indent += p.step
	for i, e := range m {
		if i > 0 {
			p.WriteString(",\n" + strings.Repeat(" ", indent))
		}
		key := value.Repr(e.Key) + ": "
		p.WriteString(key)
		p.value(e.V, indent+utf8.RuneCountInString(key), widthBehind(i == len(m)-1, allowance), false)
	}
	p.WriteByte('}')
}

func (p *pprinter) list(list []any, open, close byte, indent, allowance int) {
	p.open(open)
	indent += p.step
	for i, v := range list {
		if i > 0 {
			p.WriteString(",\n" + strings.Repeat(" ", indent))
		}
		p.value(v, indent, widthBehind(i == len(list)-1, allowance), false)
	}
	p.WriteByte(close)
}

// widthBehind returns the width needed after an item: 1 for a comma if it is not the last.
func widthBehind(last bool, allowance int) int {
	if last {
		return allowance
	}
	return 1
}

// text writes a long string as several strings, one on each line. At the top level they are in
// parentheses.
func (p *pprinter) text(s string, indent, allowance int, top bool) {
	if top {
		indent++
		allowance++
	}
	chunks := []string{value.Repr(s)}
	if s != "" && utf8.ValidString(s) {
		chunks = splitChunks(s, pprintWidth-indent, allowance)
	}
	top = top && len(chunks) > 1
	if top {
		p.WriteByte('(')
	}
	p.WriteString(strings.Join(chunks, "\n"+strings.Repeat(" ", indent)))
	if top {
		p.WriteByte(')')
	}
}

// splitChunks quotes the lines of s, and the words of a line that is longer than width. The last
// chunk leaves room for allowance.
func splitChunks(s string, width, allowance int) []string {
	var chunks []string
	for len(s) > 0 {
		line := s[:lineEnd(s)]
		s = s[len(line):]
		limit := width
		if s == "" {
			limit -= allowance
		}
		if rep := value.Repr(line); utf8.RuneCountInString(rep) <= limit {
			chunks = append(chunks, rep)
			continue
		}
		chunks = append(chunks, splitWords(line, width, limit)...)
	}
	return chunks
}

// lineEnd returns the length of the first line of s, including its line break.
func lineEnd(s string) int {
	i := strings.IndexFunc(s, isLineBreak)
	if i < 0 {
		return len(s)
	}
	if strings.HasPrefix(s[i:], "\r\n") {
		return i + 2
	}
	_, size := utf8.DecodeRuneInString(s[i:])
	return i + size
}

// wordEnd returns the length of the first word of s, including the white space after it.
func wordEnd(s string) int {
	word := strings.IndexFunc(s, isSpace)
	if word < 0 {
		return len(s)
	}
	space := strings.IndexFunc(s[word:], func(r rune) bool { return !isSpace(r) })
	if space < 0 {
		return len(s)
	}
	return word + space
}

// splitWords quotes together as many words as fit into width, for the last ones into last.
func splitWords(line string, width, last int) []string {
	var chunks []string
	current := ""
	for len(line) > 0 {
		word := line[:wordEnd(line)]
		line = line[len(word):]
		limit := width
		if line == "" {
			limit = last
		}
		if utf8.RuneCountInString(value.Repr(current+word)) <= limit {
			current += word
			continue
		}
		if current != "" {
			chunks = append(chunks, value.Repr(current))
		}
		current = word
	}
	if current != "" {
		chunks = append(chunks, value.Repr(current))
	}
	return chunks
}
