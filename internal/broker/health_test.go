package broker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/blockfile"
	"github.com/brinebus/brine/test/deadline"
)

// stored starts a broker with a stream of one message.
func stored(t *testing.T) (b *Broker, dir string, there func() bool) {
	t.Helper()
	dir = t.TempDir()
	b, _, _ = startLocal(t, dir)
	js, err := b.Conn().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "EVENTS", Subjects: []string{"salt.event.>"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish("salt.event.a", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	return b, dir, func() bool {
		m, err := js.GetMsg("EVENTS", 1)
		return err == nil && string(m.Data) == "kept"
	}
}

// failSync makes a sync of the store fail, and returns the path of its block and where the block is
// meanwhile.
func failSync(t *testing.T, b *Broker, dir string) (block, aside string) {
	t.Helper()
	block, aside = unsyncable(t, dir)
	if err := b.health.Flush("EVENTS"); err == nil {
		t.Fatal("what cannot be synced was")
	}
	return block, aside
}

// unsyncable replaces the block of the store by something that cannot be synced.
func unsyncable(t *testing.T, dir string) (block, aside string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "jetstream/*/streams/EVENTS/msgs/1.blk"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	block, aside = found[0], filepath.Join(t.TempDir(), "1.blk")
	if err := errors.Join(os.Rename(block, aside), os.Symlink(os.DevNull, block)); err != nil { // this cannot be synced
		t.Fatal(err)
	}
	return block, aside
}

// TestAStoreThatIsNotSyncedWasNotClosedCleanly: the note about what is not synced may be missing, if the disk is full.
// After a power cut the next start must check more than the end of the store.
func TestAStoreThatIsNotSyncedWasNotClosedCleanly(t *testing.T) {
	for _, fails := range []bool{false, true} {
		b, dir, _ := stored(t)
		b.health.stop()
		b.health.Soon("EVENTS")
		if fails {
			unsyncable(t, dir)
			if err := os.WriteFile(filepath.Join(dir, "unsynced"), nil, 0o600); err != nil { // no note can be written
				t.Fatal(err)
			}
		}
		b.Stop()
		state, err := blockfile.ReadState(dir)
		if err != nil || state.Clean == fails {
			t.Errorf("the sync fails: %t; it counts as closed cleanly: %t, %v", fails, state.Clean, err)
		}
	}
}

// TestAnOrderlyStopSyncsAll: what the server has written, and nobody was told of, counts as stored and as on the disk at the
// next start, if the store was closed cleanly.
func TestAnOrderlyStopSyncsAll(t *testing.T) {
	for name, how := range map[string]Sync{"always": SyncAlways, "soon": SyncSoon} {
		for _, fails := range []bool{false, true} {
			b, dir, _ := stored(t)
			b.health.waits = how == SyncAlways
			if fails {
				unsyncable(t, dir)
			}
			b.Stop()
			state, err := blockfile.ReadState(dir)
			if err != nil || state.Clean == fails {
				t.Errorf("%s, the sync fails: %t; it counts as closed cleanly: %t, %v", name, fails, state.Clean, err)
			}
			noted, err := filepath.Glob(filepath.Join(dir, "unsynced", "EVENTS"))
			if err != nil || len(noted) > 0 != fails {
				t.Errorf("%s, the sync fails: %t; the next start is told of %q, %v", name, fails, noted, err)
			}
		}
	}
}

// TestAStopDoesNotWaitForTheDisk that does not answer.
func TestAStopDoesNotWaitForTheDisk(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stuck := make(chan struct{})
	defer close(stuck)
	err := within(ctx, func(context.Context) error {
		cancel()
		<-stuck
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it is synced: %v", err)
	}
}

// Without free descriptors the store is not reopened until there are some; then it is complete.
func TestStoreIsReopenedWhenThereAreDescriptors(t *testing.T) {
	b, _, there := stored(t)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = uint64(len(open)) + 20
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	back := func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) }
	t.Cleanup(back)
	if err := b.reopen(1); err == nil {
		t.Error("the store was opened anew without descriptors")
	}
	if b.auth.account.JetStreamUsage().Streams != 1 {
		t.Error("the store was closed though it could not be opened again")
	}
	b.health.fail("Critical write error: too many open files")
	if b.health.Err() != syscall.EMFILE {
		t.Errorf("the cause is %v", b.health.Err())
	}
	back()
	until(t, "the store is well", func() bool { return b.health.Err() == nil && there() })
}

// A store that was reopened with a stream missing is reopened again until it is complete.
func TestStoreThatCameBackInPartIsNotWell(t *testing.T) {
	b, dir, there := stored(t)
	found, err := filepath.Glob(filepath.Join(dir, "jetstream/*/streams/EVENTS"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	aside := filepath.Join(t.TempDir(), "EVENTS")
	if err := b.reopen(1); err != nil {
		t.Fatal(err)
	}
	if err := b.auth.account.DisableJetStream(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(found[0], aside); err != nil {
		t.Fatal(err)
	}
	if err := b.reopen(1); err == nil {
		t.Error("a store without its stream counts as whole")
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(found[0]), 0o700), os.Rename(aside, found[0])); err != nil {
		t.Fatal(err)
	}
	if err := b.reopen(1); err != nil || !there() {
		t.Errorf("when it is whole again: %v", err)
	}
}

// A write that fails while the store is being reopened is not forgotten: otherwise that stream
// would never answer its writers.
func TestAFailureWhileTheStoreIsOpened(t *testing.T) {
	h := newHealth(Options{StoreDir: t.TempDir()})
	full := "Filestore [AUDIT] Critical write error: write 1.blk: " + syscall.ENOSPC.Error()
	failed := h.Failed()
	h.heard(full)
	deadline.Receive(t, h.alarm, "alarm")
	h.heard(full) // from another stream, before all are closed
	h.closed()
	h.heard(full) // from a stream that was just opened
	if h.well() || h.Err() == nil {
		t.Error("the store is taken for well, and one of its streams takes nothing")
	}
	h.closed()
	if !h.well() || h.Err() != nil {
		t.Error("the store stays closed though nothing has failed since it was opened")
	}
	if now := h.Failed(); now == failed {
		t.Error("writers are told of a failure that is over")
	}
}

// TestAMemberThatCannotWriteEnds: nothing waits for its store from then on, also if it reaches most
// others again.
func TestAMemberThatCannotWriteEnds(t *testing.T) {
	h := newHealth(Options{StoreDir: t.TempDir(), Cluster: &ClusterOptions{}, Log: slog.New(slog.DiscardHandler)})
	ended := make(chan error, 1)
	h.ends = func(err error) { ended <- err }
	failed := h.Failed()
	h.heard("RAFT [x] Critical write error: write 1.blk: " + syscall.ENOSPC.Error())
	if err := deadline.Receive(t, ended, "the end of the daemon"); err == nil || h.Err() == nil {
		t.Errorf("it ends with %v, and the store has %v", err, h.Err())
	}
	deadline.Receive(t, failed, "the end of what is stored")
	h.majority(errors.New("too few members"))
	h.majority(nil)
	if h.Err() == nil {
		t.Error("the store is taken for well again")
	}
}

// After a failed sync nothing counts as synced until the store was reopened: then what was not
// synced is written again, and what cannot be read is reported. If that check fails, the store stays closed
// until one has succeeded.
func TestAFailedSyncLastsUntilTheStoreIsReopened(t *testing.T) {
	b, dir, there := stored(t)
	b.health.stop() // this test does itself what the broker would do
	js, err := b.Conn().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"damaged later", "kept too"} {
		if _, err := js.Publish("salt.event.a", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	block, aside := failSync(t, b, dir)
	text, err := os.ReadFile(aside)
	at := bytes.Index(text, []byte("damaged later"))
	if err != nil || at < 0 {
		t.Fatal(err)
	}
	text[at] ^= 1
	if err := errors.Join(os.Remove(block), os.WriteFile(aside, text, 0o600), os.Rename(aside, block)); err != nil {
		t.Fatal(err)
	}
	if err := b.health.Flush("EVENTS"); err == nil || b.health.Err() == nil {
		t.Errorf("what a failed sync may have lost passes for synced: %v, %v", err, b.health.Err())
	}
	state := filepath.Join(dir, "state.json")
	if err := errors.Join(os.Rename(state, state+".aside"), os.Mkdir(state, 0o700)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // at the second attempt there is nothing more to write again
		if err := b.reopen(1); err == nil || b.streams() > 0 {
			t.Fatalf("the store was opened without a check, with %d streams: %v", b.streams(), err)
		}
	}
	if err := errors.Join(os.Remove(state), os.Rename(state+".aside", state)); err != nil {
		t.Fatal(err)
	}
	if err := b.reopen(1); err != nil || !b.health.well() {
		t.Fatal(err)
	}
	if b.unchecked {
		t.Error("it counts as unchecked")
	}
	if err := b.health.Flush("EVENTS"); err != nil || !there() {
		t.Errorf("after the store was opened anew: %v", err)
	}
	reported := make(chan []blockfile.Lost, 1)
	b.losses.watch(func(lost []blockfile.Lost) { reported <- lost })
	b.losses.tell(&b.wg)
	if lost := deadline.Receive(t, reported, "reported"); len(lost) != 1 || lost[0].Stream != "EVENTS" || lost[0].From != 2 || lost[0].To != 2 {
		t.Errorf("told as lost is %+v", lost)
	}
	if m, err := js.GetMsg("EVENTS", 3); err != nil || string(m.Data) != "kept too" {
		t.Errorf("what is behind it: %v", err)
	}
}

// TestAReopenedStoreIsNotWrittenAgain: that is for a start after a kill, and could take a minute for a large store. The
// exception is what there was no room for then.
func TestAReopenedStoreIsNotWrittenAgain(t *testing.T) {
	b, dir, there := stored(t)
	b.health.stop()
	block, err := filepath.Glob(filepath.Join(dir, "jetstream/*/streams/EVENTS/msgs/1.blk"))
	if err != nil || len(block) != 1 {
		t.Fatal(block, err)
	}
	aside := filepath.Join(t.TempDir(), "1.blk")
	if err := os.Link(block[0], aside); err != nil {
		t.Fatal(err)
	}
	b.unchecked = true
	if err := b.reopen(1); err != nil || b.unchecked || !there() {
		t.Fatalf("the store is not checked: %t, %v", !b.unchecked, err)
	}
	same := func() bool {
		then, err := os.Stat(aside)
		if err != nil {
			t.Fatal(err)
		}
		now, err := os.Stat(block[0])
		if err != nil {
			t.Fatal(err)
		}
		return os.SameFile(then, now)
	}
	if !same() {
		t.Error("a block was written again")
	}
	b.state.Rewrite = map[string][]int{"EVENTS": {1}}
	if err := errors.Join(b.state.Write(dir), b.reopen(1)); err != nil || !there() {
		t.Fatal(err)
	}
	if same() || len(b.state.Rewrite) > 0 {
		t.Errorf("what there was no room for before was not written again: %v", b.state.Rewrite)
	}
}

// If a daemon ends after a failed sync, before it has reopened the store, the next start does
// that: according to the kernel these blocks are on the disk.
func TestAFailedSyncIsKnownToTheNextStart(t *testing.T) {
	b, dir, _ := stored(t)
	b.health.stop() // the daemon ends before anything is done
	block, aside := failSync(t, b, dir)
	if err := errors.Join(os.Remove(block), os.Link(aside, block)); err != nil {
		t.Fatal(err)
	}
	b.Stop()

	same := func() bool {
		now, err := os.Stat(block)
		if err != nil {
			t.Fatal(err)
		}
		then, err := os.Stat(aside)
		if err != nil {
			t.Fatal(err)
		}
		return os.SameFile(now, then)
	}
	b, _, _ = startLocal(t, dir)
	if same() {
		t.Error("what could not be synced was not written anew")
	}
	js, err := b.Conn().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if m, err := js.GetMsg("EVENTS", 1); err != nil || string(m.Data) != "kept" {
		t.Errorf("what it had stored is %v, %v", m, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "unsynced", "*")); len(left) > 0 {
		t.Errorf("it is done once more at the next start: %v", left)
	}
	b.Stop()
	if err := errors.Join(os.Remove(aside), os.Link(block, aside)); err != nil {
		t.Fatal(err)
	}
	startLocal(t, dir)
	if !same() {
		t.Error("a start after one that was well writes everything anew")
	}
}
