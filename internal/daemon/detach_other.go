//go:build !linux

package daemon

import (
	"context"
	"io"

	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// Detach fails: the service manager of the system keeps a daemon in the background, and one
// that forks has its way to tell it that it is ready on Linux only.
func Detach(context.Context, []string, io.Writer) error {
	return salt.WithHint(posix.Unsupported("going into the background"), "start it without -d, as a service of the system")
}

func dropStderr() error { return nil }
