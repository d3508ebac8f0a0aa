package module

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/function"
)

// serving is a minion with a file server, whose environment base has the files and
// lies in dir.
func serving(t testing.TB, files map[string]string) (h *function.Host, dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		place := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(place, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	cache := t.TempDir()
	return &function.Host{Paths: function.Paths{CacheDir: cache}, Services: &Services{Files: fileserver.NewCache(filepath.Join(cache, "files"), fileserver.NewRoots(map[string][]string{"base": {dir}, "dev": {filepath.Join(dir, "sub")}}))}}, dir
}

func content(t testing.TB, place any) string {
	t.Helper()
	b, err := os.ReadFile(place.(string))
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func TestCpCopiesFiles(t *testing.T) {
	h, _ := serving(t, map[string]string{"a": "A", "sub/b.txt": "B", "sub/deep/c.sh": "C"})
	dest := t.TempDir()
	same(t, "is_cached", good(t, h, "cp.is_cached", nil, "salt://a"), "")
	place := good(t, h, "cp.cache_file", nil, "salt://a")
	same(t, "is_cached", good(t, h, "cp.is_cached", nil, "salt://a"), place)
	same(t, "cache_dest", good(t, h, "cp.cache_dest", nil, "salt://a"), place)
	same(t, "content", content(t, place), "A")
	same(t, "other environment", content(t, good(t, h, "cp.cache_file", nil, "salt://b.txt?saltenv=dev")), "B")
	same(t, "get_file_str", good(t, h, "cp.get_file_str", nil, "salt://sub/b.txt"), "B")
	same(t, "get_file", good(t, h, "cp.get_file", nil, "salt://a", dest+"/x"), dest+"/x")
	same(t, "get_file into a directory", good(t, h, "cp.get_file", nil, "salt://a", dest), dest+"/a")
	same(t, "get_file with parents", good(t, h, "cp.get_file", map[string]any{"makedirs": true}, "salt://a", dest+"/n/m"), dest+"/n/m")
	same(t, "content", content(t, dest+"/n/m"), "A")
	if info, err := os.Stat(dest + "/x"); err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	same(t, "get_dir", good(t, h, "cp.get_dir", nil, "salt://sub", dest+"/d"), []any{dest + "/d/sub/b.txt", dest + "/d/sub/deep/c.sh"})
	same(t, "content", content(t, dest+"/d/sub/deep/c.sh"), "C")
	same(t, "cache_dir", len(good(t, h, "cp.cache_dir", map[string]any{"include_pat": "*.sh"}, "salt://sub/").([]any)), 1)
	same(t, "cache_dir", len(good(t, h, "cp.cache_dir", map[string]any{"exclude_pat": "*.sh"}, "salt://sub/").([]any)), 1)
	same(t, "cache_files", len(good(t, h, "cp.cache_files", nil, "salt://a,salt://sub/b.txt").([]any)), 2)
	same(t, "cache_master", len(good(t, h, "cp.cache_master", nil).([]any)), 3)
	same(t, "list_minion", good(t, h, "cp.list_minion", nil), []any{"a", "sub/b.txt", "sub/deep/c.sh"})
	same(t, "list_master", good(t, h, "cp.list_master", map[string]any{"prefix": "sub"}), []any{"sub/b.txt", "sub/deep/c.sh"})
	same(t, "list_master_dirs", good(t, h, "cp.list_master_dirs", nil), []any{"sub", "sub/deep"})
	same(t, "envs", good(t, h, "cp.envs", nil), []any{"base", "dev"})
	same(t, "stat_file", good(t, h, "cp.stat_file", nil, "salt://a"), "0640")
	sum := sha256.Sum256([]byte("A"))
	same(t, "hash_file", good(t, h, "cp.hash_file", nil, "salt://a"), map[string]any{"hash_type": "sha256", "hsum": hex.EncodeToString(sum[:])})
}

func TestCpRefuses(t *testing.T) {
	h, dir := serving(t, map[string]string{"a": "A"})
	secret := filepath.Join(filepath.Dir(dir), "secret")
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"../secret", "a/../../secret", "//etc/passwd", secret + "\x00", `..\secret`} {
		bad(t, h, "cp.get_file_str", "not a path below the file roots", nil, "salt://"+path)
	}
	for _, path := range []string{"link", "%2e%2e/secret", "nosuch"} {
		bad(t, h, "cp.get_file_str", "there is no such file", nil, "salt://"+path)
	}
	bad(t, h, "cp.get_file_str", "not a path below", map[string]any{"saltenv": "../.."}, "salt://a")
	bad(t, h, "cp.get_file", "begins with salt://", nil, "/etc/passwd", "/tmp/x")
	bad(t, h, "cp.get_file", "an absolute path", nil, "salt://a", "x")
	bad(t, h, "cp.get_dir", "there is no such file", nil, "salt://nosuch", t.TempDir())
	bad(t, h, "cp.get_url", "neither an absolute path nor an address", nil, "ftp://example.com/x")
	bad(t, nil, "cp.list_master", "file server: not available here", nil)
}

func TestCpGetsURLs(t *testing.T) {
	h, _ := serving(t, nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/dir/no" {
			http.NotFound(w, q)
			return
		}
		_, _ = w.Write([]byte("from " + q.URL.String()))
	}))
	defer server.Close()
	first := good(t, h, "cp.get_url", nil, server.URL+"/dir/x?1")
	second := good(t, h, "cp.get_url", nil, server.URL+"/dir/x?2")
	same(t, "first", content(t, first), "from /dir/x?1")
	same(t, "second", content(t, second), "from /dir/x?2")
	dest := filepath.Join(t.TempDir(), "x")
	sum := sha256.Sum256([]byte("from /"))
	digest := "sha256=" + hex.EncodeToString(sum[:])
	same(t, "with a digest", good(t, h, "cp.get_url", map[string]any{"source_hash": digest}, server.URL+"/", dest), dest)
	bad(t, h, "cp.get_url", "has the sha256 digest", map[string]any{"source_hash": digest}, server.URL+"/other", dest)
	same(t, "content", content(t, dest), "from /")
	bad(t, h, "cp.get_url", "404", nil, server.URL+"/dir/no")
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	tls.Config.ErrorLog = quietServer
	defer tls.Close()
	if r := bad(t, h, "cp.get_url", "certificate", nil, tls.URL+"/x"); strings.Contains(r.Err.Error(), "404 Not Found") { // the number alone may be in the port
		t.Error("an unknown certificate was taken")
	}
}
