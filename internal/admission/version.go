package admission

import (
	"crypto/tls"
	"time"

	"github.com/brinebus/brine/internal/upstream"
)

// CheckVersion refuses, within the handshake, who speaks no protocol that this master
// does.
func (a *Admission) CheckVersion(s tls.ConnectionState) error {
	err := upstream.Spoken(a.Version).CheckMinion(s)
	if err != nil && a.often.Few("version", time.Now(), maxUnfit) {
		id, _, _ := claim(&s) // it is only told
		a.Log.Warn("connection refused", "minion", id, "err", err)
	}
	return err
}

// maxUnfit is how often in a minute that is told.
const maxUnfit = 10
