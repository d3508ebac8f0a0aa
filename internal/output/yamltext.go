package output

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"
)

// forms lists in which forms a string can be written as a scalar.
type forms struct {
	plain     bool // without quotes, outside brackets
	flowPlain bool // without quotes, inside brackets
	single    bool // in single quotes
}

// formsOf finds the forms for s, as libyaml does.
func formsOf(s string) forms {
	if s == "" {
		return forms{plain: true, single: true}
	}
	f := forms{true, true, true}
	if strings.HasPrefix(s, "---") || strings.HasPrefix(s, "...") {
		f.plain, f.flowPlain = false, false
	}
	runes := []rune(s)
	for i, r := range runes {
		blankBefore := i == 0 || isYAMLBlank(runes[i-1])
		blankAfter := i+1 == len(runes) || isYAMLBlank(runes[i+1])
		edge := i == 0 || i+1 == len(runes)
		switch {
		case !isYAMLPrintable(r):
			return forms{}
		case isYAMLBreak(r):
			if i > 0 && runes[i-1] == ' ' {
				return forms{}
			}
			f.plain, f.flowPlain = false, false
		case r == ' ':
			afterBreak := i > 0 && isYAMLBreak(runes[i-1])
			f.single = f.single && !afterBreak
			if edge || afterBreak {
				f.plain, f.flowPlain = false, false
			}
		default:
			f.indicator(r, i == 0, blankBefore, blankAfter)
		}
	}
	return f
}

// indicator removes the forms in which r would have a special meaning.
func (f *forms) indicator(r rune, first, blankBefore, blankAfter bool) {
	switch {
	case r == '?' || r == ':':
		f.flowPlain = false
		if blankAfter && (first || r == ':') {
			f.plain = false
		}
	case first && r == '-' && blankAfter, r == '#' && blankBefore, first && strings.ContainsRune(",[]{}&*!|>'\"%@`", r):
		f.plain, f.flowPlain = false, false
	case strings.ContainsRune(",[]{}", r):
		f.flowPlain = false
	}
}

func isYAMLBreak(r rune) bool {
	return r == '\n' || r == '\r' || r == 0x85 || r == 0x2028 || r == 0x2029
}

func isYAMLBlank(r rune) bool { return r == ' ' || r == '\t' || isYAMLBreak(r) }

// isYAMLPrintable reports whether libyaml writes r unescaped; it escapes everything outside the
// basic plane.
func isYAMLPrintable(r rune) bool {
	return r == '\n' || r >= ' ' && r <= '~' || r >= 0xa0 && r <= 0xfffd && r != 0xfeff
}

// typedText matches text that YAML 1.1 would not read as a string without quotes.
var typedText = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:|~|null|Null|NULL|<<|=` +
		`|yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF` +
		`|[-+]?0b[01_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+` +
		`|[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?` +
		`|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)` +
		`|[0-9]{4}-[0-9]{2}-[0-9]{2}` +
		`|[0-9]{4}-[0-9][0-9]?-[0-9][0-9]?(?:[Tt]|[ \t]+)[0-9][0-9]?:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9][0-9]?(?::[0-9]{2})?))?` +
		`)$`)
})

// looksTyped reports whether s needs quotes to be read as a string.
func looksTyped(s string) bool {
	return (s == "" || strings.Contains("+-.0123456789yYnNtTfFoO~<=", s[:1])) && typedText().MatchString(s)
}

// plain writes s without quotes. With fold, a blank beyond the width of a line becomes a line
// break.
func (e *emitter) plain(s string, fold bool) {
	if !e.whitespace && (s != "" || e.flow > 0) {
		e.put(' ')
	}
	folded := false
	for i, r := range s {
		if r == ' ' && fold && !folded && e.column > yamlWidth && !strings.HasPrefix(s[i:], "  ") {
			e.writeIndent()
		} else {
			e.put(r)
		}
		folded = r == ' '
		if !folded {
			e.indention = false
		}
	}
	e.whitespace, e.indention = false, false
}

// single writes s in single quotes. A line break is written as an empty line.
func (e *emitter) single(s string, fold bool) {
	e.indicator("'", true, false)
	var space, broken bool // the previous character was a blank, a line break
	for i, r := range s {
		switch {
		case r == ' ':
			inside := i > 0 && i+1 < len(s)
			if fold && !space && e.column > yamlWidth && inside && s[i+1] != ' ' {
				e.writeIndent()
			} else {
				e.put(r)
			}
			space = true
			continue
		case isYAMLBreak(r):
			if !broken && r == '\n' {
				e.breakLine('\n')
			}
			e.breakLine(r)
			e.indention, broken = true, true
			continue
		case broken:
			e.writeIndent()
		}
		if r == '\'' {
			e.put(r)
		}
		e.put(r)
		e.indention, space, broken = false, false, false
	}
	if broken {
		e.writeIndent()
	}
	e.indicator("'", false, false)
}

// yamlEscapes are the escapes with one letter.
var yamlEscapes = map[rune]rune{
	0: '0', '\a': 'a', '\b': 'b', '\t': 't', '\n': 'n', '\v': 'v', '\f': 'f', '\r': 'r', 0x1b: 'e',
	'"': '"', '\\': '\\', 0x85: 'N', 0xa0: '_', 0x2028: 'L', 0x2029: 'P',
}

// double writes s in double quotes, which can hold everything.
func (e *emitter) double(s string, fold bool) {
	e.indicator(`"`, true, false)
	space := false
	for i, r := range s {
		switch {
		case !isYAMLPrintable(r) || isYAMLBreak(r) || r == '"' || r == '\\':
			e.escape(r)
		case r == ' ' && fold && !space && e.column > yamlWidth && i > 0 && i+1 < len(s):
			e.writeIndent()
			if s[i+1] == ' ' {
				e.put('\\')
			}
		default:
			e.put(r)
		}
		space = r == ' '
	}
	e.indicator(`"`, false, false)
}

func (e *emitter) escape(r rune) {
	text := fmt.Sprintf(`\x%02X`, r)
	switch letter, ok := yamlEscapes[r]; {
	case ok:
		text = `\` + string(letter)
	case r > 0xffff:
		text = fmt.Sprintf(`\U%08X`, r)
	case r > 0xff:
		text = fmt.Sprintf(`\u%04X`, r)
	}
	e.WriteString(text)
	e.column += utf8.RuneCountInString(text)
}
