package grain

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/value"
)

// gather runs one source on the machine of testdata/machine.
func gather(t *testing.T, source func(*machine) (map[string]any, error), opts Options) map[string]any {
	t.Helper()
	opts.Root = "testdata/machine"
	g, err := source(&machine{opts, context.Background()})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func check(t *testing.T, got, want map[string]any) {
	t.Helper()
	for key, w := range want {
		if g, ok := got[key]; !ok || !reflect.DeepEqual(g, w) {
			t.Errorf("%s = %#v, want %#v", key, g, w)
		}
	}
}

func TestHardware(t *testing.T) {
	check(t, gather(t, (*machine).cpu, Options{}), map[string]any{
		"cpu_model": "Imaginary CPU @ 3.00GHz", "cpu_flags": []any{"fpu", "vme", "hypervisor"}, "num_cpus": int64(7),
	})
	check(t, gather(t, (*machine).memory, Options{}), map[string]any{"mem_total": int64(2000), "swap_total": int64(1024)})
	check(t, gather(t, (*machine).disks, Options{}), map[string]any{"disks": []any{"sda"}, "ssds": []any{"nvme0n1"}})
	check(t, gather(t, (*machine).bios, Options{}), map[string]any{
		"manufacturer": "QEMU", "productname": "Standard PC (Q35 + ICH9, 2009)", "biosvendor": "SeaBIOS", "biosversion": "1.16.2",
		"biosreleasedate": "04/01/2014", "uuid": "abcdef01-0000-0000-0000-00000000000a", "efi": false, "efi-secure-boot": false,
	})
	check(t, gather(t, (*machine).virtual, Options{}), map[string]any{"virtual": "kvm"})
	check(t, gather(t, (*machine).security, Options{}), map[string]any{
		"init": "dumb-init", "machine_id": "0123456789abcdef0123456789abcdef",
		"selinux": map[string]any{"enabled": false, "enforced": "Disabled"},
	})
}

func TestNetwork(t *testing.T) {
	check(t, gather(t, (*machine).gateway, Options{}), map[string]any{"ip4_gw": "192.0.2.1", "ip6_gw": "2001:db8::1", "ip_gw": true})
	check(t, gather(t, (*machine).dns, Options{}), map[string]any{"dns": map[string]any{
		"nameservers": []any{"192.0.2.1", "2001:db8::1"}, "ip4_nameservers": []any{"192.0.2.1"}, "ip6_nameservers": []any{"2001:db8::1"},
		"domain": "example.com", "search": []any{"example.com", "lab.example.com"}, "sortlist": []any{}, "options": []any{"ndots:2", "timeout:1"},
	}})
	check(t, gather(t, (*machine).host, Options{FQDN: "web1.example.com"}), map[string]any{
		"fqdn": "web1.example.com", "host": "web1", "domain": "example.com",
		"fqdn_ip4": []any{"127.0.1.1", "192.0.2.7"}, "fqdn_ip6": []any{"2001:db8::7"},
	})
}

func TestGatewayAbsent(t *testing.T) {
	g, err := (&machine{Options{Root: t.TempDir()}, context.Background()}).gateway()
	if err != nil {
		t.Fatal(err)
	}
	check(t, g, map[string]any{"ip4_gw": false, "ip6_gw": false, "ip_gw": false})
}

func TestCanonicalName(t *testing.T) {
	hosts := parseHosts("127.0.0.1 localhost.localdomain localhost box\n127.0.1.1 web1.example.com web1\n10.0.0.1 db1 db1.example.com\n")
	for name, want := range map[string]string{
		"web1": "web1.example.com", "db1": "db1.example.com", "box": "box", "nosuch": "nosuch", "web1.example.com": "web1.example.com",
	} {
		if got := canonical(name, hosts); got != want {
			t.Errorf("canonical(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestKernelAndMinion(t *testing.T) {
	g := gather(t, (*machine).kernel, Options{})
	check(t, g, map[string]any{"kernel": "Linux", "kernelparams": []any{
		[]any{"BOOT_IMAGE", "/vmlinuz"}, []any{"root", "/dev/sda1"}, []any{"quiet", nil}, []any{"key", "a=b"},
	}})
	check(t, gather(t, (*machine).minion, Options{ID: "web1", Version: "3006.1", Master: "salt"}), map[string]any{
		// server_id: int(hashlib.sha256(b"web1").hexdigest(), 16) % 2**31
		"id": "web1", "master": "salt", "saltversion": "3006.1", "saltversioninfo": []any{int64(3006), int64(1)}, "server_id": int64(1826842219),
	})
}

func TestAccountName(t *testing.T) {
	m := &machine{Options{Root: "testdata/machine"}, context.Background()}
	if got := m.accountName("/etc/passwd", 4505); got != "salt" {
		t.Errorf("account 4505 is %q", got)
	}
	if got := m.accountName("/etc/passwd", 4506); got != "" {
		t.Errorf("account 4506 is %q", got)
	}
}

func TestVirtualKinds(t *testing.T) {
	tests := []struct{ name, file, text, virtual, subtype string }{
		{"nothing", "/etc/x", "", "physical", ""},
		{"docker", "/.dockerenv", "", "container", "Docker"},
		{"podman", "/run/.containerenv", "", "container", "Podman"},
		{"lxc", "/run/systemd/container", "lxc\n", "container", "LXC"},
		{"nspawn", "/run/systemd/container", "systemd-nspawn\n", "systemd-nspawn", ""},
		{"old lxc", "/proc/1/cgroup", "3:cpu:/lxc/web1\n", "container", "LXC"},
		{"vmware", "/sys/class/dmi/id/sys_vendor", "VMware, Inc.\n", "VMware", ""},
		{"virtualbox", "/sys/class/dmi/id/product_name", "VirtualBox\n", "VirtualBox", ""},
		{"ec2", "/sys/class/dmi/id/sys_vendor", "Amazon EC2\n", "Nitro", "Amazon EC2"},
		{"gce", "/sys/class/dmi/id/sys_vendor", "Google\n", "kvm", ""},
		{"dell", "/sys/class/dmi/id/sys_vendor", "Dell Inc.\n", "physical", ""},
		{"hyper-v", "/sys/class/dmi/id/product_name", "Microsoft Corporation Virtual Machine\n", "VirtualPC", ""},
		{"flag alone", "/proc/cpuinfo", "flags : hypervisor\n", "vm-other", ""},
		{"dom0", "/proc/xen/capabilities", "control_d\n", "xen", "Xen Dom0"},
	}
	for _, tt := range tests {
		root := t.TempDir()
		write(t, root+tt.file, tt.text)
		m := &machine{Options{Root: root}, context.Background()}
		if v, s := m.virtualKind(); v != tt.virtual || s != tt.subtype {
			t.Errorf("%s: virtual %q, %q; want %q, %q", tt.name, v, s, tt.virtual, tt.subtype)
		}
	}
}

func TestInit(t *testing.T) {
	for cmdline, want := range map[string]string{
		"/sbin/init\x00": "unknown", "tini\x00--\x00x\x00": "tini", "/sbin/docker-init\x00": "tini", "runit\x00": "runit",
		"/usr/bin/python3\x00/sbin/my_init\x00": "runit", "": "unknown",
	} {
		root := t.TempDir()
		write(t, root+"/proc/1/cmdline", cmdline)
		if got := (&machine{Options{Root: root}, context.Background()}).initSystem(); got != want {
			t.Errorf("init of %q = %q, want %q", cmdline, got, want)
		}
	}
	root := t.TempDir()
	write(t, root+"/run/systemd/system/x", "")
	if got := (&machine{Options{Root: root}, context.Background()}).initSystem(); got != "systemd" {
		t.Errorf("init = %q, want systemd", got)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCollectHere(t *testing.T) {
	g, err := Collect(context.Background(), Options{ID: "web1", Version: "3006.1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"id", "host", "fqdn", "domain", "nodename", "os", "os_family", "osfullname", "osarch", "oscodename", "kernel", "kernelrelease",
		"kernelversion", "cpuarch", "num_cpus", "cpu_model", "cpu_flags", "mem_total", "swap_total", "ipv4", "ipv6", "fqdn_ip4",
		"fqdn_ip6", "ip_interfaces", "ip4_interfaces", "ip6_interfaces", "hwaddr_interfaces", "virtual", "saltversion",
		"saltversioninfo", "saltpath", "pid", "uid", "gid", "init", "shell", "path", "systempath", "locale_info", "disks", "ssds",
		"server_id", "master", "localhost", "cwd", "efi", "ip_gw",
	} {
		if _, ok := g[key]; !ok {
			t.Errorf("no grain %q", key)
		}
	}
	checkModel(t, "grains", g)
}

// checkModel makes sure that a value consists of the types of package value.
func checkModel(t *testing.T, path string, v any) {
	t.Helper()
	switch x := v.(type) {
	case nil, bool, string, int64, float64:
	case []any:
		for _, item := range x {
			checkModel(t, path+"[]", item)
		}
	case map[string]any:
		for key, item := range x {
			checkModel(t, path+":"+key, item)
		}
	default:
		t.Errorf("%s is a %T", path, v)
	}
}

func TestFileAndConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "grains")
	write(t, file, "roles: [web, cache]\nos: Mine\nlayer: file\n")
	g, err := Collect(context.Background(), Options{GrainsFile: file, ConfigGrains: map[string]any{"layer": "config"}})
	if err != nil {
		t.Fatal(err)
	}
	check(t, g, map[string]any{"roles": []any{"web", "cache"}, "os": "Mine", "layer": "config", "kernel": "Linux"})
}

func TestBlacklist(t *testing.T) {
	g, err := Collect(context.Background(), Options{
		Blacklist: []string{"kernel*", "secret", "os"}, Custom: map[string]any{"secret": 1, "secrets": 2}, ConfigGrains: map[string]any{"os": "Mine", "role": "web"},
	})
	if err != nil {
		t.Fatal(err)
	}
	check(t, g, map[string]any{"secrets": 2, "role": "web"})
	for _, name := range []string{"kernel", "kernelrelease", "secret", "os"} {
		if v, found := g[name]; found {
			t.Errorf("%s = %v, want none", name, v)
		}
	}
}

func TestBrokenFileKeepsTheRest(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct{ text, want string }{
		"syntax":   {"a: 1\nb: [x\nc: 2\n", ":2:"},
		"list":     {"# roles\n- web\n", ":2:1: grains are a mapping"},
		"repeated": {"a: 1\nb: 2\na: 3\n", ":3:"},
		"first":    {"a: [x", ":1:4: the YAML is broken: did not find"},
		"indent":   {"a: 1\nb:\n  - x\n c: 2\n", ":4:"},
		"value":    {"a: 1\nb: c: d\n", ":2:"},
		"tab":      {"a: 1\nb:\n\tc: 1\n", ":3:"},
		"tag":      {"a: !!int x\n", ":1:"},
	} {
		file := filepath.Join(dir, name)
		write(t, file, tt.text)
		g, err := Collect(context.Background(), Options{GrainsFile: file, ConfigGrains: map[string]any{"c": true}})
		if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want the file and %q", name, err, tt.want)
		}
		if g["kernel"] != "Linux" || g["c"] != true {
			t.Errorf("%s: the other grains are gone: %v", name, g)
		}
	}
	if g, err := Collect(context.Background(), Options{GrainsFile: dir}); err == nil || g["kernel"] != "Linux" {
		t.Errorf("a folder as grains file: %v", err)
	}
	if _, err := Collect(context.Background(), Options{GrainsFile: filepath.Join(dir, "nosuch")}); err != nil {
		t.Errorf("a missing grains file: %v", err)
	}
}

func TestFileTypes(t *testing.T) {
	g, err := parseFile("grains", []byte(`
yes_word: yes
off_word: off
quoted: "yes"
int: 7
zeros: 010
sixties: 1:30
float: 1.5
none: ~
date: 2024-05-06
1: number
nested: {2: [no, {on: a}]}
base: &b {x: 1}
merged: {<<: *b, y: 2}
`))
	if err != nil {
		t.Fatal(err)
	}
	check(t, g, map[string]any{
		"yes_word": true, "off_word": false, "quoted": "yes", "int": int64(7), "zeros": int64(10), "sixties": int64(90), "float": 1.5, "none": nil, "date": "2024-05-06",
		"1": "number", "nested": map[string]any{"2": []any{false, map[string]any{"on": "a"}}},
		"merged": map[string]any{"x": int64(1), "y": int64(2)},
	})
	for _, empty := range []string{"", "# nothing\n", "---\n", "~\n"} {
		if g, err := parseFile("grains", []byte(empty)); len(g) != 0 || err != nil {
			t.Errorf("parseFile(%q) = %v, %v", empty, g, err)
		}
	}
}

func TestSlowSourceIsLeftBehind(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	release := make(chan struct{})
	defer close(release)
	answered := make(chan struct{})
	go func() {
		<-answered
		cancel()
	}()
	g, err := collect(&machine{Options{ConfigGrains: map[string]any{"c": "x"}}, ctx}, []source{
		{"stuck disk", func(*machine) (map[string]any, error) { <-release; return map[string]any{"b": 1}, nil }},
		{"quick", func(*machine) (map[string]any, error) { defer close(answered); return map[string]any{"a": "x"}, nil }},
	})
	if !errors.Is(err, ErrSlow) || !strings.Contains(err.Error(), "stuck disk") {
		t.Errorf("err = %v, want ErrSlow that names the source", err)
	}
	if _, ok := g["b"]; ok || g["c"] != "x" {
		t.Errorf("grains = %v", g)
	}
}

func TestResolveIsBounded(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	begin := time.Now()
	known := []netip.Addr{netip.MustParseAddr("192.0.2.7")}
	if name, addrs := resolve(ctx, "nosuch.invalid", known); name != "nosuch.invalid" || len(addrs) != 1 {
		t.Errorf("resolve = %q, %v", name, addrs)
	}
	if took := time.Since(begin); took > 4*patience {
		t.Errorf("it took %v", took)
	}
}

func TestLookup(t *testing.T) {
	g := map[string]any{"ec2": map[string]any{"tags": []any{"a", map[string]any{"env": "prod"}}}}
	for key, want := range map[string]any{"ec2:tags:0": "a", "ec2:tags:env": "prod", "ec2:nosuch": nil} {
		if got, ok := target.Lookup(g, key, ""); got != want || ok != (want != nil) {
			t.Errorf("Lookup(%q) = %v, %v; want %v", key, got, ok, want)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add("roles: [web]\na: {b: 1}\n")
	f.Add("a: &a [*a]\n")
	f.Add("a: 99999999999999999999\nb: .inf\n? [x]\n: y\n")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := parseFile("grains", []byte(text))
		if err != nil && g != nil {
			t.Errorf("parseFile(%q): an error and grains", text)
		}
		if _, err := value.Encode(g); err != nil {
			t.Errorf("parseFile(%q) cannot be encoded: %v", text, err)
		}
	})
}

func BenchmarkCollect(b *testing.B) {
	for b.Loop() {
		if _, err := Collect(context.Background(), Options{ID: "web1"}); err != nil {
			b.Fatal(err)
		}
	}
}
