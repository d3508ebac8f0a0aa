package daemon

import (
	"fmt"
	"os"
	"strings"
)

// readyPrefix begins the name of the socket on which Detach waits: by it the child
// knows that it has to let go of its caller.
const readyPrefix = "@salt-ready-"

// Ready tells systemd, or the Detach that waits, that the daemon is ready. After Detach
// it lets go of the standard error of its caller first: who reads that to its end, as in
// $(salt-minion -d 2>&1), would else wait for the end of the daemon.
func Ready() error {
	if strings.HasPrefix(os.Getenv("NOTIFY_SOCKET"), readyPrefix) {
		if err := dropStderr(); err != nil {
			return err
		}
	}
	return Notify("READY=1")
}

// ExitError is the end of a detached daemon that did not become ready; it has
// told the reason itself.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("the daemon ended with exit code %d", e.Code) }
