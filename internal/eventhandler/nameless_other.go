//go:build !linux

package eventhandler

import "os"

// nameless makes a temporary file and removes its name, so that nobody else can open it; where
// the system does not allow that, only the user of this process may open it.
func nameless() (*os.File, error) {
	f, err := os.CreateTemp("", "event")
	if err == nil {
		_ = os.Remove(f.Name()) // Windows refuses to remove an open file
	}
	return f, err
}
