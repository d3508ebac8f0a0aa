package module

import (
	"fmt"
	"maps"
	"slices"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/mine"
	"github.com/brinebus/brine/internal/salt"
)

// mineFunction is one entry of mine_functions: the function, and which minions may read its data.
type mineFunction struct {
	name     string
	function string // "" means the name of the entry
	args     []any
	kwargs   map[string]any
	entry    mine.Entry // without its data
	shown    any        // as written
}

func (f *mineFunction) runs() string {
	if f.function != "" {
		return f.function
	}
	return f.name
}

func (f *mineFunction) command() salt.Command {
	return salt.Command{Function: salt.Function(f.runs()), Args: f.args, Kwargs: f.kwargs}
}

// CheckMineFunctions returns an error if v is not a valid setting mine_functions.
func CheckMineFunctions(v any) error {
	_, err := parseMineFunctions(v)
	return err
}

// parseMineFunctions parses Salt's forms of the setting: a dictionary from names to arguments,
// which are a list, a dictionary or empty; or a list of names.
func parseMineFunctions(v any) ([]mineFunction, error) {
	var list []mineFunction
	switch x := v.(type) {
	case nil:
	case []any:
		for _, item := range x {
			name, ok := item.(string)
			if !ok {
				return nil, function.Invalid("a list of mine functions holds their names, not %s", repr(item))
			}
			list = append(list, mineFunction{name: name})
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(x)) {
			f, err := parseMineFunction(name, x[name])
			if err != nil {
				return nil, err
			}
			list = append(list, f)
		}
	default:
		return nil, function.Invalid("mine functions are a dictionary from names to arguments, not %s", repr(v))
	}
	return list, nil
}

func parseMineFunction(name string, v any) (mineFunction, error) {
	f := mineFunction{name: name, kwargs: map[string]any{}, shown: v}
	switch x := v.(type) {
	case nil:
	case map[string]any:
		maps.Copy(f.kwargs, x)
	case []any:
		for _, item := range x {
			if m, ok := item.(map[string]any); ok {
				maps.Copy(f.kwargs, m)
			} else {
				f.args = append(f.args, item)
			}
		}
	default:
		return f, salt.WithHint(function.Invalid("the arguments of %s are a list or a dictionary, not %s", name, repr(v)), name+": ["+fmt.Sprint(v)+"]")
	}
	return f, f.takeOptions()
}

// takeOptions removes the keywords that are not for the function.
func (f *mineFunction) takeOptions() error {
	take := func(key string) (any, bool) {
		v, ok := f.kwargs[key]
		delete(f.kwargs, key)
		return v, ok && v != nil
	}
	if v, ok := take("mine_function"); ok {
		s, isText := v.(string)
		if !isText {
			return function.Invalid("mine_function of %s is the name of a function, not %s", f.name, repr(v))
		}
		f.function = s
	}
	if v, ok := take("allow_tgt"); ok {
		f.entry.Allow = targetText(v)
	}
	if v, ok := take("allow_tgt_type"); ok {
		f.entry.AllowType = fmt.Sprint(v)
	}
	return nil
}

// mineFunctions returns those of the argument, otherwise those of the configuration and those of
// the pillar with other names.
func mineFunctions(c *function.Call, given any) ([]mineFunction, error) {
	if given != nil {
		return parseMineFunctions(given)
	}
	list, err := parseMineFunctions(c.Host.Config["mine_functions"])
	if err != nil {
		return nil, err
	}
	more, err := parseMineFunctions(c.Host.PillarData()["mine_functions"])
	if err != nil {
		return nil, fmt.Errorf("pillar: %w", err)
	}
	for _, f := range more {
		if !slices.ContainsFunc(list, func(g mineFunction) bool { return g.name == f.name }) {
			list = append(list, f)
		}
	}
	return list, nil
}
