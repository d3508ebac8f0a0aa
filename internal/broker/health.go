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
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/salt"
)

// Health reports whether the store can be written. After a failed write, for example on a full
// disk, the server's store accepts nothing more and does not answer writers; only its log says
// so. The broker opens the store again when there is space again.
type Health struct {
	mu      sync.Mutex
	cause   error
	again   bool          // a write has failed since the store was closed for reopening
	joined  bool          // most members were reached once
	failed  chan struct{} // closed while there is a cause
	alarm   chan struct{} // wakes heal
	stopped chan struct{}
	end     sync.Once

	log    *slog.Logger
	room   *blockfile.Reserver
	delays delays
	syncer *blockfile.Syncer
	waits  bool
	dirty  map[string]struct{} // streams to be synced soon; guarded by mu
	soon   chan struct{}       // signals that dirty is not empty

	// clustered is true for a member of a cluster. Its server syncs the files itself and repairs
	// them from the copies of others. This store cannot be closed and opened again: it is a
	// member of groups that continue meanwhile. After a failed write the daemon ends, and the
	// others continue without it: from then on spoiled is true, and nothing waits for the store.
	clustered bool
	ends      func(error)
	spoiled   bool // guarded by mu
}

func newHealth(o Options) *Health {
	return &Health{clustered: o.Cluster != nil, log: o.Log, room: blockfile.NewReserver(o.StoreDir), delays: delays{log: o.Log}, syncer: blockfile.NewSyncer(o.StoreDir), waits: o.Sync == SyncAlways && o.Cluster == nil, dirty: map[string]struct{}{}, soon: make(chan struct{}, 1), failed: make(chan struct{}), alarm: make(chan struct{}, 1), stopped: make(chan struct{})}
}

// Failed returns a channel that is closed while the store cannot be written, and
// another one once it can again.
func (h *Health) Failed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// Err returns why the store cannot be written; nil if it can.
func (h *Health) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

// signs are texts that the server logs when a write has failed.
var signs = []string{"Critical write error", "JetStream failed to store a msg"}

// heard looks for signs in a line of the server's log.
func (h *Health) heard(text string) {
	for _, sign := range signs {
		if !strings.Contains(text, sign) {
			continue
		}
		if h.clustered {
			h.spoil(fmt.Errorf("the store of this member cannot be written: %s", text))
		} else {
			h.fail(text)
		}
		return
	}
}

// spoil records that a member cannot write its store, for good, and ends the daemon.
func (h *Health) spoil(cause error) {
	h.mu.Lock()
	h.spoiled = true
	if h.cause == nil {
		h.cause = cause
		close(h.failed)
	}
	h.mu.Unlock()
	h.ends(cause)
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
	h.alarm <- struct{}{} // heal reads this before the store can be well again
}

// Sync implements journal.Store.
func (h *Health) Sync(stream string) error {
	if h.waits {
		return h.sync(stream)
	}
	h.Soon(stream)
	return nil
}

// Flush returns when everything acknowledged for the stream is on the disk, even if writers do
// not wait for that.
func (h *Health) Flush(stream string) error {
	if h.waits || h.clustered {
		return nil // it is on the disk already, or in the memory of most members
	}
	return h.sync(stream)
}

// majority records whether this member reaches enough others to store anything; err is the
// reason if not. A start that waits for them says so itself.
func (h *Health) majority(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil && h.cause == nil:
		h.cause = err
		close(h.failed)
		if h.joined {
			h.log.Error("this member can store nothing", "err", err, "hint", salt.Hint(err))
		}
	case err != nil && !h.spoiled:
		h.cause = err // how many are reached may have changed
	case err == nil && h.cause != nil && !h.spoiled:
		h.cause, h.failed = nil, make(chan struct{})
		if h.joined {
			h.log.Info("this member reaches most others again: it stores what it is given")
		}
	}
	h.joined = h.joined || err == nil
}

// Room implements journal.Store.
func (h *Health) Room(stream string, messages uint64) error {
	if err := h.Err(); err != nil || h.clustered {
		return err
	}
	return h.room.Reserve(stream, messages)
}

// Waits implements journal.Store.
func (h *Health) Waits() bool { return h.waits }

// Soon implements journal.Store.
func (h *Health) Soon(stream string) {
	if h.clustered {
		return
	}
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
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // what the kernel had not written may be lost
		h.fail(err.Error())
	}
	return err
}

// syncDirty syncs the streams in dirty.
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

// syncEvery is how often streams are synced that no writer waits for.
const syncEvery = time.Second

// keepSynced syncs streams that no writer waits for, once a second while there are any.
func (b *Broker) keepSynced() {
	for {
		select {
		case <-b.health.soon:
		case <-b.health.stopped:
			return
		}
		if err := b.health.syncDirty(); err != nil {
			b.opts.Log.Error("stored messages are not synced", "err", err)
		}
		select {
		case <-time.After(syncEvery):
		case <-b.health.stopped:
			return
		}
	}
}

// Clustered implements journal.Clustered.
func (h *Health) Clustered() bool { return h.clustered }

// Late implements journal.Store.
func (h *Health) Late(what string, waited time.Duration) {
	if !h.clustered {
		h.delays.Late(what, waited)
		return
	}
	// After another member was killed each of some twenty streams has to be led anew, and each may be asked.
	h.delays.throttle.Log(h.log, slog.LevelWarn, "", 1, "the store does not answer yet, perhaps since the members of the cluster elect a leader for it: it is asked again", "question", what, "waited", waited.Round(time.Millisecond))
}

// delays logs questions that a store has not answered in time. It is limited, since a peer may
// be able to cause this again and again.
type delays struct {
	log      *slog.Logger
	throttle logging.Throttle
}

// maxDelays is how many of them are logged in a minute, for each question.
const maxDelays = 10

// Late implements journal.Delays.
func (d *delays) Late(what string, waited time.Duration) {
	d.throttle.Log(d.log, slog.LevelWarn, what, maxDelays, "the store of this daemon does not answer: it is asked again", "question", what, "waited", waited.Round(time.Millisecond))
}

// closed records that no store is open: earlier log lines were about the store that is closed
// now.
func (h *Health) closed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.again = false
	h.room.Forget()
}

// well records that the store is open, unless a write to it has already failed: the server
// would accept nothing more for that stream, and might not log it a second time.
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
	// healEvery is how often the broker checks whether there is space again.
	healEvery = time.Second
	// healPause is the shortest time for which the store stays closed. By then a writer in the
	// middle of a batch has noticed that a part of it was refused, and sends no more of it.
	healPause = 250 * time.Millisecond
	// stuckTime is how long one attempt may take. A server that needs longer holds a lock
	// forever and answers no question about its store any more.
	stuckTime = time.Minute
)

// bounded calls f. If f takes longer than limit, it calls fail: the daemon ends, to be started
// again.
func bounded(limit time.Duration, fail func(error), f func()) {
	stuck := time.AfterFunc(limit, func() { fail(fmt.Errorf("the journal is neither closed nor opened within %s", limit)) })
	defer stuck.Stop()
	f()
}

// heal opens the store again after a failed write, as soon as the disk takes data again, until
// the broker stops.
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
		var streams int
		bounded(stuckTime, b.Fail, func() {
			b.health.syncer.Again() // the next start knows of what fails, whoever has ended this one
			streams = b.streams()
		})
		for again := time.After(healPause); ; again = tick.C {
			select {
			case <-again:
			case <-b.health.stopped:
				return
			}
			var err error
			bounded(stuckTime, b.Fail, func() { err = b.reopen(streams) })
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
		b.opts.Log.Warn("the journal can be written again")
		b.losses.tell(&b.wg)
	}
}

// spareFiles is how many descriptors must be free before the store is opened again: it takes
// several for each stream, and the server does not always survive a lack of them.
const spareFiles = 128

// spare returns an error if fewer than spareFiles descriptors are free.
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

// streams returns how many streams the store has.
func (b *Broker) streams() int { return b.auth.account.JetStreamUsage().Streams }

// reopen opens the store again if the disk takes data. It fails unless that many streams came
// back: the server leaves out what it cannot read and reports success. A panic on the way ends
// the daemon.
func (b *Broker) reopen(streams int) (err error) {
	if err := errors.Join(spare(), b.checkStore()); err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("open the journal again: %v", p)
			b.Fail(err)
		}
	}()
	release, waited, err := b.own.quiet(b.server, account, b.auth.daemon)
	if err != nil {
		return err
	}
	defer release()
	if waited != nil {
		b.opts.Log.Debug("the store is reopened with requests under way", "err", waited)
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
