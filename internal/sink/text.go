package sink

import (
	"bytes"
	"strings"
	"unicode/utf16"
)

// replacement is the escape of U+FFFD, as long as the escapes that it replaces.
const replacement = `\ufffd`

// storable returns data, which is JSON, as text that every database can store and query. JSON can
// escape the character zero and half of a surrogate pair, but text in a database cannot hold them:
// they become U+FFFD, and so do bytes that are not UTF-8. PostgreSQL would accept such a text, and
// then fail on each query that reads it, for all rows.
func storable(data []byte) string {
	if !bytes.Contains(data, []byte(`\u`)) {
		return strings.ToValidUTF8(string(data), "\ufffd")
	}
	out := bytes.Clone(data)
	for i := 0; i+1 < len(out); {
		if out[i] != '\\' {
			i++
			continue
		}
		first, ok := escaped(out[i:])
		if !ok {
			i += 2 // an escape of one character, such as an escaped backslash
			continue
		}
		second, paired := escaped(out[i+len(replacement):])
		switch {
		case paired && utf16.DecodeRune(first, second) != '\ufffd':
			i += len(replacement)
		case first == 0 || utf16.IsSurrogate(first):
			copy(out[i:], replacement)
		}
		i += len(replacement)
	}
	return strings.ToValidUTF8(string(out), "\ufffd")
}

// escaped parses an escape such as \u00e4 at the beginning of b.
func escaped(b []byte) (r rune, ok bool) {
	if len(b) < len(replacement) || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:len(replacement)] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
