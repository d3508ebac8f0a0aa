package acl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// condition is what a rule requires of the arguments of a function. A nil pattern is any value.
// An argument that the condition does not list is refused, unless it lists none at all: a rule
// that fixes the command line of cmd.run must not leave runas and shell open.
type condition struct {
	any    bool // neither args nor kwargs: all arguments
	runs   bool // runs: any: also inner commands that the arguments do not show
	args   []*pattern
	kwargs map[string]*pattern
}

// accepts reports whether the condition accepts the command, and if not, why. Values are
// compared as text, as Python's str writes them. The reason contains positions and patterns but
// no values, which may be secrets.
func (c *condition) accepts(cmd *salt.Command) (why string, err error) {
	switch {
	case c.any:
		return "", nil
	case len(cmd.Args) != len(c.args):
		return fmt.Sprintf("it allows %d positional arguments, not %d", len(c.args), len(cmd.Args)), nil
	}
	for i, p := range c.args {
		if why, err := check(fmt.Sprintf("argument %d", i+1), p, cmd.Args[i]); why != "" || err != nil {
			return why, err
		}
	}
	for _, key := range sortedKeys(cmd.Kwargs) {
		if _, ok := c.kwargs[key]; !ok {
			return fmt.Sprintf("it does not list the keyword argument %.40q", key), nil
		}
	}
	for _, key := range sortedKeys(c.kwargs) {
		v, ok := cmd.Kwargs[key]
		if !ok {
			return fmt.Sprintf("it asks for the keyword argument %q", key), nil
		}
		if why, err := check(fmt.Sprintf("keyword argument %q", key), c.kwargs[key], v); why != "" || err != nil {
			return why, err
		}
	}
	return "", nil
}

func check(what string, p *pattern, v any) (why string, err error) {
	if p == nil {
		return "", nil
	}
	ok, err := p.match(value.Str(v))
	if err != nil || ok {
		return "", err
	}
	return fmt.Sprintf("%s does not match %s", what, p.text), nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// String writes the condition as the rules do.
func (c *condition) String() string {
	if c.any && c.runs {
		return "{runs: any}"
	}
	if c.any {
		return "{}"
	}
	args := make([]string, len(c.args))
	for i, p := range c.args {
		args[i] = textOf(p)
	}
	parts := []string{"args: [" + strings.Join(args, ", ") + "]"}
	kwargs := make([]string, 0, len(c.kwargs))
	for _, key := range sortedKeys(c.kwargs) {
		kwargs = append(kwargs, key+": "+textOf(c.kwargs[key]))
	}
	if len(kwargs) > 0 {
		parts = append(parts, "kwargs: {"+strings.Join(kwargs, ", ")+"}")
	}
	if c.runs {
		parts = append(parts, "runs: any")
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func textOf(p *pattern) string {
	if p == nil {
		return "null"
	}
	return p.text
}
