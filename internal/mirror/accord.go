package mirror

import (
	"context"
	"log/slog"

	"github.com/brinebus/brine/internal/accord"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/keyring"
)

// Accord is the agreement of both masters about keys and tokens, as known here.
type Accord struct{ *accord.Follower }

// OpenAccord opens it. Its tables are in the own journal; a Keeper mirrors that of the other
// master.
func (m *Member) OpenAccord(ctx context.Context, j *journal.Journal, keys *keyring.Keyring, accepts bool, log *slog.Logger) (*Accord, error) {
	own, err := j.Decisions(ctx)
	if err != nil {
		return nil, err
	}
	agreed, err := j.Table(ctx, "agreed")
	if err != nil {
		return nil, err
	}
	l, err := accord.Open(ctx, accord.Options{Name: m.Journal, Own: own, Agreed: agreed, Keys: keys, Accepts: accepts, Log: log})
	return &Accord{l}, err
}
