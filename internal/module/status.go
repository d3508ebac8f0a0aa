package module

import (
	"context"
	"errors"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/host"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target/fnmatch"
)

// MasterConnection is the connection to the master, or to several.
type MasterConnection interface {
	Masters() []string // the connected ones, with their names in the configuration
	// Ping makes a round trip to one of them, to any for "".
	Ping(ctx context.Context, master string) error
}

// statusModule shows the state of the machine.
var statusModule = &function.Module{
	Name: "status",
	Doc:  "Functions that show the state of the machine, mostly from /proc.",
	Functions: []function.Function{
		{
			Name:    "all_status",
			Doc:     "Return what the other functions of status return. What a machine does not have is left out.",
			Example: `salt '*' status.all_status`,
			Calls:   &function.Calls{Read: allOfStatus, Run: statusAll},
		},
		{
			Name:    "cpuinfo",
			Doc:     "Return the data of /proc/cpuinfo about the last processor.",
			Example: `salt '*' status.cpuinfo`,
			Run:     statusCPUInfo,
		},
		{
			Name:    "cpustats",
			Doc:     "Return the counters of /proc/stat.",
			Example: `salt '*' status.cpustats`,
			Run:     statusCPUStats,
		},
		{
			Name:    "diskstats",
			Doc:     "Return the counters of /proc/diskstats.",
			Example: `salt '*' status.diskstats`,
			Run:     statusDiskStats,
		},
		{
			Name:    "diskusage",
			Doc:     "Return the bytes in total and available of file systems: all, or those of the given paths and types, which may be globs.",
			Example: "salt '*' status.diskusage\nsalt '*' status.diskusage / /tmp\nsalt '*' status.diskusage 'ext?'",
			Varargs: true,
			Run:     statusDiskUsage,
		},
		{
			Name:    "loadavg",
			Doc:     "Return the load averages.",
			Example: `salt '*' status.loadavg`,
			Run:     statusLoad,
		},
		{
			Name:    "master",
			Doc:     "Return whether the minion is connected to its master, or to one of several; with a name, whether to that one. With connected=False, whether it is not.",
			Example: `salt '*' status.master`,
			Params:  []function.Param{{Name: "master", Kind: function.String}, {Name: "connected", Kind: function.Bool, Default: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				master, err := masterConnection(c.Host)
				if err != nil {
					return nil, err
				}
				in := master.Masters()
				is := len(in) > 0
				if c.Has("master") {
					is = slices.Contains(in, c.String("master"))
				}
				return is == c.Bool("connected"), nil
			},
		},
		{
			Name:    "meminfo",
			Doc:     "Return the data of /proc/meminfo.",
			Example: `salt '*' status.meminfo`,
			Run:     statusMemory,
		},
		{
			Name:    "netdev",
			Doc:     "Return the counters of the network interfaces.",
			Example: `salt '*' status.netdev`,
			Run:     statusNetDev,
		},
		{
			Name:    "netstats",
			Doc:     "Return the counters of /proc/net/netstat.",
			Example: `salt '*' status.netstats`,
			Run:     statusNetStats,
		},
		{
			Name:    "nproc",
			Doc:     "Return the number of processors that the minion can use.",
			Example: `salt '*' status.nproc`,
			Run:     func(context.Context, *function.Call) (any, error) { return runtime.NumCPU(), nil },
		},
		{
			Name:    "pid",
			Doc:     "Return the pids, one a line, of the processes whose command line matches the regular expression.",
			Example: `salt '*' status.pid sshd`,
			Params:  []function.Param{{Name: "sig", Kind: function.String, Required: true}},
			Run:     statusPID,
		},
		{
			Name:    "ping_master",
			Doc:     "Return whether the master answers; with a name, whether that one does.",
			Example: `salt '*' status.ping_master`,
			Params:  []function.Param{{Name: "master", Kind: function.String}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				master, err := masterConnection(c.Host)
				if err != nil {
					return nil, err
				}
				return master.Ping(ctx, c.String("master")) == nil, ctx.Err()
			},
		},
		{
			Name:    "procs",
			Doc:     "Return the processes: by pid, the user and the command line.",
			Example: `salt '*' status.procs`,
			Run:     statusProcs,
		},
		{
			Name:    "uptime",
			Doc:     "Return for how long the machine has run, and how many users are logged in.",
			Example: `salt '*' status.uptime`,
			Run:     statusUptime,
		},
		{
			Name:    "version",
			Doc:     "Return the version of the kernel as /proc/version has it.",
			Example: `salt '*' status.version`,
			Run: func(context.Context, *function.Call) (any, error) {
				text, err := os.ReadFile("/proc/version")
				return strings.TrimSpace(string(text)), err
			},
		},
		{
			Name:    "vmstats",
			Doc:     "Return the counters of /proc/vmstat.",
			Example: `salt '*' status.vmstats`,
			Run: func(context.Context, *function.Call) (any, error) {
				stats := map[string]any{}
				return stats, eachRow("/proc/vmstat", 2, func(f []string) { stats[f[0]] = number(f[1]) })
			},
		},
		{
			Name:    "w",
			Doc:     "Return who is logged in, where and since when.",
			Example: `salt '*' status.w`,
			Run:     statusWho,
		},
	},
}

// eachRow calls row with the fields of each line of a file that has at least that many.
func eachRow(path string, fields int, row func([]string)) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= fields {
			row(f)
		}
	}
	return nil
}

// number returns the number in s, or s itself.
func number(s string) any {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return f
	}
	return s
}

func numbers(fields []string) []any {
	list := make([]any, len(fields))
	for i, s := range fields {
		list[i] = number(s)
	}
	return list
}

// named combines names and numbers, up to the end of the shorter list.
func named(names []string, fields []string) map[string]any {
	m := map[string]any{}
	for i := range min(len(names), len(fields)) {
		m[names[i]] = number(fields[i])
	}
	return m
}

// allOfStatus are the functions whose returns status.all_status combines.
func allOfStatus(*function.Arguments) function.Reading {
	var r function.Reading
	for _, name := range []string{"cpuinfo", "cpustats", "diskstats", "diskusage", "loadavg", "meminfo", "netdev", "netstats", "uptime", "vmstats", "w"} {
		r.Inner = append(r.Inner, function.Inner{Command: salt.Command{Function: salt.Function("status." + name)}})
	}
	return r
}

func statusAll(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
	all := map[string]any{}
	for _, i := range allOfStatus(c.Bound()).Inner {
		if res := r.Call(ctx, i.Command); res.Err == nil {
			all[strings.TrimPrefix(string(i.Command.Function), "status.")] = res.Return
		}
	}
	return all, ctx.Err()
}

func statusCPUInfo(context.Context, *function.Call) (any, error) {
	text, err := os.ReadFile("/proc/cpuinfo")
	info := map[string]any{}
	for line := range strings.Lines(string(text)) {
		name, v, ok := strings.Cut(line, ":")
		switch name = strings.TrimSpace(name); {
		case !ok:
		case name == "flags":
			info[name] = strings.Fields(v)
		default:
			info[name] = strings.TrimSpace(v)
		}
	}
	return info, err
}

func statusCPUStats(context.Context, *function.Call) (any, error) {
	columns := []string{"user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"}
	stats := map[string]any{}
	err := eachRow("/proc/stat", 2, func(f []string) {
		switch {
		case strings.HasPrefix(f[0], "cpu"):
			stats[f[0]] = named(columns, f[1:])
		case f[0] == "intr":
			stats[f[0]] = map[string]any{"total": number(f[1]), "irqs": numbers(f[2:])}
		case f[0] == "softirq":
			stats[f[0]] = map[string]any{"total": number(f[1]), "softirqs": numbers(f[2:])}
		default:
			stats[f[0]] = number(f[1])
		}
	})
	return stats, err
}

func statusDiskStats(context.Context, *function.Call) (any, error) {
	columns := []string{"major", "minor", "device", "reads_issued", "reads_merged", "sectors_read", "ms_spent_reading",
		"writes_completed", "writes_merged", "sectors_written", "ms_spent_writing",
		"io_in_progress", "ms_spent_in_io", "weighted_ms_spent_in_io"}
	stats := map[string]any{}
	return stats, eachRow("/proc/diskstats", len(columns), func(f []string) { stats[f[2]] = named(columns, f) })
}

func statusDiskUsage(ctx context.Context, c *function.Call) (any, error) {
	mounts, err := mountTable()
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, word := range c.VarWords() {
		if strings.HasPrefix(word, "/") {
			paths = append(paths, word)
		}
	}
	for _, m := range mounts {
		if len(c.Varargs()) == 0 || slices.ContainsFunc(c.VarWords(), func(w string) bool { return fnmatch.Match(w, m.kind) }) {
			paths = append(paths, m.path)
		}
	}
	usage := map[string]any{}
	for _, path := range paths {
		s, err := posix.StatFS(path)
		if err != nil {
			if slices.Contains(c.VarWords(), path) {
				return nil, err
			}
			continue // for all file systems, skip those that the minion may not see
		}
		usage[path] = map[string]any{"available": s.Available * s.BlockSize, "total": s.Blocks * s.BlockSize}
	}
	return usage, ctx.Err()
}

func statusLoad(context.Context, *function.Call) (any, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return nil, err
	}
	return named([]string{"1-min", "5-min", "15-min"}, strings.Fields(string(text))), nil
}

func statusMemory(context.Context, *function.Call) (any, error) {
	info := map[string]any{}
	err := eachRow("/proc/meminfo", 2, func(f []string) {
		entry := map[string]any{"value": f[1]}
		if len(f) > 2 {
			entry["unit"] = f[2]
		}
		info[strings.TrimSuffix(f[0], ":")] = entry
	})
	return info, err
}

func statusNetDev(context.Context, *function.Call) (any, error) {
	columns := []string{"rx_bytes", "rx_packets", "rx_errs", "rx_drop", "rx_fifo", "rx_frame", "rx_compressed", "rx_multicast",
		"tx_bytes", "tx_packets", "tx_errs", "tx_drop", "tx_fifo", "tx_colls", "tx_carrier", "tx_compressed"}
	text, err := os.ReadFile("/proc/net/dev")
	devices := map[string]any{}
	for line := range strings.Lines(string(text)) {
		name, counters, ok := strings.Cut(line, ":") // a counter may directly follow the colon
		if name = strings.TrimSpace(name); ok {
			device := named(columns, strings.Fields(counters))
			device["iface"] = name
			devices[name] = device
		}
	}
	return devices, err
}

// statusNetStats parses pairs of lines: names, then numbers, both after the same first word.
func statusNetStats(context.Context, *function.Call) (any, error) {
	stats := map[string]any{}
	var header []string
	err := eachRow("/proc/net/netstat", 2, func(f []string) {
		if header != nil && header[0] == f[0] {
			stats[strings.TrimSuffix(f[0], ":")] = named(header[1:], f[1:])
		}
		header = f
	})
	return stats, err
}

func statusPID(_ context.Context, c *function.Call) (any, error) {
	pattern, err := regexp.Compile(c.String("sig"))
	if err != nil {
		return nil, function.Invalid("%w", err)
	}
	all, err := processTable()
	var found []string
	for _, p := range all {
		if pattern.MatchString(p.command) && p.pid != os.Getpid() {
			found = append(found, strconv.Itoa(p.pid))
		}
	}
	return strings.Join(found, "\n"), err
}

func statusProcs(context.Context, *function.Call) (any, error) {
	all, err := processTable()
	procs := map[string]any{}
	for _, p := range all {
		procs[strconv.Itoa(p.pid)] = map[string]any{"user": p.user, "cmd": p.command}
	}
	return procs, err
}

func statusUptime(ctx context.Context, _ *function.Call) (any, error) {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return nil, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	up, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return nil, err
	}
	whole := int64(up)
	since := time.Now().Add(-seconds(up)).UTC()
	users, err := host.UsersWithContext(ctx)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // without utmp, nobody is known to be logged in
		return nil, err
	}
	return map[string]any{
		"seconds": whole, "days": whole / 86400, "time": time.Unix(whole%86400, 0).UTC().Format("15:04"),
		"since_iso": since.Format("2006-01-02T15:04:05.000000"), "since_t": since.Unix(), "users": len(users),
	}, nil
}

func statusWho(ctx context.Context, _ *function.Call) (any, error) {
	users, err := host.UsersWithContext(ctx)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	list := []any{}
	for _, u := range users {
		list = append(list, map[string]any{
			"user": u.User, "tty": u.Terminal, "from": u.Host, "login": time.Unix(int64(u.Started), 0).UTC().Format(time.RFC3339),
		})
	}
	return list, nil
}

// entry is a process in /proc.
type entry struct {
	pid           int
	user, command string // the command line; for a kernel thread its name in brackets
}

// processTable reads the processes, by pid. One that ends meanwhile is omitted.
func processTable() ([]entry, error) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	names, err := userNames()
	if err != nil {
		return nil, err
	}
	var all []entry
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid, names); ok {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return a.pid - b.pid })
	return all, nil
}

func readProcess(pid int, names map[int]string) (entry, bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	info, err := os.Stat(dir)
	if err != nil {
		return entry{}, false
	}
	owner, _, err := posix.Owner(dir, info)
	if err != nil {
		return entry{}, false
	}
	line, err := os.ReadFile(dir + "/cmdline")
	if err != nil {
		return entry{}, false
	}
	command := strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
	if command == "" {
		name, _ := os.ReadFile(dir + "/comm") // if it has ended: an empty name
		command = "[" + strings.TrimSpace(string(name)) + "]"
	}
	return entry{pid: pid, user: nameOf(names, owner), command: command}, true
}

// userNames returns the names of the local users by number.
func userNames() (map[int]string, error) {
	all, err := localAccounts()
	names := map[int]string{}
	for _, a := range slices.Backward(all) { // if two have the same number the first counts
		names[a.uid] = a.name
	}
	return names, err
}

// groupNames returns the names of the local groups by number.
func groupNames() (map[int]string, error) {
	all, err := localGroups()
	names := map[int]string{}
	for _, g := range slices.Backward(all) {
		names[g.gid] = g.name
	}
	return names, err
}

// nameOf returns the name of a user or group, its number if it has none.
func nameOf(names map[int]string, id int) string {
	if name, ok := names[id]; ok {
		return name
	}
	return strconv.Itoa(id)
}

// mount is a mounted file system.
type mount struct{ device, path, kind, options string }

// mountTable reads the mounted file systems. If several are mounted on one path, the last one
// counts: it hides the others.
func mountTable() ([]mount, error) {
	var order []string
	byPath := map[string]mount{}
	err := eachRow("/proc/self/mounts", 4, func(f []string) {
		m := mount{unescapeMount(f[0]), unescapeMount(f[1]), f[2], f[3]}
		if _, ok := byPath[m.path]; !ok {
			order = append(order, m.path)
		}
		byPath[m.path] = m
	})
	all := make([]mount, len(order))
	for i, path := range order {
		all[i] = byPath[path]
	}
	return all, err
}

// unescapeMount decodes the kernel's octal escapes of blanks and backslashes.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
