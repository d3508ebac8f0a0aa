package outbox

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

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
	full := errors.New("the disk is full")
	w, open := openMarks(t)
	var fails error
	w.durable = func() error { return fails }
	slow := w.begin("slow") // its messages are just being stored
	w.put(t, "web1", 1)
	if err := w.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	slow.end()
	w.put(t, "web2", 1)
	fails = full
	if err := w.checkpoint(t.Context()); !errors.Is(err, full) {
		t.Fatal(err)
	}
	fails = nil
	w.put(t, "web3", 1)
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

// held are the ids that have a key.
type held []salt.MinionID

func (h held) Has(id salt.MinionID) (bool, error) { return slices.Contains(h, id), nil }

// TestMinionsWithoutAKeyAreForgotten: in memory and in the table, unless something of them is being stored.
// Whoever waits for the turn of one that is removed takes the turn that others take.
func TestMinionsWithoutAKeyAreForgotten(t *testing.T) {
	t.Parallel()
	w, again := openMarks(t)
	for _, id := range []salt.MinionID{"web1", "short", "busy", "back"} {
		w.put(t, id, 1)
	}
	if err := w.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	busy := w.begin("busy")
	forget := func(after time.Duration, keys ...salt.MinionID) {
		t.Helper()
		if err := w.forget(t.Context(), held(keys), after); err != nil {
			t.Fatal(err)
		}
	}
	forget(0, "web1")
	forget(time.Hour, "web1", "back") // the others have none for less than that
	if len(w.senders) != 4 {
		t.Errorf("%d of 4 minions are known while their keys may come back", len(w.senders))
	}
	old := w.sender("short")
	forget(0, "web1")
	busy.end()
	for id, known := range map[salt.MinionID]bool{"web1": true, "short": false, "busy": true, "back": true} {
		if w.met(id) != known {
			t.Errorf("%s is known: %t", id, !known)
		}
	}
	fresh := again()
	for id, known := range map[salt.MinionID]bool{"web1": true, "short": false} {
		if fresh.met(id) != known {
			t.Errorf("after a restart %s is known: %t", id, !known)
		}
	}
	old.turn <- struct{}{}
	if old.begin() || len(old.turn) != 0 {
		t.Error("the turn of a minion that was removed can be taken beside the one of the same id")
	}
	w.begin("short").end()
}

// openMarks opens the watermarks of a journal, and again as after a kill.
func openMarks(t *testing.T) (w *watermarks, again func() *watermarks) {
	t.Helper()
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
	again = func() *watermarks {
		t.Helper()
		w, err := openWatermarks(t.Context(), j, func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	return again(), again
}

// put stores a message of a minion.
func (w *watermarks) put(t *testing.T, id salt.MinionID, n uint64) {
	t.Helper()
	p, err := w.journal.BeginAll(drafts([]event.Event{{Tag: "a/b", Data: []byte(`{}`), From: string(id)}}, messageName(id, "e", n), 0, 0))
	if err == nil {
		_, err = p.Wait(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	w.sender(id).set(Watermark{"e", n, 0})
}
