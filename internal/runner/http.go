package runner

import (
	"context"

	"github.com/brinebus/brine/internal/function"
)

// httpModule sends HTTP requests from the master's machine. Its arguments are those of the minion
// function, which it runs there.
func httpModule(h *Host) *function.Module {
	e := execution{h}
	query := function.Function{Name: "query", Class: function.AsDaemon, Doc: "Send a request to a web server from the machine of the master, like http.query on minions.",
		Example: "salt-run http.query http://example.com/ status=True\nsalt-run http.query http://example.com/api method=POST data='{\"a\": 1}' header_dict='{Content-Type: application/json}' decode=True",
		Calls:   &function.Calls{Read: sameOnMaster, Run: e.same}}
	if _, f := h.Functions.Find("http.query"); f != nil {
		query.Params = f.Params
	}
	return &function.Module{Name: "http", Doc: "Requests to web servers, from the machine of the master.", Functions: []function.Function{query}}
}

// sameOnMaster reads a minion function with the same name and arguments as the runner.
func sameOnMaster(a *function.Arguments) function.Reading {
	return function.Reading{Inner: []function.Inner{{Way: function.OnMaster, Command: a.Command()}}}
}

func (e execution) same(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
	return e.onMachine(ctx, c, r, c.Bound().Command())
}
