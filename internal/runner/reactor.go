package runner

import (
	"context"
	"fmt"

	"github.com/brinebus/brine/internal/function"
)

// Reaction is a handler of the reactor.
type Reaction struct {
	Name, Tag string
	From      []string
	Command   []string
}

// reactorModule manages the event handlers.
func reactorModule(h *Host) *function.Module {
	x := reactions{h}
	return &function.Module{Name: "reactor", Doc: "How the master reacts to events.", Functions: []function.Function{
		{Name: "list", Class: function.Secret, Doc: "Return the handlers of the setting reactor: for which tags and senders, and what they run.", Example: "salt-run reactor.list", Run: x.list},
		{Name: "retry", Class: function.AsDaemon, Doc: "Pass dead letters to their handler again: one event, or all of them. Those that it handles are deleted. Return the sequences of these events.",
			Example: "salt-run reactor.retry 'salt/auth:notify' 1042",
			Params:  []function.Param{{Name: "name", Kind: function.String, Required: true}, {Name: "seq", Kind: function.Int}}, Run: x.retry},
	}}
}

type reactions struct{ *Host }

func (x reactions) list(context.Context, *function.Call) (any, error) {
	out := map[string]any{}
	for _, r := range x.Reactions() {
		one := map[string]any{"tag": r.Tag, "run": anys(r.Command)}
		if len(r.From) > 0 {
			one["from"] = anys(r.From)
		}
		out[r.Name] = one
	}
	return out, nil
}

func anys(words []string) []any {
	list := make([]any, len(words))
	for i, w := range words {
		list[i] = w
	}
	return list
}

func (x reactions) retry(ctx context.Context, c *function.Call) (any, error) {
	seq := c.Int("seq")
	if seq < 0 {
		return nil, fmt.Errorf("%d is not the number of an event", seq)
	}
	done, err := x.Retry(ctx, c.String("name"), uint64(seq))
	out := []any{}
	for _, seq := range done {
		out = append(out, seq)
	}
	if err != nil && len(done) > 0 {
		err = fmt.Errorf("%d were taken: %w", len(done), err)
	}
	return out, err
}
