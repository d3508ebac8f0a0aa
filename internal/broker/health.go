package broker

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Health tells whether the store can be written. Once a write has failed, on a full
// disk say, the server's store takes nothing any more and leaves writers without an
// answer; that it says in its log alone. The broker opens the store anew when there is
// room again.
type Health struct {
	mu      sync.Mutex
	cause   error
	failed  chan struct{} // closed while there is a cause
	alarm   chan struct{} // wakes heal
	stopped chan struct{}
	end     sync.Once
}

func newHealth() *Health {
	return &Health{failed: make(chan struct{}), alarm: make(chan struct{}, 1), stopped: make(chan struct{})}
}

// Failed returns a channel that is closed while the store can not be written, and
// another one once it can again.
func (h *Health) Failed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// Err is why the store can not be written; nil if it can.
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
		return
	}
	h.cause = cause
	close(h.failed)
	h.alarm <- struct{}{} // heal takes it before it can be well again
}

func (h *Health) well() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cause, h.failed = nil, make(chan struct{})
}

func (h *Health) stop() { h.end.Do(func() { close(h.stopped) }) }

const (
	// healEvery is how often it is tried whether there is room again.
	healEvery = time.Second
	// healPause is how long the store stays closed at least: who is writing a lot has
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
		b.opts.Log.Error("the journal can not be written; nothing is stored until it can", "err", b.health.Err())
		streams := b.streams()
		for again := time.After(healPause); ; again = tick.C {
			select {
			case <-again:
			case <-b.health.stopped:
				return
			}
			err := b.reopen(streams)
			if err == nil {
				break
			}
			if b.gate.told.First("reopen "+err.Error(), time.Now()) {
				b.opts.Log.Error("the journal can not be opened again yet", "err", err)
			}
		}
		b.health.well()
		b.opts.Log.Warn("the journal is written again")
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
func (b *Broker) streams() int { return b.gate.account.JetStreamUsage().Streams }

// reopen opens the store anew if the disk takes something, and says whether that many
// streams came back: the server leaves out what it can not read, and calls it a success.
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
	if err := b.server.ShutdownJetStream(); err != nil {
		return err
	}
	o := b.opts
	if err := b.server.EnableJetStream(&server.JetStreamConfig{StoreDir: o.StoreDir, SyncAlways: o.SyncAlways, MaxStore: maxStore, MaxMemory: maxStore}); err != nil {
		return err
	}
	if n := b.streams(); n < streams {
		return fmt.Errorf("%d of %d streams of the journal came back", n, streams)
	}
	return nil
}
