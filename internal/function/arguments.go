package function

import (
	"fmt"

	"github.com/brinebus/brine/internal/salt"
)

// Arguments are the arguments of one command, bound to the parameters of its function and
// converted. They do not depend on the machine: a master reads them exactly as the minion does.
type Arguments struct {
	asked   salt.Command
	params  []Param        // of the function
	bound   []any          // beside params: the converted arguments
	varargs []any          // positional arguments beyond params
	extra   map[string]any // arguments by name beyond params
}

// arguments is embedded in a Call without being a field of its interface.
type arguments = Arguments

// Bound returns the arguments of the call, for code that works without a call, too.
func (c *Call) Bound() *Arguments { return &c.arguments }

// Command is the command as given.
func (a *Arguments) Command() salt.Command { return a.asked }

// value returns the argument of the named parameter, or its default if it was not given. Asking
// for an undeclared name is a bug.
func (a *Arguments) value(name string) any {
	for i := range a.params {
		if a.params[i].Name == name {
			return a.bound[i]
		}
	}
	panic(fmt.Sprintf("%s does not declare the parameter %q", a.asked.Function, name))
}

// Has reports whether the parameter has a value: a given one, or a default other than nil.
func (a *Arguments) Has(name string) bool { return a.value(name) != nil }

// Any returns an argument as it was given.
func (a *Arguments) Any(name string) any { return a.value(name) }

// String returns an argument of the kind String or Path; "" if it has no value.
func (a *Arguments) String(name string) string { return valueOr[string](a, name) }

// Int returns an argument of the kind Int; 0 if it has no value.
func (a *Arguments) Int(name string) int { return valueOr[int](a, name) }

// Float returns an argument of the kind Float; 0 if it has no value.
func (a *Arguments) Float(name string) float64 { return valueOr[float64](a, name) }

// Bool returns an argument of the kind Bool; false if it has no value.
func (a *Arguments) Bool(name string) bool { return valueOr[bool](a, name) }

// Words returns an argument of the kind Words; nil if it has no value.
func (a *Arguments) Words(name string) []string { return valueOr[[]string](a, name) }

// List returns an argument of the kind List; nil if it has no value.
func (a *Arguments) List(name string) []any { return valueOr[[]any](a, name) }

// Map returns an argument of the kind Map; nil if it has no value.
func (a *Arguments) Map(name string) map[string]any { return valueOr[map[string]any](a, name) }

// valueOr returns the argument as a T, the zero T for nil. It panics for another type: the
// parameter has another kind.
func valueOr[T any](a *Arguments, name string) T {
	var zero T
	v := a.value(name)
	if v == nil {
		return zero
	}
	return v.(T)
}

// Varargs returns the positional arguments beyond the parameters.
func (a *Arguments) Varargs() []any { return a.varargs }

// VarWords returns the positional arguments beyond the parameters as text,
// each split at commas.
func (a *Arguments) VarWords() []string {
	var words []string
	for _, v := range a.varargs {
		if w, err := ToWords(v); err == nil {
			words = append(words, w...)
		}
	}
	return words
}

// Params are the parameters of the function.
func (a *Arguments) Params() []Param { return a.params }

// Extra returns the arguments by name beyond the parameters, never nil for a
// function that takes them.
func (a *Arguments) Extra() map[string]any { return a.extra }
