package admission

import (
	"context"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// revokeDelay is how long a minion whose key was deleted keeps its connection, to read the
// answer and to return the job that revoked it.
const revokeDelay = time.Second

// Revoke deletes the accepted key of the minion that sends the request, which is that of the
// connection.
func (a *Admission) Revoke(ctx context.Context, r *rpc.Request) error {
	id := salt.MinionID(r.From.Name)
	entries, err := a.Keys.Store.Of(id)
	for _, e := range entries {
		if e.State != pki.Accepted {
			continue
		}
		a.Log.Warn("a minion has revoked its own key", "minion", id, "fingerprint", e.Key.SHA256())
		if err := r.Send(ctx, protocol.Revoked{Key: e.Key.SHA256()}); err != nil {
			return err
		}
		who := keyring.Remote(id, r.From.Source)
		a.wg.Go(func() { a.forgetKey(e, who) })
		return nil
	}
	return err
}

// forgetKey deletes a key, with who in the audit log.
func (a *Admission) forgetKey(e pki.Entry, who audit.Who) {
	pause := time.NewTimer(revokeDelay)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-a.ctx.Done():
	}
	if err := a.Keys.By(who).Delete(e); err != nil {
		a.Log.Error("revoked key not deleted", "minion", e.ID, "err", err)
	}
}
