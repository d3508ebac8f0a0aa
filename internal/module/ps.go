package module

import (
	"cmp"
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/host"
	"github.com/shirou/gopsutil/v4/mem"
	"github.com/shirou/gopsutil/v4/net"
	"github.com/shirou/gopsutil/v4/process"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/posix"
)

var (
	processPattern = function.Param{Name: "pattern", Kind: function.String, Required: true}
	processFilter  = []function.Param{
		{Name: "user", Kind: function.String},
		{Name: "full", Kind: function.Bool, Default: false},
		{Name: "pattern_is_regex", Kind: function.Bool, Default: false},
	}
	perCPU = function.Param{Name: "per_cpu", Kind: function.Bool, Default: false}
)

// psModule lists, measures and signals processes.
var psModule = &function.Module{
	Name: "ps",
	Doc:  "Functions that list, measure and signal processes, and measure the machine as they see it.",
	Functions: []function.Function{
		{
			Name:    "boot_time",
			Doc:     "Return when the machine was started, in seconds since 1970.",
			Example: `salt '*' ps.boot_time`,
			Run: func(ctx context.Context, _ *function.Call) (any, error) {
				return host.BootTimeWithContext(ctx)
			},
		},
		{
			Name:    "cpu_percent",
			Doc:     "Return how busy the processors are over an interval in seconds: one number, or with per_cpu one for each.",
			Example: `salt '*' ps.cpu_percent interval=1`,
			Params:  []function.Param{{Name: "interval", Kind: function.Float, Default: 0.1}, perCPU},
			Run:     psCPUPercent,
		},
		{
			Name:    "cpu_times",
			Doc:     "Return the seconds that the processors have spent: in all, or with per_cpu a list for each.",
			Example: `salt '*' ps.cpu_times`,
			Params:  []function.Param{perCPU},
			Run:     psCPUTimes,
		},
		{
			Name:    "disk_io_counters",
			Doc:     "Return the counters of the disks by name, or of one.",
			Example: `salt '*' ps.disk_io_counters device=sda1`,
			Params:  []function.Param{{Name: "device", Kind: function.String}},
			Run:     psDiskCounters,
		},
		{
			Name:    "disk_partitions",
			Doc:     "Return the mounted file systems; with all, also those without a device.",
			Example: `salt '*' ps.disk_partitions`,
			Params:  []function.Param{{Name: "all", Kind: function.Bool, Default: false}},
			Run:     psPartitions,
		},
		{
			Name:    "disk_usage",
			Doc:     "Return how full the file system of a path is, in bytes.",
			Example: `salt '*' ps.disk_usage /home`,
			Params:  []function.Param{{Name: "path", Kind: function.String, Required: true}},
			Run:     psDiskUsage,
		},
		{
			Name:    "get_pid_list",
			Doc:     "Return the pids of all processes.",
			Example: `salt '*' ps.get_pid_list`,
			Run: func(ctx context.Context, _ *function.Call) (any, error) {
				return process.PidsWithContext(ctx)
			},
		},
		{
			Name:    "kill_pid",
			Doc:     "Send a signal, by default SIGTERM, to a process. Returns whether the process existed.",
			Example: `salt '*' ps.kill_pid 2000 signal=9`,
			Params:  []function.Param{{Name: "pid", Kind: function.Int, Required: true}, {Name: "signal", Kind: function.String, Default: "15"}},
			Run:     psKill,
		},
		{
			Name:    "network_io_counters",
			Doc:     "Return the counters of the network interfaces in all, or of one.",
			Example: `salt '*' ps.network_io_counters interface=eth0`,
			Params:  []function.Param{{Name: "interface", Kind: function.String}},
			Run:     psNetwork,
		},
		{
			Name:    "num_cpus",
			Doc:     "Return the number of processors.",
			Example: `salt '*' ps.num_cpus`,
			Run: func(ctx context.Context, _ *function.Call) (any, error) {
				return cpu.CountsWithContext(ctx, true)
			},
		},
		{
			Name:    "pgrep",
			Doc:     "Return the pids of the processes whose name holds the pattern; with full, whose command line does. None if there are none.",
			Example: "salt '*' ps.pgrep sshd\nsalt '*' ps.pgrep '^ssh.$' pattern_is_regex=True user=root",
			Params:  slices.Concat([]function.Param{processPattern}, processFilter),
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				found, err := findProcesses(ctx, c)
				if err != nil || len(found) == 0 {
					return nil, err
				}
				pids := make([]any, len(found))
				for i, p := range found {
					pids[i] = p.Pid
				}
				return pids, nil
			},
		},
		{
			Name:    "pkill",
			Doc:     "Send a signal, by default SIGTERM, to the processes that ps.pgrep would find. Returns the pids that got it, None if there are none.",
			Example: `salt '*' ps.pkill httpd user=www-data`,
			Params:  slices.Concat([]function.Param{processPattern}, processFilter, []function.Param{{Name: "signal", Kind: function.String, Default: "15"}}),
			Run:     psPkill,
		},
		{
			Name:    "proc_info",
			Doc:     "Return what is known of a process: all, or the listed attributes.",
			Example: "salt '*' ps.proc_info 2322\nsalt '*' ps.proc_info 2322 attrs='[pid, name]'",
			Params:  []function.Param{{Name: "pid", Kind: function.Int, Required: true}, {Name: "attrs", Kind: function.Words}},
			Run:     psInfo,
		},
		{
			Name:    "psaux",
			Doc:     "Return pid, user and command line of the processes whose command line holds the name.",
			Example: `salt '*' ps.psaux www-data`,
			Params:  []function.Param{{Name: "name", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				all, err := processTable()
				list := []any{}
				for _, p := range all {
					if strings.Contains(p.command, c.String("name")) && p.pid != os.Getpid() {
						list = append(list, map[string]any{"pid": p.pid, "user": p.user, "cmd": p.command})
					}
				}
				return list, err
			},
		},
		{
			Name:    "swap_memory",
			Doc:     "Return how full the swap space is, in bytes.",
			Example: `salt '*' ps.swap_memory`,
			Run:     psSwap,
		},
		{
			Name:    "top",
			Doc:     "Return the processes that used the processors most over an interval in seconds.",
			Example: `salt '*' ps.top num_processes=5 interval=1`,
			Params:  []function.Param{{Name: "num_processes", Kind: function.Int, Default: 5}, {Name: "interval", Kind: function.Float, Default: 3.0}},
			Run:     psTop,
		},
		{
			Name:    "total_physical_memory",
			Doc:     "Return the memory of the machine in bytes.",
			Example: `salt '*' ps.total_physical_memory`,
			Run: func(ctx context.Context, _ *function.Call) (any, error) {
				m, err := mem.VirtualMemoryWithContext(ctx)
				if err != nil {
					return nil, err
				}
				return m.Total, nil
			},
		},
		{
			Name:    "virtual_memory",
			Doc:     "Return how full the memory is, in bytes.",
			Example: `salt '*' ps.virtual_memory`,
			Run:     psMemory,
		},
	},
}

// each applies describe to every item of a list.
func each[T any](list []T, describe func(T) any) []any {
	all := make([]any, len(list))
	for i, item := range list {
		all[i] = describe(item)
	}
	return all
}

func cpuTimes(t cpu.TimesStat) any {
	return map[string]any{
		"user": t.User, "nice": t.Nice, "system": t.System, "idle": t.Idle, "iowait": t.Iowait,
		"irq": t.Irq, "softirq": t.Softirq, "steal": t.Steal, "guest": t.Guest, "guest_nice": t.GuestNice,
	}
}

func diskCounters(s disk.IOCountersStat) map[string]any {
	return map[string]any{
		"read_count": s.ReadCount, "write_count": s.WriteCount, "read_bytes": s.ReadBytes, "write_bytes": s.WriteBytes,
		"read_time": s.ReadTime, "write_time": s.WriteTime,
	}
}

func networkCounters(s net.IOCountersStat) map[string]any {
	return map[string]any{
		"bytes_sent": s.BytesSent, "bytes_recv": s.BytesRecv, "packets_sent": s.PacketsSent, "packets_recv": s.PacketsRecv,
		"errin": s.Errin, "errout": s.Errout, "dropin": s.Dropin, "dropout": s.Dropout,
	}
}

func psCPUTimes(ctx context.Context, c *function.Call) (any, error) {
	times, err := cpu.TimesWithContext(ctx, c.Bool("per_cpu"))
	if err != nil || c.Bool("per_cpu") || len(times) == 0 {
		return each(times, cpuTimes), err
	}
	return cpuTimes(times[0]), nil
}

func psDiskCounters(ctx context.Context, c *function.Call) (any, error) {
	counters, err := disk.IOCountersWithContext(ctx)
	if err != nil {
		return nil, err
	}
	if c.Has("device") {
		one, ok := counters[c.String("device")]
		if !ok {
			return nil, function.Invalid("there is no device %q", c.String("device"))
		}
		return diskCounters(one), nil
	}
	all := map[string]any{}
	for name, one := range counters {
		all[name] = diskCounters(one)
	}
	return all, nil
}

func psPartitions(ctx context.Context, c *function.Call) (any, error) {
	partitions, err := disk.PartitionsWithContext(ctx, c.Bool("all"))
	return each(partitions, func(p disk.PartitionStat) any {
		return map[string]any{"device": p.Device, "mountpoint": p.Mountpoint, "fstype": p.Fstype, "opts": strings.Join(p.Opts, ",")}
	}), err
}

func psDiskUsage(ctx context.Context, c *function.Call) (any, error) {
	u, err := disk.UsageWithContext(ctx, c.String("path"))
	if err != nil {
		return nil, err
	}
	return map[string]any{"total": u.Total, "used": u.Used, "free": u.Free, "percent": u.UsedPercent}, nil
}

func psSwap(ctx context.Context, _ *function.Call) (any, error) {
	m, err := mem.SwapMemoryWithContext(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]any{"total": m.Total, "used": m.Used, "free": m.Free, "percent": m.UsedPercent, "sin": m.Sin, "sout": m.Sout}, nil
}

func psMemory(ctx context.Context, _ *function.Call) (any, error) {
	m, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"total": m.Total, "available": m.Available, "percent": m.UsedPercent, "used": m.Used, "free": m.Free,
		"active": m.Active, "inactive": m.Inactive, "buffers": m.Buffers, "cached": m.Cached, "shared": m.Shared, "slab": m.Slab,
	}, nil
}

func psCPUPercent(ctx context.Context, c *function.Call) (any, error) {
	percent, err := cpu.PercentWithContext(ctx, seconds(c.Float("interval")), c.Bool("per_cpu"))
	if err != nil || c.Bool("per_cpu") || len(percent) == 0 {
		return percent, err
	}
	return percent[0], nil
}

// psKill refuses 0 and negative numbers, which mean process groups and everything that the minion
// may signal.
func psKill(_ context.Context, c *function.Call) (any, error) {
	if c.Int("pid") < 1 {
		return nil, function.Invalid("a pid is positive, not %d", c.Int("pid"))
	}
	sig, err := parseSignal(c.String("signal"))
	if err != nil {
		return nil, err
	}
	err = posix.Kill(c.Int("pid"), sig)
	if posix.NoProcess(err) {
		return false, nil
	}
	return err == nil, err
}

func psNetwork(ctx context.Context, c *function.Call) (any, error) {
	counters, err := net.IOCountersWithContext(ctx, c.Has("interface"))
	if err != nil {
		return nil, err
	}
	name := "all"
	if c.Has("interface") {
		name = c.String("interface")
	}
	for _, one := range counters {
		if one.Name == name {
			return networkCounters(one), nil
		}
	}
	return nil, function.Invalid("there is no interface %q", name)
}

// findProcesses returns the processes that the arguments of ps.pgrep select, never the minion
// itself.
func findProcesses(ctx context.Context, c *function.Call) ([]*process.Process, error) {
	text := c.String("pattern")
	if !c.Bool("pattern_is_regex") {
		text = regexp.QuoteMeta(text)
	}
	pattern, err := regexp.Compile(text)
	if err != nil {
		return nil, function.Invalid("%w", err)
	}
	all, err := process.ProcessesWithContext(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p *process.Process) bool { return !selectsProcess(ctx, c, p, pattern) }), ctx.Err()
}

// selectsProcess returns false for a process that has ended meanwhile.
func selectsProcess(ctx context.Context, c *function.Call, p *process.Process, pattern *regexp.Regexp) bool {
	name, err := p.NameWithContext(ctx)
	if c.Bool("full") {
		name, err = p.CmdlineWithContext(ctx)
	}
	if err != nil || int(p.Pid) == os.Getpid() || !pattern.MatchString(name) {
		return false
	}
	if !c.Has("user") {
		return true
	}
	user, err := p.UsernameWithContext(ctx)
	return err == nil && user == c.String("user")
}

func psPkill(ctx context.Context, c *function.Call) (any, error) {
	sig, err := parseSignal(c.String("signal"))
	if err != nil {
		return nil, err
	}
	found, err := findProcesses(ctx, c)
	if err != nil {
		return nil, err
	}
	killed := []any{}
	for _, p := range found {
		if posix.Kill(int(p.Pid), sig) == nil {
			killed = append(killed, p.Pid)
		}
	}
	if len(killed) == 0 {
		return nil, nil
	}
	return map[string]any{"killed": killed}, nil
}

// processAttributes are the attributes of ps.proc_info. One that the system hides from the minion
// is omitted.
var processAttributes = []struct {
	name string
	read func(context.Context, *process.Process) (any, error)
}{
	{"cmdline", func(ctx context.Context, p *process.Process) (any, error) { return p.CmdlineSliceWithContext(ctx) }},
	{"cpu_percent", func(ctx context.Context, p *process.Process) (any, error) { return p.CPUPercentWithContext(ctx) }},
	{"create_time", func(ctx context.Context, p *process.Process) (any, error) {
		ms, err := p.CreateTimeWithContext(ctx)
		return float64(ms) / 1000, err
	}},
	{"cwd", func(ctx context.Context, p *process.Process) (any, error) { return p.CwdWithContext(ctx) }},
	{"exe", func(ctx context.Context, p *process.Process) (any, error) { return p.ExeWithContext(ctx) }},
	{"gids", func(ctx context.Context, p *process.Process) (any, error) { return p.GidsWithContext(ctx) }},
	{"memory_info", func(ctx context.Context, p *process.Process) (any, error) {
		m, err := p.MemoryInfoWithContext(ctx)
		if err != nil {
			return nil, err
		}
		return map[string]any{"rss": m.RSS, "vms": m.VMS}, nil
	}},
	{"memory_percent", func(ctx context.Context, p *process.Process) (any, error) { return p.MemoryPercentWithContext(ctx) }},
	{"name", func(ctx context.Context, p *process.Process) (any, error) { return p.NameWithContext(ctx) }},
	{"nice", func(ctx context.Context, p *process.Process) (any, error) { return p.NiceWithContext(ctx) }},
	{"num_fds", func(ctx context.Context, p *process.Process) (any, error) { return p.NumFDsWithContext(ctx) }},
	{"num_threads", func(ctx context.Context, p *process.Process) (any, error) { return p.NumThreadsWithContext(ctx) }},
	{"pid", func(_ context.Context, p *process.Process) (any, error) { return p.Pid, nil }},
	{"ppid", func(ctx context.Context, p *process.Process) (any, error) { return p.PpidWithContext(ctx) }},
	{"status", func(ctx context.Context, p *process.Process) (any, error) { return p.StatusWithContext(ctx) }},
	{"terminal", func(ctx context.Context, p *process.Process) (any, error) { return p.TerminalWithContext(ctx) }},
	{"uids", func(ctx context.Context, p *process.Process) (any, error) { return p.UidsWithContext(ctx) }},
	{"username", func(ctx context.Context, p *process.Process) (any, error) { return p.UsernameWithContext(ctx) }},
}

func psInfo(ctx context.Context, c *function.Call) (any, error) {
	p, err := process.NewProcessWithContext(ctx, int32(c.Int("pid")))
	if err != nil {
		return nil, err
	}
	info := map[string]any{}
	for _, attribute := range processAttributes {
		if c.Has("attrs") && !slices.Contains(c.Words("attrs"), attribute.name) {
			continue
		}
		if v, err := attribute.read(ctx, p); err == nil {
			info[attribute.name] = v
		}
	}
	return info, ctx.Err()
}

// psTop measures twice and compares.
func psTop(ctx context.Context, c *function.Call) (any, error) {
	if c.Float("interval") <= 0 || c.Int("num_processes") < 1 {
		return nil, function.Invalid("interval and num_processes must be positive")
	}
	all, err := process.ProcessesWithContext(ctx)
	if err != nil {
		return nil, err
	}
	before := map[int32]*cpu.TimesStat{}
	for _, p := range all {
		if times, err := p.TimesWithContext(ctx); err == nil {
			before[p.Pid] = times
		}
	}
	begin := time.Now()
	if err := pause(ctx, seconds(c.Float("interval"))); err != nil {
		return nil, err
	}
	return busiest(ctx, all, before, time.Since(begin).Seconds(), c.Int("num_processes")), nil
}

// busiest describes the n processes that used the most CPU since before.
func busiest(ctx context.Context, all []*process.Process, before map[int32]*cpu.TimesStat, elapsed float64, n int) []any {
	type use struct {
		p            *process.Process
		user, system float64
	}
	var uses []use
	for _, p := range all {
		now, err := p.TimesWithContext(ctx)
		if then := before[p.Pid]; err == nil && then != nil {
			uses = append(uses, use{p, now.User - then.User, now.System - then.System})
		}
	}
	slices.SortStableFunc(uses, func(a, b use) int { return cmp.Compare(b.user+b.system, a.user+a.system) })
	list := []any{}
	for _, u := range uses[:min(n, len(uses))] {
		row := map[string]any{"pid": u.p.Pid, "cpu": map[string]any{
			"user": u.user, "system": u.system, "percent": 100 * (u.user + u.system) / elapsed,
		}}
		for key, name := range map[string]string{"cmd": "cmdline", "user": "username", "status": "status", "create_time": "create_time", "mem": "memory_info"} {
			if v, err := readAttribute(ctx, u.p, name); err == nil {
				row[key] = v
			}
		}
		list = append(list, row)
	}
	return list
}

func readAttribute(ctx context.Context, p *process.Process, name string) (any, error) {
	for _, attribute := range processAttributes {
		if attribute.name == name {
			return attribute.read(ctx, p)
		}
	}
	return nil, function.Unavailable("process attribute " + name)
}
