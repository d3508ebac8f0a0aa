// Package eventbus carries events between the journal and whoever fires or listens
// over a daemon's bus. Both daemons use it, each with its own journal.
//
// It does not ask who may: the daemon's handlers decide before they call it.
package eventbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/semaphore"
	"github.com/brinebus/brine/internal/value"
)

// maxBatch bounds how many events one request may fire, maxID the bytes of its
// name, which is stored with them, maxFirst the number of an event in one input.
const (
	maxBatch = 10_000
	maxID    = 64
	maxFirst = 1 << 30 // the journal remembers such a number in 31 bits
)

// Bus stores events and hands them out.
type Bus struct {
	journal  *journal.Journal
	limit    int64 // bytes of one event
	log      *slog.Logger
	throttle logging.Throttle // of positions that listeners name
	tail     *tail
	long     *semaphore.Keyed // for listeners of long events
	rules    *eventacl.Rules
	lost     atomic.Pointer[[]journal.Gap] // of the journal
	while    func(context.Context, bus.Identity, func(context.Context) error) error
	words    func(protocol.WordKind) []string
	started  time.Time
	fired    atomic.Uint64 // events of clients
	sent     atomic.Uint64 // events to listeners

	mu        sync.Mutex
	listeners []*listener
	changes   atomic.Uint64 // of the rules

	dead      *DeadLetters
	positions *positions
	tables    *tables

	efforts efforts // of matching, by the owner of listeners
	name    string  // of the own journal; "" where no other one is mirrored
	mirrors mirrors
}

// New returns an event bus over j. Events whose data has more than limit bytes are
// refused; 0 is no limit.
func New(j *journal.Journal, limit int64, log *slog.Logger) *Bus {
	t := &tables{journal: j, open: map[string]*journal.Table{}}
	r := &Bus{
		journal: j, limit: limit, log: log, tail: &tail{journal: j, log: log}, long: semaphore.New(maxLong), started: time.Now().UTC(),
		tables: t, dead: &DeadLetters{tables: t, log: log}, positions: &positions{tables: t, log: log, holders: map[string]*holder{}},
	}
	r.rules = eventacl.New(r.Announce, log)
	return r
}

// SetLost names what cannot be read of the journal any more: a listener that comes by is
// told how many events it misses by that, at most.
func (r *Bus) SetLost(spans []journal.Gap) { r.lost.Store(&spans) }

// lostBetween counts sequences that are lost.
func (r *Bus) lostBetween(from, before uint64) (n uint64) {
	spans := r.lost.Load()
	if spans == nil {
		return 0
	}
	for _, s := range *spans {
		begin, end := max(s.From, from), min(s.To+1, before)
		n += max(end, begin) - begin
	}
	return n
}

// Store stores one event of the daemon itself and returns its sequence. id names it
// against repetition; "" never repeats.
func (r *Bus) Store(ctx context.Context, tag string, data any, id string) (uint64, error) {
	p, err := r.beginOwn(tag, data, id)
	if err != nil {
		return 0, err
	}
	return p.Wait(ctx)
}

// Announce stores one event of the daemon itself without waiting; that it could
// not be stored is told to the log.
func (r *Bus) Announce(tag string, data any) {
	p, err := r.beginOwn(tag, data, "")
	if err != nil {
		r.log.Error("event not stored", "tag", tag, "err", err)
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if _, err := p.Wait(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			r.log.Error("event not stored", "tag", tag, "err", err)
		}
	}()
}

// usualData is room for the data of an event of the daemon, beside what is raw.
const usualData = 512

func (r *Bus) beginOwn(tag string, data any, id string) (*journal.Pending, error) {
	e, err := event.NewLong(tag, "", time.Now(), value.RawSize(data)+usualData, func(b []byte) ([]byte, error) { return value.Append(b, data) })
	if err != nil {
		return nil, fmt.Errorf("event %q: %w", tag, err)
	}
	return r.journal.Begin(e, id)
}

// Fire stores the events that from fired, in their order, or hands them out if they are
// not to be stored, as it was decided. All are looked at before the first goes on its way.
func (r *Bus) Fire(ctx context.Context, d decision.Decision, f protocol.Fire, from string) (protocol.Fired, error) {
	if err := d.Err(); err != nil {
		return protocol.Fired{}, err
	}
	if err := r.Look(f, func(string) error { return nil }); err != nil {
		return protocol.Fired{}, err
	}
	return r.Put(ctx, f, from)
}

// Put is Fire for events that Look has passed.
func (r *Bus) Put(ctx context.Context, f protocol.Fire, from string) (protocol.Fired, error) {
	r.fired.Add(uint64(len(f.Events)))
	if f.Live {
		r.hand(f.Events, event.At(from, time.Now()))
		return protocol.Fired{Outcome: protocol.Handed}, nil
	}
	p, err := r.journal.BeginAll(drafts(f, from))
	if err != nil {
		return protocol.Fired{}, unsure(NotStored(err), p != nil)
	}
	seq, err := p.Wait(ctx)
	if err != nil {
		return protocol.Fired{}, unsure(NotStored(err), true)
	}
	return protocol.Fired{Outcome: protocol.Stored, Seq: seq}, nil
}

// drafts makes what is stored of the events. The name begins with that of the verified
// sender, so that nobody can make the journal take somebody else's event for a
// repetition.
func drafts(f protocol.Fire, from string) journal.Batch {
	l := journal.Batch{Count: len(f.Events)}
	id := f.ID
	if f.Series != "" {
		id, l.First = f.Series, f.First
	}
	if id != "" {
		l.Name = event.Escape(from) + "/" + event.Escape(id)
	}
	origin := event.At(from, time.Now())
	l.Drafts = func(yield func(journal.Draft) bool) {
		texts := arenaFor(f.Events, origin)
		for _, e := range f.Events {
			text := origin.AppendNew(texts.next(origin.Size(e.Tag, e.Data)), e.Tag, e.Data)
			if !yield(journal.Draft{Tag: e.Tag, Text: texts.keep(text)}) {
				return
			}
		}
	}
	return l
}

// hand gives events to those who listen at this moment, and to nobody later.
func (r *Bus) hand(events []event.Item, origin event.Origin) {
	from := origin.From()
	batch := make([]line, len(events))
	texts := arenaFor(events, origin)
	for i, e := range events {
		text := origin.AppendNew(texts.next(origin.Size(e.Tag, e.Data)), e.Tag, e.Data)
		batch[i] = line{head: event.Head{Tag: e.Tag, From: from}, text: texts.keep(append(text, '\n'))}
	}
	r.tail.offer(batch)
}

// NotStored tells who fires why the journal takes nothing; other errors are ours.
func NotStored(err error) error {
	if !errors.Is(err, journal.ErrStore) && !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	e := rpc.Errorf(rpc.Unavailable, "%w", err)
	if errors.Is(err, syscall.ENOSPC) {
		return e.WithHint("the disk is full: make room, and it goes on by itself")
	}
	return e
}

// unsure says of an error, where begun is true, that a part may be stored: the rest was
// refused when the disk was full, say.
func unsure(err error, begun bool) error {
	var refused *rpc.Error
	if !begun || !errors.As(err, &refused) {
		return err
	}
	e := *refused
	e.Unsure = true
	return &e
}

// Look checks the events of a request; check says whether a tag may be fired.
func (r *Bus) Look(f protocol.Fire, check func(tag string) error) error {
	if len(f.Events) == 0 {
		return rpc.Errorf(rpc.Usage, "there is no event to fire")
	}
	if len(f.Events) > maxBatch {
		return rpc.Errorf(rpc.Usage, "%d events at once: the limit is %d", len(f.Events), maxBatch)
	}
	if n := max(len(f.ID), len(f.Series)); n > maxID {
		return rpc.Errorf(rpc.Usage, "the name of the events has %d bytes: the limit is %d", n, maxID)
	}
	if f.First < 0 || f.First > maxFirst {
		return rpc.Errorf(rpc.Usage, "event number %d of one input: the limit is %d", f.First, maxFirst)
	}
	for i, e := range f.Events {
		if i > 0 && e.Tag == f.Events[i-1].Tag {
			// as nearly always in a large request: it was looked at
		} else if err := lookAtTag(e.Tag, check); err != nil {
			return err
		}
		if r.limit > 0 && int64(len(e.Data)) > r.limit {
			return rpc.Errorf(rpc.Usage, "event %q has %d bytes of data: the limit is %d", e.Tag, len(e.Data), r.limit).
				WithHint("max_event_size in the configuration is the limit")
		}
		if err := event.CheckData(e.Tag, e.Data); err != nil {
			return rpc.Errorf(rpc.Usage, "%v", err)
		}
	}
	return nil
}

func lookAtTag(tag string, check func(tag string) error) error {
	err := event.CheckTag(tag)
	if err == nil {
		err = check(tag)
	}
	if errors.Is(err, event.ErrTag) {
		return rpc.Errorf(rpc.Usage, "%w", err)
	}
	return err
}
