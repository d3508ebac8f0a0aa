package jobview

import (
	"context"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli/client"
)

// Gather runs a job without showing anything, and returns its state on each minion when no more
// returns are expected.
func Gather(ctx context.Context, begin Begin) (map[string]brine.Return, error) {
	running, err := begin.start(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]brine.Return{}
	for u, err := range running.Updates(ctx) {
		if err != nil {
			return all, client.Error(err)
		}
		if u.Minion != "" && (u.Returned() || u.Final()) {
			all[u.Minion] = u.Return
		}
	}
	return all, nil
}
