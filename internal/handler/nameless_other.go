//go:build !linux

package handler

import "os"

// nameless makes a temporary file, which nobody else can open by its name once that is
// taken away; where the system does not let it be, the user of this process alone may.
func nameless() (*os.File, error) {
	f, err := os.CreateTemp("", "event")
	if err == nil {
		_ = os.Remove(f.Name()) // Windows refuses while it is open
	}
	return f, err
}
