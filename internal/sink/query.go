package sink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/itchyny/gojq"
)

// query is a jq expression. It is safe for concurrent use.
type query struct{ code *gojq.Code }

// queryLimit stops an expression that runs too long.
const queryLimit = time.Second

func newQuery(text string) (*query, error) {
	parsed, err := gojq.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a jq expression: %w", text, err)
	}
	code, err := gojq.Compile(parsed, gojq.WithFunction("part", 0, 0, part))
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	return &query{code}, nil
}

// part is the function "part" in expressions: it converts any text into one part of a metric name.
func part(v any, _ []any) any {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, fmt.Sprint(v))
}

// passes reports whether the first result of a filter is neither false nor null. An event does not
// pass if the expression fails.
func (q *query) passes(line []byte) bool {
	if q == nil {
		return true
	}
	passes := false
	err := q.each(line, func(v any) error {
		passes = v != nil && v != false
		return errStop
	})
	return passes && (err == nil || errors.Is(err, errStop))
}

var errStop = errors.New("that is enough")

// each calls f for every result.
func (q *query) each(line []byte, f func(any) error) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), queryLimit)
	defer cancel()
	for iter := q.code.RunWithContext(ctx, v); ; {
		got, ok := iter.Next()
		if !ok {
			return nil
		}
		if err, failed := got.(error); failed {
			return err
		}
		if err := f(got); err != nil {
			return err
		}
	}
}

// number converts a result of an expression to a number.
func number(v any) (string, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return "1", true
		}
		return "0", true
	case json.Number:
		return v.String(), true
	case int, float64, interface{ IsInt64() bool }:
		b, err := gojq.Marshal(v)
		return string(b), err == nil && string(b) != "null"
	}
	return "", false
}
