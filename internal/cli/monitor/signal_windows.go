package monitor

import "os"

// dumpSignal is nil: Windows has no such signal.
var dumpSignal os.Signal
