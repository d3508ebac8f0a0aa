//go:build unix

package monitor

import (
	"os"
	"syscall"
)

// dumpSignal asks for what all goroutines do.
var dumpSignal os.Signal = syscall.SIGUSR1
