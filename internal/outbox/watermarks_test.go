package outbox

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
)

// TestACheckpointRecordsWhatAnEarlierOneDidNot: one that fails, or that waits for another minion, leaves
// nothing out of the next one. What is left out is stored again after a kill, if it comes again.
func TestACheckpointRecordsWhatAnEarlierOneDidNot(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	own, err := broker.Start(broker.Options{Name: "test", StoreDir: filepath.Join(t.TempDir(), "journal"), Log: log, Admit: func(broker.Peer) bus.Identity { return bus.Identity{} }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Stop)
	j, err := journal.Open(t.Context(), own.Conn(), journal.Options{Store: own.Store()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	full := errors.New("the disk is full")
	var fails error
	open := func() *watermarks {
		t.Helper()
		w, err := openWatermarks(t.Context(), j, func() error { return fails })
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := open()
	put := func(id salt.MinionID, n uint64) {
		t.Helper()
		p, err := j.BeginAll(drafts([]event.Event{{Tag: "a/b", Data: []byte(`{}`), From: string(id)}}, messageName(id, "e", n), 0, 0))
		if err == nil {
			_, err = p.Wait(context.Background())
		}
		if err != nil {
			t.Fatal(err)
		}
		w.sender(id).set(Watermark{"e", n, 0})
	}
	slow := w.begin("slow") // its messages are just being stored
	put("web1", 1)
	if err := w.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	slow.end()
	put("web2", 1)
	fails = full
	if err := w.checkpoint(t.Context()); !errors.Is(err, full) {
		t.Fatal(err)
	}
	fails = nil
	put("web3", 1)
	if err := w.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := open() // as after a kill
	for _, id := range []salt.MinionID{"web1", "web2", "web3"} {
		if !again.sender(id).has("e", 1, 0) {
			t.Errorf("what is stored of %s is not known", id)
		}
	}
}
