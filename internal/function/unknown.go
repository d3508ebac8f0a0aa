package function

import (
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// SaysUnknown tells whether a function has failed with this text since the minion does not
// have it. What is said is for people, and has no other mark on its way to the master.
func SaysUnknown(name salt.Function, text any) bool {
	said, ok := text.(string)
	return ok && strings.HasPrefix(said, unknownPrefix(name))
}

func unknownPrefix(name salt.Function) string { return "'" + string(name) + "' is not available" }
