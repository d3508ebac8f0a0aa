package route

import (
	"context"
	"log/slog"

	"github.com/brinebus/brine/internal/cli/machine"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/peer"
)

// Fire fires an event on the master's bus, unchanged.
type Fire func(ctx context.Context, tag string, data any) error

// Host is this minion as functions in this process see it, over a route. Fire is nil if the
// route leads to no master.
func Host(cfg *config.Minion, r Route, getenv func(string) string, log *slog.Logger) (*function.Host, Fire) {
	h, s := machine.New(cfg, log)
	r.complete(h, s)
	if by := getenv(peer.PublishedBy); by != "" { // a job of another minion has started this process
		h.Publisher = peer.Published{By: by}
	}
	if to, ok := s.Events.(events); ok {
		return h, to.fireReturn
	}
	return h, nil
}
