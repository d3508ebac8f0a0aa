package reactor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/itchyny/gojq"
	"gopkg.in/yaml.v3"
)

// query is a jq expression over a whole event. It is safe for concurrent use.
type query struct {
	text string
	code *gojq.Code
}

// queryLimit ends an expression that does not end by itself.
const queryLimit = time.Second

func newQuery(n *yaml.Node) (*query, error) {
	if n.Kind != yaml.ScalarNode {
		return nil, errors.New("event: a jq expression is wanted here, as in {event: .data.id}")
	}
	parsed, err := gojq.Parse(n.Value)
	if err != nil {
		return nil, fmt.Errorf("%q is not a jq expression: %w", n.Value, err)
	}
	// Without $ENV and input: an expression sees only the event.
	code, err := gojq.Compile(parsed, gojq.WithEnvironLoader(func() []string { return nil }))
	if err != nil {
		return nil, fmt.Errorf("%q: %w", n.Value, err)
	}
	return &query{n.Value, code}, nil
}

func decode(line []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var e any
	err := d.Decode(&e)
	return e, err
}

// of returns the only result of the expression. Null is an error: a job must not run with a
// missing value.
func (q *query) of(ctx context.Context, e any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	iter := q.code.RunWithContext(ctx, e)
	v, ok := iter.Next()
	if err, failed := v.(error); failed {
		return nil, fmt.Errorf("%s: %w", q.text, err)
	}
	if !ok || v == nil {
		return nil, fmt.Errorf("%s: the event has no such value", q.text)
	}
	if _, more := iter.Next(); more {
		return nil, fmt.Errorf("%s: it has more than one result", q.text)
	}
	return plain(v)
}
