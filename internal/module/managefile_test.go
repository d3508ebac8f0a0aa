package module

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/brinebus/brine/internal/function"
)

// TestTheDigestIsOfWhatIsWritten has a server that answers otherwise the second time: what is
// written is the text whose digest was compared.
func TestTheDigestIsOfWhatIsWritten(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "answer %d\n", asked.Add(1))
	}))
	defer s.Close()
	h := &function.Host{Paths: function.Paths{CacheDir: t.TempDir()}}
	name := filepath.Join(t.TempDir(), "file")
	sum := sha256.Sum256([]byte("answer 1\n"))
	kw := map[string]any{"source": s.URL + "/file", "source_sum": map[string]any{"hash_type": "sha256", "hsum": hex.EncodeToString(sum[:])}}
	good(t, h, "file.manage_file", kw, name)
	if text, err := os.ReadFile(name); string(text) != "answer 1\n" || err != nil {
		t.Errorf("%q is written, %v", text, err)
	}
	bad(t, h, "file.manage_file", "digest", kw, name)
	if text, _ := os.ReadFile(name); string(text) != "answer 1\n" {
		t.Errorf("%q is written with another digest", text)
	}
}
