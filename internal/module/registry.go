package module

import (
	"sort"
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// Table is a set of modules, sorted by name. Functions reach it through their
// call, never through the package: so they can be run from any table.
type Table []*Module

// modules is all that a minion can execute. Every start of salt-call pays for what
// is computed before main, so the tables are data that lies ready in the program
// file, and regular expressions are compiled by the functions that need them.
var modules = Table{
	archiveModule,
	cmdModule,
	configModule,
	cpModule,
	cronModule,
	dataModule,
	diskModule,
	environModule,
	eventModule,
	fileModule,
	gitModule,
	grainsModule,
	groupModule,
	hashutilModule,
	hostsModule,
	httpModule,
	keyModule,
	matchModule,
	mineModule,
	minionModule,
	mountModule,
	networkModule,
	pillarModule,
	pkgModule,
	psModule,
	publishModule,
	randomModule,
	saltutilModule,
	scheduleModule,
	serviceModule,
	statusModule,
	sysModule,
	sysctlModule,
	systemModule,
	systemdModule,
	testModule,
	timezoneModule,
	userModule,
}

// find returns the named function and its module, or nil.
func (t Table) find(name string) (module string, f *Function) {
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

// Builtin is the table of the functions of minions.
func Builtin() Table { return modules }

// Own tells whether people need no rule for what of the function is their own.
func (t Table) Own(name salt.Function) bool {
	_, f := t.find(string(name))
	return f != nil && f.Own
}

// OwnFunctions are the names of those for which Own says so.
func (t Table) OwnFunctions() []string {
	var names []string
	t.each("", func(m *Module, f *Function) {
		if f.Own {
			names = append(names, m.Name+"."+f.Name)
		}
	})
	return names
}

// Class returns what a function of the master amounts to; known is false for one that
// is not built in.
func (t Table) Class(name salt.Function) (class Class, known bool) {
	if _, f := t.find(string(name)); f != nil {
		return f.Class, true
	}
	return Unclassed, false
}
