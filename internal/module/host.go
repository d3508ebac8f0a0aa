package module

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/salt"
)

// Host is the minion that functions run on. Every service may be nil, as in a
// call without a daemon; a function that needs it then fails with
// ErrUnavailable. What the functions return is handed out: nobody may change a
// map that came from a Host.
type Host struct {
	ID      salt.MinionID
	Version string // of the program

	Grains        func() map[string]any
	RefreshGrains func(context.Context) error // collect them again and tell the master
	Pillar        func() map[string]any
	RefreshPillar func(context.Context) error // ask the master for it again
	RevokeKey     func(context.Context) error // ask the master to forget this minion's key
	// Push hands a file to the master, where it is known by name, a relative path; nil
	// without a way there.
	Push   func(ctx context.Context, name string, content io.Reader) error
	Config map[string]any // the minion's configuration by Salt's key names

	Root       string // before the paths of the system that functions edit; "" for none
	ConfigDir  string // where the configuration lies; "" if nowhere
	PKIDir     string // where the minion's keys lie; "" if nowhere
	PIDFile    string // that names the daemon's process; "" for none
	GrainsFile string // where grains.setval keeps grains; "" if nowhere
	CacheDir   string // for files that may be lost; "" for the system's place

	Environ []string // what programs get beside their environment: NAME=VALUE

	Events EventBus
	Jobs   JobTable
	Master MasterLink
	Files  *fileserver.Cache // of the file server; nil if there is none
	Custom *extension.Set    // modules that people have added; nil for none

	Publisher Publisher // the way to other minions
	Mine      Mine      // what minions keep for each other
	Scheduler Scheduler // what runs by the clock

	Returners func() []string // names of what can take the returns of jobs, sorted

	User   string          // who started the job, for people to read
	Output process.Watcher // whoever follows what cmd.* writes; nil for nobody

	// Fingerprint and MasterFingerprint are those of the minion's own key and of the
	// pinned one of its master, sha256 colon-hex; "" for no key.
	Fingerprint, MasterFingerprint func() string

	Log *slog.Logger // nil discards
}

// EventBus is where functions fire events.
type EventBus interface {
	// Fire puts an event on the minion's own bus.
	Fire(ctx context.Context, tag string, data any) error
	// FireMaster sends events to the master's bus, in order. It returns once
	// the master or the outbox has stored them all.
	FireMaster(ctx context.Context, events ...Event) (Outcomes, error)
}

// Event is an event for the master's bus.
type Event struct {
	Tag    string
	Data   any
	Pretag string
}

// Outcomes is what became of events at each master, by its name: true where it has
// stored all of them, false where some are kept here until it is there.
type Outcomes map[string]bool

// Add notes what became of one event.
func (o Outcomes) Add(master string, stored bool) {
	before, known := o[master]
	o[master] = stored && (before || !known)
}

// JobTable is the running jobs of this minion.
type JobTable interface {
	List() []Running // a copy, oldest first
	// Signal ends the job in the name of by: its context is cancelled, and what it
	// started gets the signal, and soon after SIGKILL. It is an error if no such
	// job runs.
	Signal(jid salt.JID, sig syscall.Signal, by string) error
}

// Running is one running job.
type Running struct {
	JID        salt.JID
	Function   salt.Function
	PID        int // of the process that runs it
	Args       []any
	Target     any
	TargetType string
	Returner   string
	User       string
	Started    time.Time
}

// MasterLink is the connection to the master, or to several.
type MasterLink interface {
	Masters() []string // those that are connected, as the configuration names them
	// Ping is a round trip to one of them, to any for "".
	Ping(ctx context.Context, master string) error
}

func (h *Host) events() (EventBus, error) {
	if h.Events == nil {
		return nil, unavailable("event bus")
	}
	return h.Events, nil
}

func (h *Host) jobs() (JobTable, error) {
	if h.Jobs == nil {
		return nil, unavailable("job table")
	}
	return h.Jobs, nil
}

func (h *Host) master() (MasterLink, error) {
	if h.Master == nil {
		return nil, unavailable("connection to a master")
	}
	return h.Master, nil
}

func (h *Host) files() (*fileserver.Cache, error) {
	if h.Files == nil {
		return nil, unavailable("file server")
	}
	return h.Files, nil
}

// fileNames are the modules that Salt's configurations name by their files.
var fileNames = map[string]string{
	"aptpkg": "pkg", "cmdmod": "cmd", "debian_service": "service", "groupadd": "group", "linux_shadow": "shadow", "linux_sysctl": "sysctl",
	"rh_service": "service", "systemd_service": "service", "useradd": "user", "yumpkg": "pkg",
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
	list, _ := toWords(setting) // the configuration was checked when it was read
	return list
}

// grains returns the minion's grains, an empty map if it has none.
func (h *Host) grains() map[string]any {
	if h.Grains == nil {
		return map[string]any{}
	}
	return h.Grains()
}

// pillar returns the minion's pillar, an empty map if it has none.
func (h *Host) pillar() map[string]any {
	if h.Pillar == nil {
		return map[string]any{}
	}
	return h.Pillar()
}

// returners are the names of what can take the returns of jobs.
func (h *Host) returners() []string {
	if h.Returners == nil {
		return nil
	}
	return h.Returners()
}

// shown is a fingerprint of the host's; what it lacks is called what.
func shown(fingerprint func() string, what string) (any, error) {
	if fingerprint != nil {
		if text := fingerprint(); text != "" {
			return text, nil
		}
	}
	return nil, unavailable(what)
}

// path is where a file of the system lies.
func (h *Host) path(name string) string { return filepath.Join("/", h.Root, name) }

var discard = slog.New(slog.DiscardHandler)

func (h *Host) log() *slog.Logger {
	if h.Log == nil {
		return discard
	}
	return h.Log
}
