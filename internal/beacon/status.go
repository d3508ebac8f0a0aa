package beacon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// status reports what functions of the module status return, whether or not it has changed.
type status struct {
	wanted map[string][]string // by function: parts of its return; none is all
	ask    Status
}

// statusFunctions are those that return machine data and take no arguments.
var statusFunctions = []string{"cpuinfo", "cpustats", "diskstats", "diskusage", "loadavg", "meminfo", "netdev", "netstats", "nproc", "procs", "time", "uptime", "version", "vmstats", "w"}

// statusUsual is what Salt's beacon reports without settings.
var statusUsual = []string{"loadavg", "cpustats", "meminfo", "vmstats", "time"}

func newStatus(s *settings) (Probe, error) {
	p := &status{wanted: map[string][]string{}}
	for _, name := range slices.Sorted(maps.Keys(s.rest)) {
		if !slices.Contains(statusFunctions, name) {
			return nil, fmt.Errorf("there is no status %q; there are: %s", name, strings.Join(statusFunctions, ", "))
		}
		parts := s.words(name)
		if slices.Contains(parts, "all") {
			parts = nil
		}
		p.wanted[name] = parts
	}
	if len(p.wanted) == 0 {
		for _, name := range statusUsual {
			p.wanted[name] = nil
		}
	}
	return p, nil
}

func (p *status) useStatus(ask Status) { p.ask = ask }

// Look implements Probe. The tag ends with the time, as in Salt.
func (p *status) Look(ctx context.Context, now time.Time) ([]Event, error) {
	all := map[string]any{}
	for name, parts := range p.wanted {
		v, err := p.one(ctx, name, now)
		if err != nil {
			return nil, fmt.Errorf("status.%s: %w", name, err)
		}
		all[name] = v
		if some, ok := v.(map[string]any); ok && parts != nil {
			all[name] = pick(some, parts)
		}
	}
	tag := now.UTC().Format("2006-01-02T15:04:05.000000")
	return []Event{{Tag: tag, Data: map[string]any{"tag": tag, "data": all}}}, nil
}

func (p *status) one(ctx context.Context, name string, now time.Time) (any, error) {
	if name == "time" {
		return now.Format("Monday, 02. January 2006 03:04PM"), nil
	}
	return p.ask(ctx, name)
}

// pick selects parts of what a function returns. Missing parts are omitted.
func pick(all map[string]any, names []string) map[string]any {
	some := map[string]any{}
	for _, name := range names {
		if v, ok := all[name]; ok {
			some[name] = v
		}
	}
	return some
}
