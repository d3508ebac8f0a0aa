package master

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

// revokeDelay is what a minion whose key is forgotten gets to hear the answer and to
// return the job that asked.
const revokeDelay = time.Second

// revoke forgets the accepted key of the minion that asks. Which one that is, the
// connection says.
func (m *Master) revoke(ctx context.Context, r *rpc.Request) error {
	id := salt.MinionID(r.From.Name)
	entries, err := m.keys.Store.Of(id)
	for _, e := range entries {
		if e.State != pki.Accepted {
			continue
		}
		m.log.Warn("a minion has revoked its own key", "minion", id, "fingerprint", e.Key.SHA256())
		if err := r.Send(ctx, protocol.Revoked{Key: e.Key.SHA256()}); err != nil {
			return err
		}
		who := keyring.Remote(id, r.From.Source)
		m.wg.Go(func() { m.forgetKey(e, who) })
		return nil
	}
	return err
}

// forgetKey deletes a key in the name of who, as the audit log has it.
func (m *Master) forgetKey(e pki.Entry, who audit.Who) {
	pause := time.NewTimer(revokeDelay)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-m.ctx.Done():
	}
	if err := m.keys.By(who).Delete(e); err != nil {
		m.log.Error("revoked key not deleted", "minion", e.ID, "err", err)
	}
}
