package master_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/peer"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// cacheDir is the cachedir of a world by default.
const cacheDir = "var/cache/salt/master"

func TestMinionPushesFiles(t *testing.T) {
	w := start(t, "auto_accept: true\nfile_recv: True\nfile_recv_max_size: 2\n")
	l := w.minion("web1", pong)
	push := peer.Push(func() *rpc.Conn { return l.Conn })
	big := make([]byte, 2<<20) // as large as may be, in several pieces
	if _, err := rand.Read(big); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"etc/fstab": []byte("text"), "empty": nil, "one piece": big[:256<<10], "big": big} {
		if err := push(t.Context(), name, bytes.NewReader(content)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := os.ReadFile(filepath.Join(w.dir, cacheDir, "minions", "web1", "files", name))
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s has %d bytes, %v; want %d", name, len(got), err, len(content))
		}
	}
	if err := push(t.Context(), "larger", bytes.NewReader(append(big, 'x'))); rpc.CodeOf(err) != rpc.Usage || !strings.Contains(err.Error(), "larger than the master takes") {
		t.Errorf("a file that is too large: %v", err)
	}
}

// What a minion in the wrong hands sends reaches nothing but its own directory.
func TestPushAttacks(t *testing.T) {
	w := start(t, "auto_accept: true\nfile_recv: True\n")
	l := w.minion("web1", pong)
	ask := func(q fileserver.Piece) error {
		s := sha256.Sum256(q.Data)
		q.SHA256 = hex.EncodeToString(s[:])
		return l.Ask(t.Context(), protocol.OpPush, q, nil)
	}
	for _, path := range []string{"", "/etc/cron.d/evil", "../web2/files/evil", "../../../pki/minions/evil", "a/../../evil", ".", "a\x00b", `..\evil`, strings.Repeat("a/", 600) + "evil"} {
		if err := ask(fileserver.Piece{Path: path, Upload: "u", Data: []byte("evil")}); rpc.CodeOf(err) != rpc.Denied {
			t.Errorf("path %q: %v, want a refusal", path, err)
		}
	}
	for _, q := range []fileserver.Piece{
		{Path: "evil", Upload: "../files/evil", Data: []byte("evil")},
		{Path: "evil", Upload: "u", Offset: 1 << 40, Data: []byte("evil")},
		{Path: "evil", Upload: "u", Offset: -1, Data: []byte("evil")},
	} {
		if err := ask(q); rpc.CodeOf(err) != rpc.Usage {
			t.Errorf("%+v: %v, want a refusal", q, err)
		}
	}
	_ = filepath.WalkDir(w.dir, func(path string, e fs.DirEntry, _ error) error {
		if strings.Contains(e.Name(), "evil") {
			t.Errorf("%s was written", path)
		}
		return nil
	})
}

func TestPushIsOffByDefault(t *testing.T) {
	w := start(t, "auto_accept: true\n")
	l := w.minion("web1", pong)
	err := peer.Push(func() *rpc.Conn { return l.Conn })(t.Context(), "x", strings.NewReader("x"))
	if rpc.CodeOf(err) != rpc.Denied || !strings.Contains(err.Error(), "accepts no files") {
		t.Errorf("it says %v", err)
	}
	if _, err := os.Stat(filepath.Join(w.dir, cacheDir, "minions")); err == nil {
		t.Error("there is a directory for files that nobody takes")
	}
}
