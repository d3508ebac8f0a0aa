package function

import (
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// maxSuggestions bounds what an error proposes; more is noise.
const maxSuggestions = 3

// Suggest returns the functions that may have been meant by name: few edits away in the
// same module or, where there is no such module, of the same name in one that is called
// nearly so. Nothing that removes something, or runs what it is given, is ever proposed:
// what an error names is soon typed.
func (t Table) Suggest(name string) []string {
	module, short, _ := strings.Cut(name, ".")
	var same, modules []string
	for _, m := range t {
		modules = append(modules, m.Name)
		for i := range m.Functions {
			if f := &m.Functions[i]; m.Name == module && f.harmless() {
				same = append(same, f.Name)
			}
		}
	}
	var found []string
	if slices.Contains(modules, module) {
		for _, n := range nearest(short, same) {
			found = append(found, module+"."+n)
		}
		return found
	}
	for _, m := range nearest(module, modules) {
		if _, f := t.Find(m + "." + short); f != nil && f.harmless() {
			found = append(found, m+"."+short)
		}
	}
	return found
}

// unproposed are beginnings of the names of functions that take something away, or run something.
var unproposed = []string{
	"absent", "autoremove", "call", "cancel", "clear", "del", "drop", "exec", "flush", "halt", "kill", "lock", "pop", "poweroff",
	"purge", "reboot", "regen", "reject", "remove", "reset", "retcode", "revoke", "rm", "run", "script", "shell", "shutdown", "stop", "swapoff", "term", "truncate", "umount", "unhold", "uninstall", "unmount", "wipe",
}

// harmless says whether an error may propose the function.
func (f *Function) harmless() bool {
	risky := slices.ContainsFunc(unproposed, func(p string) bool { return strings.HasPrefix(f.Name, p) })
	return !risky && f.Calls == nil
}

// nearest returns the names that are the fewest edits away from name, none if
// that is more than three or a third of its length.
func nearest(name string, names []string) []string {
	var found []string
	limit := min(3, max(1, len(name)/3))
	for _, n := range names {
		if len(n)-len(name) > limit || len(name)-len(n) > limit {
			continue
		}
		d := salt.Edits(name, n)
		switch {
		case d > limit:
			continue
		case d < limit:
			found, limit = nil, d
		}
		found = append(found, n)
	}
	return found[:min(len(found), maxSuggestions)]
}
