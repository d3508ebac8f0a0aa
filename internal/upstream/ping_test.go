package upstream_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// TestAMasterThatStoresNothingAnswersPings: a minion does not connect again since the disk of the master
// is full, or most of its cluster is away. It does if there is no answer at all.
func TestAMasterThatStoresNothingAnswersPings(t *testing.T) {
	t.Parallel()
	var answer atomic.Pointer[rpc.Error] // nil is none
	m := startMasterWith(t, map[string]rpc.Handler{"minionFire": func(ctx context.Context, _ *rpc.Request) error {
		if err := answer.Load(); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}}, protocol.KeyAccepted)
	o := m.options(t)
	m.Accept(o.ID, o.Key)
	l := connect(t, o)
	for _, code := range []rpc.Code{rpc.Unavailable, rpc.Busy, rpc.Denied, rpc.Internal} {
		if answer.Store(rpc.Errorf(code, "not now")); !l.AnswersPing(t.Context(), limit) {
			t.Errorf("the answer %q counts as none", code)
		}
	}
	answer.Store(nil)
	if l.AnswersPing(t.Context(), 100*time.Millisecond) {
		t.Error("no answer counts as one")
	}
	m.Server.Stop() // nobody listens for requests any more
	if l.AnswersPing(t.Context(), limit) {
		t.Error("a server without the master counts as the master")
	}
	l.Close()
	if l.AnswersPing(t.Context(), limit) {
		t.Error("a connection that has ended counts as answered")
	}
}
