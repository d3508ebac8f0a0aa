package reactor

import (
	"context"
	"errors"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/template"
)

// dynamic is a value that comes from an event.
type dynamic interface {
	// of is the value for this event, as decode has read it.
	of(ctx context.Context, e any) (any, error)
}

// jinja is a text that is made of an event by a template. The template stands in the job file;
// what stands in the event is only ever a value of it, and the text is one argument, out of which
// nothing is read.
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
		return nil, errors.New("the event is no dictionary")
	}
	return template.Beside().Render(ctx, j.text, values)
}
