package module

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
)

// outcomeDoc says what the functions return that fire on the master's bus.
const outcomeDoc = "Returns True once the master has stored it, and outbox while it waits in the minion's outbox, " +
	"from where it is delivered in order when a master is there. With several masters at once it goes to all: True when each has stored it, else a dictionary that tells of each. An event that is refused fails with the return code 77. "

// eventModule fires events.
var eventModule = &Module{
	Name: "event",
	Doc:  "Functions that fire events on the minion's bus and on the master's. An event carries what was given and nothing of the job.",
	Functions: []Function{
		{
			Name:    "fire",
			Doc:     "Fire an event on the minion's own bus. The data is a dictionary. One whose tag begins with fire_master is passed on to the master: its data says what.",
			Example: `salt '*' event.fire '{data: my event data}' tag`,
			Params:  []Param{{Name: "data", Kind: Map, Required: true}, {Name: "tag", Kind: String, Required: true}},
			Run: func(ctx context.Context, c *Call) (any, error) {
				bus, err := c.Host.events()
				if err != nil {
					return nil, err
				}
				err = bus.Fire(ctx, c.String("tag"), c.Map("data"))
				if errors.Is(err, ErrRefused) {
					c.SetRetcode(refusedCode)
				}
				return err == nil, err
			},
		},
		{
			Name: "fire_master",
			Doc: "Fire an event on the master's bus. " + outcomeDoc +
				"The preload may set pretag; all else beside the data comes from the master's knowledge of the sender.",
			Example: `salt '*' event.fire_master '{data: my event data}' tag`,
			Params:  []Param{{Name: "data", Required: true}, {Name: "tag", Kind: String, Required: true}, {Name: "preload", Kind: Map}},
			Run: func(ctx context.Context, c *Call) (any, error) {
				return c.fireMaster(ctx, c.Any("data"))
			},
		},
		{
			Name: "send",
			Doc: "Fire an event on the master's bus, its data the given dictionary over the arguments by name. " + outcomeDoc +
				"with_env, with_grains and with_pillar add the environment, grains or pillar: all with True, or the listed ones.",
			Example: "salt-call event.send myco/mytag foo=Foo bar=Bar\nsalt-call event.send 'myco/mytag' '{foo: Foo, bar: Bar}' with_grains='[os, id]'",
			Params: []Param{
				{Name: "tag", Kind: String, Required: true},
				{Name: "data", Kind: Map},
				{Name: "preload", Kind: Map},
				{Name: "with_env"},
				{Name: "with_grains"},
				{Name: "with_pillar"},
			},
			Kwargs: true,
			Run:    eventSend,
		},
	},
}

// fireMaster sends one event with the arguments tag and preload.
func (c *Call) fireMaster(ctx context.Context, data any) (any, error) {
	bus, err := c.Host.events()
	if err != nil {
		return nil, err
	}
	event := Event{Tag: c.String("tag"), Data: data}
	for name, v := range c.Map("preload") {
		text, err := toString(v)
		if name != "pretag" || err != nil {
			return nil, invalid("preload can set pretag, a text, and not %q: the sender is what the master has verified", name)
		}
		event.Pretag = text
	}
	outcomes, err := bus.FireMaster(ctx, event)
	switch {
	case errors.Is(err, ErrRefused):
		c.SetRetcode(refusedCode)
		return nil, err
	case err != nil:
		return nil, err
	}
	return outcomes.show(), nil
}

// show is what a function returns of outcomes: true when all masters have stored the
// event, else what became of it at each; with one master just that.
func (o Outcomes) show() any {
	each, all := map[string]any{}, true
	for master, stored := range o {
		each[master] = true
		if !stored {
			each[master], all = inOutbox, false
		}
	}
	switch {
	case all:
		return true
	case len(o) == 1:
		return inOutbox
	}
	return each
}

// ErrRefused is wrapped by the errors of an EventBus for an event that this minion
// may not fire.
var ErrRefused = errors.New("refused")

const (
	// inOutbox is what a function returns in place of True for an event that waits
	// in the minion's outbox. Salt knows True only, and drops the event.
	inOutbox = "outbox"
	// refusedCode is the return code of a function whose event was refused: the
	// exit code that the tools have for what is not permitted.
	refusedCode = 77
)

func eventSend(ctx context.Context, c *Call) (any, error) {
	data := maps.Clone(c.Extra())
	maps.Copy(data, c.Map("data"))
	for _, source := range []struct {
		param, key string
		values     func() map[string]any
	}{
		{"with_env", "environ", environment},
		{"with_grains", "grains", c.Host.grains},
		{"with_pillar", "pillar", c.Host.pillar},
	} {
		if err := c.include(data, source.param, source.key, source.values); err != nil {
			return nil, err
		}
	}
	return c.fireMaster(ctx, data)
}

// include adds to data, under key, all values or the ones that param lists.
func (c *Call) include(data map[string]any, param, key string, values func() map[string]any) error {
	wanted := c.Any(param)
	if all, err := toBool(wanted); err == nil || wanted == nil {
		if all {
			data[key] = values()
		}
		return nil
	}
	names, err := toWords(wanted)
	if err != nil {
		return invalid("%s must be True or a list of names", param)
	}
	selected := maps.Clone(values())
	maps.DeleteFunc(selected, func(name string, _ any) bool { return !slices.Contains(names, name) })
	data[key] = selected
	return nil
}

func environment() map[string]any {
	env := map[string]any{}
	for _, pair := range os.Environ() {
		name, v, _ := strings.Cut(pair, "=")
		env[name] = v
	}
	return env
}
