package broker

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/blockfile"
)

// recoverStore prepares the files of the store for the server, and tells of what is lost.
func (b *Broker) recoverStore() error {
	if b.opts.StoreDir == "" {
		return nil
	}
	begun := time.Now()
	state, r, err := blockfile.Recover(b.opts.StoreDir)
	if err != nil {
		return err
	}
	debug.FreeOSMemory() // of the blocks that were read, some of 8 MiB
	b.state, b.lost = &state, r.Lost
	b.opts.Log.Debug("the store was looked at", "blocks", r.Blocks, "read", r.Read, "took", time.Since(begun).Round(time.Millisecond))
	b.tellLost(r.Lost)
	return nil
}

// renewStore writes anew what a failed sync has left in doubt, and looks at all of the store
// then that it does not know. The store must be closed.
func (b *Broker) renewStore() error {
	renewed, err := b.health.syncer.Renew()
	if err != nil || !renewed {
		return err
	}
	b.stateMu.Lock()
	state, r, err := blockfile.Recover(b.opts.StoreDir)
	if err != nil {
		b.stateMu.Unlock()
		return err
	}
	b.state = &state
	b.stateMu.Unlock()
	b.losses.add(r.Lost)
	b.tellLost(r.Lost)
	return nil
}

// losses are what was found to be lost while the store was opened anew.
type losses struct {
	mu         sync.Mutex
	found      func([]blockfile.Lost) // is told of them
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

// tell tells of them, in a goroutine of wg. Who is told writes it down, so the store must be
// well.
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

// Pauses of the look at a store that was closed in order, which takes no time from others.
const (
	checkAfter = 10 * time.Second
	checkPause = 100 * time.Millisecond // between two blocks, of 8 MiB
)

// watchStore looks once at all of a store that is open, since a reader that meets damage
// makes the server cut off the block there.
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
	switch {
	case ctx.Err() != nil:
	case err != nil:
		b.opts.Log.Error("the store was not looked at", "err", err)
	case len(r.Lost) > 0:
		found(r.Lost)
	}
}

// learnEvery is how often blocks that the server has finished are looked for. What came
// since then is read by a start after a kill.
const learnEvery = 5 * time.Second

// learnStore keeps what the next start needs to know of finished blocks.
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
			b.opts.Log.Warn("what is in the store is not written down: a start after a kill takes longer", "err", err)
		}
	}
}

// WatchStore begins to look at all of the store, gently. found is told of what is lost, now
// and whenever the store is opened anew.
func (b *Broker) WatchStore(found func([]blockfile.Lost)) {
	b.losses.watch(found)
	b.wg.Go(func() { b.watchStore(found) })
}

// Verify looks at all of the store now.
func (b *Broker) Verify(ctx context.Context) (*blockfile.Report, error) { return b.verify(ctx, 0) }

func (b *Broker) verify(ctx context.Context, pause time.Duration) (*blockfile.Report, error) {
	c := blockfile.Checker{Dir: b.opts.StoreDir, Repair: true, Running: true, Pause: func() error {
		if !backoff.Sleep(ctx, pause) {
			return context.Cause(ctx)
		}
		return nil
	}}
	r, err := c.Check()
	if err != nil {
		return r, err
	}
	b.tellLost(r.Lost)
	b.stateMu.Lock()
	defer b.stateMu.Unlock()
	if b.state != nil && len(r.Lost) > 0 {
		b.state.Lost = append(b.state.Lost, r.Lost...)
		err = b.state.Write(b.opts.StoreDir)
	}
	return r, err
}

// leaveStore writes down that the store was closed in order.
func (b *Broker) leaveStore() {
	b.stateMu.Lock()
	defer b.stateMu.Unlock()
	if b.state == nil || b.health.Err() != nil {
		return
	}
	if err := b.health.syncDirty(); err != nil {
		b.opts.Log.Error("what is stored is not synced", "err", err)
	}
	if err := b.state.Leave(b.opts.StoreDir); err != nil {
		b.opts.Log.Error("that the store was closed is not written down: the next start looks at all of it", "err", err)
	}
	b.state = nil
}

// Lost is what was found to be lost when the store was opened, and All what was at any
// start, the latest at the end.
func (b *Broker) Lost() (now, all []blockfile.Lost) {
	b.stateMu.Lock()
	defer b.stateMu.Unlock()
	if b.state == nil {
		return b.lost, b.lost
	}
	return b.lost, b.state.Lost
}

// Reserve writes down, and to the disk, that the sequences of a stream up to seq may be
// given out: whatever is lost, the stream goes on behind them.
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

// SyncOf is the meaning of the setting journal_sync.
func SyncOf(setting string) Sync {
	if setting == "always" {
		return SyncAlways
	}
	return SyncSoon
}
