package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/blockfile"
)

// recoverStore prepares the files of the store for the server, and reports what is lost. A
// member of a cluster gets what is missing from the others: a record that is marked as erased
// here would make its copy differ from theirs.
func (b *Broker) recoverStore() error {
	if b.opts.StoreDir == "" || b.opts.Cluster != nil {
		return nil
	}
	begun := time.Now()
	state, r, err := blockfile.Recover(b.opts.StoreDir)
	if err != nil {
		if r != nil { // the next start does not find it again
			b.tellLost(r.Lost)
		}
		return err
	}
	debug.FreeOSMemory() // of the blocks that were read, up to 8 MiB each
	b.state, b.lost = &state, r.Lost
	b.opts.Log.Debug("the store was checked", "blocks", r.Blocks, "read", r.Read, "took", time.Since(begun).Round(time.Millisecond))
	b.tellLost(r.Lost)
	warnOfRewrite(b.opts.Log, state)
	return b.health.syncer.Stored()
}

// renewStore writes again what a failed sync has left in doubt, and then checks all of the
// store that is not known to be whole. The store must be closed, and must not be opened after an
// error: at damage that is not repaired the server truncates the block.
func (b *Broker) renewStore() error {
	renewed, err := b.health.syncer.Renew()
	b.stateMu.Lock()
	defer b.stateMu.Unlock()
	b.unchecked = b.unchecked || renewed || b.state != nil && len(b.state.Rewrite) > 0
	if err != nil || !b.unchecked {
		return err
	}
	state, r, err := blockfile.RecoverAgain(b.opts.StoreDir)
	if r != nil { // after an error, too: what was repaired is not found again
		b.losses.add(r.Lost)
		b.tellLost(r.Lost)
	}
	if err != nil {
		if b.state != nil && state.Found != nil { // nil also if the state could not be read
			b.state.Found = state.Found // it may be written meanwhile
		}
		return err
	}
	b.state, b.unchecked = &state, false
	warnOfRewrite(b.opts.Log, state)
	return nil
}

func warnOfRewrite(log *slog.Logger, s blockfile.State) {
	for stream, blocks := range s.Rewrite {
		log.Warn("no room to write a part of the store again that may not be on the disk since the daemon was killed: a power cut could take it", "stream", stream, "blocks", blocks, "hint", "free some space and restart the daemon")
	}
}

// losses are the losses found when the store was reopened.
type losses struct {
	mu         sync.Mutex
	found      func([]blockfile.Lost) // called with them
	unreported []blockfile.Lost
}

func (l *losses) add(lost []blockfile.Lost) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unreported = append(l.unreported, lost...)
}

func (l *losses) watch(found func([]blockfile.Lost)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.found = found
}

// tell calls found with them, in a goroutine of wg. found writes to the journal, so the store
// must be open.
func (l *losses) tell(wg *sync.WaitGroup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, lost := l.found, l.unreported
	if found == nil || len(lost) == 0 {
		return
	}
	l.unreported = nil
	wg.Go(func() { found(lost) })
}

func (b *Broker) tellLost(lost []blockfile.Lost) {
	for _, l := range lost {
		b.opts.Log.Error("a part of the store is lost", "stream", l.Stream, "from", l.From, "to", l.To, "after", l.After, "before", l.Before, "file", l.Block, "offset", l.Offset, "bytes", l.Bytes, "copy", l.Copy)
	}
}

// Pauses while a store that was closed cleanly is checked; the check must not slow down others.
const (
	checkAfter = 10 * time.Second
	checkPause = 100 * time.Millisecond // between two blocks, of 8 MiB
)

// watchStore checks all of an open store once: if a reader meets damage, the server truncates
// the block there.
func (b *Broker) watchStore(found func([]blockfile.Lost)) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.wg.Go(func() {
		select {
		case <-b.quit:
			cancel()
		case <-ctx.Done():
		}
	})
	if !backoff.Sleep(ctx, checkAfter) {
		return
	}
	r, err := b.verify(ctx, checkPause)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		b.opts.Log.Error("the store was not checked", "err", err)
	}
	if r != nil && len(r.Lost) > 0 {
		found(r.Lost)
	}
}

// learnEvery is how often new finished blocks of the server are recorded. A start after a kill
// reads those that came later.
const learnEvery = 5 * time.Second

// learnStore records what the next start needs to know about finished blocks.
func (b *Broker) learnStore() {
	tick := time.NewTicker(learnEvery)
	defer tick.Stop()
	l := blockfile.NewLearner(b.opts.StoreDir, func() error {
		select {
		case <-b.quit:
			return context.Canceled
		case <-time.After(checkPause):
			return nil
		}
	})
	for {
		select {
		case <-b.quit:
			return
		case <-tick.C:
		}
		if err := l.Learn(); err != nil && !errors.Is(err, context.Canceled) && b.auth.throttle.First("learn "+err.Error(), time.Now()) {
			b.opts.Log.Warn("the summary of the store is not written: a start after a kill takes longer", "err", err)
		}
	}
}

// WatchStore starts to check all of the store slowly. found is called with what is lost, now
// and whenever the store is opened again.
func (b *Broker) WatchStore(found func([]blockfile.Lost)) {
	if b.opts.Cluster != nil {
		return
	}
	b.losses.watch(found)
	b.wg.Go(func() { b.watchStore(found) })
}

// Verify checks all of the store now.
func (b *Broker) Verify(ctx context.Context) (*blockfile.Report, error) { return b.verify(ctx, 0) }

// errCopies is why the store of a member is not checked.
var errCopies = errors.New("the store of a member of a cluster is not checked file by file: the server compares it with the copies of the others")

func (b *Broker) verify(ctx context.Context, pause time.Duration) (*blockfile.Report, error) {
	if b.opts.Cluster != nil {
		return nil, errCopies
	}
	c := blockfile.Checker{Dir: b.opts.StoreDir, Repair: true, Running: true, Pause: func() error {
		if !backoff.Sleep(ctx, pause) {
			return context.Cause(ctx)
		}
		return nil
	}}
	r, err := c.Check()
	b.tellLost(r.Lost) // after an error, too: what is repaired is not found again
	b.stateMu.Lock()
	defer b.stateMu.Unlock()
	if b.state != nil && len(r.Lost) > 0 {
		b.state.Lost = append(b.state.Lost, r.Lost...)
		err = errors.Join(err, b.state.Write(b.opts.StoreDir))
	}
	return r, err
}

// leaveWithin is how long an orderly stop waits for the disk. A service manager kills the daemon after 30 s.
const leaveWithin = 10 * time.Second

// leaveStore records that the store was closed cleanly, unless something of it may not be on the disk: a note about
// that may be missing, too. The server does not sync what it closes, and the next start counts as stored, and as on the
// disk, what it finds in a store that was closed cleanly, also what no writer was told of.
func (b *Broker) leaveStore() {
	b.stateMu.Lock()
	defer b.stateMu.Unlock()
	if b.state == nil || b.health.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveWithin)
	defer cancel()
	err := within(ctx, b.health.syncer.All)
	if err == nil {
		err = b.state.Leave(b.opts.StoreDir)
	}
	if err != nil {
		b.opts.Log.Error("the orderly close of the store was not recorded: the next start checks all of it", "err", err)
	}
	b.state = nil
}

// within calls f, and does not wait for it when ctx ends: a disk that does not answer cannot be interrupted.
func within(ctx context.Context, f func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the disk does not answer in time: %w", ctx.Err())
	}
}

// Lost returns now, what was found to be lost when the store was opened, and all, what was
// found at any start, the latest last.
func (b *Broker) Lost() (now, all []blockfile.Lost) {
	b.stateMu.Lock()
	defer b.stateMu.Unlock()
	if b.state == nil {
		return b.lost, b.lost
	}
	return b.lost, b.state.Lost
}

// Reserve records on the disk that the sequences of a stream up to seq may have been used:
// whatever is lost, the stream goes on after them.
func (b *Broker) Reserve(stream string, seq uint64) error {
	b.stateMu.Lock()
	defer b.stateMu.Unlock()
	if b.state == nil || seq <= b.state.High[stream] {
		return nil
	}
	before := b.state.High[stream]
	b.state.High[stream] = seq
	err := b.state.Write(b.opts.StoreDir)
	if err != nil {
		b.state.High[stream] = before
	}
	return err
}

// SyncOf returns the Sync for a value of the setting journal_sync.
func SyncOf(setting string) Sync {
	if setting == "always" {
		return SyncAlways
	}
	return SyncSoon
}
