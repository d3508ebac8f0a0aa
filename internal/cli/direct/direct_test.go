package direct

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/pki"
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
		{pki.ErrUnsafe, cli.NoPermission}, {fs.ErrPermission, cli.NoPermission}, {pki.ErrServerPin, cli.NoPermission},
		{errors.New("connection refused"), cli.Unavailable}, {salt.WithHint(errors.New("no master is at work there"), "see the log of the master"), cli.Unavailable},
	} {
		err := failure(fmt.Errorf("connect: %w", test.err))
		if cli.Code(err) != test.want || !errors.Is(err, test.err) {
			t.Errorf("%v ends with %d, want %d", err, cli.Code(err), test.want)
		}
	}
	if hint := salt.Hint(failure(salt.WithHint(upstream.ErrDenied, "accept this one"))); hint != "accept this one" {
		t.Errorf("the hint about a key that is denied is %q", hint)
	}
	pin := errors.Join(errors.New("connection refused"), fmt.Errorf("%w: it has another fingerprint", pki.ErrServerPin))
	if err := failure(salt.WithHint(pin, "add it to nats_finger")); salt.Hint(err) != "add it to nats_finger" {
		t.Errorf("the hint is %q", salt.Hint(err))
	}
	if hint := salt.Hint(failure(errors.New("connection refused"))); !strings.Contains(hint, "--local") {
		t.Errorf("the hint is %q", hint)
	}
}
