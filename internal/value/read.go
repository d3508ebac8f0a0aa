package value

import "bytes"

// reader decodes JSON, into exact types if it is true.
type reader bool

// read decodes the value at the beginning of b. If ok is false, encoding/json must decide; whatever
// read accepts has the same meaning there.
func (exact reader) read(b []byte, depth int) (v any, rest []byte, ok bool) {
	if len(b) == 0 || depth > MaxDepth {
		return nil, nil, false
	}
	switch b[0] {
	case '"':
		return ofText(cutText(b))
	case '[':
		return exact.readList(b[1:], depth+1)
	case '{':
		if exact {
			return exact.readEntries(b[1:], depth+1)
		}
		return exact.readMap(b[1:], depth+1)
	case 't':
		rest, ok = bytes.CutPrefix(b, []byte("true"))
		return true, rest, ok
	case 'f':
		rest, ok = bytes.CutPrefix(b, []byte("false"))
		return false, rest, ok
	case 'n':
		rest, ok = bytes.CutPrefix(b, []byte("null"))
		return nil, rest, ok
	}
	return readNumber(b)
}

func ofText(s string, rest []byte, ok bool) (any, []byte, bool) { return s, rest, ok }

func readNumber(b []byte) (v any, rest []byte, ok bool) {
	if rest, ok = skipNumber(b); !ok {
		return nil, nil, false
	}
	v, err := number(string(b[:len(b)-len(rest)]))
	return v, rest, err == nil
}

func (exact reader) readList(b []byte, depth int) (v any, rest []byte, ok bool) {
	list := []any{}
	b = skipBlanks(b)
	for more := len(b) == 0 || b[0] != ']'; more; {
		var item any
		if item, b, ok = exact.read(skipBlanks(b), depth); !ok {
			return nil, nil, false
		}
		list = append(list, item)
		if b, more, ok = skipComma(b, ']'); !ok {
			return nil, nil, false
		}
	}
	return list, b[1:], true
}

func (exact reader) readMap(b []byte, depth int) (v any, rest []byte, ok bool) {
	m := map[string]any{}
	literal := false // the last member is a JSON string, not an object that stands for one
	b = skipBlanks(b)
	for more := len(b) == 0 || b[0] != '}'; more; {
		var key string
		if key, b, ok = cutKey(b); !ok {
			return nil, nil, false
		}
		b = skipBlanks(b)
		literal = len(b) > 0 && b[0] == '"'
		if m[key], b, ok = exact.read(b, depth); !ok {
			return nil, nil, false
		}
		if b, more, ok = skipComma(b, '}'); !ok {
			return nil, nil, false
		}
	}
	if v, ok := special(m); ok && literal {
		return v, b[1:], true
	}
	return m, b[1:], true
}

// readEntries is readMap for exact types.
func (exact reader) readEntries(b []byte, depth int) (v any, rest []byte, ok bool) {
	m, index := Map{}, map[string]int{}
	b = skipBlanks(b)
	for more := len(b) == 0 || b[0] != '}'; more; {
		var key string
		if key, b, ok = cutKey(b); !ok {
			return nil, nil, false
		}
		var member any
		if member, b, ok = exact.read(skipBlanks(b), depth); !ok {
			return nil, nil, false
		}
		m = m.add(index, key, member)
		if b, more, ok = skipComma(b, '}'); !ok {
			return nil, nil, false
		}
	}
	return ofMap(m), b[1:], true
}

// skipComma skips the comma or the end, close, after a member of an object or a list; more reports
// whether another one follows.
func skipComma(b []byte, close byte) (rest []byte, more, ok bool) {
	b = skipBlanks(b)
	switch {
	case len(b) > 0 && b[0] == close:
		return b, false, true
	case len(b) > 0 && b[0] == ',':
		return skipBlanks(b[1:]), true, true
	}
	return nil, false, false
}
