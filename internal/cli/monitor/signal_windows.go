package monitor

import "os"

// dumpSignal is none: Windows has no such signal.
var dumpSignal os.Signal
