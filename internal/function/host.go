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

// Host is the minion on which functions run, as far as the engine and most functions need it.
// Maps that it returns are shared and must not be changed.
type Host struct {
	ID      salt.MinionID
	Version string         // of the program
	User    string         // who started the job, for people to read
	Config  map[string]any // the minion's configuration by Salt's key names
	Data    Data           // nil if nothing is known about the minion
	Paths

	Environ   []string        // additional environment of programs: NAME=VALUE
	Output    process.Watcher // gets the output of cmd.*; may be nil
	Custom    *extension.Set  // the site's own modules; nil for none
	Publisher Publisher       // the way to other minions; nil without one

	// Services are what else the functions of a table need from their minion. Their package
	// knows the type; the engine only passes it on.
	Services any

	Log *slog.Logger // nil discards
}

// Data is the present data of a minion.
type Data interface {
	Grains() map[string]any
	Pillar() map[string]any
	// PillarErrors are the errors because of which the pillar is older than the master's files.
	PillarErrors() []string
}

// Paths are the paths of files on the machine.
type Paths struct {
	Root       string // prefix of system paths that functions edit; "" for none
	ConfigDir  string // directory of the configuration; "" for none
	PKIDir     string // directory of the minion's keys; "" for none
	PIDFile    string // file with the daemon's process id; "" for none
	GrainsFile string // file of grains.setval; "" for none
	CacheDir   string // directory for files that may be lost; "" for the system's default
}

// fileNames are the modules that Salt's configurations name by their files.
var fileNames = map[string]string{
	"aptpkg": "pkg", "cmdmod": "cmd", "debian_service": "service", "groupadd": "group", "linux_shadow": "shadow", "linux_sysctl": "sysctl",
	"rh_service": "service", "systemd_service": "service", "useradd": "user", "yumpkg": "pkg",
}

// KnownModule reports whether a name in disable_modules or whitelist_modules stands for a
// module of the table, or for one of Salt that is missing here on purpose.
func KnownModule(t Table, name string) bool {
	if fileNames[name] != "" {
		return true
	}
	_, absent := IsAbsent(salt.Function(name + ".x"))
	return absent || slices.ContainsFunc(t, func(m *Module) bool { return m.Name == name })
}

// offers returns an error if disable_modules or whitelist_modules disables a module; sys and
// saltutil are always whitelisted.
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

// words returns the words of a setting, a list or one text; none if it is not set.
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

// PillarMistakes returns PillarErrors, or none without Data.
func (h *Host) PillarMistakes() []string {
	if h.Data == nil {
		return nil
	}
	return h.Data.PillarErrors()
}

// Path returns the path of a system file.
func (h *Host) Path(name string) string { return filepath.Join("/", h.Root, name) }

var discard = slog.New(slog.DiscardHandler)

// Logger returns the log, or one that discards everything.
func (h *Host) Logger() *slog.Logger {
	if h.Log == nil {
		return discard
	}
	return h.Log
}
