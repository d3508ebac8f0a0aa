package module

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/value"
)

// outcomeDoc documents the returns of functions that fire on the master's bus.
const outcomeDoc = "Returns True once the master has stored it, and outbox while it waits in the minion's outbox, " +
	"from where it is delivered in order when a master is there. With several masters at once it goes to all: True when each has stored it, else a dictionary that tells of each. An event that is refused fails with the return code 77. "

// EventBus fires events for functions.
type EventBus interface {
	// Fire fires an event on the minion's own bus.
	Fire(ctx context.Context, tag string, data any) error
	// FireMaster sends events to the master's bus, in order. It returns after the master or the
	// outbox has stored them all.
	FireMaster(ctx context.Context, events ...Event) (Outcomes, error)
}

// Event is an event for the master's bus.
type Event struct {
	Tag    string
	Data   any
	Pretag string
}

// Outcomes has the result for events at each master, by its name: true if it has stored all of
// them, false if some are in the outbox until it is reachable.
type Outcomes map[string]bool

// Add records the result for one event.
func (o Outcomes) Add(master string, stored bool) {
	before, known := o[master]
	o[master] = stored && (before || !known)
}

// eventModule fires events.
var eventModule = &function.Module{
	Name: "event",
	Doc:  "Functions that fire events on the minion's bus and on the master's. An event contains what was given and nothing about the job.",
	Functions: []function.Function{
		{
			Name:    "fire",
			Doc:     "Fire an event on the minion's own bus. The data is a dictionary. An event whose tag begins with fire_master is passed on to the master: its data contains the events, and the caller must be allowed to use event.send with each of their tags.",
			Example: `salt '*' event.fire '{data: my event data}' tag`,
			Params:  []function.Param{{Name: "data", Kind: function.Map, Required: true}, {Name: "tag", Kind: function.String, Required: true}},
			Calls: &function.Calls{Read: passedOn, Run: func(ctx context.Context, c *function.Call, _ *function.Caller) (any, error) {
				bus, err := eventBus(c.Host)
				if err != nil {
					return nil, err
				}
				err = bus.Fire(ctx, c.String("tag"), c.Map("data"))
				if errors.Is(err, function.ErrRefused) {
					c.SetRetcode(function.CodeRefused)
				}
				return err == nil, err
			}},
		},
		{
			Name: "fire_master",
			Doc: "Fire an event on the master's bus. " + outcomeDoc +
				"The preload may set pretag; all else beside the data comes from the master's knowledge of the sender.",
			Example: `salt '*' event.fire_master '{data: my event data}' tag`,
			Params:  []function.Param{{Name: "data", Required: true}, {Name: "tag", Kind: function.String, Required: true}, {Name: "preload", Kind: function.Map}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return fireMaster(ctx, c, c.Any("data"))
			},
		},
		{
			Name: "send",
			Doc: "Fire an event on the master's bus, its data the given dictionary over the arguments by name. " + outcomeDoc +
				"with_env, with_grains and with_pillar add the environment, grains or pillar: all with True, or the listed ones.",
			Example: "salt-call event.send myco/mytag foo=Foo bar=Bar\nsalt-call event.send 'myco/mytag' '{foo: Foo, bar: Bar}' with_grains='[os, id]'",
			Params: []function.Param{
				{Name: "tag", Kind: function.String, Required: true},
				{Name: "data", Kind: function.Map},
				{Name: "preload", Kind: function.Map},
				{Name: "with_env"},
				{Name: "with_grains"},
				{Name: "with_pillar"},
			},
			Kwargs: true,
			Run:    eventSend,
		},
	},
}

// passedOn reads which event on the master's bus an event for the minion's own bus becomes. If it
// is invalid, the bus refuses it.
func passedOn(a *function.Arguments) function.Reading {
	if !event.Forwarded(a.String("tag")) {
		return function.Reading{}
	}
	data, err := value.Encode(a.Map("data"))
	if err != nil {
		return function.Reading{Hidden: true}
	}
	forward, err := event.ParseForward(data)
	if err != nil {
		return function.Reading{Hidden: true}
	}
	items, err := forward.Shape("")
	r := function.Reading{Hidden: err != nil}
	for _, item := range items {
		r.Inner = append(r.Inner, function.Inner{Command: Sending(item.Tag)})
	}
	return r
}

// fireMaster sends one event with the arguments tag and preload.
func fireMaster(ctx context.Context, c *function.Call, data any) (any, error) {
	bus, err := eventBus(c.Host)
	if err != nil {
		return nil, err
	}
	fired := Event{Tag: c.String("tag"), Data: data}
	for name, v := range c.Map("preload") {
		text, err := function.ToString(v)
		if name != "pretag" || err != nil {
			return nil, function.Invalid("preload can set pretag, a text, and not %q: the sender is what the master has verified", name)
		}
		fired.Pretag = text
	}
	outcomes, err := bus.FireMaster(ctx, fired)
	switch {
	case errors.Is(err, function.ErrRefused):
		c.SetRetcode(function.CodeRefused)
		return nil, err
	case err != nil:
		return nil, err
	}
	return show(outcomes), nil
}

// show returns the result of a function: true if all masters have stored the event, otherwise the
// result at each; with one master only its result.
func show(o Outcomes) any {
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

// inOutbox is returned instead of True for an event that waits in the minion's outbox. Salt only
// knows True, and drops such an event.
const inOutbox = "outbox"

func eventSend(ctx context.Context, c *function.Call) (any, error) {
	data := maps.Clone(c.Extra())
	maps.Copy(data, c.Map("data"))
	for _, source := range []struct {
		param, key string
		values     func() map[string]any
	}{
		{"with_env", "environ", environment},
		{"with_grains", "grains", c.Host.Facts},
		{"with_pillar", "pillar", c.Host.PillarData},
	} {
		if err := includeValues(c, data, source.param, source.key, source.values); err != nil {
			return nil, err
		}
	}
	return fireMaster(ctx, c, data)
}

// includeValues adds all values, or those that param lists, to data under key.
func includeValues(c *function.Call, data map[string]any, param, key string, values func() map[string]any) error {
	wanted := c.Any(param)
	if all, err := function.ToBool(wanted); err == nil || wanted == nil {
		if all {
			data[key] = values()
		}
		return nil
	}
	names, err := function.ToWords(wanted)
	if err != nil {
		return function.Invalid("%s must be True or a list of names", param)
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
