package daemon

import (
	"fmt"
	"os"
	"strings"
)

// readyPrefix begins the name of the socket on which Detach waits. It also tells the child to close
// its caller's descriptors.
const readyPrefix = "@salt-ready-"

// Ready notifies systemd, or the waiting Detach, that the daemon is ready. After Detach it first
// closes the standard error of its caller: a caller that reads it to the end, as in $(salt-minion
// -d 2>&1), would otherwise wait for the end of the daemon.
func Ready() error {
	if strings.HasPrefix(os.Getenv("NOTIFY_SOCKET"), readyPrefix) {
		if err := dropStderr(); err != nil {
			return err
		}
	}
	return Notify("READY=1")
}

// ExitError means that a detached daemon has ended before it was ready; it has printed the reason
// itself.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("the daemon ended with exit code %d", e.Code) }
