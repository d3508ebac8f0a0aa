package job

import (
	"slices"

	"github.com/brinebus/brine/internal/salt"
)

// Trimmed replaces a value that is left out of an event, as in Salt.
const Trimmed = "VALUE_TRIMMED"

// contents are arguments with the content of a file: it is for the target minions only, not for
// listeners, nor for the journal.
var contents = map[salt.Function]string{"cp.recv_chunked": "chunk"}

// Arguments returns the arguments in the form of Salt's events: keyword arguments last, in a
// marked map; for a compound command a list for each function.
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
			if marked[k] = v; v != nil && contents[c.Function] == k {
				marked[k] = Trimmed
			}
		}
		list = append(list, marked)
	}
	return list
}
