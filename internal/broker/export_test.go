package broker

import (
	"context"
	"maps"
	"slices"
)

// DialRoute dials another member once more, as two members do that dial each other at once.
func DialRoute(ctx context.Context, c *Cluster, peer string) { _, _ = c.r.dial(ctx, peer) }

// CutRoutes ends all connections to other members, as a broken network does.
func CutRoutes(c *Cluster) {
	c.r.mu.Lock()
	live := slices.Collect(maps.Keys(c.r.live))
	c.r.mu.Unlock()
	for _, e := range live {
		_ = e.Close()
	}
}
