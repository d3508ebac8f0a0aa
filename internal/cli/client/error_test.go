package client

import (
	"errors"
	"fmt"
	"testing"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
)

// TestExitCodesOfRunners: the kind of the error of a runner decides, as that of a request does.
func TestExitCodesOfRunners(t *testing.T) {
	for kind, want := range map[error]int{brine.ErrFailed: cli.Failed, brine.ErrDenied: cli.NoPermission, brine.ErrUsage: cli.Usage, brine.ErrUnavailable: cli.Unavailable} {
		err := fmt.Errorf("%w: %w", errors.New("the stream has no leader"), kind)
		if got := cli.Code(Error(err)); got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
	}
}
