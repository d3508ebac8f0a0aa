package module

import (
	"context"
	"fmt"
	"strings"

	"brine/internal/salt"
)

// Call is one execution of a function: what to run, with what, and where.
// The exported fields are set by the caller of Run; a function reads its
// arguments by name through the methods.
type Call struct {
	JID      salt.JID
	Function salt.Function
	Args     []any
	Kwargs   map[string]any
	Host     *Host

	table   Table          // what else can be called
	params  []Param        // of the function
	bound   []any          // beside params: the converted arguments
	varargs []any          // positional arguments beyond params
	extra   map[string]any // arguments by name beyond params
	retcode int
}

// SetRetcode makes the job end with the given return code.
func (c *Call) SetRetcode(code int) { c.retcode = code }

// value returns the argument of the named parameter, its default if it was not
// given. A name that the function does not declare is a defect.
func (c *Call) value(name string) any {
	for i := range c.params {
		if c.params[i].Name == name {
			return c.bound[i]
		}
	}
	panic(fmt.Sprintf("%s does not declare the parameter %q", c.Function, name))
}

// Has says whether the parameter has a value: one that was given, or a default
// other than nil.
func (c *Call) Has(name string) bool { return c.value(name) != nil }

// Any returns an argument as it was given.
func (c *Call) Any(name string) any { return c.value(name) }

// String returns an argument of the kind String or Path; "" if it has no value.
func (c *Call) String(name string) string { return valueOr[string](c, name) }

// Int returns an argument of the kind Int; 0 if it has no value.
func (c *Call) Int(name string) int { return valueOr[int](c, name) }

// Float returns an argument of the kind Float; 0 if it has no value.
func (c *Call) Float(name string) float64 { return valueOr[float64](c, name) }

// Bool returns an argument of the kind Bool; false if it has no value.
func (c *Call) Bool(name string) bool { return valueOr[bool](c, name) }

// Words returns an argument of the kind Words; nil if it has no value.
func (c *Call) Words(name string) []string { return valueOr[[]string](c, name) }

// List returns an argument of the kind List; nil if it has no value.
func (c *Call) List(name string) []any { return valueOr[[]any](c, name) }

// Map returns an argument of the kind Map; nil if it has no value.
func (c *Call) Map(name string) map[string]any { return valueOr[map[string]any](c, name) }

// valueOr returns the argument as a T, the zero T for nil. Another type panics:
// the kind of the parameter was not the one asked for.
func valueOr[T any](c *Call, name string) T {
	var zero T
	v := c.value(name)
	if v == nil {
		return zero
	}
	return v.(T)
}

// Varargs returns the positional arguments beyond the parameters.
func (c *Call) Varargs() []any { return c.varargs }

// VarWords returns the positional arguments beyond the parameters as text,
// each split at commas.
func (c *Call) VarWords() []string {
	var words []string
	for _, v := range c.varargs {
		if w, err := toWords(v); err == nil {
			words = append(words, w...)
		}
	}
	return words
}

// Extra returns the arguments by name beyond the parameters, never nil for a
// function that takes them.
func (c *Call) Extra() map[string]any { return c.extra }

// call runs another function for the same job, as a function of its own right.
func (c *Call) call(ctx context.Context, function string, args []any, kwargs map[string]any) Result {
	return c.table.Run(ctx, Call{JID: c.JID, Function: salt.Function(function), Args: args, Kwargs: kwargs, Host: c.Host})
}

// isPrivate tells the keywords that carry job metadata; they are never
// arguments, and never data.
func isPrivate(keyword string) bool { return strings.HasPrefix(keyword, "__") }
