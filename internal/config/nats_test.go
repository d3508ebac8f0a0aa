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
