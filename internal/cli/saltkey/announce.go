package saltkey

import (
	"context"
	"path/filepath"
	"time"

	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// announceTime limits how long a master may take to record who decides.
const announceTime = 2 * time.Second

// introduce connects to a running master, so that its audit log can say who decided about a
// key: a moved file does not show that. It happens before root's rights are given up, since the
// kernel names the user of the connection. Without a running master, nothing is announced.
func (t *tool) introduce() {
	conn, err := rpc.DialBySudo(filepath.Join(t.cfg.SockDir, client.MasterSocket), t.env.Getenv("SUDO_USER"))
	if err == nil {
		t.master = conn
	}
}

// announce tells the master what is about to happen to keys. A failure does not prevent it; the
// audit log then names the directory only.
func (t *tool) announce(ctx context.Context, act string, entries []pki.Entry) {
	if t.master == nil || len(entries) == 0 {
		return
	}
	q := protocol.KeyAction{Act: act}
	for _, e := range entries {
		q.Keys = append(q.Keys, e.Name())
	}
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	_ = t.master.Ask(ctx, protocol.OpKeyAction, q, nil)
}
