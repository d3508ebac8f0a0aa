package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/salt"
)

// What a journal in the JetStream of others cannot be combined with is refused, with the way out.
func TestAJournalAtNATSServers(t *testing.T) {
	const servers = "nats_servers: ['nats1:4222']\nnats_finger: ['" + "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff" + "']\n"
	for name, test := range map[string]struct{ settings, want string }{
		"complete":         {servers + "nats_jetstream: True\n", ""},
		"one copy":         {servers + "nats_jetstream: True\nnats_copies: 1\n", ""},
		"an even number":   {servers + "nats_jetstream: True\nnats_copies: 2\n", "survive the loss of as many servers as 1 do"},
		"too many":         {servers + "nats_jetstream: True\nnats_copies: 6\n", "nats_copies"},
		"no servers":       {"nats_jetstream: True\n", "there are no nats_servers"},
		"a sync of ours":   {servers + "nats_jetstream: True\njournal_sync: always\n", "they alone decide when these are synced"},
		"a mirror":         {servers + "nats_jetstream: True\njournal_mirror: salt2\n", "is not mirrored"},
		"without all that": {servers + "journal_sync: always\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "master"), []byte("root_dir: "+dir+"\n"+test.settings), 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, err := LoadMaster(dir)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("%v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%v, want %q", err, test.want)
			case test.want != "" && name != "too many" && salt.Hint(err) == "":
				t.Errorf("%v has no hint", err)
			}
		})
	}
}

// TestAMistakeAboutNATSServersHasItsPlace: in the file that has the setting, which is often none of the main one.
func TestAMistakeAboutNATSServersHasItsPlace(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "master.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	dropIn := filepath.Join(dir, "master.d", "nats.conf")
	for file, text := range map[string]string{
		filepath.Join(dir, "master"): "root_dir: " + dir + "\n",
		dropIn:                       "nats_finger: ['" + strings.Repeat("ab", 32) + "']\nnats_servers: ['nats1:4222']\nnats_jetstream: True\nnats_copies: 2\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := LoadMaster(dir)
	if p := PlaceOf(err); p.Where != dropIn+":4" || p.Key != "nats_copies" || !strings.Contains(p.Text, "2 copies") || salt.Hint(err) == "" {
		t.Errorf("%+v, hint %q", p, salt.Hint(err))
	}
}

// TestStrangeSettingsOfNATSServers: what has no effect is a notice, as elsewhere; what may be meant as it is, is told by
// the check alone.
func TestStrangeSettingsOfNATSServers(t *testing.T) {
	finger := func(digit string) string { return strings.Repeat(digit, 64) }
	servers := "nats_servers: ['nats1:4222']\nnats_finger: ['" + finger("a") + "']\n"
	for name, test := range map[string]struct {
		daemon, settings string
		notice, strange  string // "FILE:LINE key: text" in part, "" for none
	}{
		"nothing of it":                     {"master", "nats_finger: []\nnats_jetstream: False\n", "", ""},
		"as it should be":                   {"master", servers + "nats_jetstream: True\nnats_copies: 1\nnats_creds: /seed\n", "", ""},
		"fingerprints and no servers":       {"minion", "nats_finger: ['" + finger("a") + "']\n", "minion:2: nats_finger: it has no effect without nats_servers", ""},
		"authorities and no servers":        {"minion", "\nnats_ca: /ca.pem\n", "minion:3: nats_ca: it has no effect without nats_servers", ""},
		"credentials and no servers":        {"master", "nats_creds: /seed\n", "master:2: nats_creds: it has no effect without nats_servers", ""},
		"copies and no servers":             {"master", "nats_copies: 1\n", "master:2: nats_copies: it has no effect without nats_jetstream", ""},
		"copies and no JetStream":           {"master", servers + "nats_copies: 1\n", "master:4: nats_copies: it has no effect without nats_jetstream", ""},
		"a server twice":                    {"master", "nats_finger: ['" + finger("a") + "']\nnats_servers: ['nats1:4222', 'NATS1:4222']\n", "", "master:3 nats_servers: NATS1:4222 is there twice"},
		"fewer fingerprints":                {"minion", "nats_servers: ['nats1:4222', 'nats2:4222']\nnats_finger: ['" + finger("a") + "', '" + finger("A") + "']\n", "", "minion:3 nats_finger: 2 servers, and fewer fingerprints (1)"},
		"fewer fingerprints and a CA":       {"minion", "nats_servers: ['nats1:4222', 'nats2:4222']\nnats_finger: ['" + finger("a") + "']\nnats_ca: /ca.pem\n", "", ""},
		"more fingerprints":                 {"minion", "nats_servers: ['nats1:4222']\nnats_finger: ['" + finger("a") + "', '" + finger("b") + "']\n", "", ""},
		"failover":                          {"minion", servers + "master: salt\nmaster_type: failover\n", "minion:5: master_type: it has no effect with nats_servers", ""},
		"distributed":                       {"minion", servers + "master: [salt]\nmaster_type: distributed\n", "minion:5: master_type: it has no effect with nats_servers", ""},
		"the type that is the default":      {"minion", servers + "master_type: str\n", "", ""},
		"no master":                         {"minion", servers + "master_type: disable\n", "", ""},
		"a port of the master":              {"minion", servers + "master_port: 4507\n", "minion:4: master_port: it has no effect with nats_servers", ""},
		"a port and a type without servers": {"minion", "master_port: 4507\nmaster_type: failover\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{test.daemon: "root_dir: .\n" + test.settings})
			var notices []Notice
			var common *Common
			if test.daemon == "master" {
				m, n, err := LoadMaster(dir)
				if err != nil {
					t.Fatal(err)
				}
				notices, common = n, &m.Common
			} else {
				m, n, err := Options{ConfigDir: dir}.InspectMinion()
				if err != nil {
					t.Fatal(err)
				}
				notices, common = n, &m.Common
			}
			var told, strange []string
			for _, n := range notices {
				told = append(told, n.String())
			}
			for _, p := range common.Strange {
				strange = append(strange, p.Where+" "+p.Key+": "+p.Text)
			}
			for what, c := range map[string]struct {
				got  []string
				want string
			}{"notices": {told, test.notice}, "the check": {strange, test.strange}} {
				if c.want == "" && len(c.got) > 0 || c.want != "" && (len(c.got) != 1 || !strings.Contains(c.got[0], c.want)) {
					t.Errorf("%s: %q, want %q", what, c.got, c.want)
				}
			}
		})
	}
}

// TestAMistakeFoundElsewhereHasItsPlace: packages that use a setting find mistakes later, and name it themselves.
func TestAMistakeFoundElsewhereHasItsPlace(t *testing.T) {
	dir := write(t, map[string]string{"master": "default_include: master.d/*.conf\n", "master.d/nats.conf": "timeout: 5\nnats_ca: /ca.pem\n"})
	m, _, err := LoadMaster(dir)
	if err != nil {
		t.Fatal(err)
	}
	cause := salt.WithHint(os.ErrNotExist, "do so")
	err = m.At("nats_ca", cause)
	if p := PlaceOf(err); p.Where != filepath.Join(dir, "master.d", "nats.conf")+":2" || p.Column == 0 || p.Key != "" || salt.Hint(err) != "do so" {
		t.Errorf("%+v, hint %q", p, salt.Hint(err))
	}
	if err := m.At("nats_creds", cause); PlaceOf(err).Where != "" || salt.Hint(err) != "do so" {
		t.Errorf("of a setting that is not there: %v", err)
	}
	if err := m.At("nats_ca", nil); err != nil {
		t.Errorf("of no mistake: %v", err)
	}
}
