package runner

import (
	"errors"
	"slices"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
)

// Hint returns a hint for a user who got err from a runner or a wheel function; "" if there is
// none. minions is the table of functions that minions can execute. An unknown name may belong to
// another of salt, salt-run and salt-run --wheel.
func Hint(err error, wheel bool, minions function.Table) string {
	var unknown *function.UnknownError
	if hint := salt.Hint(err); hint != "" || !errors.As(err, &unknown) || unknown.Cause != nil {
		return hint
	}
	name := string(unknown.Function)
	in := func(t function.Table) bool { return slices.Contains(t.Functions(name), name) }
	switch {
	case !wheel && in(Wheel(&Host{})):
		return "it is a wheel function: salt-run --wheel " + name
	case wheel && in(Table(&Host{})):
		return "it is a runner: salt-run " + name
	case in(minions):
		return "it is a function of minions: salt '*' " + name
	case wheel:
		return "'salt-run doc.wheel' lists the wheel functions"
	}
	return "'salt-run -d' lists the runners"
}
