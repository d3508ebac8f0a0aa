package saltkey_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/brinebus/brine/internal/cli"
)

// TestAnUnreadKey: who wants to refuse an accepted key whose file cannot be read is told how.
func TestAnUnreadKey(t *testing.T) {
	m := newMaster(t)
	m.connect("web1")
	m.must(os.Symlink("/proc/self/mem", filepath.Join(m.pki, "minions", "web2"))) // opened well, but to read it is EIO
	m.run("", "-y", "-a", "web1").want(t, cli.OK, ".*"+lines("Key for minion web1 accepted."),
		`salt-key: warning: public key .*/minions/web2: input/output error\nsalt-key: hint: to refuse .*: rm .*/minions/web2\n`)
}
