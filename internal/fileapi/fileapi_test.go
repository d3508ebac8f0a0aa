package fileapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/brinebus/brine/internal/authz/authztest"
	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/fileapi"
	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/peer"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// log implements fileapi.Audit: minion and path of each refusal.
type log struct {
	mu      sync.Mutex
	refused []string
}

func (l *log) NoteFile(r *rpc.Request, path, _ string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = append(l.refused, r.From.Name+" "+path)
}

func (l *log) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.refused)
}

// world is a server of files behind a real broker, and the minion web1.
type world struct {
	conn         *rpc.Conn
	audit        *log
	roots, cache string
}

func start(t *testing.T) *world {
	t.Helper()
	b := bustest.StartStore(t)
	w := &world{audit: &log{}, roots: t.TempDir(), cache: t.TempDir()}
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	files, err := fileapi.Open(t.Context(), fileapi.Options{
		Roots: map[string][]string{"base": {w.roots}}, CacheDir: w.cache, Uploads: true, MaxUpload: 1 << 20, Journal: j, Audit: w.audit, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	var table bus.Endpoints
	for _, e := range bus.MasterEndpoints {
		if slices.Contains([]string{"file", "files", "push"}, e.Op) {
			table = append(table, e)
		}
	}
	s := rpc.NewServer(b.Conn(), b.Owner, table, b.Log)
	s.Authorize = func(_ context.Context, _ *rpc.Request, c bus.Check) decision.Decision {
		return authztest.Allow(string(c))
	}
	s.Handle("listFiles", files.List)
	s.Handle("sendFile", files.Send)
	s.Handle("push", files.Push)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	c := b.As(t, bus.RoleMinion, "web1")
	w.conn = rpc.NewConn(c.Conn, c.Self)
	return w
}

func (w *world) files() peer.Files { return peer.Files{Conn: func() *rpc.Conn { return w.conn }} }

// put writes a file below the roots.
func (w *world) put(t *testing.T, name string, content []byte) {
	t.Helper()
	path := filepath.Join(w.roots, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// TestAFileIsSentWhole, in pieces where it is long, and not at all to a minion that has it.
func TestAFileIsSentWhole(t *testing.T) {
	w := start(t)
	for name, size := range map[string]int{"empty": 0, "app/short": 12, "app/long": 600_001} {
		content := bytes.Repeat([]byte("x"), size)
		w.put(t, name, content)
		var got bytes.Buffer
		f, err := w.files().Get(t.Context(), "base", name, "", &got)
		if err != nil || !bytes.Equal(got.Bytes(), content) || f.Size != int64(size) {
			t.Errorf("%s: %d bytes, %+v, %v; want %d", name, got.Len(), f, err, size)
		}
		got.Reset()
		if again, err := w.files().Get(t.Context(), "base", name, f.SHA256, &got); err != nil || got.Len() != 0 || again.SHA256 != f.SHA256 {
			t.Errorf("%s, which it has: %d bytes, %+v, %v", name, got.Len(), again, err)
		}
		if head, err := w.files().Stat(t.Context(), "base", name); err != nil || head.SHA256 != f.SHA256 {
			t.Errorf("Stat of %s: %+v, %v; want the sum %s", name, head, err, f.SHA256)
		}
	}
}

// TestListsOfFilesAreWhole: more files than one message has are all there, in order.
func TestListsOfFilesAreWhole(t *testing.T) {
	w := start(t)
	var want []string
	for n := range 1201 {
		name := fmt.Sprintf("f%04d", n)
		w.put(t, name, nil)
		want = append(want, name)
	}
	files, err := w.files().List(t.Context(), "base")
	var got []string
	for _, f := range files {
		got = append(got, f.Path)
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d files, %v; want %d", len(got), err, len(want))
	}
	if envs, err := w.files().Environments(t.Context()); err != nil || !slices.Equal(envs, []string{"base"}) {
		t.Errorf("environments %q, %v", envs, err)
	}
}

// TestNothingOutsideTheRootsIsSent: the minion is refused, and the audit log has each path.
func TestNothingOutsideTheRootsIsSent(t *testing.T) {
	w := start(t)
	secret := filepath.Join(w.cache, "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("s"), 0o600), os.Symlink(secret, filepath.Join(w.roots, "link"))); err != nil {
		t.Fatal(err)
	}
	paths := []string{"../" + filepath.Base(w.cache) + "/secret", "/etc/passwd", "a/../../b"}
	var refused []string
	for _, path := range paths {
		var got bytes.Buffer
		_, err := w.files().Get(t.Context(), "base", path, "", &got)
		if !errors.Is(err, fileserver.ErrPath) || got.Len() != 0 {
			t.Errorf("%s: %q, %v; want that it is refused", path, &got, err)
		}
		refused = append(refused, "web1 "+path)
	}
	if !slices.Equal(w.audit.all(), refused) {
		t.Errorf("in the audit log: %q, want %q", w.audit.all(), refused)
	}
	for _, path := range []string{"nothing", "link"} { // which leads out
		if _, err := w.files().Stat(t.Context(), "base", path); !errors.Is(err, fileserver.ErrNotFound) {
			t.Errorf("%s, which is not there: %v", path, err)
		}
	}
	if len(w.audit.all()) != len(refused) {
		t.Error("a file that is not there is in the audit log")
	}
}

// TestAFileIsHandedIn whole, in pieces where it is long; what is too large, or is to be
// elsewhere, is refused and leaves nothing.
func TestAFileIsHandedIn(t *testing.T) {
	w := start(t)
	push := peer.Push(func() *rpc.Conn { return w.conn })
	for name, size := range map[string]int{"empty": 0, "a/long": 700_000} {
		content := strings.Repeat("y", size)
		if err := push(t.Context(), name, strings.NewReader(content)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := os.ReadFile(filepath.Join(w.cache, "minions/web1/files", name))
		if err != nil || string(got) != content {
			t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, size)
		}
	}
	if err := push(t.Context(), "large", strings.NewReader(strings.Repeat("z", 2<<20))); rpc.CodeOf(err) != rpc.Usage || !strings.Contains(err.Error(), "larger") {
		t.Errorf("a file that is too large: %v", err)
	}
	if err := push(t.Context(), "../out", strings.NewReader("o")); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("a path that leads out: %v", err)
	}
	if want := []string{"web1 ../out"}; !slices.Equal(w.audit.all(), want) {
		t.Errorf("in the audit log: %q, want %q", w.audit.all(), want)
	}
	for _, name := range []string{"files/large", "files/../out"} {
		if _, err := os.Stat(filepath.Join(w.cache, "minions/web1", name)); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
	left, err := os.ReadDir(filepath.Join(w.cache, "minions/web1/parts"))
	if err != nil || len(left) != 0 {
		t.Errorf("parts that are left: %v, %v", left, err)
	}
}

// A minion whose file cannot be stored is informed of it, without the text of the system's error.
func TestAFailedWriteIsNotReportedAsTheMinionsMistake(t *testing.T) {
	w := start(t)
	if err := os.WriteFile(filepath.Join(w.cache, "minions"), nil, 0o600); err != nil { // where the directory is to be
		t.Fatal(err)
	}
	err := peer.Push(func() *rpc.Conn { return w.conn })(t.Context(), "f", strings.NewReader("x"))
	if rpc.CodeOf(err) != rpc.Unavailable || strings.Contains(err.Error(), w.cache) {
		t.Errorf("it is told %v", err)
	}
}
