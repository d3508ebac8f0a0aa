package master_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnreadableKeyFiles connects with an id whose key file is damaged: nobody is accused,
// and another connection does not log another line.
func TestUnreadableKeyFiles(t *testing.T) {
	w := start(t, "")
	if err := os.WriteFile(filepath.Join(w.cfg.PKIDir, "minions", "web1"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	mine := key(t)
	for range 10 {
		if l, err := w.offerKey("web1", mine, nil); err == nil {
			if l.Ready() {
				t.Fatal("it is accepted")
			}
			l.Close()
		}
	}
	said := w.said()
	if n := strings.Count(said, "key not checked, and so not accepted"); n < 1 || n > 3 {
		t.Errorf("it is told %d times", n)
	}
	if strings.Contains(said, "compromise") {
		t.Error("somebody is accused of an attempt to compromise")
	}
}
