package beacon

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"
	"github.com/shirou/gopsutil/v4/net"
	"github.com/shirou/gopsutil/v4/process"
)

// averages watches the load.
type averages struct {
	bounds   map[string][2]float64
	atStart  bool
	onChange bool
	seen     bool
	outside  bool // at the previous look
}

func newLoad(s *settings) (Probe, error) {
	l := &averages{bounds: map[string][2]float64{}, atStart: s.truth("emitatstartup", true), onChange: s.truth("onchangeonly", false)}
	for name, v := range s.table("averages") {
		pair, _ := v.([]any)
		if len(pair) != 2 || !slices.Contains([]string{"1m", "5m", "15m"}, name) {
			return nil, fmt.Errorf("averages: %s: %v is not a pair of a least and a highest load for 1m, 5m or 15m", name, v)
		}
		least, ok1 := number(pair[0])
		most, ok2 := number(pair[1])
		if !ok1 || !ok2 || least > most {
			return nil, fmt.Errorf("averages: %s: %v is not a range", name, v)
		}
		l.bounds[name] = [2]float64{least, most}
	}
	return l, nil
}

// Look implements Probe.
func (l *averages) Look(ctx context.Context, _ time.Time) ([]Event, error) {
	a, err := load.AvgWithContext(ctx)
	if err != nil {
		return nil, err
	}
	now := map[string]float64{"1m": a.Load1, "5m": a.Load5, "15m": a.Load15}
	outside := false
	for name, b := range l.bounds {
		outside = outside || now[name] < b[0] || now[name] > b[1]
	}
	first, was := !l.seen, l.outside
	l.seen, l.outside = true, outside
	switch {
	case first && l.onChange:
		if !l.atStart {
			return nil, nil
		}
	case l.onChange && outside == was, !l.onChange && !outside, !l.onChange && first && !l.atStart:
		return nil, nil
	}
	return []Event{{Data: map[string]any{"1m": a.Load1, "5m": a.Load5, "15m": a.Load15}}}, nil
}

// memory watches the used memory, in percent.
type memory struct{ percent float64 }

func newMemory(s *settings) (Probe, error) {
	v := s.take("percent")
	n, ok := number(v)
	if !ok || n < 0 || n > 100 {
		return nil, fmt.Errorf("percent is %v: a percentage is wanted", v)
	}
	return memory{n}, nil
}

// Look implements Probe.
func (m memory) Look(ctx context.Context, _ time.Time) ([]Event, error) {
	v, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil || v.UsedPercent < m.percent {
		return nil, err
	}
	return []Event{{Data: map[string]any{"memusage": v.UsedPercent}}}, nil
}

// disks watches how full file systems are; a mount point is a path or a regular expression.
type disks struct {
	limits map[*regexp.Regexp]float64
}

func newDisks(s *settings) (Probe, error) {
	d := disks{limits: map[*regexp.Regexp]float64{}}
	for _, mount := range slices.Sorted(maps.Keys(s.rest)) {
		v := s.take(mount)
		n, ok := number(v)
		re, err := regexp.Compile("^(?:" + mount + ")$")
		if err != nil || !ok || n < 0 || n > 100 {
			return nil, fmt.Errorf("%s is %v: a mount point, or an expression for several, and a percentage are wanted", mount, v)
		}
		d.limits[re] = n
	}
	if len(d.limits) == 0 {
		return nil, fmt.Errorf("which mount points are meant: /: 80%%")
	}
	return d, nil
}

// Look implements Probe.
func (d disks) Look(ctx context.Context, _ time.Time) ([]Event, error) {
	mounts, err := disk.PartitionsWithContext(ctx, true)
	if err != nil {
		return nil, err
	}
	var events []Event
	for _, m := range mounts {
		for re, most := range d.limits {
			if !re.MatchString(m.Mountpoint) {
				continue
			}
			u, err := disk.UsageWithContext(ctx, m.Mountpoint)
			if err == nil && u.Total > 0 && u.UsedPercent >= most {
				events = append(events, Event{Data: map[string]any{"diskusage": u.UsedPercent, "mount": m.Mountpoint}})
				break
			}
		}
	}
	return events, nil
}

// processes watches whether processes run.
type processes struct {
	wanted map[string]bool // by name: whether to report that it runs
}

func newProcesses(s *settings) (Probe, error) {
	p := processes{map[string]bool{}}
	for name, v := range s.table("processes") {
		if v != "running" && v != "stopped" {
			return nil, fmt.Errorf("processes: %s: %v is neither running nor stopped", name, v)
		}
		p.wanted[name] = v == "running"
	}
	return p, nil
}

// Look implements Probe.
func (p processes) Look(ctx context.Context, _ time.Time) ([]Event, error) {
	all, err := process.ProcessesWithContext(ctx)
	if err != nil {
		return nil, err
	}
	running := map[string]bool{}
	for _, one := range all {
		if name, err := one.NameWithContext(ctx); err == nil {
			running[name] = true
		}
	}
	var events []Event
	for _, name := range slices.Sorted(maps.Keys(p.wanted)) {
		if running[name] == p.wanted[name] {
			state := map[bool]string{true: "Running", false: "Stopped"}[running[name]]
			events = append(events, Event{Data: map[string]any{name: state}})
		}
	}
	return events, nil
}

// interfaces watches counters of network interfaces.
type interfaces struct {
	limits map[string]map[string]any
}

func newNetwork(s *settings) (Probe, error) {
	n := interfaces{map[string]map[string]any{}}
	for name, v := range s.table("interfaces") {
		limits, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("interfaces: %s: %v is not a dictionary of counters and their limits", name, v)
		}
		if kind := limits["type"]; kind != nil && kind != "equal" && kind != "greater" {
			return nil, fmt.Errorf("interfaces: %s: type is %v, and not equal or greater", name, kind)
		}
		known := counters(net.IOCountersStat{})
		for key, limit := range limits {
			if _, ok := known[key]; !ok && key != "type" {
				return nil, fmt.Errorf("interfaces: %s: there is no counter %q", name, key)
			}
			if _, ok := number(limit); !ok && key != "type" {
				return nil, fmt.Errorf("interfaces: %s: %s is %v: a number is wanted", name, key, limit)
			}
		}
		n.limits[name] = limits
	}
	return n, nil
}

func counters(c net.IOCountersStat) map[string]uint64 {
	return map[string]uint64{
		"bytes_sent": c.BytesSent, "bytes_recv": c.BytesRecv, "packets_sent": c.PacketsSent, "packets_recv": c.PacketsRecv,
		"errin": c.Errin, "errout": c.Errout, "dropin": c.Dropin, "dropout": c.Dropout,
	}
}

// Look implements Probe.
func (n interfaces) Look(ctx context.Context, _ time.Time) ([]Event, error) {
	all, err := net.IOCountersWithContext(ctx, true)
	if err != nil {
		return nil, err
	}
	var events []Event
	for _, one := range all {
		limits, watched := n.limits[one.Name]
		if watched && exceeds(counters(one), limits) {
			info := map[string]any{}
			for key, v := range counters(one) {
				info[key] = v
			}
			events = append(events, Event{Data: map[string]any{"interface": one.Name, "network_info": info}})
		}
	}
	return events, nil
}

// exceeds reports whether a counter has reached its limit, or with the type greater exceeds it.
func exceeds(now map[string]uint64, limits map[string]any) bool {
	for key, limit := range limits {
		most, ok := number(limit)
		if key == "type" || !ok {
			continue
		}
		if v := float64(now[key]); limits["type"] == "greater" && v > most || limits["type"] != "greater" && v == most {
			return true
		}
	}
	return false
}
