package output

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/brinebus/brine/internal/value"
)

// formatText is txt: the name of the minion before each line of its return.
func formatText(o Options, data any) (string, error) {
	m, ok := o.entries(data)
	if !ok {
		return formatPlain(o, data)
	}
	var b strings.Builder
	for _, e := range m {
		for _, line := range splitLines(str(e.V)) {
			fmt.Fprintf(&b, "%s: %s\n", o.visible(str(e.Key)), o.visible(line))
		}
	}
	return b.String(), nil
}

// formatPlain is txt for data that is not a map: text unchanged, everything else as pprint.
func formatPlain(o Options, data any) (string, error) {
	if s, ok := data.(string); ok {
		return o.visible(s), nil
	}
	return formatPprint(o, data)
}

// formatRaw is raw: the value as Python's str writes it.
func formatRaw(o Options, data any) (string, error) { return o.visible(value.Str(data)), nil }

// formatQuiet is quiet: it prints nothing.
func formatQuiet(Options, any) (string, error) { return "", nil }

// formatValues is newline_values_only: the returns without the minions' names, lists with one item
// on each line.
func formatValues(o Options, data any) (string, error) {
	m, ok := o.entries(data)
	if !ok {
		return formatNested(o, data)
	}
	var lines []string
	for _, e := range m {
		list, ok := e.V.([]any)
		if !ok {
			list = []any{e.V}
		}
		for _, v := range list {
			lines = append(lines, o.visible(str(v)))
		}
	}
	return strings.Join(lines, "\n"), nil
}

// str returns text unchanged, even if it is not UTF-8, and everything else as Python does.
func str(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return value.Repr(v)
}

// visible escapes characters that could control a terminal, if the output is a terminal.
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
			b.WriteRune(r) // the line end of Windows
		case isUnsafe(r) && r != utf8.RuneError:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isUnsafe reports whether r could control a terminal. Bytes that are not UTF-8 arrive as
// RuneError: terminals with one-byte character sets obey some of them.
func isUnsafe(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || r == utf8.RuneError
}

// stripped is visible for the outputters that also remove colours of the minion when they write to
// a pipe.
func (o Options) stripped(s string) string {
	if o.Terminal || o.KeepEscapes {
		return o.visible(s)
	}
	return strings.ReplaceAll(s, "\x1b", "?")
}

// splitLines splits s where Python's splitlines does: not only at \n, so that no line moves the
// cursor. A line end at the end of s does not begin another line.
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

// isSpace reports whether r is white space in Python.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
