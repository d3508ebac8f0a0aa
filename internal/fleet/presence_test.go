package fleet

import (
	"log/slog"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
)

// When a minion was seen last is known after a kill, too: of one that was connected it is
// when that was last recorded, of one that had gone the time at which it went.
func TestLastSeenOverAKill(t *testing.T) {
	t.Parallel()
	b, err := broker.Start(broker.Options{
		Name: "test", StoreDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Admit: func(broker.Peer) bus.Identity { return bus.Identity{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	p, err := openPresence(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now().Truncate(time.Second)
	at := func(n int) time.Time { return begin.Add(time.Duration(n) * seenEvery) }
	keep := func(n int) {
		if err := p.store(t.Context(), false, at(n)); err != nil {
			t.Fatal(err)
		}
	}
	p.Join("web1", "a", false)
	p.Join("web2", "b", false)
	keep(1)
	keep(2)
	p.Leave("web2", "b", at(2).Add(time.Second))
	keep(3)
	keep(4)
	keep(5)
	p, err = openPresence(t.Context(), j) // as after a kill
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]time.Time{"web1": at(5), "web2": at(2).Add(time.Second)} {
		if _, got := p.Connected(salt.MinionID(id)); !got.Equal(want) {
			t.Errorf("%s was seen %s, want %s after the beginning", id, got.Sub(begin), want.Sub(begin))
		}
	}
}
