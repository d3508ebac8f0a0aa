package outbox

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// session is a connection to a member of a cluster.
type session struct{ *rpc.Conn }

func (session) Gone() <-chan struct{} { return nil }
func (session) TakesEarly() bool      { return true }

// hasty is awaiting that tells what is stored early.
type hasty struct {
	awaiting
	stored chan salt.MinionID
}

func (h hasty) StoreEarly(ctx context.Context, id salt.MinionID, jid salt.JID, m Message, term uint64) error {
	err := h.awaiting.StoreEarly(ctx, id, jid, m, term)
	if err == nil {
		h.stored <- id
	}
	return err
}

// TestAReturnIsStoredEarlyWhereverItIs: a return that somebody waits for is stored at once although more
// messages wait before it than the minion keeps in memory, although it is among many that nobody waits
// for, and although the minion was restarted.
func TestAReturnIsStoredEarlyWhereverItIs(t *testing.T) {
	t.Parallel()
	all, key := startKeepers(t), bustest.Key(t)
	k := all[1]
	lead(t, all[:2]...)
	jid := salt.JID("20260101000000000002")
	stored := make(chan salt.MinionID, 3)
	k.Returns = hasty{awaiting{keeper: k, jid: jid}, stored}
	put := func(b *Box, op string) {
		t.Helper()
		if err := b.Put(t.Context(), Outgoing{Op: op, Body: json.RawMessage(`{}`), Events: 1}); err != nil {
			t.Fatal(err)
		}
	}
	boxes := map[string]*Box{}
	busy, _, _ := openBox(t, t.TempDir(), session{k.connect(t, "busy", key)})
	for range MaxBatch + 100 {
		put(busy, protocol.OpFire)
	}
	for range maxBehind { // nobody waits for these
		put(busy, "ret.20260101000000000001")
	}
	put(busy, "ret."+string(jid))
	boxes["busy"] = busy

	dir := t.TempDir()
	among, _, _ := openBox(t, t.TempDir(), session{k.connect(t, "among", key)})
	put(among, protocol.OpFire)
	for i := range 2 * 6 * maxNotAwaited { // more than are tried before the first ones are tried again
		if put(among, "ret.20260101000000000001"); i == 6*maxNotAwaited {
			put(among, "ret."+string(jid))
		}
	}
	boxes["among"] = among

	before, _, stop := openBox(t, dir, nil)
	put(before, protocol.OpFire)
	put(before, "ret."+string(jid))
	before.close()
	stop()
	boxes["restarted"], _, _ = openBox(t, dir, session{k.connect(t, "restarted", key)})

	all[0].bus.Kill(t)
	bustest.Until(t, "the others know", func() bool { return len(k.exchange.Others()) == 1 })
	waiting := map[string]uint64{}
	for id, b := range boxes {
		waiting[id] = b.Waiting()
		go b.Drain(t.Context())
	}
	for len(waiting) > 0 {
		select {
		case id := <-stored:
			if n, missing := waiting[string(id)]; !missing || boxes[string(id)].Waiting() != n {
				t.Errorf("when the return of %s is stored %d of %d messages still wait", id, boxes[string(id)].Waiting(), n)
			}
			delete(waiting, string(id))
		case <-time.After(time.Minute):
			t.Fatal("returns are not stored early: ", slices.Sorted(maps.Keys(waiting)))
		}
	}
}
