package function

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/salt"
)

// Host is the minion that functions run on, as far as the engine and most functions
// need it. What they return is handed out: nobody may change a map that came from a
// Host.
type Host struct {
	ID      salt.MinionID
	Version string         // of the program
	User    string         // who started the job, for people to read
	Config  map[string]any // the minion's configuration by Salt's key names
	Data    Data           // nil where nothing is known of the minion
	Paths

	Environ   []string        // what programs get beside their environment: NAME=VALUE
	Output    process.Watcher // whoever follows what cmd.* writes; nil for nobody
	Custom    *extension.Set  // modules that people have added; nil for none
	Publisher Publisher       // the way to other minions; nil without one

	// Services are what else the functions of a table need of their minion. Their
	// package says of which type they are; the engine hands them on.
	Services any

	Log *slog.Logger // nil discards
}

// Data is what is known of a minion, as it is when it is asked for.
type Data interface {
	Grains() map[string]any
	Pillar() map[string]any
	// PillarErrors are the mistakes for which the pillar is older than the files of the master.
	PillarErrors() []string
}

// Paths are where things lie on the machine.
type Paths struct {
	Root       string // before the paths of the system that functions edit; "" for none
	ConfigDir  string // where the configuration lies; "" if nowhere
	PKIDir     string // where the minion's keys lie; "" if nowhere
	PIDFile    string // that names the daemon's process; "" for none
	GrainsFile string // where grains.setval keeps grains; "" if nowhere
	CacheDir   string // for files that may be lost; "" for the system's place
}

// fileNames are the modules that Salt's configurations name by their files.
var fileNames = map[string]string{
	"aptpkg": "pkg", "cmdmod": "cmd", "debian_service": "service", "groupadd": "group", "linux_shadow": "shadow", "linux_sysctl": "sysctl",
	"rh_service": "service", "systemd_service": "service", "useradd": "user", "yumpkg": "pkg",
}

// KnownModule says whether a module of the table, or one of Salt that is left out on purpose,
// is meant by a name in disable_modules or whitelist_modules.
func KnownModule(t Table, name string) bool {
	if fileNames[name] != "" {
		return true
	}
	_, absent := IsAbsent(salt.Function(name + ".x"))
	return absent || slices.ContainsFunc(t, func(m *Module) bool { return m.Name == name })
}

// offers tells whether the configuration lets a module be used: disable_modules and
// whitelist_modules, which always holds for sys and saltutil too.
func (h *Host) offers(module string) error {
	named := func(w string) bool { return w == module || fileNames[w] == module }
	if slices.ContainsFunc(words(h.Config["disable_modules"]), named) {
		return fmt.Errorf("disable_modules has the module %s", module)
	}
	only := words(h.Config["whitelist_modules"])
	if len(only) > 0 && !slices.ContainsFunc(append(only, "saltutil", "sys"), named) {
		return fmt.Errorf("whitelist_modules does not have the module %s", module)
	}
	return nil
}

// words are those of a setting, a list or one text; none for one that is not set.
func words(setting any) []string {
	if setting == nil {
		return nil
	}
	list, _ := ToWords(setting) // the configuration was checked when it was read
	return list
}

// Facts returns the minion's grains, an empty map if it has none.
func (h *Host) Facts() map[string]any {
	if h.Data == nil {
		return map[string]any{}
	}
	return h.Data.Grains()
}

// PillarData returns the minion's pillar, an empty map if it has none.
func (h *Host) PillarData() map[string]any {
	if h.Data == nil {
		return map[string]any{}
	}
	return h.Data.Pillar()
}

// PillarMistakes are those of PillarErrors; none where nothing is known of any.
func (h *Host) PillarMistakes() []string {
	if h.Data == nil {
		return nil
	}
	return h.Data.PillarErrors()
}

// Path is where a file of the system lies.
func (h *Host) Path(name string) string { return filepath.Join("/", h.Root, name) }

var discard = slog.New(slog.DiscardHandler)

// Logger is the log, one that discards where there is none.
func (h *Host) Logger() *slog.Logger {
	if h.Log == nil {
		return discard
	}
	return h.Log
}
