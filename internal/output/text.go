package output

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/brinebus/brine/internal/value"
)

// formatText is txt: each line of a return behind the name of its minion.
func formatText(o Options, data any) (string, error) {
	m, ok := data.(map[string]any)
	if !ok {
		return formatPlain(o, data)
	}
	var b strings.Builder
	for _, k := range sortedKeys(m) {
		for _, line := range splitLines(str(m[k])) {
			fmt.Fprintf(&b, "%s: %s\n", o.visible(k), o.visible(line))
		}
	}
	return b.String(), nil
}

// formatPlain is txt for what is no map: text as it is, all else as pprint.
func formatPlain(o Options, data any) (string, error) {
	if s, ok := data.(string); ok {
		return o.visible(s), nil
	}
	return formatPprint(o, data)
}

// formatRaw is raw: the value as Python's str would write it.
func formatRaw(o Options, data any) (string, error) { return o.visible(value.Str(data)), nil }

// formatQuiet is quiet: nothing.
func formatQuiet(Options, any) (string, error) { return "", nil }

// formatValues is newline_values_only: the returns without the minions' names,
// a list with one item a line.
func formatValues(o Options, data any) (string, error) {
	m, ok := data.(map[string]any)
	if !ok {
		return formatNested(o, data)
	}
	var lines []string
	for _, k := range sortedKeys(m) {
		list, ok := m[k].([]any)
		if !ok {
			list = []any{m[k]}
		}
		for _, v := range list {
			lines = append(lines, o.visible(str(v)))
		}
	}
	return strings.Join(lines, "\n"), nil
}

// str returns text as it is, even if it is not UTF-8, and all else as Python
// would.
func str(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return value.Repr(v)
}

// visible makes s harmless for a terminal, if there is one.
func (o Options) visible(s string) string {
	if !o.Terminal || !strings.ContainsFunc(s, isUnsafe) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\r' && strings.HasPrefix(s[i:], "\r\n"):
			b.WriteRune(r) // the end of a line as Windows writes it
		case isUnsafe(r) && r != utf8.RuneError:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isUnsafe says whether r could steer a terminal. Bytes that are not UTF-8 come
// as RuneError: terminals of one-byte character sets obey some of them.
func isUnsafe(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || r == utf8.RuneError
}

// stripped is visible for the outputters that also keep colours of the minion
// away from a pipe.
func (o Options) stripped(s string) string {
	if o.Terminal || o.KeepEscapes {
		return o.visible(s)
	}
	return strings.ReplaceAll(s, "\x1b", "?")
}

// splitLines splits s where Python's splitlines does: at more than \n, so that
// no line moves the cursor. The end of the last line begins no further one.
func splitLines(s string) []string {
	var lines []string
	for len(s) > 0 {
		i := strings.IndexFunc(s, isLineBreak)
		if i < 0 {
			return append(lines, s)
		}
		lines = append(lines, s[:i])
		_, size := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			size = 2
		}
		s = s[i+size:]
	}
	return lines
}

func isLineBreak(r rune) bool {
	return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

// isSpace is Python's idea of white space.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
