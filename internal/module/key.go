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
				if c.Host.Fingerprint == "" {
					return nil, unavailable("minion key")
				}
				return c.Host.Fingerprint, nil
			},
		},
		{
			Name:    "finger_master",
			Doc:     "Return the fingerprint of the master key that the minion has pinned.",
			Example: `salt '*' key.finger_master`,
			Run: func(_ context.Context, c *Call) (any, error) {
				if c.Host.MasterFingerprint == "" {
					return nil, unavailable("pinned master key")
				}
				return c.Host.MasterFingerprint, nil
			},
		},
	},
}
