// Package value transports the arguments and returns of functions as JSON without losing what JSON
// alone would lose: the difference between 1 and 1.0, integers beyond 64 bits, infinities, and
// strings that are not UTF-8.
//
// In Go a value is one of: nil, bool, string (any bytes), int64, *big.Int, float64, []any and
// map[string]any. For printing there are also exact types (see Map). It is not a general encoder:
// structs use encoding/json with a Value or json.RawMessage field.
package value

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxDepth limits the nesting of foreign input. A deeper document is an error, since each level
// costs stack on every side that handles it.
const MaxDepth = 200

// The objects with one key for values without a JSON form.
const (
	bytesKey = "$bytes" // base64 of a string that is not UTF-8
	floatKey = "$float" // "nan", "inf" or "-inf"
)

// ErrDepth is returned for a document nested deeper than MaxDepth.
var ErrDepth = errors.New("value is nested too deeply")

// Value is a value in a struct for encoding/json.
type Value struct{ V any }

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) { return Encode(v.V) }

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value) UnmarshalJSON(b []byte) (err error) {
	v.V, err = Decode(b)
	return err
}

// Decode decodes one JSON document; only blanks may follow it.
func Decode(b []byte) (any, error) {
	if v, rest, ok := reader(false).read(skipBlanks(b), 0); ok && len(skipBlanks(rest)) == 0 {
		return v, nil
	}
	return decodeSlowly(b)
}

// decodeSlowly decodes what read does not accept, or says what is wrong with it.
func decodeSlowly(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var raw any
	if err := d.Decode(&raw); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON document")
	}
	return fromJSON(raw, 0)
}

func fromJSON(raw any, depth int) (any, error) {
	if depth > MaxDepth {
		return nil, ErrDepth
	}
	switch x := raw.(type) {
	case json.Number:
		return number(string(x))
	case []any:
		for i := range x {
			v, err := fromJSON(x[i], depth+1)
			if err != nil {
				return nil, err
			}
			x[i] = v
		}
		return x, nil
	case map[string]any:
		if v, ok := special(x); ok {
			return v, nil
		}
		for k := range x {
			v, err := fromJSON(x[k], depth+1)
			if err != nil {
				return nil, err
			}
			x[k] = v
		}
		return x, nil
	}
	return raw, nil
}

func special(m map[string]any) (any, bool) {
	if len(m) != 1 {
		return nil, false
	}
	if s, ok := m[bytesKey].(string); ok {
		if b, err := base64.StdEncoding.DecodeString(s); err == nil {
			return string(b), true
		}
	}
	switch m[floatKey] {
	case "nan":
		return math.NaN(), true
	case "inf":
		return math.Inf(1), true
	case "-inf":
		return math.Inf(-1), true
	}
	return nil, false
}

func number(s string) (any, error) {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i, nil
	}
	if len(s) <= 4096 {
		if i, ok := new(big.Int).SetString(s, 10); ok {
			return i, nil
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return nil, fmt.Errorf("number %q: %w", s, err)
	}
	return f, nil
}

// Encode writes v as one line of JSON; maps sorted by key, a Map in its own order. Go integers,
// typed slices and maps with string keys are accepted too; another type is an error.
func Encode(v any) ([]byte, error) {
	var buf []byte
	if n := RawSize(v); n > 0 {
		buf = make([]byte, 0, n+n/64+512) // everything else in it is small compared with the long parts
	}
	return encode(buf, v, 0)
}

// RawSize returns how many bytes the Raw parts of a map or list have, a few levels deep. A buffer
// with that capacity avoids copying what is already encoded.
func RawSize(v any) int { return rawSize(v, 4) }

func rawSize(v any, levels int) (n int) {
	if levels == 0 {
		return 0
	}
	switch x := v.(type) {
	case Raw:
		return len(x)
	case json.RawMessage:
		return len(x)
	case Value:
		return rawSize(x.V, levels)
	case map[string]any:
		for _, m := range x {
			n += rawSize(m, levels-1)
		}
	case []any:
		for _, m := range x {
			n += rawSize(m, levels-1)
		}
	}
	return n
}

// Append appends the encoding of v to b.
func Append(b []byte, v any) ([]byte, error) { return encode(b, v, 0) }

// Member is a member of an object.
type Member struct {
	Key string
	V   any
}

// AppendMembers appends further members to an object that has some, and whose end is not written
// yet.
func AppendMembers(b []byte, members ...Member) ([]byte, error) {
	raw := 0
	for _, m := range members {
		raw += RawSize(m.V)
	}
	if raw > 0 {
		b = slices.Grow(b, raw+512)
	}
	for _, m := range members {
		var err error
		if b, err = encodeKey(append(b, ','), m.Key); err != nil {
			return nil, err
		}
		if b, err = encode(b, m.V, 1); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func encode(b []byte, v any, depth int) ([]byte, error) {
	if depth > MaxDepth {
		return nil, ErrDepth
	}
	switch x := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, x), nil
	case string:
		return encodeString(b, x)
	case int64:
		return strconv.AppendInt(b, x, 10), nil
	case int:
		return strconv.AppendInt(b, int64(x), 10), nil
	case *big.Int:
		return x.Append(b, 10), nil
	case float64:
		return encodeFloat(b, x), nil
	case []any:
		return encodeList(b, len(x), func(i int) any { return x[i] }, depth)
	case map[string]any:
		keys := make([]string, 0, len(x))
		for k := range x {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		return encodeMap(b, keys, func(k string) any { return x[k] }, depth)
	case Map:
		keys, members := x.texts()
		return encodeMap(b, keys, func(k string) any { return members[k] }, depth)
	case Raw:
		return appendRaw(b, x), nil
	case json.RawMessage:
		if !Valid(x) {
			return nil, errors.New("invalid JSON within a value")
		}
		return appendRaw(b, x), nil
	case Value:
		return encode(b, x.V, depth)
	}
	return encodeOther(b, v, depth)
}

// encodeOther encodes other types that Go code uses: uint32, []string, map[string]int, named
// strings.
func encodeOther(b []byte, v any, depth int) ([]byte, error) {
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.String:
		return encodeString(b, r.String())
	case reflect.Bool:
		return strconv.AppendBool(b, r.Bool()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(b, r.Int(), 10), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(b, r.Uint(), 10), nil
	case reflect.Float32, reflect.Float64:
		return encodeFloat(b, r.Float()), nil
	case reflect.Slice, reflect.Array:
		return encodeList(b, r.Len(), func(i int) any { return r.Index(i).Interface() }, depth)
	case reflect.Map:
		if r.Type().Key().Kind() != reflect.String {
			break
		}
		keys := make([]string, 0, r.Len())
		for _, k := range r.MapKeys() {
			keys = append(keys, k.String())
		}
		slices.Sort(keys)
		return encodeMap(b, keys, func(k string) any {
			return r.MapIndex(reflect.ValueOf(k).Convert(r.Type().Key())).Interface()
		}, depth)
	}
	return nil, fmt.Errorf("a value cannot hold the type %T", v)
}

func encodeList(b []byte, n int, at func(int) any, depth int) ([]byte, error) {
	b = append(b, '[')
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = encode(b, at(i), depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func encodeMap(b []byte, keys []string, at func(string) any, depth int) ([]byte, error) {
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = encodeKey(b, k); err != nil {
			return nil, err
		}
		if b, err = encode(b, at(k), depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// encodeKey writes a key and its colon. Keys are names: invalid bytes become U+FFFD.
func encodeKey(b []byte, k string) ([]byte, error) {
	if plain(k) && !strings.ContainsAny(k, "<>&") { // encoding/json escapes these
		b = append(append(b, '"'), k...)
		return append(b, '"', ':'), nil
	}
	kb, err := json.Marshal(k)
	return append(append(b, kb...), ':'), err
}

func encodeString(b []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		b = append(b, `{"`+bytesKey+`":"`...)
		b = base64.StdEncoding.AppendEncode(b, []byte(s))
		return append(b, `"}`...), nil
	}
	if plain(s) {
		b = append(b, '"')
		b = append(b, s...)
		return append(b, '"'), nil
	}
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return nil, err
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...), nil
}

// plain reports whether s needs no escape, which is the usual case.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			return false
		}
	}
	return true
}

func encodeFloat(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, `{"`+floatKey+`":"nan"}`...)
	case math.IsInf(f, 1):
		return append(b, `{"`+floatKey+`":"inf"}`...)
	case math.IsInf(f, -1):
		return append(b, `{"`+floatKey+`":"-inf"}`...)
	}
	start := len(b)
	b = strconv.AppendFloat(b, f, 'g', -1, 64)
	if !bytes.ContainsAny(b[start:], ".e") {
		b = append(b, ".0"...) // a float stays a float on the other side
	}
	return b
}

// Texts converts names to a list of values.
func Texts[T ~string](names []T) []any {
	list := make([]any, len(names))
	for i, name := range names {
		list[i] = string(name)
	}
	return list
}
