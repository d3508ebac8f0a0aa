// Package beacon watches this machine and creates events: about load, disks, processes,
// services, files, logs, certificates. Its caller decides where the events go, and who may add
// a beacon.
//
// A beacon has the settings of Salt's beacon of the same name:
//
//	beacons:
//	  load:
//	    - averages: {1m: [0.0, 2.0]}
//	    - interval: 10
//	  diskusage:
//	    - /: 80%
package beacon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// Event is what a beacon has observed.
type Event struct {
	Tag  string         // the end of the event's tag, after the beacon's name
	Data map[string]any // without the minion's id
}

// Probe observes one thing. Calls of Look do not overlap; an error means that it could not look,
// and is reported once until Look succeeds again.
type Probe interface {
	Look(ctx context.Context, now time.Time) ([]Event, error)
}

// Beacon is one configured beacon.
type Beacon struct {
	Name     string
	Kind     string // the name, unless beacon_module says otherwise
	Interval time.Duration
	Enabled  bool
	Runs     string // the program that it runs, "" for none
	Probe    Probe

	settings any // as they were read
}

// Status calls the minion's function status.NAME.
type Status func(ctx context.Context, name string) (any, error)

// needsStatus is a Probe that reports what functions return.
type needsStatus interface{ useStatus(Status) }

// DefaultInterval is the interval of a beacon without one, as in Salt.
const DefaultInterval = time.Second

// MaxEvents limits the events of one look of a beacon; the last one has the number of the rest.
const MaxEvents = 100

// kind is a row of the table of beacon kinds.
type kind struct {
	name string
	doc  string
	make func(*settings) (Probe, error)
}

// kinds are sorted by name.
var kinds = []kind{
	{"cert_info", "certificates in files that expire within notify_days", newCertificates},
	{"diskusage", "file systems fuller than a percentage, by mount point", newDisks},
	{"inotify", "changes of files and folders", newFiles},
	{"journald", "messages in the journal of systemd whose fields have certain values", newJournald},
	{"load", "averages of the load outside of a range", newLoad},
	{"log", "lines of a file that match regular expressions", newLog},
	{"memusage", "memory fuller than a percentage", newMemory},
	{"network_info", "counters of network interfaces beyond a value", newNetwork},
	{"program", "lines that a program of your own prints, each a JSON object", newProgram},
	{"ps", "processes that run, or do not", newProcesses},
	{"service", "services that start or stop", newServices},
	{"status", "load, memory, processors and more, each time", newStatus},
}

// Kinds returns the names of all kinds, sorted.
func Kinds() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// Parse reads the setting beacons. It returns all errors together, by beacon.
func Parse(v any) ([]Beacon, error) {
	all, ok := v.(map[string]any)
	if v != nil && !ok {
		return nil, errors.New("beacons is not a dictionary of beacons by name")
	}
	var list []Beacon
	var mistakes []error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name == "enabled" {
			continue
		}
		b, err := parse(name, all[name])
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("beacon %s: %w", name, err))
			continue
		}
		if on, isBool := all["enabled"].(bool); isBool && !on {
			b.Enabled = false
		}
		list = append(list, b)
	}
	return list, errors.Join(mistakes...)
}

// validName: the name is a part of tags.
var validName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`) })

func parse(name string, v any) (Beacon, error) {
	if !validName().MatchString(name) {
		return Beacon{}, errors.New("a name is made of letters, digits, hyphens, underscores and full stops")
	}
	s, err := newSettings(v)
	if err != nil {
		return Beacon{}, err
	}
	b := Beacon{Name: name, settings: v, Kind: s.text("beacon_module", name), Enabled: s.truth("enabled", true)}
	b.Interval = s.duration("interval", DefaultInterval)
	s.ignore("disable_during_state_run") // Brine has no states
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == b.Kind })
	if i < 0 {
		return Beacon{}, salt.WithHint(fmt.Errorf("there is no beacon %q", b.Kind), "there are: "+strings.Join(Kinds(), ", "))
	}
	if b.Probe, err = kinds[i].make(s); err != nil {
		return Beacon{}, err
	}
	if p, ok := b.Probe.(*program); ok {
		b.Runs = strings.Join(p.args, "\x00")
	}
	return b, s.done()
}
