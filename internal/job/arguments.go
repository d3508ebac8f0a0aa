package job

import "slices"

// Arguments shows the arguments as Salt's events do: keywords last, in a map that
// is marked; a list for each function of a compound command.
func (e *Envelope) Arguments() []any {
	lists := make([]any, len(e.Commands))
	for i, c := range e.Commands {
		lists[i] = c.arguments()
	}
	if !e.Compound && len(lists) == 1 {
		return lists[0].([]any)
	}
	return lists
}

func (c Command) arguments() []any {
	list := slices.Clone(c.Args)
	if list == nil {
		list = []any{}
	}
	if len(c.Kwargs) > 0 {
		marked := map[string]any{"__kwarg__": true}
		for k, v := range c.Kwargs {
			marked[k] = v
		}
		list = append(list, marked)
	}
	return list
}
