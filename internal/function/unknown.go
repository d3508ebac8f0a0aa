package function

import (
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// SaysUnknown reports whether a function has failed with this text because the minion does not
// have it. The text is the only sign of that in a return.
func SaysUnknown(name salt.Function, text any) bool {
	said, ok := text.(string)
	return ok && strings.HasPrefix(said, unknownPrefix(name))
}

func unknownPrefix(name salt.Function) string { return "'" + string(name) + "' is not available" }
