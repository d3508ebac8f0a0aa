package module

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/function"
)

func TestStatus(t *testing.T) {
	for function, keys := range map[string][]string{
		"status.all_status": {"cpuinfo", "cpustats", "diskusage", "loadavg", "meminfo", "netdev", "uptime", "vmstats", "w"},
		"status.cpuinfo":    {"processor"},
		"status.cpustats":   {"cpu", "cpu0", "ctxt", "btime", "processes"},
		"status.loadavg":    {"1-min", "5-min", "15-min"},
		"status.meminfo":    {"MemTotal", "MemFree"},
		"status.netdev":     {"lo"},
		"status.netstats":   {"TcpExt"},
		"status.uptime":     {"seconds", "days", "time", "since_iso", "since_t", "users"},
		"status.vmstats":    {"nr_free_pages"},
		"status.diskusage":  {"/"},
	} {
		got := good(t, nil, function, nil).(map[string]any)
		for _, key := range keys {
			if _, ok := got[key]; !ok {
				t.Errorf("%s lacks %q, has %v", function, key, slices.Sorted(maps.Keys(got)))
			}
		}
	}
	stats := good(t, nil, "status.cpustats", nil).(map[string]any)
	if cpu := stats["cpu"].(map[string]any); len(cpu) != 8 {
		t.Errorf("cpu = %v", cpu)
	}
	if v := good(t, nil, "status.meminfo", nil).(map[string]any)["MemTotal"].(map[string]any); v["unit"] != "kB" {
		t.Errorf("MemTotal = %v", v)
	}
	same(t, "nproc", good(t, nil, "status.nproc", nil), runtime.NumCPU())
	if v := good(t, nil, "status.version", nil).(string); !strings.HasPrefix(v, "Linux version") {
		t.Errorf("version = %q", v)
	}
	if up := good(t, nil, "status.uptime", nil).(map[string]any); up["seconds"].(int64) <= 0 {
		t.Errorf("uptime = %v", up)
	}
}

func TestDiskUsageIsSelected(t *testing.T) {
	got := good(t, nil, "status.diskusage", nil, "/").(map[string]any)
	root, ok := got["/"].(map[string]any)
	if len(got) != 1 || !ok || root["total"].(int64) < root["available"].(int64) {
		t.Errorf("diskusage / = %v", got)
	}
	same(t, "diskusage of a type", good(t, nil, "status.diskusage", nil, "nosuchfs"), map[string]any{})
	bad(t, nil, "status.diskusage", "no such file", nil, "/nosuch/path")
}

// sleeper starts a process with a unique command line.
func sleeper(t *testing.T) (pid int, mark string) {
	t.Helper()
	mark = fmt.Sprintf("1000.%d", time.Now().UnixNano())
	cmd := exec.Command("sleep", mark)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid, mark
}

func TestProcessesAreFound(t *testing.T) {
	pid, mark := sleeper(t)
	id := strconv.Itoa(pid)
	owner := good(t, nil, "cmd.run", nil, "id -un")
	same(t, "status.pid", good(t, nil, "status.pid", nil, "sleep.*"+mark), id)
	same(t, "status.pid of nothing", good(t, nil, "status.pid", nil, "nosuch"+mark), "")
	same(t, "status.procs", good(t, nil, "status.procs", nil).(map[string]any)[id], map[string]any{"user": owner, "cmd": "sleep " + mark})
	same(t, "psaux", good(t, nil, "ps.psaux", nil, mark), []any{map[string]any{"pid": pid, "user": owner, "cmd": "sleep " + mark}})
	full := map[string]any{"full": true}
	same(t, "pgrep full", good(t, nil, "ps.pgrep", full, mark), []any{pid})
	same(t, "pgrep of nothing", good(t, nil, "ps.pgrep", nil, mark), nil)
	same(t, "pgrep literally", good(t, nil, "ps.pgrep", full, strings.Replace(mark, ".", "[.]", 1)), nil)
	same(t, "pgrep regex", good(t, nil, "ps.pgrep", map[string]any{"full": true, "pattern_is_regex": true, "user": owner}, strings.Replace(mark, ".", "[.]", 1)), []any{pid})
	same(t, "pgrep user", good(t, nil, "ps.pgrep", map[string]any{"full": true, "user": "nosuch"}, mark), nil)
	if named := good(t, nil, "ps.pgrep", nil, "sleep").([]any); !slices.Contains(named, any(int64(pid))) {
		t.Errorf("pgrep sleep = %v", named)
	}
	if all := good(t, nil, "ps.get_pid_list", nil).([]any); !slices.Contains(all, any(int64(pid))) {
		t.Errorf("get_pid_list = %v", all)
	}
	info := good(t, nil, "ps.proc_info", nil, pid).(map[string]any)
	same(t, "proc_info cmdline", info["cmdline"], []any{"sleep", mark})
	same(t, "proc_info", good(t, nil, "ps.proc_info", map[string]any{"attrs": "pid,ppid"}, pid), map[string]any{"pid": pid, "ppid": os.Getpid()})
	bad(t, nil, "ps.proc_info", "process does not exist", nil, 1<<22+1)
	bad(t, nil, "ps.pgrep", "error parsing regexp", map[string]any{"pattern_is_regex": true}, "[")
}

func TestProcessesAreSignalled(t *testing.T) {
	pid, mark := sleeper(t)
	same(t, "pkill of nothing", good(t, nil, "ps.pkill", map[string]any{"full": true, "user": "nosuch"}, mark), nil)
	same(t, "kill_pid 0 asks", running(pid), true)
	same(t, "pkill", good(t, nil, "ps.pkill", map[string]any{"full": true, "signal": "KILL"}, mark), map[string]any{"killed": []any{pid}})
	other, _ := sleeper(t)
	same(t, "kill_pid", good(t, nil, "ps.kill_pid", map[string]any{"signal": 9}, other), true)
	same(t, "kill_pid of nothing", good(t, nil, "ps.kill_pid", nil, 1<<22+1), false)
	for _, pid := range []int{0, -1} {
		bad(t, nil, "ps.kill_pid", "a pid is positive", nil, pid)
	}
	bad(t, nil, "ps.kill_pid", "unknown signal", map[string]any{"signal": "nosuch"}, 1)
}

func TestPSMeasures(t *testing.T) {
	for function, key := range map[string]string{
		"ps.virtual_memory":      "total",
		"ps.swap_memory":         "total",
		"ps.cpu_times":           "user",
		"ps.network_io_counters": "bytes_sent",
	} {
		if got := good(t, nil, function, nil).(map[string]any); got[key] == nil {
			t.Errorf("%s lacks %q: %v", function, key, got)
		}
	}
	if n := good(t, nil, "ps.num_cpus", nil).(int64); n < 1 {
		t.Errorf("num_cpus = %d", n)
	}
	if n := good(t, nil, "ps.boot_time", nil).(int64); n < 1e9 {
		t.Errorf("boot_time = %d", n)
	}
	if n := good(t, nil, "ps.total_physical_memory", nil).(int64); n < 1<<20 {
		t.Errorf("total_physical_memory = %d", n)
	}
	if p := good(t, nil, "ps.cpu_percent", map[string]any{"interval": 0.05}).(float64); p < 0 || p > 100 {
		t.Errorf("cpu_percent = %v", p)
	}
	if p := good(t, nil, "ps.disk_usage", nil, "/").(map[string]any); p["total"].(int64) < 1 {
		t.Errorf("disk_usage = %v", p)
	}
	good(t, nil, "ps.disk_partitions", map[string]any{"all": true})
	good(t, nil, "ps.disk_io_counters", nil)
	bad(t, nil, "ps.disk_io_counters", `there is no device "nosuch"`, nil, "nosuch")
	bad(t, nil, "ps.network_io_counters", `there is no interface "nosuch"`, nil, "nosuch")
	top := good(t, nil, "ps.top", map[string]any{"interval": 0.05}, 2).([]any)
	if len(top) != 2 || top[0].(map[string]any)["cpu"].(map[string]any)["percent"] == nil {
		t.Errorf("top = %v", top)
	}
	bad(t, nil, "ps.top", "must be positive", nil, 0)
}

func TestDisk(t *testing.T) {
	root := good(t, nil, "disk.usage", nil).(map[string]any)["/"].(map[string]any)
	for _, key := range []string{"filesystem", "1K-blocks", "used", "available", "capacity"} {
		if s, ok := root[key].(string); !ok || s == "" {
			t.Errorf("usage of / lacks %q: %v", key, root)
		}
	}
	df := good(t, nil, "cmd.run", nil, `df -P / | awk 'NR==2 {print $2}'`)
	same(t, "1K-blocks", root["1K-blocks"], df)
	if p := good(t, nil, "disk.percent", nil, "/").(string); !strings.HasSuffix(p, "%") {
		t.Errorf("percent = %q", p)
	}
	bad(t, nil, "disk.percent", "no file system is mounted", nil, "/nosuch")
	if n := good(t, nil, "disk.inodeusage", nil).(map[string]any)["/"]; n == nil {
		t.Error("no inodes of /")
	}
	same(t, "fstype", good(t, nil, "disk.fstype", nil, "/proc"), "proc")
	same(t, "fstype of nothing", good(t, nil, "disk.fstype", nil, "/nosuch"), "")
	fakeProgram(t, "blkid", `printf 'DEVNAME=/dev/sda1\nUUID=1-2\nTYPE=ext4\n\nDEVNAME=/dev/sdb\nTYPE=xfs\n'`)
	same(t, "blkid", good(t, nil, "disk.blkid", nil), map[string]any{
		"/dev/sda1": map[string]any{"UUID": "1-2", "TYPE": "ext4"}, "/dev/sdb": map[string]any{"TYPE": "xfs"}})
}

func TestPercentage(t *testing.T) {
	for _, tt := range []struct {
		part, whole uint64
		want        string
	}{{0, 0, "0%"}, {0, 9, "0%"}, {1, 1000, "1%"}, {9, 9, "100%"}, {1, 2, "50%"}} {
		if got := percentage(tt.part, tt.whole); got != tt.want {
			t.Errorf("percentage(%d, %d) = %s, want %s", tt.part, tt.whole, got, tt.want)
		}
	}
}

// link is a connection to the masters at 127.0.0.1 and 127.0.0.3.
type link struct{ up bool }

func (l link) Masters() []string {
	if l.up {
		return []string{"127.0.0.1", "127.0.0.3"}
	}
	return nil
}

func (l link) Ping(_ context.Context, master string) error {
	if l.up && (master == "" || slices.Contains(l.Masters(), master)) {
		return nil
	}
	return errors.New("no answer")
}

func TestStatusOfTheMaster(t *testing.T) {
	up, down := &function.Host{Services: &Services{Master: link{true}}}, &function.Host{Services: &Services{Master: link{false}}}
	same(t, "master", good(t, up, "status.master", nil), true)
	same(t, "master down", good(t, down, "status.master", nil), false)
	same(t, "the second master", good(t, up, "status.master", nil, "127.0.0.3"), true)
	same(t, "another master", good(t, up, "status.master", nil, "127.0.0.2"), false)
	same(t, "not connected", good(t, down, "status.master", map[string]any{"connected": false}), true)
	same(t, "ping_master", good(t, up, "status.ping_master", nil, "127.0.0.1"), true)
	same(t, "ping_master down", good(t, down, "status.ping_master", nil), false)
	same(t, "ping_master of another", good(t, up, "status.ping_master", nil, "127.0.0.2"), false)
	bad(t, nil, "status.ping_master", "connection to a master: not available here", nil)
	bad(t, nil, "status.master", "connection to a master: not available here", nil)
}
