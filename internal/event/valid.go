package event

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"unicode/utf8"
)

// Valid says whether b is one JSON document. It takes and refuses what json.Valid
// does, and goes over long texts eight bytes at a time: every event is looked at once
// on its way into the journal, and this look was a fifth of the way.
func Valid(b []byte) bool {
	rest, ok := skipValue(skipBlanks(b), maxDepth)
	return ok && len(skipBlanks(rest)) == 0
}

// maxDepth is how deep json.Valid goes.
const maxDepth = 10_000

// skipBlanks returns b behind its leading blanks.
func skipBlanks(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\n' || b[0] == '\t' || b[0] == '\r') {
		b = b[1:]
	}
	return b
}

// skipValue returns what is behind the value that b begins with.
func skipValue(b []byte, depth int) (rest []byte, ok bool) {
	if len(b) == 0 || depth < 0 {
		return nil, false
	}
	switch b[0] {
	case '{':
		return skipMembers(b[1:], '}', depth-1)
	case '[':
		return skipMembers(b[1:], ']', depth-1)
	case '"':
		return skipText(b[1:])
	case 't':
		return bytes.CutPrefix(b, []byte("true"))
	case 'f':
		return bytes.CutPrefix(b, []byte("false"))
	case 'n':
		return bytes.CutPrefix(b, []byte("null"))
	}
	return skipNumber(b)
}

// skipMembers goes over the members of an object or a list, whose end is close.
func skipMembers(b []byte, close byte, depth int) (rest []byte, ok bool) {
	if b = skipBlanks(b); len(b) > 0 && b[0] == close {
		return b[1:], depth >= 0
	}
	for {
		if close == '}' {
			if b, ok = skipKey(b); !ok {
				return nil, false
			}
		}
		if b, ok = skipValue(skipBlanks(b), depth); !ok {
			return nil, false
		}
		if b = skipBlanks(b); len(b) == 0 || b[0] != close && b[0] != ',' {
			return nil, false
		}
		if b[0] == close {
			return b[1:], true
		}
		b = skipBlanks(b[1:])
	}
}

// skipKey goes over a key and its colon.
func skipKey(b []byte) (rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, false
	}
	if b, ok = skipText(b[1:]); !ok {
		return nil, false
	}
	b = skipBlanks(b)
	return bytes.CutPrefix(b, []byte(":"))
}

// skipText goes over a text whose first quote is gone.
func skipText(b []byte) (rest []byte, ok bool) {
	for {
		b = skipPlain(b)
		switch {
		case len(b) == 0 || b[0] < ' ':
			return nil, false
		case b[0] == '"':
			return b[1:], true
		case b[0] == '\\':
			if b, ok = skipEscape(b[1:]); !ok {
				return nil, false
			}
		default:
			b = b[1:]
		}
	}
}

// skipPlain goes over bytes of a text that mean themselves, eight at a time, and stops
// at or shortly before another one.
func skipPlain(b []byte) []byte {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b)
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		// Each of these has a high bit where a byte is below a blank, a quote, a
		// backslash; a borrow may set more, which costs a look and no more.
		control := (x - ones*' ') &^ x
		if (control|(quote-ones)&^quote|(slash-ones)&^slash)&highs != 0 {
			return b
		}
		b = b[8:]
	}
	return b
}

func skipEscape(b []byte) (rest []byte, ok bool) {
	if len(b) == 0 {
		return nil, false
	}
	if b[0] != 'u' {
		return b[1:], bytes.IndexByte([]byte(`"\/bfnrt`), b[0]) >= 0
	}
	if len(b) < 5 {
		return nil, false
	}
	for _, c := range b[1:5] {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return nil, false
		}
	}
	return b[5:], true
}

func skipNumber(b []byte) (rest []byte, ok bool) {
	if len(b) > 0 && b[0] == '-' {
		b = b[1:]
	}
	whole, b := skipDigits(b)
	if len(whole) == 0 || whole[0] == '0' && len(whole) > 1 {
		return nil, false
	}
	if len(b) > 0 && b[0] == '.' {
		var part []byte
		if part, b = skipDigits(b[1:]); len(part) == 0 {
			return nil, false
		}
	}
	if len(b) > 0 && (b[0] == 'e' || b[0] == 'E') {
		if b = b[1:]; len(b) > 0 && (b[0] == '+' || b[0] == '-') {
			b = b[1:]
		}
		var power []byte
		if power, b = skipDigits(b); len(power) == 0 {
			return nil, false
		}
	}
	return b, true
}

func skipDigits(b []byte) (digits, rest []byte) {
	n := 0
	for n < len(b) && b[n] >= '0' && b[n] <= '9' {
		n++
	}
	return b[:n], b[n:]
}

// members takes an object apart; of a key that is there twice the last one counts, as
// in encoding/json.
func members(b []byte) (map[string]json.RawMessage, bool) {
	if !Valid(b) {
		return nil, false
	}
	b = skipBlanks(b)
	if b[0] != '{' {
		return nil, false
	}
	keys := map[string]json.RawMessage{}
	for b = skipBlanks(b[1:]); b[0] != '}'; b = skipBlanks(b) {
		if b[0] == ',' {
			b = skipBlanks(b[1:])
		}
		behind, _ := skipText(b[1:]) // which is valid, as all of it
		key, ok := textOf(b[:len(b)-len(behind)])
		if !ok {
			return nil, false
		}
		b = skipBlanks(skipBlanks(behind)[1:])
		behind, _ = skipValue(b, maxDepth)
		keys[key] = json.RawMessage(b[: len(b)-len(behind) : len(b)-len(behind)])
		b = behind
	}
	return keys, true
}

// textOf reads a text with its quotes.
func textOf(b []byte) (string, bool) {
	if s, _, ok := quickText(b[1:]); ok && utf8.Valid(b) {
		return s, true
	}
	var s string
	return s, json.Unmarshal(b, &s) == nil
}
