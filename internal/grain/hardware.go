package grain

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/shirou/gopsutil/v4/common"
	"github.com/shirou/gopsutil/v4/mem"
)

// cpu collects cpu_model, cpu_flags and num_cpus. It reads only the first processor of
// /proc/cpuinfo: the kernel generates the text for each of them, and asks the core for its clock,
// which takes long on a machine with hundreds.
func (m *machine) cpu() (map[string]any, error) {
	model, flags := parseCPUInfo(m.firstCPU())
	g := map[string]any{"cpu_model": model, "cpu_flags": flags, "num_cpus": int64(runtime.NumCPU())}
	if n := countRanges(m.line("/sys/devices/system/cpu/online")); n > 0 {
		g["num_cpus"] = n
	}
	return g, nil
}

// firstCPU returns the beginning of /proc/cpuinfo.
func (m *machine) firstCPU() string {
	f, err := os.Open(m.path("/proc/cpuinfo"))
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _, _ := strings.Cut(readSome(f, 8<<10), "\n\n")
	return text
}

// parseCPUInfo parses the block of one processor. The keys differ between architectures; a missing
// model is Unknown, as in Salt.
func parseCPUInfo(text string) (model string, flags []any) {
	model, flags = "Unknown", []any{}
	for line := range strings.Lines(text) {
		key, v, _ := strings.Cut(line, ":")
		v = strings.TrimSpace(v)
		switch strings.TrimSpace(key) {
		case "model name", "cpu", "Processor", "vendor_id":
			if model == "Unknown" || strings.TrimSpace(key) == "model name" {
				model = v
			}
		case "flags", "Features", "features":
			flags = list(strings.Fields(v))
		}
	}
	return model, flags
}

// countRanges counts the numbers in a list such as 0-3,8-11.
func countRanges(s string) (n int64) {
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		from, err := strconv.ParseInt(lo, 10, 32)
		if err != nil {
			return 0
		}
		to := from
		if isRange {
			if to, err = strconv.ParseInt(hi, 10, 32); err != nil || to < from {
				return 0
			}
		}
		n += to - from + 1
	}
	return n
}

// memory collects mem_total and swap_total in MiB.
func (m *machine) memory() (map[string]any, error) {
	proc := common.EnvMap{common.HostProcEnvKey: m.path("/proc")}
	v, err := mem.VirtualMemoryWithContext(context.WithValue(m.ctx, common.EnvKey, proc))
	if err != nil {
		return nil, err
	}
	return map[string]any{"mem_total": int64(v.Total >> 20), "swap_total": int64(v.SwapTotal >> 20)}, nil
}

// disks collects the block devices: ssds, those without moving parts, and disks, the others.
func (m *machine) disks() (map[string]any, error) {
	disks, ssds := []any{}, []any{}
	// Glob fails only for a bad pattern, and this one is constant.
	files, _ := filepath.Glob(m.path("/sys/block/*/queue/rotational"))
	for _, file := range files {
		name := filepath.Base(filepath.Dir(filepath.Dir(file)))
		b, err := os.ReadFile(file)
		switch {
		case err != nil || len(b) == 0:
		case b[0] == '0':
			ssds = append(ssds, name)
		default:
			disks = append(disks, name)
		}
	}
	return map[string]any{"disks": disks, "ssds": ssds}, nil
}

// firmware has the files of /sys/class/dmi/id by grain. Only root can read some of them.
var firmware = map[string]string{
	"biosreleasedate": "bios_date",
	"biosvendor":      "bios_vendor",
	"biosversion":     "bios_version",
	"boardname":       "board_name",
	"manufacturer":    "sys_vendor",
	"productname":     "product_name",
	"serialnumber":    "product_serial",
	"uuid":            "product_uuid",
}

// bios collects what the firmware says about the machine, and efi and efi-secure-boot.
func (m *machine) bios() (map[string]any, error) {
	g := map[string]any{"efi": m.exists("/sys/firmware/efi"), "efi-secure-boot": m.secureBoot()}
	for grain, file := range firmware {
		v := strings.ToValidUTF8(m.line("/sys/class/dmi/id/"+file), "\ufffd")
		if grain == "uuid" {
			v = strings.ToLower(v)
		}
		if v != "" {
			g[grain] = v
		}
	}
	m.deviceTree(g)
	return g, nil
}

// deviceTree adds the names of machines without such firmware.
func (m *machine) deviceTree(g map[string]any) {
	model := strings.Trim(m.read("/proc/device-tree/model"), "\x00\n ")
	if maker, product, ok := strings.Cut(model, ","); ok {
		g["manufacturer"], g["productname"] = maker, product
	} else if model != "" {
		g["productname"] = model
	}
	if serial := strings.Trim(m.read("/proc/device-tree/serial-number"), "\x00\n "); serial != "" {
		g["serialnumber"] = serial
	}
}

// secureBoot reads the variable of the firmware, whose last byte is 1 if secure boot is on.
func (m *machine) secureBoot() bool {
	files, _ := filepath.Glob(m.path("/sys/firmware/efi/efivars/SecureBoot-*"))
	if len(files) != 1 {
		return false
	}
	b, err := os.ReadFile(files[0])
	return err == nil && len(b) > 0 && b[len(b)-1] == 1
}

// security collects machine_id, init and, if present, selinux.
func (m *machine) security() (map[string]any, error) {
	g := map[string]any{"init": m.initSystem()}
	for _, file := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if id := m.line(file); id != "" {
			g["machine_id"] = id
			break
		}
	}
	switch enforce := m.line("/sys/fs/selinux/enforce"); {
	case enforce == "1":
		g["selinux"] = map[string]any{"enabled": true, "enforced": "Enforcing"}
	case enforce == "0":
		g["selinux"] = map[string]any{"enabled": true, "enforced": "Permissive"}
	case m.exists("/etc/selinux/config"):
		g["selinux"] = map[string]any{"enabled": false, "enforced": "Disabled"}
	}
	return g, nil
}

// initSystem returns the name of the init system, or "unknown".
func (m *machine) initSystem() string {
	if m.exists("/run/systemd/system") {
		return "systemd"
	}
	args := strings.FieldsFunc(m.read("/proc/1/cmdline"), func(c rune) bool { return c == 0 || c == ' ' })
	for _, arg := range args {
		switch filepath.Base(arg) {
		case "supervisord", "dumb-init", "tini", "runit", "upstart", "sysvinit":
			return filepath.Base(arg)
		case "docker-init":
			return "tini"
		case "my_init":
			return "runit"
		}
	}
	return "unknown"
}
