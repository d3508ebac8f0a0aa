package cli

// sameDescription returns true, since it cannot be known here.
func sameDescription(_, _ int) bool { return true }
