package admission

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// TestNobodyIsAdmittedWithoutTheDecisionsOfOthers: a master that does not know what others have
// decided about keys admits no minion, cuts those that it has, and tells them why; its operators and
// clients stay. When it knows, everything is as before.
func TestNobodyIsAdmittedWithoutTheDecisionsOfOthers(t *testing.T) {
	w := begin(t)
	var current atomic.Bool
	w.Current = current.Load
	p := w.peer("web1", bustest.Key(t))
	if i := w.Admit(p); i.Role != bus.RoleUnaccepted || len(w.acts) > 0 || len(w.notes) > 0 {
		t.Errorf("a new key is %+v, and there are %v and %v", i, w.acts, w.notes)
	}
	if has, err := w.Keys.Has("web1"); err != nil || has {
		t.Errorf("a key is recorded: %t, %v", has, err)
	}
	current.Store(true)
	w.Admit(p)
	current.Store(false)
	w.acts, w.notes = nil, nil
	if err := w.Keys.Store.Accept(w.entry("web1")); err != nil {
		t.Fatal(err)
	}
	call := p
	call.Caller = true
	for range 2 {
		if i, c := w.Admit(p), w.Admit(call); i.Role != bus.RoleUnaccepted || c.Role != bus.RoleUnaccepted || len(w.acts) > 0 {
			t.Errorf("an accepted key is %+v and %+v, and there is %v", i, c, w.acts)
		}
	}
	w.open = []bus.Identity{
		{Role: bus.RoleMinion, Name: "m"}, {Role: bus.RoleCaller, Name: "c"}, {Role: bus.RoleUnaccepted, Name: "u"},
		{Role: bus.RoleUser, Name: "0"}, {Role: bus.RoleClient, Name: "dash"}, {Role: bus.RoleGuest, Name: "g"}, {Role: bus.RoleRemote, Name: "r"},
	}
	w.cutStale()
	if !slices.Equal(w.cuts, []string{"m", "c", "u"}) {
		t.Errorf("cut: %q", w.cuts)
	}
	current.Store(true)
	if i := w.Admit(p); i.Role != bus.RoleMinion || !slices.Equal(w.acts, []any{"accept"}) {
		t.Errorf("with the knowledge it is %+v, and there is %v", i, w.acts)
	}
	if w.entry("web1").State != pki.Accepted {
		t.Error("the key itself was changed")
	}
}

// TestRulesDecideNothingWithoutTheDecisionsOfOthers: a key that others may have refused is neither accepted nor
// rejected by a rule here, and leaves no file.
func TestRulesDecideNothingWithoutTheDecisionsOfOthers(t *testing.T) {
	for _, c := range []struct {
		cfg  config.Master
		want string
	}{{config.Master{AutoAccept: true}, "accept"}, {config.Master{AutorejectFile: filepath.Join(t.TempDir(), "reject")}, "reject"}} {
		w := begin(t)
		var current atomic.Bool
		w.Current = current.Load
		if c.cfg.AutorejectFile != "" {
			if err := os.WriteFile(c.cfg.AutorejectFile, []byte("web*\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Keys.Configure(&c.cfg); err != nil {
			t.Fatal(err)
		}
		p := w.peer("web1", bustest.Key(t))
		if i := w.Admit(p); i.Role != bus.RoleUnaccepted {
			t.Errorf("%s: it is %+v", c.want, i)
		}
		if has, err := w.Keys.Has("web1"); err != nil || has {
			t.Errorf("%s: a key is recorded: %t, %v", c.want, has, err)
		}
		current.Store(true)
		if w.Admit(p); !slices.Equal(w.acts, []any{c.want}) {
			t.Errorf("with the knowledge there is %v, want %s", w.acts, c.want)
		}
	}
}

// The answer must not be taken for a refusal of the key, see upstream.Connect.
func TestAStaleMasterIsUnavailable(t *testing.T) {
	if code := rpc.CodeOf(errStale); code != rpc.Unavailable {
		t.Errorf("the code is %v", code)
	}
}

// TestAStartIsNoFailure: a master that has just started does not know the decisions of others yet, which is no reason
// for a warning. One that knew them once, and does not know them any more, is.
func TestAStartIsNoFailure(t *testing.T) {
	w := begin(t)
	var text bytes.Buffer
	w.Log = slog.New(slog.NewTextHandler(&text, nil))
	var current atomic.Bool
	w.Current = current.Load
	w.open = []bus.Identity{{Role: bus.RoleUnaccepted, Name: "u"}}
	p := w.peer("web1", bustest.Key(t))
	lines := func() string {
		text.Reset()
		w.Admit(p)
		w.cutStale()
		return text.String()
	}
	if got := lines(); !strings.Contains(got, "not admitted yet") || strings.Contains(got, "WARN") || strings.Contains(got, "ERROR") {
		t.Errorf("a start logs %s", got)
	}
	if len(w.cuts) != 1 {
		t.Errorf("cut: %q", w.cuts)
	}
	current.Store(true)
	w.Admit(p)
	current.Store(false)
	if got := lines(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, "level=ERROR") {
		t.Errorf("a loss logs %s", got)
	}
}

// TestAMasterThatStopsAdmitsNoMinion: a minion that was sent away and comes back at once finds a master that records
// nothing about it any more.
func TestAMasterThatStopsAdmitsNoMinion(t *testing.T) {
	w := begin(t)
	p := w.peer("web1", bustest.Key(t))
	w.Admit(p)
	if err := w.Keys.Store.Accept(w.entry("web1")); err != nil {
		t.Fatal(err)
	}
	call := p
	call.Caller = true
	w.acts, w.notes = nil, nil
	ctx, stop := context.WithCancel(t.Context())
	w.ctx = ctx
	stop()
	for _, p := range []broker.Peer{p, call, w.peer("web2", bustest.Key(t))} {
		if i := w.Admit(p); i.Role != bus.RoleUnaccepted || len(w.acts) > 0 || len(w.notes) > 0 {
			t.Errorf("it is %+v, and there are %v and %v", i, w.acts, w.notes)
		}
	}
	if has, err := w.Keys.Has("web2"); err != nil || has {
		t.Errorf("a key is recorded: %t, %v", has, err)
	}
}
