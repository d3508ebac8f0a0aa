//go:build !linux

package daemon

import (
	"context"
	"io"

	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// Detach fails: on this system a service manager keeps a daemon in the background, and the
// notification of a forked daemon exists only on Linux.
func Detach(context.Context, []string, io.Writer) error {
	return salt.WithHint(posix.Unsupported("going into the background"), "start it without -d, as a service of the system")
}

func dropStderr() error { return nil }
