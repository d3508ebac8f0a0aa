package route

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
)

// TestNoWayToAMaster: each reason has its exit code, and says what to do.
func TestNoWayToAMaster(t *testing.T) {
	for _, test := range []struct {
		err  error
		want int
	}{
		{upstream.ErrMasterKey, cli.NoPermission}, {upstream.ErrSignature, cli.NoPermission}, {upstream.ErrRejected, cli.NoPermission}, {upstream.ErrDenied, cli.NoPermission},
		{salt.WithHint(errors.New("unsafe file"), "chmod"), cli.NoPermission}, {errors.New("connection refused"), cli.Unavailable},
	} {
		err := directError(fmt.Errorf("connect: %w", test.err))
		if cli.Code(err) != test.want || !errors.Is(err, test.err) {
			t.Errorf("%v ends with %d, want %d", err, cli.Code(err), test.want)
		}
	}
	if hint := salt.Hint(directError(errors.New("connection refused"))); !strings.Contains(hint, "--local") {
		t.Errorf("the hint is %q", hint)
	}
}

// TestNobodyIsAskedWithLocal: three settings keep salt-call to itself.
func TestNobodyIsAskedWithLocal(t *testing.T) {
	for name, cfg := range map[string]*config.Minion{"--local": {}, "file_client": {FileClient: "local"}, "master_type": {MasterType: "disable"}} {
		w, err := Find(t.Context(), nil, cfg, name == "--local", 0, nil)
		if _, ok := w.(nowhere); !ok || err != nil {
			t.Errorf("with %s the way is %T, %v", name, w, err)
		}
	}
}
