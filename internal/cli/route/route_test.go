package route

import (
	"testing"

	"github.com/brinebus/brine/internal/config"
)

// TestNobodyIsAskedWithLocal: three settings keep salt-call to itself.
func TestNobodyIsAskedWithLocal(t *testing.T) {
	for name, cfg := range map[string]*config.Minion{"--local": {}, "file_client": {FileClient: "local"}, "master_type": {MasterType: "disable"}} {
		w, err := Find(t.Context(), nil, cfg, name == "--local", 0, nil)
		if _, ok := w.(nowhere); !ok || err != nil {
			t.Errorf("with %s the way is %T, %v", name, w, err)
		}
	}
}
