package module

import (
	"context"

	"github.com/brinebus/brine/internal/function"
)

// Keys returns the fingerprints of the minion's keys.
type Keys interface {
	Fingerprint() string       // of its own key, sha256 colon-hex; "" for no key
	MasterFingerprint() string // of the pinned key of its master, in the same format
}

// keyModule shows the keys of the minion.
var keyModule = &function.Module{
	Name: "key",
	Doc:  "Functions that show the fingerprints of the keys that the minion has.",
	Functions: []function.Function{
		{
			Name:    "finger",
			Doc:     "Return the fingerprint of the minion's own key.",
			Example: `salt '*' key.finger`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return shown(c.Host, Keys.Fingerprint, "minion key")
			},
		},
		{
			Name:    "finger_master",
			Doc:     "Return the fingerprint of the master key that the minion has pinned.",
			Example: `salt '*' key.finger_master`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return shown(c.Host, Keys.MasterFingerprint, "pinned master key")
			},
		},
	},
}

// shown returns one of the fingerprints; what names the missing thing in an error.
func shown(h *function.Host, fingerprint func(Keys) string, what string) (any, error) {
	if keys := services(h).Keys; keys != nil {
		if text := fingerprint(keys); text != "" {
			return text, nil
		}
	}
	return nil, function.Unavailable(what)
}
