package master_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/brinebus/brine/internal/mine"
	"github.com/brinebus/brine/internal/rpc"
)

// TestAStartWithAKeyFileThatCannotBeRead: what is known of a minion whose key was deleted while the master did not run
// is forgotten also if the file of another key cannot be read at the start. That of the other minion stays.
func TestAStartWithAKeyFileThatCannotBeRead(t *testing.T) {
	w := start(t, "auto_accept: True\n")
	web1, web2 := w.minion("web1", pong), w.minion("web2", pong)
	for _, c := range []*rpc.Conn{web1.Conn, web2.Conn} {
		if err := keep(t, c, map[string]mine.Entry{"a": entry(int64(1))}); err != nil {
			t.Fatal(err)
		}
	}
	w.stop()
	in := func(id string) string { return filepath.Join(w.cfg.PKIDir, "minions", id) }
	away := filepath.Join(t.TempDir(), "away")
	for _, err := range []error{
		os.Remove(in("web1")), os.Rename(in("web2"), away),
		os.Symlink("/proc/self/mem", in("web2")), // opened well, but to read it is EIO
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.run()
	reader := w.minion("web3", pong)
	w.minion("web1", pong)
	if got, err := read(t, reader.Conn, "*", "glob", "a"); got != "" || err != nil {
		t.Errorf("after the start, with a new key of web1: %q, %v", got, err)
	}
	if err := os.Rename(away, in("web2")); err != nil {
		t.Fatal(err)
	}
	w.until("the key of web2 is read", func() bool {
		got, err := read(t, reader.Conn, "*", "glob", "a")
		return err == nil && got == "web2/a=1"
	})
}
