//go:build unix

package monitor

import (
	"os"
	"syscall"
)

// dumpSignal requests the stacks of all goroutines.
var dumpSignal os.Signal = syscall.SIGUSR1
