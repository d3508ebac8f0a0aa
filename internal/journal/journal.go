// Package journal is the one store of everything that must not be lost: events,
// jobs, returns, facts, the audit log. It appends, reads by tag and time, and
// keeps small maps; it is the only user of JetStream.
//
// It does not decide what is stored, nor who may read it.
package journal

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/bus"
)

// maxPart is how much of an event is stored in one message; a longer one is
// stored in several and read as one.
const maxPart = 512 << 10

// partHeader marks the pieces of a long event: id/number/count. They begin with
// partMark, as no event does, for readers that are not sent the headers. Those of an
// older daemon have another header, and no mark.
const (
	partHeader    = "Salt-Piece"
	partMark      = 'p'
	oldPartHeader = "Salt-Part"
)

// piece returns what the header of a message says of it, "" if it is no piece, and its
// data without the mark.
func piece(h nats.Header, data []byte) (part string, text []byte) {
	if part = h.Get(partHeader); part != "" {
		return part, data[min(1, len(data)):]
	}
	return h.Get(oldPartHeader), data
}

// Stream is the name of the one stream of events, for who looks at its files.
const Stream = bus.JournalStream

const stream = Stream

// Options bound what the journal keeps.
type Options struct {
	MaxAge   time.Duration // events older than that go; 0 keeps them
	MaxBytes int64         // what it may hold, see Journal.Tend; 0 or less is no limit
	Store    Store         // tells of a store that cannot be written; nil never does
	// Names is the file beside the store in which the names of what is stored are
	// written along, so that the next start need not read them from the journal; "" for
	// none.
	Names string
	// Reserve writes down that sequences of the stream up to that one may be given out,
	// so that none is a second time, whatever is lost; nil is for a journal without that.
	Reserve func(stream string, upto uint64) error
	// Lost is what is known to be lost of the stream.
	Lost []Gap
}

// Gap is sequences, both ends among them.
type Gap struct{ From, To uint64 }

// Journal is an open journal. Its methods may be called concurrently.
type Journal struct {
	Recent Recent // what was stored last, for completion
	source

	writer *writer
	names  *names
	shares *shares
	taken  taken         // events, by who fired them
	log    *nameLog      // of keepNames alone; nil for none
	stop   chan struct{} // closed by Close
	ending sync.Once
	wg     sync.WaitGroup

	reconciled int  // how often it was found out what is stored; guarded by the order of the writer
	cut        bool // the next message ends the batch before it, which may not be whole; guarded by the order of the writer
}

// noWindow is the shortest time for which JetStream can remember ids of its own: the
// journal gives it none, see Batch.
const noWindow = 100 * time.Millisecond

// Open opens the journal in the JetStream that nc is connected to, making what
// is missing.
func Open(ctx context.Context, nc *nats.Conn, o Options) (*Journal, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	most := int64(-1)
	if o.MaxBytes > 0 {
		most = o.MaxBytes + o.MaxBytes/streamOver
	}
	w, err := newWriter(nc, o.Store, stream)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	s, err := openStream(ctx, js, w.store, stream, func(c *jetstream.StreamConfig) {
		c.Subjects, c.Storage, c.Retention, c.AllowDirect = subjects, jetstream.FileStorage, jetstream.LimitsPolicy, true
		c.Discard, c.MaxAge, c.MaxBytes, c.Duplicates = jetstream.DiscardOld, o.MaxAge, most, noWindow
	})
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", storageError(err))
	}
	w.tap.begin(s.CachedInfo().State.LastSeq)
	if o.Reserve != nil {
		w.reserve = func(upto uint64) error { return o.Reserve(stream, upto) }
	}
	j := &Journal{source: source{name: stream, js: js, stream: s, closed: w.closed}, writer: w, names: newNames(), shares: newShares(o.MaxBytes), cut: true, stop: make(chan struct{})}
	if err := j.recall(ctx, s.CachedInfo().State); err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	if err := j.openNames(ctx, o.Names, o.Lost); err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	if j.log != nil {
		j.wg.Go(j.keepNames)
	}
	return j, nil
}

// openStream opens the stream of this name as configure wants it, making it when it is missing, and
// insists on an answer.
func openStream(ctx context.Context, js jetstream.JetStream, store Store, name string, configure func(*jetstream.StreamConfig)) (s jetstream.Stream, err error) {
	err = insist(ctx, store, "open the stream "+name, func(ctx context.Context) (err error) {
		s, err = configureStream(ctx, js, name, configure)
		return err
	})
	return s, err
}

// configureStream does it. A stream that is so already is not updated: for that the server reads
// all of the oldest block, to look whether a message in it is too old, which it does by itself
// in time, and writes files.
func configureStream(ctx context.Context, js jetstream.JetStream, name string, configure func(*jetstream.StreamConfig)) (jetstream.Stream, error) {
	want := jetstream.StreamConfig{Name: name}
	configure(&want)
	s, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return js.CreateStream(ctx, want)
	}
	if err != nil {
		return nil, err
	}
	config := s.CachedInfo().Config
	configure(&config)
	if reflect.DeepEqual(config, s.CachedInfo().Config) {
		return s, nil
	}
	return js.UpdateStream(ctx, want)
}

// Close writes down what the next start is to know and is not written yet. Without it the
// next start reads that from the journal. What it has begun to store goes on.
func (j *Journal) Close() {
	j.ending.Do(func() { close(j.stop) })
	j.wg.Wait()
}

// Stored is the sequence up to which all is known to be stored.
func (j *Journal) Stored() uint64 { return j.writer.stored() }

// storageError gives the server's word for a full disk its usual name.
func storageError(err error) error {
	const insufficientStorage = 10047 // err_code of JSStorageResourcesExceededErr
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == insufficientStorage {
		return fmt.Errorf("%w (%s)", syscall.ENOSPC, api.Description)
	}
	return err
}
