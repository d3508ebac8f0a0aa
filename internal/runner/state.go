package runner

import (
	"context"
	"errors"

	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/salt"
)

// stateModule has the one function of Salt's module that is about events.
func stateModule() *module.Module {
	return &module.Module{Name: "state", Doc: "Events as they happen.", Functions: []module.Function{
		{Name: "event", Class: module.Shared, Doc: "Print the events of the master's bus as they come: tag, tab and data. tagmatch is a shell pattern for the tag; after count events it ends. Scripts are better served by salt-event listen.",
			Example: "salt-run state.event pretty=True\nsalt-run state.event 'salt/job/*/ret/*' count=1 -t 10",
			Params: []module.Param{
				{Name: "tagmatch", Kind: module.String, Default: "*"}, {Name: "count", Kind: module.Int, Default: -1}, {Name: "quiet", Kind: module.Bool, Default: false},
				{Name: "sock_dir", Kind: module.String}, {Name: "pretty", Kind: module.Bool, Default: false}, {Name: "node", Kind: module.String, Default: "master"},
			},
			Run: func(context.Context, *module.Call) (any, error) {
				return nil, salt.WithHint(errors.New("state.event prints while it runs: it is of use in salt-run only, and not with --async"), "salt-event listen is for scripts")
			}},
	}}
}
