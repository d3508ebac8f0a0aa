package saltkey

import (
	"context"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/pki"
)

// complete completes the ids of keys, for users who may read the key directory.
func complete(_ context.Context, env *cli.Env, c cli.Completion) []string {
	switch c.Flag {
	case "list":
		return []string{"acc", "pre", "un", "rej", "den", "all"}
	case "accept", "reject", "delete", "finger", "print":
	default:
		return nil
	}
	t, err := newTool(env, c.Opts)
	if err != nil || t.closed != nil {
		return nil
	}
	store, err := pki.OpenExistingStore(t.cfg.PKIDir)
	if err != nil {
		return nil
	}
	entries, _, err := store.List()
	if err != nil {
		return nil
	}
	before, _ := c.Last()
	var ids []string
	for _, e := range entries {
		if c.Flag != "accept" || e.State != pki.Accepted {
			ids = append(ids, before+string(e.ID))
		}
	}
	return ids
}
