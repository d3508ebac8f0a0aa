package saltevent

import (
	"context"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/protocol"
)

// complete completes the names of the two buses, and recent tags that the user may listen to.
func complete(ctx context.Context, env *cli.Env, c cli.Completion) []string {
	switch {
	case c.Flag == "bus":
		return []string{"master", "minion"}
	case c.Flag == "tag", c.Flag == "" && len(c.Words) == 0 && env.Name == "salt-event fire":
		return client.Words(ctx, env, c, protocol.TagWords, c.Prefix)
	}
	return nil
}
