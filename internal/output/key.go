package output

import (
	"maps"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/value"
)

// keySections are the states of keys, with the names and titles of salt-key, in the order of
// printing.
var keySections = []struct {
	name, title string
	head, item  color
}{
	{"local", "Local Keys:", lightMagenta, magenta},
	{"minions", "Accepted Keys:", lightGreen, green},
	{"minions_denied", "Denied Keys:", lightMagenta, magenta},
	{"minions_pre", "Unaccepted Keys:", lightRed, red},
	{"minions_rejected", "Rejected Keys:", lightBlue, blue},
}

// formatKeys is key: the ids in each state, with their fingerprints if the data has them. Data that
// is not a list of keys is printed as nested.
func formatKeys(o Options, data any) (string, error) {
	m, ok := plainMap(data)
	if !ok {
		return formatNested(o, data)
	}
	margin, known := strings.Repeat(" ", o.Margin), 0
	var b strings.Builder
	for _, s := range keySections {
		v, ok := m[s.name]
		if !ok {
			continue
		}
		known++
		items, ok := keyItems(v)
		if !ok {
			return formatNested(o, data)
		}
		b.WriteString(margin + o.paint(s.head, s.title) + "\n")
		for _, item := range items {
			b.WriteString(margin + o.paint(s.item, o.stripped(item)) + "\n")
		}
	}
	if known < len(m) {
		return formatNested(o, data)
	}
	return b.String(), nil
}

// keyItems returns the lines for the keys of one state, sorted by id.
func keyItems(v any) (items []string, ok bool) {
	switch x := v.(type) {
	case []any:
		ids := make(map[string]any, len(x))
		for _, id := range x {
			ids[str(id)] = nil
		}
		return slices.Sorted(maps.Keys(ids)), true
	case map[string]any, value.Map:
		m, _ := value.Sorted(v)
		for _, e := range m {
			items = append(items, str(e.Key)+":  "+str(e.V))
		}
		return items, true
	}
	return nil, false
}

// plainMap returns v as a map without an order.
func plainMap(v any) (map[string]any, bool) {
	entries, ok := value.Ordered(v)
	m := make(map[string]any, len(entries))
	for _, e := range entries {
		m[str(e.Key)] = e.V
	}
	return m, ok
}
