package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/brinebus/brine/internal/blockfile"
)

// Health tells whether the store can be written. Once a write has failed, on a full
// disk say, the server's store takes nothing any more and leaves writers without an
// answer; that it says in its log alone. The broker opens the store anew when there is
// room again.
type Health struct {
	mu      sync.Mutex
	cause   error
	again   bool          // a write has failed since the store was closed to be opened anew
	failed  chan struct{} // closed while there is a cause
	alarm   chan struct{} // wakes heal
	stopped chan struct{}
	end     sync.Once

	log    *slog.Logger
	syncer *blockfile.Syncer
	waits  bool
	dirty  map[string]struct{} // streams that are to be synced soon; guarded by mu
	soon   chan struct{}       // there are some
}

func newHealth(o Options) *Health {
	return &Health{log: o.Log, syncer: blockfile.NewSyncer(o.StoreDir), waits: o.Sync == SyncAlways, dirty: map[string]struct{}{}, soon: make(chan struct{}, 1), failed: make(chan struct{}), alarm: make(chan struct{}, 1), stopped: make(chan struct{})}
}

// Failed returns a channel that is closed while the store cannot be written, and
// another one once it can again.
func (h *Health) Failed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// Err is why the store cannot be written; nil if it can.
func (h *Health) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

// signs are in what the server logs when a write has failed.
var signs = []string{"Critical write error", "JetStream failed to store a msg"}

// heard looks for them.
func (h *Health) heard(text string) {
	for _, sign := range signs {
		if strings.Contains(text, sign) {
			h.fail(text)
			return
		}
	}
}

func (h *Health) fail(text string) {
	cause := errors.New(text)
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.EMFILE, syscall.ENFILE} {
		if strings.Contains(text, errno.Error()) {
			cause = errno
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause != nil {
		h.again = true
		return
	}
	h.cause = cause
	close(h.failed)
	h.alarm <- struct{}{} // heal takes it before it can be well again
}

// Sync implements journal.Store.
func (h *Health) Sync(stream string) error {
	if h.waits {
		return h.sync(stream)
	}
	h.Soon(stream)
	return nil
}

// Flush returns when what was acknowledged for the stream is on the disk, also where
// others do not wait for that.
func (h *Health) Flush(stream string) error {
	if h.waits {
		return nil // it is
	}
	return h.sync(stream)
}

// Waits implements journal.Store.
func (h *Health) Waits() bool { return h.waits }

// Soon implements journal.Store.
func (h *Health) Soon(stream string) {
	h.mu.Lock()
	h.dirty[stream] = struct{}{}
	h.mu.Unlock()
	select {
	case h.soon <- struct{}{}:
	default:
	}
}

func (h *Health) sync(stream string) error {
	err := h.syncer.Sync(stream)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // what the kernel had may be gone
		h.fail(err.Error())
	}
	return err
}

// syncDirty syncs what was to be synced soon.
func (h *Health) syncDirty() (err error) {
	h.mu.Lock()
	dirty := h.dirty
	h.dirty = map[string]struct{}{}
	h.mu.Unlock()
	for stream := range dirty {
		if e := h.sync(stream); e != nil {
			err = e
		}
	}
	return err
}

// syncEvery is how often what nobody waits for is synced.
const syncEvery = time.Second

// keepSynced syncs what nobody waits for, once a second while there is something.
func (b *Broker) keepSynced() {
	for {
		select {
		case <-b.health.soon:
		case <-b.health.stopped:
			return
		}
		if err := b.health.syncDirty(); err != nil {
			b.opts.Log.Error("what is stored is not synced", "err", err)
		}
		select {
		case <-time.After(syncEvery):
		case <-b.health.stopped:
			return
		}
	}
}

// Late implements journal.Store.
func (h *Health) Late(what string, waited time.Duration) {
	h.log.Warn("the store of this daemon does not answer: it is asked again", "question", what, "waited", waited.Round(time.Millisecond))
}

// closed notes that no store is open: what was heard until now is of one that is gone.
func (h *Health) closed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.again = false
}

// well notes that the store is open, unless a write to it has failed by now: the server
// would take nothing for that stream any more, and might not say so a second time.
func (h *Health) well() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.again {
		return false
	}
	h.cause, h.failed = nil, make(chan struct{})
	return true
}

func (h *Health) stop() { h.end.Do(func() { close(h.stopped) }) }

const (
	// healEvery is how often it is tried whether there is room again.
	healEvery = time.Second
	// healPause is how long the store stays closed at least: who is writing a batch has
	// noticed by then that a part of it was refused, and sends no more of it.
	healPause = 250 * time.Millisecond
)

// heal opens the store anew after a failed write, as soon as the disk takes
// something again, until the broker stops.
func (b *Broker) heal() {
	tick := time.NewTicker(healEvery)
	defer tick.Stop()
	for {
		select {
		case <-b.health.alarm:
		case <-b.health.stopped:
			return
		}
		b.opts.Log.Error("the journal cannot be written; nothing is stored until it can", "err", b.health.Err())
		streams := b.streams()
		for again := time.After(healPause); ; again = tick.C {
			select {
			case <-again:
			case <-b.health.stopped:
				return
			}
			err := b.reopen(streams)
			if err == nil && b.health.well() {
				break
			}
			if err == nil {
				err = errors.New("a write failed as soon as it was open")
			}
			if b.auth.throttle.First("reopen "+err.Error(), time.Now()) {
				b.opts.Log.Error("the journal cannot be opened again yet", "err", err)
			}
		}
		b.opts.Log.Warn("the journal is written again")
		b.losses.tell(&b.wg)
	}
}

// spareFiles is how many descriptors must be free before the store is opened anew: it
// takes several for each stream, and the server does not survive every lack of them.
const spareFiles = 128

// spare says whether so many descriptors are free.
func spare() error {
	files := make([]*os.File, 0, spareFiles)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for range spareFiles {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return fmt.Errorf("open files for the journal: %w", err)
		}
		files = append(files, f)
	}
	return nil
}

// streams is how many streams the store has.
func (b *Broker) streams() int { return b.auth.account.JetStreamUsage().Streams }

// reopen opens the store anew if the disk takes something, and says whether that many
// streams came back: the server leaves out what it cannot read, and calls it a success.
// A panic on the way ends the daemon.
func (b *Broker) reopen(streams int) (err error) {
	if err := errors.Join(spare(), b.checkStore()); err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("open the journal again: %v", p)
			b.fail(err)
		}
	}()
	release, waited, err := b.own.quiet(b.server, b.auth.daemon)
	if err != nil {
		return err
	}
	defer release()
	if waited != nil {
		b.opts.Log.Debug("the store is opened anew with questions under way", "err", waited)
	}
	_ = b.auth.account.DisableJetStream() // or it is closed already, after an attempt that failed
	b.health.closed()
	if err := b.renewStore(); err != nil {
		return err
	}
	if err := b.auth.account.EnableJetStream(nil, nil); err != nil {
		return err
	}
	if n := b.streams(); n < streams {
		return fmt.Errorf("%d of %d streams of the journal came back", n, streams)
	}
	return nil
}
