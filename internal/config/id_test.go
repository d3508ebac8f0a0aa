package config

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// hostNamed returns a Lookup of a host that knows only its name.
func hostNamed(name string) Lookup {
	return Lookup{
		Hostname:  func() (string, error) { return name, nil },
		FQDN:      func(context.Context, string) (string, error) { return "", errors.New("no such host") },
		Addresses: func() ([]net.Addr, error) { return nil, nil },
		ReadFile:  func(string) ([]byte, error) { return nil, os.ErrNotExist },
	}
}

func TestFindID(t *testing.T) {
	fqdn := func(name string) func(context.Context, string) (string, error) {
		return func(context.Context, string) (string, error) { return name, nil }
	}
	files := func(hostname, hosts string) func(string) ([]byte, error) {
		return func(path string) ([]byte, error) {
			return []byte(map[string]string{"/etc/hostname": hostname, "/etc/hosts": hosts}[path]), nil
		}
	}
	addresses := func(networks ...string) func() ([]net.Addr, error) {
		return func() (list []net.Addr, err error) {
			for _, n := range networks {
				ip, network, _ := net.ParseCIDR(n)
				list = append(list, &net.IPNet{IP: ip, Mask: network.Mask})
			}
			return list, nil
		}
	}
	tests := []struct {
		name      string
		change    func(*Lookup)
		want      string
		isAddress bool
	}{
		{"name only", func(*Lookup) {}, "web1", false},
		{"full name", func(l *Lookup) { l.FQDN = fqdn("web1.example.com.") }, "web1.example.com", false},
		{"full name of localhost", func(l *Lookup) { l.FQDN = fqdn("localhost.localdomain.") }, "web1", false},
		{"full name without a domain", func(l *Lookup) { l.FQDN = fqdn("other.") }, "web1", false},
		{"full name that cannot be an id", func(l *Lookup) { l.FQDN = fqdn("../x.y") }, "web1", false},
		{"localhost, file", func(l *Lookup) { *l = hostNamed("localhost"); l.ReadFile = files("# c\ndb1\n", "") }, "db1", false},
		{"localhost, hosts", func(l *Lookup) {
			*l = hostNamed("localhost")
			l.ReadFile = files("localhost\n", "10.0.0.1 other\n127.0.0.1 localhost\n127.0.1.1 db2.example.com db2 # x\n::1 ip6-localhost\n")
		}, "db2.example.com", false},
		{"IPv4 before IPv6", func(l *Lookup) {
			*l = hostNamed("localhost")
			l.Addresses = addresses("127.0.0.1/8", "2001:db8::5/64", "fe80::1/64", "10.1.2.3/24")
		}, "10.1.2.3", true},
		{"IPv6", func(l *Lookup) { *l = hostNamed("localhost"); l.Addresses = addresses("::1/128", "2001:db8::5/64") }, "2001:db8::5", true},
		{"nothing", func(l *Lookup) { *l = hostNamed("localhost.localdomain") }, "localhost", false},
		{"no name", func(l *Lookup) { *l = hostNamed("") }, "localhost", false},
	}
	for _, test := range tests {
		lookup := hostNamed("web1")
		test.change(&lookup)
		if id, isAddress := findID(lookup); id != test.want || isAddress != test.isAddress {
			t.Errorf("%s: findID = %q, %v; want %q, %v", test.name, id, isAddress, test.want, test.isAddress)
		}
	}
}

func TestFindIDIsBounded(t *testing.T) {
	lookup := hostNamed("web1")
	lookup.FQDN = func(ctx context.Context, name string) (string, error) {
		deadline, ok := ctx.Deadline()
		if left := time.Until(deadline); !ok || left > 2*time.Second {
			t.Errorf("the resolver has %v, %v; want at most two seconds", left, ok)
		}
		return "", context.DeadlineExceeded
	}
	if id, _ := findID(lookup); id != "web1" {
		t.Errorf("findID = %q", id)
	}
}

func TestMinionID(t *testing.T) {
	tests := []struct{ name, text, cached, want, from, kept string }{
		{"configured", "id: db1", "old", "db1", "id", "old"},
		{"number", "id: 5", "", "5", "id", ""},
		{"cached", "", "old.example.com\n", "old.example.com", "minion_id", "old.example.com\n"},
		{"found", "", "", "Web1.example.com", "host", "Web1.example.com\n"},
		{"not kept", "minion_id_caching: no", "old", "Web1.example.com", "host", "old"},
		{"lower case", "minion_id_lowercase: true", "", "web1.example.com", "host", "web1.example.com\n"},
		{"any domain removed", "minion_id_remove_domain: true", "", "Web1", "host", "Web1\n"},
		{"domain removed", "minion_id_remove_domain: example.com", "", "Web1", "host", "Web1\n"},
		{"other domain not removed", "minion_id_remove_domain: example.org", "", "Web1.example.com", "host", "Web1.example.com\n"},
		{"configured is not changed", "id: A.example.com\nminion_id_lowercase: true\nminion_id_remove_domain: true", "", "A.example.com", "id", ""},
		{"domain appended", "id: db1\nappend_domain: example.com", "", "db1.example.com", "id", ""},
		{"domain there already", "id: db1.example.com\nappend_domain: example.com", "", "db1.example.com", "id", ""},
		{"empty is not set", "id: ''", "", "Web1.example.com", "host", "Web1.example.com\n"},
		{"empty cache", "", "\n", "Web1.example.com", "host", "Web1.example.com\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			files := map[string]string{"minion": test.text}
			if test.cached != "" {
				files["minion_id"] = test.cached
			}
			dir := write(t, files)
			lookup := hostNamed("Web1")
			lookup.FQDN = func(context.Context, string) (string, error) { return "Web1.example.com.", nil }
			if test.from == "id" || test.from == "minion_id" {
				lookup.Hostname = func() (string, error) { t.Error("the host was asked"); return "", nil }
			}
			m, notices, err := Options{ConfigDir: dir, Lookup: lookup}.Minion()
			if err != nil || len(notices) > 0 {
				t.Fatalf("%v, %v", notices, err)
			}
			kept, _ := os.ReadFile(filepath.Join(dir, "minion_id"))
			if string(m.ID) != test.want || filepath.Base(m.IDFrom) != test.from || string(kept) != test.kept || m.Raw["id"] != test.want {
				t.Errorf("id %q from %q, kept %q; want %q from %q, kept %q", m.ID, m.IDFrom, kept, test.want, test.from, test.kept)
			}
		})
	}
}

func TestBadID(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"configured": {"minion": "id: ../x"}, "blank": {"minion": "id: 'a b'"}, "map": {"minion": "id: {a: b}"},
		"appended": {"minion": "id: a\nappend_domain: 'x/y'"}, "cached": {"minion_id": "../../x", "minion": ""},
	} {
		m, _, err := Options{ConfigDir: write(t, files), Lookup: hostNamed("web1")}.Minion()
		var e *Error
		if m != nil || !errors.As(err, &e) || name != "map" && !errors.Is(err, salt.ErrMinionID) {
			t.Errorf("%s: %v, %v; want ErrMinionID", name, m, err)
		}
	}
}

func TestIDCanNotBeKept(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root may write everywhere: the directory is made missing instead")
	}
	m := NewMinion()
	m.ConfigDir, m.Raw = filepath.Join(t.TempDir(), "missing"), map[string]any{}
	notices, err := m.resolveID(Options{Lookup: hostNamed("web1")})
	if err != nil || m.ID != "web1" || len(notices) != 1 || !strings.Contains(notices[0].Text, "could not be kept") {
		t.Errorf("%q, %v, %v; want the id and a notice", m.ID, notices, err)
	}
}
