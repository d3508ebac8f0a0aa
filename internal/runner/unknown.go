package runner

import (
	"errors"
	"slices"

	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/salt"
)

// Hint is a way out for whoever got err from a runner, or from a wheel function; ""
// if there is none. A name that is none of these may well be one of the others that
// salt, salt-run and salt-run --wheel have.
func Hint(err error, wheel bool) string {
	var unknown *module.UnknownError
	if hint := salt.Hint(err); hint != "" || !errors.As(err, &unknown) || unknown.Cause != nil {
		return hint
	}
	name := string(unknown.Function)
	in := func(t module.Table) bool { return slices.Contains(t.Functions(name), name) }
	switch {
	case !wheel && in(Wheel(&Host{})):
		return "it is a wheel function: salt-run --wheel " + name
	case wheel && in(Table(&Host{})):
		return "it is a runner: salt-run " + name
	case len(module.Docs(name)) > 0:
		return "it is a function of minions: salt '*' " + name
	case wheel:
		return "'salt-run doc.wheel' lists the wheel functions"
	}
	return "'salt-run -d' lists the runners"
}
