package master

import (
	"context"
	"time"

	"brine/internal/bus"
	"brine/internal/pki"
	"brine/internal/protocol"
	"brine/internal/salt"
)

// revokeDelay is what a minion whose key is forgotten gets to hear the answer and to
// return the job that asked.
const revokeDelay = time.Second

// revoke forgets the accepted key of the minion that asks. Which one that is, the
// connection says.
func (m *Master) revoke(ctx context.Context, r *bus.Request) error {
	id := salt.MinionID(r.From.Name)
	if !m.cfg.AllowMinionKeyRevoke {
		return bus.Errorf(bus.Denied, "this master does not let minions revoke their keys (allow_minion_key_revoke)")
	}
	entries, err := m.keys.store.Of(id)
	for _, e := range entries {
		if e.State != pki.Accepted {
			continue
		}
		m.log.Warn("a minion has revoked its own key", "minion", id, "fingerprint", e.Key.SHA256())
		if err := r.Send(ctx, protocol.Revoked{Key: e.Key.SHA256()}); err != nil {
			return err
		}
		m.wg.Go(func() { m.forgetKey(e) })
		return nil
	}
	return err
}

func (m *Master) forgetKey(e pki.Entry) {
	pause := time.NewTimer(revokeDelay)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-m.ctx.Done():
	}
	if err := m.keys.store.Delete(e); err != nil {
		m.log.Error("revoked key not deleted", "minion", e.ID, "err", err)
	}
}
