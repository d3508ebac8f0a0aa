package runner

import (
	"context"
	"errors"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
)

// stateModule has the one function of Salt's module that is about events.
func stateModule() *function.Module {
	return &function.Module{Name: "state", Doc: "Events as they happen.", Functions: []function.Function{
		{Name: "event", Class: function.Shared, Doc: "Print the events of the master's bus as they come: tag, tab and data. tagmatch is a shell pattern for the tag; after count events it ends. Scripts are better served by salt-event listen.",
			Example: "salt-run state.event pretty=True\nsalt-run state.event 'salt/job/*/ret/*' count=1 -t 10",
			Params: []function.Param{
				{Name: "tagmatch", Kind: function.String, Default: "*"}, {Name: "count", Kind: function.Int, Default: -1}, {Name: "quiet", Kind: function.Bool, Default: false},
				{Name: "sock_dir", Kind: function.String}, {Name: "pretty", Kind: function.Bool, Default: false}, {Name: "node", Kind: function.String, Default: "master"},
			},
			Run: func(context.Context, *function.Call) (any, error) {
				return nil, salt.WithHint(errors.New("state.event prints while it runs: it is of use in salt-run only, and not with --async"), "salt-event listen is for scripts")
			}},
	}}
}
