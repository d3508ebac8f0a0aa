package master_test

import (
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// TestMaxMinions: a minion beyond max_minions is told why it may not connect, and its key stays
// accepted; when another one has gone, it may. The one that is connected may connect again.
func TestMaxMinions(t *testing.T) {
	w := start(t, "auto_accept: True\nmax_minions: 1\n")
	k1, k2 := key(t), key(t)
	first := w.connect("web1", k1, pong)
	hello(t, first)
	if _, err := w.offerKey("web2", k2, nil); rpc.CodeOf(err) != rpc.Unavailable || !strings.Contains(err.Error(), "max_minions") {
		t.Fatalf("a second minion gets %v", err)
	}
	if !strings.Contains(w.said(), "max_minions others are connected") {
		t.Errorf("the log:\n%s", w.said())
	}
	again := w.connect("web1", k1, pong)
	hello(t, again)
	again.Close()
	bustest.Until(t, "the other may connect", func() bool {
		l, err := w.offerKey("web2", k2, nil)
		return err == nil && l.State() == protocol.KeyAccepted && l.Ready()
	})
}
