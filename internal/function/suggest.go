package function

import (
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// maxSuggestions limits the suggestions in an error; more would not help.
const maxSuggestions = 3

// Suggest returns functions that the user may have meant: those a few edits away in the same module
// or, if there is no such module, those with the same name in a module with a similar name.
// Functions that remove something, or run their argument, are never suggested, and functions that
// change something only for a single typo: users quickly type what an error suggests.
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
			if !changes(n) || salt.Edits(short, n) == 1 {
				found = append(found, module+"."+n)
			}
		}
		return found
	}
	for _, m := range nearest(module, modules) {
		if _, f := t.Find(m + "." + short); f != nil && f.harmless() && (!changes(short) || salt.Edits(module, m) == 1) {
			found = append(found, m+"."+short)
		}
	}
	return found
}

// unproposed are prefixes of the names of functions that remove or run something.
var unproposed = []string{
	"absent", "autoremove", "call", "cancel", "clear", "del", "drop", "exec", "flush", "halt", "kill", "lock", "pop", "poweroff",
	"purge", "reboot", "regen", "reject", "remove", "reset", "retcode", "revoke", "rm", "run", "script", "shell", "shutdown", "stop", "swapoff", "term", "truncate", "umount", "unhold", "uninstall", "unmount", "wipe",
}

// changing are prefixes of the names of functions that change or start something.
var changing = []string{
	"add", "append", "blockreplace", "chattr", "chf", "chg", "chh", "chmod", "chown", "chs", "chu", "comment", "copy", "cptree", "disable", "enable", "fire", "force", "get_dir", "get_file", "get_template", "get_url", "hold", "install", "join", "link",
	"line", "load", "makedirs", "manage", "mask", "mkdir", "mod", "mount", "move", "patch", "prepend", "push", "put", "recv", "refresh", "reload", "rename", "replace", "restart", "save", "sed", "send", "set",
	"start", "swapon", "symlink", "sync", "touch", "uncomment", "unmask", "update", "upgrade", "write",
}

// changes reports whether a function with that name changes or starts something.
func changes(name string) bool {
	return slices.ContainsFunc(changing, func(p string) bool { return strings.HasPrefix(name, p) })
}

// harmless reports whether an error may suggest the function.
func (f *Function) harmless() bool {
	risky := slices.ContainsFunc(unproposed, func(p string) bool { return strings.HasPrefix(f.Name, p) })
	return !risky && f.Calls == nil
}

// nearest returns the names with the fewest edits from name, none if that is more than three or a
// third of its length.
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
