package value

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unicode/utf8"
)

// Data that is only passed on is not decoded: these functions scan JSON without allocating values,
// and long texts eight bytes at a time. encoding/json takes about ten times as long, and scans raw
// values twice.

// Valid reports whether b is one JSON document, exactly as json.Valid does.
func Valid(b []byte) bool {
	rest, ok := skipValue(skipBlanks(b), jsonDepth)
	return ok && len(skipBlanks(rest)) == 0
}

// jsonDepth is the maximum depth in json.Valid.
const jsonDepth = 10_000

// stretch is how many bytes of a long value are processed at a time. Long work delays the rest of
// the daemon, above all a copy: it cannot be interrupted, and the garbage collector must wait for
// its end to stop the program.
const stretch = 64 << 10

// appendRaw is append for data that may be long.
func appendRaw(b, raw []byte) []byte {
	b = slices.Grow(b, len(raw))
	for ; len(raw) > stretch; raw = raw[stretch:] {
		b = append(b, raw[:stretch]...)
		runtime.Gosched()
	}
	return append(b, raw...)
}

// Raw is a valid encoded value: NewRaw has checked it. Encode writes it unchanged.
type Raw []byte

// NewRaw checks that b is a value that Decode accepts, without blanks around it. The Raw uses the
// memory of b, unless b has line ends between its parts: a Raw is one line.
func NewRaw(b []byte) (Raw, error) {
	if rest, ok := skipValue(b, MaxDepth); !ok || len(rest) > 0 {
		if Valid(b) {
			return nil, ErrDepth
		}
		return nil, errNoJSON
	}
	if bytes.IndexByte(b, '\n') < 0 && bytes.IndexByte(b, '\r') < 0 {
		return b, nil
	}
	var line bytes.Buffer
	err := json.Compact(&line, b)
	return line.Bytes(), err
}

var errNoJSON = errors.New("invalid JSON")

// Members calls f for each member of the object b in the order of the text, twice for a duplicate
// key; v is a slice of b. All of b is checked, but f may have been called before an error is found.
func Members(b []byte, f func(key string, v []byte) error) error {
	b = skipBlanks(b)
	if len(b) == 0 || b[0] != '{' {
		return errors.New("it is not a JSON object")
	}
	b = skipBlanks(b[1:])
	for more := len(b) == 0 || b[0] != '}'; more; {
		key, rest, ok := cutKey(b)
		if !ok {
			return errNoJSON
		}
		b = skipBlanks(rest)
		if rest, ok = skipValue(b, jsonDepth-1); !ok {
			return errNoJSON
		}
		if err := f(key, b[:len(b)-len(rest):len(b)-len(rest)]); err != nil {
			return err
		}
		if b, more, ok = skipComma(rest, '}'); !ok {
			return errNoJSON
		}
	}
	if len(skipBlanks(b[1:])) > 0 {
		return errNoJSON
	}
	return nil
}

// Text decodes a JSON string into s, as encoding/json would.
func Text[T ~string](b []byte, s *T) error {
	text, rest, ok := cutText(b)
	if !ok || len(rest) > 0 {
		return fmt.Errorf("%.40q is not text", b)
	}
	*s = T(text)
	return nil
}

// cutKey decodes a key and skips its colon.
func cutKey(b []byte) (key string, rest []byte, ok bool) {
	if rest, ok = skipKey(b); !ok {
		return "", nil, false
	}
	key, _, ok = cutText(b)
	return key, rest, ok
}

// cutText decodes the string at the beginning of b.
func cutText(b []byte) (s string, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return "", nil, false
	}
	if rest, ok = skipText(b[1:]); !ok {
		return "", nil, false
	}
	quoted := b[:len(b)-len(rest)]
	if text := quoted[1 : len(quoted)-1]; bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text) {
		return string(text), rest, true
	}
	err := json.Unmarshal(quoted, &s)
	return s, rest, err == nil
}

// skipBlanks returns b without its leading blanks.
func skipBlanks(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\n' || b[0] == '\t' || b[0] == '\r') {
		b = b[1:]
	}
	return b
}

// skipValue returns the rest after the value at the beginning of b.
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

// skipMembers skips the members of an object or a list that ends with close.
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
		var more bool
		if b, more, ok = skipComma(b, close); !ok {
			return nil, false
		}
		if !more {
			return b[1:], true
		}
	}
}

// skipKey skips a key and its colon.
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

// skipText skips a string whose first quote is already removed.
func skipText(b []byte) (rest []byte, ok bool) {
	for {
		part := skipPlain(b[:min(len(b), stretch)])
		long := len(b) > stretch
		b = b[min(len(b), stretch)-len(part):]
		if long && len(part) < 8 { // it scanned all of it
			runtime.Gosched()
			continue
		}
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

// skipPlain skips bytes of a string without special meaning, eight at a time, and stops at or
// shortly before another one.
func skipPlain(b []byte) []byte {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b)
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		// Each of these has a high bit for a byte that is below a blank, a quote, or a backslash; a
		// borrow may set more bits, which only costs another look.
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
