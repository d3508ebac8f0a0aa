package saltkey

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
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
// audit log then names the directory only. If another master is at work, or this one can store nothing at the moment, the user is told what
// that means.
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
	var done protocol.KeyActed
	if err := t.master.Ask(ctx, protocol.OpKeyAction, q, &done); err != nil {
		return
	}
	if done.Elsewhere {
		t.env.Warn(salt.WithHint(errors.New("another master is at work on the NATS servers, which does not hear of this decision"), "decide there, too"))
	}
	if done.Unstored != "" {
		t.env.Warn(salt.WithHint(fmt.Errorf("this counts at this master at once, but cannot be stored at the moment: %s", done.Unstored), "it is stored, and counts at other masters, as soon as that is possible"))
	}
}
