package grain

import (
	"context"
	"reflect"
	"testing"
)

// The wanted grains are those of Salt 3006, but for the family of "unknown", which
// Salt takes from the name alone, and the release of Arch, which it knows only
// where lsb-release is installed.
func TestDistributions(t *testing.T) {
	tests := []struct {
		dir, os, family, full, release, codename, finger string
		info                                             []any
	}{
		{"alma8", "AlmaLinux", "RedHat", "AlmaLinux", "8.5", "Arctic Sphynx", "AlmaLinux-8", []any{int64(8), int64(5)}},
		{"alpine319", "Alpine", "Alpine", "Alpine Linux", "3.19.0", "Alpine Linux v3.19", "Alpine Linux-3", []any{int64(3), int64(19), int64(0)}},
		{"amazon2", "Amazon", "RedHat", "Amazon Linux", "2", "Amazon Linux 2", "Amazon Linux-2", []any{int64(2)}},
		{"arch", "Arch", "Arch", "Arch Linux", "rolling", "Arch Linux", "Arch Linux-rolling", []any{"rolling"}},
		{"astra", "AstraLinuxSE", "Debian", "Astra Linux (Smolensk)", "1.6", "smolensk", "Astra Linux (Smolensk)-1", []any{int64(1), int64(6)}},
		{"centos6", "CentOS", "RedHat", "CentOS", "6.10", "Final", "CentOS-6", []any{int64(6), int64(10)}},
		{"centos7", "CentOS", "RedHat", "CentOS Linux", "7.9.2009", "CentOS Linux 7 (Core)", "CentOS Linux-7", []any{int64(7), int64(9), int64(2009)}},
		{"centosstream9", "CentOS Stream", "RedHat", "CentOS Stream", "9", "CentOS Stream 9", "CentOS Stream-9", []any{int64(9)}},
		{"debian12", "Debian", "Debian", "Debian GNU/Linux", "12", "bookworm", "Debian-12", []any{int64(12)}},
		{"fedora39", "Fedora", "RedHat", "Fedora Linux", "39", "", "Fedora Linux-39", []any{int64(39)}},
		{"leap155", "SUSE", "Suse", "Leap", "15.5", "openSUSE Leap 15.5", "Leap-15", []any{int64(15), int64(5)}},
		{"mendel5", "Mendel", "Debian", "Mendel GNU/Linux", "5", "eagle", "Mendel GNU/Linux-5", []any{int64(5)}},
		{"mint20", "Mint", "Debian", "Linux Mint", "20.3", "una", "Linux Mint-20", []any{int64(20), int64(3)}},
		{"nixos", "NixOS", "NixOS", "NixOS", "25.05", "warbler", "NixOS-25", []any{int64(25), int64(5)}},
		{"oracle9", "OEL", "RedHat", "Oracle Linux Server", "9.3", "Oracle Linux Server 9.3", "Oracle Linux Server-9", []any{int64(9), int64(3)}},
		{"pop2004", "Pop", "Debian", "Pop!_OS", "20.04", "focal", "Pop!_OS-20.04", []any{int64(20), int64(4)}},
		{"raspbian11", "Raspbian", "Debian", "Raspbian GNU/Linux", "11", "bullseye", "Raspbian-11", []any{int64(11)}},
		{"rhel9", "RedHat", "RedHat", "Red Hat Enterprise Linux", "9.3", "Plow", "Red Hat Enterprise Linux-9", []any{int64(9), int64(3)}},
		{"rocky9", "Rocky", "RedHat", "Rocky Linux", "9.3", "Blue Onyx", "Rocky Linux-9", []any{int64(9), int64(3)}},
		{"sles15", "SUSE", "Suse", "SLES", "15.5", "SUSE Linux Enterprise Server 15 SP5", "SLES-15", []any{int64(15), int64(5)}},
		{"tumbleweed", "SUSE", "Suse", "Tumbleweed", "20160504", "openSUSE Tumbleweed (20160504) (x86_64)", "Tumbleweed-20160504", []any{int64(20160504)}},
		{"ubuntu2204", "Ubuntu", "Debian", "Ubuntu", "22.04", "jammy", "Ubuntu-22.04", []any{int64(22), int64(4)}},
		{"unknown", `Zork " 3`, "Debian", `Zork "Linux" 3`, "3-rc1", "", `Zork "Linux" 3-3-rc1`, []any{"3-rc1"}},
	}
	for _, tt := range tests {
		m := &machine{Options{Root: "testdata/release/" + tt.dir}, context.Background()}
		g, err := m.os()
		if err != nil {
			t.Errorf("%s: %v", tt.dir, err)
			continue
		}
		want := map[string]any{
			"os": tt.os, "os_family": tt.family, "osfullname": tt.full, "osrelease": tt.release,
			"oscodename": tt.codename, "osfinger": tt.finger, "osrelease_info": tt.info,
		}
		for key, w := range want {
			if !reflect.DeepEqual(g[key], w) {
				t.Errorf("%s: %s = %#v, want %#v", tt.dir, key, g[key], w)
			}
		}
		major, ok := tt.info[0].(int64)
		if got, has := g["osmajorrelease"]; has != ok || ok && got != major {
			t.Errorf("%s: osmajorrelease = %v, %v; want %v, %v", tt.dir, got, has, major, ok)
		}
	}
}

func TestNoReleaseFiles(t *testing.T) {
	m := &machine{Options{Root: t.TempDir()}, context.Background()}
	g, err := m.os()
	if err != nil || g["os"] != "Linux" || g["os_family"] != "Linux" {
		t.Errorf("grains %v, %v", g, err)
	}
	if v, ok := g["osrelease"]; ok {
		t.Errorf("osrelease = %v out of nothing", v)
	}
}

func TestLSB(t *testing.T) {
	for dir, want := range map[string]map[string]any{
		"ubuntu2204": {"lsb_distrib_id": "Ubuntu", "lsb_distrib_release": "22.04", "lsb_distrib_codename": "jammy", "lsb_distrib_description": "Ubuntu 22.04.3 LTS"},
		"debian12":   {"lsb_distrib_id": "Debian GNU/Linux", "lsb_distrib_release": "12", "lsb_distrib_codename": "bookworm", "lsb_distrib_description": nil},
		"alpine319":  {"lsb_distrib_id": "Alpine Linux", "lsb_distrib_codename": "Alpine Linux v3.19"},
	} {
		m := &machine{Options{Root: "testdata/release/" + dir}, context.Background()}
		g, _ := m.os()
		for key, w := range want {
			if g[key] != w {
				t.Errorf("%s: %s = %v, want %v", dir, key, g[key], w)
			}
		}
	}
}

func TestArch(t *testing.T) {
	for _, tt := range [][3]string{
		{"Debian", "x86_64", "amd64"}, {"Debian", "aarch64", "arm64"}, {"Debian", "armv7l", "armhf"},
		{"Debian", "riscv64", "riscv64"}, {"RedHat", "x86_64", "x86_64"}, {"Alpine", "aarch64", "aarch64"},
	} {
		if got := arch(tt[0], tt[1]); got != tt[2] {
			t.Errorf("arch(%s, %s) = %s, want %s", tt[0], tt[1], got, tt[2])
		}
	}
}

func FuzzAssignments(f *testing.F) {
	f.Add("NAME=\"Debian GNU/Linux\"\nID=debian\n# x\nA='b\"c'\nB=\"a\\\"b\\$\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		for key, v := range assignments(text) {
			if key == "" || len(v) > len(text) {
				t.Errorf("assignments(%q) has %q = %q", text, key, v)
			}
		}
	})
}
