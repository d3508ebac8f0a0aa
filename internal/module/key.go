package module

import "context"

// keyModule shows the keys of the minion.
var keyModule = &Module{
	Name: "key",
	Doc:  "Functions that show the fingerprints of the keys that the minion holds.",
	Functions: []Function{
		{
			Name:    "finger",
			Doc:     "Return the fingerprint of the minion's own key.",
			Example: `salt '*' key.finger`,
			Run: func(_ context.Context, c *Call) (any, error) {
				return shown(c.Host.Fingerprint, "minion key")
			},
		},
		{
			Name:    "finger_master",
			Doc:     "Return the fingerprint of the master key that the minion has pinned.",
			Example: `salt '*' key.finger_master`,
			Run: func(_ context.Context, c *Call) (any, error) {
				return shown(c.Host.MasterFingerprint, "pinned master key")
			},
		},
	},
}
