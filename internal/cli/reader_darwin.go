package cli

// sameDescription is true where it cannot be known, as here.
func sameDescription(_, _ int) bool { return true }
