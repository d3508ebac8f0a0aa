package config

import (
	"cmp"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/yamlfile"
)

// entry is one setting of a file.
type entry struct {
	key, value *yaml.Node
	file       string
	written    string // the key as written, if it was renamed
}

// document is the settings of several files, in the order in which they first occur.
type document struct {
	entries []entry
	index   map[string]int        // from key to entry
	origin  map[*yaml.Node]string // the file of every node in a merged value
	wrong   func(error)           // called with mistakes found while merging; nil ignores them
}

// newDocument returns an empty document. The documents of one configuration
// share origin.
func newDocument(origin map[*yaml.Node]string, wrong func(error)) *document {
	return &document{index: map[string]int{}, origin: origin, wrong: wrong}
}

// get returns the setting of a key.
func (d *document) get(key string) (entry, bool) {
	i, ok := d.index[key]
	if !ok {
		return entry{}, false
	}
	return d.entries[i], true
}

// replace replaces earlier settings by those of a later source.
func (d *document) replace(entries []entry) {
	for _, e := range entries {
		if d.guard(e) {
			continue
		}
		if i, ok := d.index[e.key.Value]; ok {
			d.entries[i] = e
			continue
		}
		d.index[e.key.Value] = len(d.entries)
		d.entries = append(d.entries, e)
	}
}

// merge adds the settings of one more drop-in: maps are merged at all levels, lists are joined
// without duplicates, anything else is replaced.
func (d *document) merge(entries []entry) {
	for _, e := range entries {
		if d.guard(e) {
			continue
		}
		if i, ok := d.index[e.key.Value]; ok && sameCollection(d.entries[i].value, e.value) {
			old := &d.entries[i]
			d.remember(old.value, old.file)
			d.remember(e.value, e.file)
			old.value = d.union(old.value, e.value)
			continue
		}
		d.replace([]entry{e})
	}
}

// guard handles a setting that exists already and must not be replaced: what refuses is added,
// what allows is a mistake. It reports whether it has handled e.
func (d *document) guard(e entry) bool {
	i, ok := d.index[e.key.Value]
	switch {
	case !ok || e.file == commandLine:
		return false
	case slices.Contains(allowing, e.key.Value) && d.wrong != nil:
		d.wrong(d.located(e).At(e.key, errTwice(d.entries[i])))
		return true
	case !slices.Contains(denying, e.key.Value):
		return false
	}
	old := &d.entries[i]
	d.remember(old.value, old.file)
	d.remember(e.value, e.file)
	if yamlfile.IsNull(old.value) {
		*old = e
		return true
	}
	old.value = d.add(old.value, e.value)
	return true
}

// union returns a and b as one, both maps or both lists.
func (d *document) union(a, b *yaml.Node) *yaml.Node {
	out := *a
	out.Content = slices.Clone(a.Content)
	d.origin[&out] = d.origin[a]
	if a.Kind == yaml.SequenceNode {
		for _, c := range b.Content {
			if !slices.ContainsFunc(out.Content, func(have *yaml.Node) bool { return equal(have, c) }) {
				out.Content = append(out.Content, c)
			}
		}
		return &out
	}
	at := make(map[string]int, len(out.Content)/2)
	for i := 0; i+1 < len(out.Content); i += 2 {
		at[out.Content[i].Value] = i
	}
	for i := 0; i+1 < len(b.Content); i += 2 {
		key, value := b.Content[i], b.Content[i+1]
		switch have, ok := at[key.Value]; {
		case !ok:
			out.Content = append(out.Content, key, value)
		case sameCollection(out.Content[have+1], value):
			out.Content[have+1] = d.union(out.Content[have+1], value)
		default:
			out.Content[have], out.Content[have+1] = key, value
		}
	}
	return &out
}

// remember records the file of n and of all nodes below it, unless known already.
func (d *document) remember(n *yaml.Node, file string) {
	if _, ok := d.origin[n]; ok {
		return
	}
	d.origin[n] = file
	for _, c := range n.Content {
		d.remember(c, file)
	}
}

// located returns an entry for the package that will parse it.
func (d *document) located(e entry) Located {
	return Located{File: e.file, Node: e.value, key: cmp.Or(e.written, e.key.Value), origin: d.origin}
}

// places returns where the settings are.
func (d *document) places() map[string]*Error {
	m := make(map[string]*Error, len(d.entries))
	for _, e := range d.entries {
		m[e.key.Value] = d.located(e).At(nil, nil)
	}
	return m
}

// plain returns all settings as data.
func (d *document) plain() map[string]any {
	m := make(map[string]any, len(d.entries))
	for _, e := range d.entries {
		m[e.key.Value] = yamlfile.Value(e.value)
	}
	return m
}

// sameCollection reports whether a and b are both maps or both lists.
func sameCollection(a, b *yaml.Node) bool {
	return a.Kind == b.Kind && a.Kind != yaml.ScalarNode
}

// equal compares two values, whatever their style and position.
func equal(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || len(a.Content) != len(b.Content) {
		return false
	}
	if a.Kind == yaml.ScalarNode {
		return a.Value == b.Value && a.Style == b.Style && a.Tag == b.Tag || yamlfile.Value(a) == yamlfile.Value(b)
	}
	return slices.EqualFunc(a.Content, b.Content, equal)
}
