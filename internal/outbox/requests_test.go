package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// failing is a store that can be made to fail once what it is sent next is stored, before
// anybody is told so: as when another stream of it finds the disk full.
type failing struct {
	journal.Store
	mu     sync.Mutex
	armed  bool
	failed chan struct{}
}

func (f *failing) arm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.failed = true, make(chan struct{})
}

func (f *failing) mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = make(chan struct{})
}

// Failed implements journal.Store.
func (f *failing) Failed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// Waits implements journal.Store.
func (f *failing) Waits() bool { return true }

// Sync implements journal.Store.
func (f *failing) Sync(stream string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.armed {
		f.armed = false
		close(f.failed)
	}
	return f.Store.Sync(stream)
}

// taking is a master that takes all, and knows what it has by its number.
type taking struct {
	took   map[string]int
	framed bool // it speaks protocol 1
}

func (m *taking) Call(string, any) (*rpc.Stream, error) {
	return nil, errors.New("it is not asked for")
}
func (m *taking) Framed() bool          { return m.framed }
func (m *taking) Gone() <-chan struct{} { return nil }
func (m *taking) TakesEarly() bool      { return false }

func (m *taking) Ask(_ context.Context, op string, body, answer any) error {
	batch, delivered := body.(Batch).Messages, answer.(*Delivered)
	if m.framed != (op == opLetters) {
		return rpc.Errorf(rpc.NotFound, "there is no request %q", op)
	}
	for _, k := range batch {
		m.took[fmt.Sprint(k.Epoch, k.N)]++
	}
	if delivered.Messages = make([]Delivery, len(batch)); m.framed {
		delivered.Messages, delivered.Letters = nil, delivered.Messages
	}
	return nil
}

// openBox opens an outbox on a bus of its own.
func openBox(t *testing.T, dir string, m Master) (b *Box, store *failing, stop func()) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	own, err := broker.Start(broker.Options{Name: "test", StoreDir: filepath.Join(dir, "journal"), Log: log, Admit: func(broker.Peer) bus.Identity { return bus.Identity{} }})
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(own.Stop)
	t.Cleanup(stop)
	store = &failing{Store: own.Store(), failed: make(chan struct{})}
	b, err = open(t.Context(), Options{ID: "web1", Dir: dir, Conn: own.Conn(), Store: store, MaxBytes: 1 << 20, Log: log}, "", route{
		generation: func() string { return "" }, master: func(string) Master { return m }, failed: func(string, Master) {},
		enter: func(context.Context, string) (func(), error) { return func() {}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return b, store, stop
}

// ending is a master that takes a message while the minion is told to end.
type ending struct {
	*taking
	end context.CancelFunc
}

func (m ending) Ask(ctx context.Context, op string, body, answer any) error {
	m.end()
	return m.taking.Ask(ctx, op, body, answer)
}

// TestWhatIsDeliveredAtTheEndIsRemoved: the return of a job that the end of the minion has cut off
// is delivered, and leaves the store without a warning.
func TestWhatIsDeliveredAtTheEndIsRemoved(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b, _, _ := openBox(t, t.TempDir(), ending{&taking{took: map[string]int{}}, cancel})
	var said bytes.Buffer
	b.log = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := b.Put(t.Context(), Outgoing{Op: protocol.OpFire, Body: json.RawMessage(`{}`), Events: 1, ID: "0/x"}); err != nil {
		t.Fatal(err)
	}
	b.Drain(ctx)
	if said.Len() > 0 {
		t.Errorf("the log has %s", &said)
	}
	left, err := b.queue.Read(t.Context(), 1, 10, readBytes)
	if err != nil || len(left) != 0 || b.Waiting() != 0 {
		t.Errorf("%d messages are in the store and %d wait: %v", len(left), b.Waiting(), err)
	}
}

// TestARequestIsOnTheDiskBeforeItsMessageGoes: a power cut must not take the record of a request and
// keep the removal of its message, since the tool may repeat it. Where the file cannot be synced, the
// message stays in the store.
func TestARequestIsOnTheDiskBeforeItsMessageGoes(t *testing.T) {
	t.Parallel()
	b, _, _ := openBox(t, t.TempDir(), &taking{took: map[string]int{}})
	put := func(id string) {
		t.Helper()
		if err := b.Put(t.Context(), Outgoing{Op: protocol.OpFire, Body: json.RawMessage(`{}`), Events: 1, ID: id}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.turn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stored := func() int {
		t.Helper()
		left, err := b.queue.Read(t.Context(), 1, 10, readBytes)
		if err != nil {
			t.Fatal(err)
		}
		return len(left)
	}
	put("0/x")
	b.requests.file.Close() // nothing can be synced
	b.clear(t.Context(), true)
	if n := stored(); n != 1 {
		t.Errorf("%d messages are in the store, and their requests may not be on the disk", n)
	}
	put("0/y") // this finds that the file cannot be written, and the next one writes it anew
	b.clear(t.Context(), true)
	if n := stored(); n != 0 {
		t.Errorf("%d messages are still in the store", n)
	}
}

// TestARequestWhoseRecordIsLostIsKnown: a power cut has taken the records of requests and left their messages. After the start they are
// known, also if the clock was set so that the store does not recognise them.
func TestARequestWhoseRecordIsLostIsKnown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b, _, stop := openBox(t, dir, nil)
	for _, id := range []string{"0/x", "", "0/y"} {
		if err := b.Put(t.Context(), Outgoing{Op: protocol.OpFire, Body: json.RawMessage(`{}`), Events: 1, ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	b.close()
	stop()
	if err := os.Remove(filepath.Join(dir, "outbox_requests")); err != nil {
		t.Fatal(err)
	}
	b, _, _ = openBox(t, dir, nil)
	for id, want := range map[string]uint64{"0/x": 1, "0/y": 3} {
		if seq, known := b.requests.find(id); !known || seq != want {
			t.Errorf("%s is known as %d, %v; want %d", id, seq, known, want)
		}
	}
	if b.Waiting() != 3 {
		t.Errorf("%d messages wait", b.Waiting())
	}
}

// TestAMasterOfProtocolOne: the request had another name.
func TestAMasterOfProtocolOne(t *testing.T) {
	t.Parallel()
	for _, framed := range []bool{false, true} {
		master := &taking{took: map[string]int{}, framed: framed}
		b, _, _ := openBox(t, t.TempDir(), master)
		if err := b.Put(t.Context(), Outgoing{Op: protocol.OpFire, Body: json.RawMessage(`{}`), Events: 1, ID: "0/x"}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.turn(t.Context()); err != nil || len(master.took) != 1 {
			t.Errorf("protocol 1 %v: %v, took %v", framed, err, master.took)
		}
	}
}

// A message whose sender was informed that it may not be stored, but that was delivered, is
// recognised when it is sent again, whatever has happened to the store meanwhile.
func TestADeliveredMessageIsNotSentTwice(t *testing.T) {
	t.Parallel()
	dir, master := t.TempDir(), &taking{took: map[string]int{}}
	b, store, stop := openBox(t, dir, master)
	out := Outgoing{Op: protocol.OpFire, Body: json.RawMessage(`{}`), Events: 1, ID: "0/x"}
	next := out
	next.ID = "0/y"
	store.arm()
	if err := b.Put(t.Context(), out); err == nil {
		t.Fatal("it is taken by a store that has failed")
	}
	store.mend()
	deliver := func() {
		t.Helper()
		if _, err := b.turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.clear(t.Context(), true)
	}
	if err := b.Put(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	deliver()
	again := func(when string) {
		t.Helper()
		if err := b.Put(t.Context(), out); err != nil {
			t.Fatal(err)
		}
		deliver()
		if len(master.took) != 2 {
			t.Errorf("%s the master has %d messages of 2", when, len(master.took))
		}
	}
	b.close()
	stop()
	b, _, _ = openBox(t, dir, master)
	again("after a restart")
}

// A request whose record cannot be written, on a full disk say, is known all the same, and is
// written with the next one.
func TestARequestThatIsNotRecorded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "requests")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := openRequests(path)
	if err != nil {
		t.Fatal(err)
	}
	r.file.Close() // no write to it succeeds
	if err := r.add("a", 1); err == nil {
		t.Fatal("a record is written to a closed file")
	}
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if err := r.add("b", 2); err == nil {
		t.Fatal("a record is written into a folder that is not there")
	}
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.add("c", 3); err != nil {
		t.Fatal(err)
	}
	r.end()
	again, err := openRequests(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.end()
	for _, known := range []*requests{r, again} {
		for i, id := range []string{"a", "b", "c"} {
			if seq, ok := known.find(id); !ok || seq != uint64(i+1) {
				t.Errorf("%s is at %d, %t", id, seq, ok)
			}
		}
	}
}
