package admission

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// TestAnswersOfLimitedRules: a minion whose key a rule accepts later is told to come again; one that a rule rejects without
// a record is told that it is rejected. The log has a few lines about either.
func TestAnswersOfLimitedRules(t *testing.T) {
	w := begin(t)
	var said bytes.Buffer
	w.Log = slog.New(slog.NewTextHandler(&said, nil))
	cfg := &config.Master{AutoAccept: true, AutorejectFile: filepath.Join(t.TempDir(), "reject")}
	if err := os.WriteFile(cfg.AutorejectFile, []byte("bad*\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Keys.Configure(cfg); err != nil {
		t.Fatal(err)
	}
	w.Keys.MostOfHost, w.Keys.MostRejected = 1, 1
	for n := range 10 {
		good := w.Admit(w.peer(fmt.Sprint("web", n), bustest.Key(t)))
		state, err := w.stateOf(good, nil)
		if n == 0 && (good.Role != bus.RoleMinion || state != protocol.KeyAccepted || err != nil) {
			t.Errorf("the first one is %+v, %s, %v", good, state, err)
		}
		if n > 0 && (good.Role != bus.RoleUnaccepted || !errors.Is(err, errLimited)) {
			t.Errorf("a later one is %+v, %s, %v", good, state, err)
		}
		bad := w.Admit(w.peer(fmt.Sprint("bad", n), bustest.Key(t)))
		if state, err := w.stateOf(bad, nil); bad.Role != bus.RoleUnaccepted || state != protocol.KeyRejected || err != nil {
			t.Errorf("one that is rejected is %+v, %s, %v", bad, state, err)
		}
	}
	if rpc.CodeOf(errLimited) != rpc.Unavailable { // see upstream.Connect
		t.Errorf("the code is %v", rpc.CodeOf(errLimited))
	}
	if n := strings.Count(said.String(), "is limited"); n != 2*maxLimited {
		t.Errorf("%d lines say that a rule is limited, want %d: %s", n, 2*maxLimited, said.String())
	}
	for _, words := range []string{"10000 of this host", "it is accepted later; at once with 'salt-key -a'", "1000 keys are rejected", "delete those that nobody needs: 'salt-key -d ID'"} {
		if n := strings.Count(said.String(), words); n != maxLimited {
			t.Errorf("%q is in %d lines, want %d: %s", words, n, maxLimited, said.String())
		}
	}
	if n := strings.Count(said.String(), "A rule rejects it."); n != 9 {
		t.Errorf("%d lines are about rejections without a record, want 9", n)
	}
}
