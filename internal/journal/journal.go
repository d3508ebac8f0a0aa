// Package journal is the one store of everything that must not be lost: events, jobs, returns,
// facts, the audit log. It appends, reads by tag and time, and keeps small tables. No other
// package uses JetStream, except that package backup moves streams as a whole.
//
// It does not decide what is stored, nor who may read it.
package journal

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/bus"
)

// maxPart is how much of an event is stored in one message, in bytes; a longer event is stored
// in several messages and read as one.
const maxPart = 512 << 10

// partHeader marks the pieces of a long event: id/number/count. Each piece begins with
// partMark, which no event begins with, for readers that get no headers. Pieces of an older
// version of the daemon have another header and no mark.
const (
	partHeader    = "Salt-Piece"
	partMark      = 'p'
	oldPartHeader = "Salt-Part"
)

// piece returns the header of a message that is a piece of a long event, "" if it is not, and
// its data without the mark.
func piece(h nats.Header, data []byte) (part string, text []byte) {
	if part = h.Get(partHeader); part != "" {
		return part, data[min(1, len(data)):]
	}
	return h.Get(oldPartHeader), data
}

// Stream is the name of the one stream of events, for code that reads its files.
const Stream = bus.JournalStream

// Options limit what the journal keeps.
type Options struct {
	MaxAge   time.Duration // older events are removed; 0 keeps all
	MaxBytes int64         // what it may hold, see Journal.Tend; 0 or less means no limit
	Store    Store         // reports when the store cannot be written; nil never does
	// Names is the file beside the store with the names of stored batches, so that the next
	// start need not read them from the journal; "" for none.
	Names string
	// Reserve records that sequences of the stream up to upto may have been used, so that none
	// is used twice, whatever is lost; nil for a journal without that.
	Reserve func(stream string, upto uint64) error
	// Lost is what is known to be lost of the stream.
	Lost []Gap
	// Copies makes it the journal of a member of a cluster, with copies on that many of the
	// members; 0 is the journal of a single master, and Name and Server are not used.
	Copies int
	Name   string // of the journal, unique among the members
	Server string // the name of the member, which leads the stream where it can
	// Current reports whether this member's own copy of a stream has all that its leader has stored; nil: what the
	// leader says of it counts, which does not know of a copy that is behind what the member has received.
	Current func(stream string) bool
	// Turn is for a journal, with copies, that other processes may open, too, one after the other;
	// nil for one that only this process opens.
	Turn *Turn
}

// memberPrefix is the prefix of the names of streams that are journals of members.
const memberPrefix = Stream + "_"

// stream is the name of the stream of this journal.
func (o Options) stream() string {
	if o.Copies == 0 {
		return Stream
	}
	return memberPrefix + o.Name
}

// root begins the subjects to which the daemon sends what a member's journal stores; the name of the
// term follows. The stream stores it below plainPrefix, as that of a single master does.
func (o Options) root() string { return "salt.journal." + o.Name + "." }

// configure makes the settings of the stream; most is its limit of bytes.
func (o Options) configure(c *jetstream.StreamConfig, most int64) {
	c.Storage, c.Retention, c.AllowDirect = jetstream.FileStorage, jetstream.LimitsPolicy, true
	c.Discard, c.MaxAge, c.MaxBytes, c.Duplicates = jetstream.DiscardOld, o.MaxAge, most, noWindow
	if o.Copies > 0 {
		// Any member answers a direct question, also one that lacks the newest messages.
		c.Replicas, c.AllowDirect = o.Copies, false
		term := termPrefix(*c)
		if name, ok := strings.CutPrefix(term, o.root()); !ok || name == "" {
			term = o.root() + firstTerm + "."
		}
		setTerm(c, term)
		return
	}
	c.Subjects = subjects
}

// Gap is a range of sequences, From and To included.
type Gap struct{ From, To uint64 }

// Journal is an open journal. Its methods may be called concurrently.
type Journal struct {
	Recent Recent // the latest tags, for completion
	source

	writer *writer
	names  *names
	copies int    // of each stream and table, 0 for a single master
	member string // the journal's name, in a cluster
	turn   *Turn  // that of Options
	led    led    // what it leads there beside its events
	yields atomic.Bool
	// reserve is that of Options.
	reserve func(stream string, upto uint64) error
	shares  *shares
	taken   taken         // counts events by kind of sender
	log     *nameLog      // used by keepNames only; nil for none
	stop    chan struct{} // closed by Close
	ending  sync.Once
	wg      sync.WaitGroup

	reconciled int  // how often it was reconciled; guarded by the writer's order
	cut        bool // the next message ends the previous batch, which may be incomplete; guarded by the writer's order
}

// noWindow is the shortest duplicate window that JetStream accepts: the journal sends it no
// message ids, see Batch.
const noWindow = 100 * time.Millisecond

// Open opens the journal in the JetStream that nc is connected to, and makes what is missing.
func Open(ctx context.Context, nc *nats.Conn, o Options) (*Journal, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	most := int64(-1)
	if o.MaxBytes > 0 {
		most = o.MaxBytes + o.MaxBytes/streamOver
	}
	stream := o.stream()
	w, err := newWriter(nc, o.Store, stream)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	s, err := openStream(ctx, js, w.store, stream, func(c *jetstream.StreamConfig) { o.configure(c, most) })
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", storageError(err))
	}
	w.tap.begin(s.CachedInfo().State.LastSeq)
	if o.Copies > 0 {
		o.Reserve = nil // copies bring back what one member has lost
		if err := o.fence(ctx, w, s, js); err != nil {
			return nil, fmt.Errorf("open the journal: %w", err)
		}
	}
	if o.Reserve != nil {
		w.reserve = func(upto uint64) error { return o.Reserve(stream, upto) }
	}
	j := &Journal{copies: o.Copies, member: o.Name, turn: o.Turn, reserve: o.Reserve, source: source{name: stream, js: js, stream: s, closed: w.closed, delays: w.store}, writer: w, names: newNames(), shares: newShares(o.MaxBytes), cut: true, stop: make(chan struct{})}
	if err := j.recall(ctx, s.CachedInfo().State); err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	if err := j.openNames(ctx, o.Names, o.Lost, w.stored()); err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	w.mu.Lock()
	w.missed = j.names.missed
	w.mu.Unlock()
	if j.log != nil {
		j.wg.Go(j.keepNames)
	}
	if o.Copies > 0 {
		j.wg.Go(newestKeeper{j}.run)
	}
	if o.Copies > 0 && o.Server != "" {
		j.wg.Go(func() { j.keepLead(o.Server, o.Current) })
	}
	return j, nil
}

// fence begins the fence of the writer: in a term of this process, where it takes its turn.
func (o Options) fence(ctx context.Context, w *writer, s jetstream.Stream, js jetstream.JetStream) error {
	f := newFence(s, js, o.root(), o.Turn)
	var last uint64
	var err error
	if o.Turn != nil {
		f.prefix, last, err = o.Turn.take(ctx, w, s, js, o)
	} else {
		last, err = f.open(ctx, w.store, s.CachedInfo().State.LastSeq)
	}
	if err == nil {
		w.beginFence(f, last)
	}
	return err
}

// openStream opens the stream of this name with the settings of configure, and makes it if it
// is missing. It waits for the answer, see insist.
func openStream(ctx context.Context, js jetstream.JetStream, store Store, name string, configure func(*jetstream.StreamConfig)) (s jetstream.Stream, err error) {
	err = insist(ctx, store, "open the stream "+name, func(ctx context.Context) (err error) {
		s, err = configureStream(ctx, js, name, configure)
		return err
	})
	return s, err
}

// configureStream does it once. A stream with the right settings is not updated: an update
// makes the server write files, and read all of the oldest block to look for messages that are
// too old, which it does by itself later.
func configureStream(ctx context.Context, js jetstream.JetStream, name string, configure func(*jetstream.StreamConfig)) (jetstream.Stream, error) {
	want := jetstream.StreamConfig{Name: name}
	configure(&want)
	s, err := js.Stream(ctx, name)
	if err == nil && !byLeader(s.CachedInfo().Cluster) {
		return nil, errNoLeader // see leaderInfo
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return js.CreateStream(ctx, want)
	}
	if err != nil {
		return nil, err
	}
	config := s.CachedInfo().Config
	want.Subjects = config.Subjects // the term of a member's journal is among them
	configure(&want)
	configure(&config)
	if reflect.DeepEqual(config, s.CachedInfo().Config) {
		return s, nil
	}
	renewTerm(&want)
	return js.UpdateStream(ctx, want)
}

// Close writes what the next start needs to know. Without it, the next start reads that from
// the journal. Appends under way go on.
func (j *Journal) Close() {
	j.ending.Do(func() { close(j.stop) })
	j.wg.Wait()
}

// Err returns why nothing can be stored now, nil if it can. During an election it is nil until that
// takes too long.
func (j *Journal) Err() error { return j.writer.store.Err() }

// Stalled returns why what is under way in a journal is not stored: nothing can be, or the members elect a leader; nil otherwise,
// and for a journal that is not open.
func Stalled(j *Journal) error {
	if j.writer == nil {
		return nil
	}
	return j.writer.stalled()
}

// Waited returns for how long nothing was stored of what is under way, as in an election; 0 if nothing is, and for a
// stream without copies.
func (j *Journal) Waited() time.Duration {
	if j.writer.fence == nil {
		return 0
	}
	waited, _ := j.writer.overdue(false)
	return waited
}

// Stored returns the sequence up to which everything is known to be stored.
func (j *Journal) Stored() uint64 { return j.writer.stored() }

// storageError turns the server's error for a full disk into the usual one.
func storageError(err error) error {
	const insufficientStorage = 10047 // err_code of JSStorageResourcesExceededErr
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == insufficientStorage {
		return fmt.Errorf("%w (%s)", syscall.ENOSPC, api.Description)
	}
	return err
}
