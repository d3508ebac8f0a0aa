package function

import (
	"sort"
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// Table is a set of modules, sorted by name. Functions reach it through their call, never as a
// global: so they can run from any table.
type Table []*Module

// Find returns the named function and its module, or nil.
func (t Table) Find(name string) (module string, f *Function) {
	module, short, _ := strings.Cut(name, ".")
	i := sort.Search(len(t), func(i int) bool { return t[i].Name >= module })
	if i == len(t) || t[i].Name != module {
		return "", nil
	}
	list := t[i].Functions
	j := sort.Search(len(list), func(j int) bool { return list[j].Name >= short })
	if j == len(list) || list[j].Name != short {
		return "", nil
	}
	return module, &list[j]
}

// Own reports whether people need no rule for their own part of the function.
func (t Table) Own(name salt.Function) bool {
	_, f := t.Find(string(name))
	return f != nil && f.Own
}

// OwnFunctions returns the names of those for which Own is true.
func (t Table) OwnFunctions() []string {
	var names []string
	t.Each("", func(m *Module, f *Function) {
		if f.Own {
			names = append(names, m.Name+"."+f.Name)
		}
	})
	return names
}

// Class returns the class of a function of the master; known is false if it is not built in.
func (t Table) Class(name salt.Function) (class Class, known bool) {
	if _, f := t.Find(string(name)); f != nil {
		return f.Class, true
	}
	return Unclassed, false
}
