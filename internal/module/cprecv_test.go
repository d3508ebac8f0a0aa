package module

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/brinebus/brine/internal/function"
)

// TestChunksThatDoNotFit sends chunks that make no file, and one that does: what stands at the
// destination is the old file until all of the new one is there.
func TestChunksThatDoNotFit(t *testing.T) {
	cache, dir := t.TempDir(), t.TempDir()
	h := &function.Host{Paths: function.Paths{CacheDir: cache}}
	dest := filepath.Join(dir, "file")
	if err := os.WriteFile(dest, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("new"))
	whole := map[string]any{"chunk": base64.StdEncoding.EncodeToString([]byte("new")), "compressed": false, "upload": "a1", "offset": int64(0), "sha256": hex.EncodeToString(sum[:])}
	for name, one := range map[string]struct {
		change map[string]any
		dest   string
		want   string
	}{
		"not the first chunk":          {map[string]any{"offset": int64(3)}, dest, "do not follow each other"},
		"another file's digest":        {map[string]any{"sha256": "00"}, dest, "digest"},
		"no base64":                    {map[string]any{"chunk": "*"}, dest, "chunk"},
		"not compressed, and said so":  {map[string]any{"compressed": true}, dest, "chunk"},
		"a path for its chunks":        {map[string]any{"upload": "../a1"}, dest, "upload"},
		"no name for its chunks":       {map[string]any{"upload": ""}, dest, "upload"},
		"a path that is not absolute":  {nil, "file", "absolute"},
		"a name above the directory":   {map[string]any{"name": ".."}, dir, "not the name of a file"},
		"a name beside the directory":  {map[string]any{"name": "../x"}, dir, "not the name of a file"},
		"a directory that is not here": {nil, filepath.Join(dir, "no", "file"), "Destination unavailable"},
	} {
		kw := maps.Clone(whole)
		maps.Copy(kw, one.change)
		t.Run(name, func(t *testing.T) {
			bad(t, h, "cp.recv_chunked", one.want, kw, one.dest)
			if text, err := os.ReadFile(dest); string(text) != "old" || err != nil {
				t.Errorf("the old file is %q, %v", text, err)
			}
			if left, _ := os.ReadDir(filepath.Join(cache, "recv")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	same(t, "whole", good(t, h, "cp.recv_chunked", whole, dest), dest)
	info, err := os.Stat(dest)
	if text, _ := os.ReadFile(dest); string(text) != "new" || err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the new file is %q, %v, %v", text, info.Mode(), err)
	}
}

// TestNothingIsKeptOutsideCachedir has no cachedir, and no other place is taken for it.
func TestNothingIsKeptOutsideCachedir(t *testing.T) {
	h := &function.Host{}
	bad(t, h, "cp.recv_chunked", "directory for files that arrive", map[string]any{"chunk": "", "compressed": false, "upload": "a1"}, "/nowhere")
	bad(t, h, "cp.cache_file", "directory for copies", nil, "http://127.0.0.1:1/x")
	bad(t, h, "data.get", "directory for data", nil, "x")
}
