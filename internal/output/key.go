package output

import "strings"

// keySections are the states of keys: how salt-key names them and what it calls
// them, in the order in which they are printed.
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

// formatKeys is key: the ids in each state, with their fingerprints if the data
// has them. What is no list of keys is printed as nested.
func formatKeys(o Options, data any) (string, error) {
	m, ok := data.(map[string]any)
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
		return sortedKeys(ids), true
	case map[string]any:
		for _, id := range sortedKeys(x) {
			items = append(items, id+":  "+str(x[id]))
		}
		return items, true
	}
	return nil, false
}
