package grain

import "strings"

// hypervisors are words of the firmware that identify a virtual machine, with Salt's names for its
// kind; the first match counts.
var hypervisors = []struct{ word, virtual, subtype string }{
	{"VirtualBox", "VirtualBox", ""},
	{"VMware", "VMware", ""},
	{"Parallels", "Parallels", ""},
	{"RHEV Hypervisor", "kvm", "rhev"},
	{"oVirt", "kvm", "ovirt"},
	{"Amazon EC2", "Nitro", "Amazon EC2"},
	{"HVM domU", "xen", "Xen HVM DomU"},
	{"Xen", "xen", ""},
	{"BHYVE", "bhyve", ""},
	{"OpenStack", "kvm", ""},
	{"CloudStack", "kvm", "cloudstack"},
	{"Google", "kvm", ""},
	{"DigitalOcean", "kvm", ""},
	{"QEMU", "kvm", ""},
	{"Bochs", "kvm", ""},
	{"SeaBIOS", "kvm", ""},
	{"KVM", "kvm", ""},
}

// containers are the names of container managers, with Salt's names.
var containers = map[string]string{"docker": "Docker", "podman": "Podman", "lxc": "LXC", "lxc-libvirt": "LXC", "kubernetes": "Kubernetes"}

// virtual collects virtual and virtual_subtype: physical, container, or the kind of the virtual
// machine.
func (m *machine) virtual() (map[string]any, error) {
	kind, subtype := m.virtualKind()
	g := map[string]any{"virtual": kind}
	if subtype != "" {
		g["virtual_subtype"] = subtype
	}
	return g, nil
}

func (m *machine) virtualKind() (kind, subtype string) {
	if kind, subtype = m.container(); kind != "" {
		return kind, subtype
	}
	if m.exists("/proc/vz/veinfo") && !m.exists("/proc/vz/version") {
		return "openvzve", ""
	}
	if strings.Contains(m.read("/proc/xen/capabilities"), "control_d") {
		return "xen", "Xen Dom0"
	}
	var dmi []string
	for _, file := range []string{"sys_vendor", "product_name", "bios_vendor", "bios_version", "board_vendor"} {
		dmi = append(dmi, m.line("/sys/class/dmi/id/"+file))
	}
	cpu := m.firstCPU()
	if kind, subtype = byFirmware(strings.Join(dmi, "\n")); kind != "" {
		return kind, subtype
	}
	switch _, flags := parseCPUInfo(cpu); {
	case strings.Contains(cpu, "QEMU Virtual CPU"):
		return "kvm", ""
	case hasFlag(flags, "hypervisor"):
		return "vm-other", "" // systemd's name; Salt would say physical
	}
	return "physical", ""
}

// container returns the container manager if this machine is a container.
func (m *machine) container() (kind, subtype string) {
	manager := m.line("/run/systemd/container")
	switch {
	case manager == "systemd-nspawn":
		return manager, ""
	case containers[manager] != "":
		return "container", containers[manager]
	case m.exists("/.dockerenv"):
		return "container", "Docker"
	case m.exists("/run/.containerenv"):
		return "container", "Podman"
	case strings.Contains(m.read("/proc/1/cgroup"), ":/lxc/"):
		return "container", "LXC"
	}
	return "", ""
}

func byFirmware(dmi string) (kind, subtype string) {
	for _, h := range hypervisors {
		if strings.Contains(dmi, h.word) {
			return h.virtual, h.subtype
		}
	}
	if strings.Contains(dmi, "Microsoft") && strings.Contains(dmi, "Virtual Machine") {
		return "VirtualPC", ""
	}
	return "", ""
}

func hasFlag(flags []any, want string) bool {
	for _, f := range flags {
		if f == want {
			return true
		}
	}
	return false
}
