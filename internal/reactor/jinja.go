package reactor

import (
	"context"
	"errors"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/template"
)

// dynamic is a value that comes from an event.
type dynamic interface {
	// of returns the value for this event, which decode has read.
	of(ctx context.Context, e any) (any, error)
}

// jinja is a text that a template makes of an event. The template is in the job file; data of
// the event is only its input, and the result is one argument that is not parsed again.
type jinja struct{ text string }

func newJinja(n *yaml.Node) (*jinja, error) {
	if n.Kind != yaml.ScalarNode || n.Value == "" {
		return nil, errors.New("jinja: a template is wanted here, as in {jinja: 'welcome, {{ from }}'}")
	}
	return &jinja{n.Value}, nil
}

func (j *jinja) of(ctx context.Context, e any) (any, error) {
	v, err := plain(e)
	if err != nil {
		return nil, err
	}
	values, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("the event is not a dictionary")
	}
	return template.Beside().Render(ctx, j.text, values)
}
