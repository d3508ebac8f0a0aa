package runner

import (
	"context"
	"errors"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
)

// stateModule has the functions of Salt's state module that do not concern states.
func stateModule() *function.Module {
	return &function.Module{Name: "state", Doc: "Events as they happen.", Functions: []function.Function{
		{Name: "event", Class: function.Shared, Doc: "Print the events of the master's bus as they come: tag, tab and data. tagmatch is a shell pattern for the tag; after count events it ends. In scripts, use salt-event listen instead.",
			Example: "salt-run state.event pretty=True\nsalt-run state.event 'salt/job/*/ret/*' count=1 -t 10",
			Params: []function.Param{
				{Name: "tagmatch", Kind: function.String, Default: "*"}, {Name: "count", Kind: function.Int, Default: -1}, {Name: "quiet", Kind: function.Bool, Default: false},
				{Name: "sock_dir", Kind: function.String}, {Name: "pretty", Kind: function.Bool, Default: false}, {Name: "node", Kind: function.String, Default: "master"},
			},
			Run: func(context.Context, *function.Call) (any, error) {
				return nil, salt.WithHint(errors.New("state.event prints while it runs: it is of use in salt-run only, and not with --async"), "salt-event listen is for scripts")
			}},
		{Name: "orchestrate_show_sls", Class: function.Shared, Doc: "Return the orchestrations by name: there are none, as there are no states. Web interfaces such as SaltGUI ask for them.", Example: "salt-run state.orchestrate_show_sls '*'",
			Params: []function.Param{{Name: "mods", Kind: function.String, Default: "*"}},
			Run:    func(context.Context, *function.Call) (any, error) { return map[string]any{}, nil }},
	}}
}
