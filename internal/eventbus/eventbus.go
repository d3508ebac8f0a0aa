// Package eventbus carries events between the journal and the programs that fire or listen over
// a daemon's bus. Both daemons use it, each with its own journal.
//
// It does not check permissions: the daemon's handlers decide before they call it.
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

// maxBatch limits the events of one request, maxID the bytes of its id, which is stored with
// them, maxFirst the number of an event within one input.
const (
	maxBatch = 10_000
	maxID    = 64
	maxFirst = 1 << 30 // the journal stores such a number in 31 bits
)

// Bus stores events and sends them to listeners.
type Bus struct {
	journal  *journal.Journal
	limit    int64 // bytes of one event
	log      *slog.Logger
	throttle logging.Throttle // of positions beyond the journal
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
	changes   atomic.Uint64 // how often the rules have changed

	dead      *DeadLetters
	positions *positions
	tables    *tables

	efforts efforts // of matching, by the owner of listeners
	name    string  // of the own journal; "" if no other one is mirrored
	mirrors mirrors
	windows windows // of the mirrors
	member  *Member // nil for a single master
}

// New returns an event bus over j. Events whose data has more than limit bytes are
// refused; 0 means no limit.
func New(j *journal.Journal, limit int64, log *slog.Logger) *Bus {
	t := &tables{journal: j, open: map[string]*opening{}}
	r := &Bus{
		journal: j, limit: limit, log: log, tail: &tail{tap: j.Tap, log: log}, long: semaphore.New(maxLong), started: time.Now().UTC(),
		tables: t, dead: &DeadLetters{tables: t, log: log, taken: map[string]bool{}, holds: map[heldBy]*hold{}}, positions: &positions{tables: t, log: log, holders: map[string]*holder{}},
	}
	r.rules = eventacl.New(r.Announce, log)
	return r
}

// SetLost sets what can no longer be read of the journal. A listener that passes such a gap is
// told how many events it misses, at most.
func (r *Bus) SetLost(spans []journal.Gap) { r.lost.Store(&spans) }

// lostBetween counts the lost sequences from from up to, but without, before.
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

// Store stores one event of the daemon itself and returns its sequence. id is its message id
// against duplicates; "" is never a duplicate.
func (r *Bus) Store(ctx context.Context, tag string, data any, id string) (uint64, error) {
	e, err := newOwn(tag, data)
	if err != nil {
		return 0, err
	}
	return r.journal.Append(ctx, e, id)
}

// Announce stores one event of the daemon itself without waiting. A failure is logged.
func (r *Bus) Announce(tag string, data any) { r.AnnounceFor("", tag, data) }

// AnnounceFor is like Announce, for events that a user causes: they count for that user's share
// of the journal. "" is the daemon itself.
func (r *Bus) AnnounceFor(user, tag string, data any) {
	e, err := newOwn(tag, data)
	var p *journal.Pending
	if err == nil {
		p, err = r.journal.BeginFor(e, user)
	}
	if err != nil {
		notStored(r.log, tag, err)
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if _, err := p.Wait(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			notStored(r.log, tag, err)
		}
	}()
}

// notStored logs an event of the daemon that was lost. When the daemon stops, its connection is closed while something
// may still happen that it would tell.
func notStored(log *slog.Logger, tag string, err error) {
	if journal.Closed(err) {
		log.Info("event not stored: the daemon stops", "tag", tag)
		return
	}
	log.Error("event not stored", "tag", tag, "err", err)
}

// usualData is space for the data of an event of the daemon, beside its raw parts.
const usualData = 512

func newOwn(tag string, data any) (event.Event, error) {
	e, err := event.NewLong(tag, "", time.Now(), value.RawSize(data)+usualData, func(b []byte) ([]byte, error) { return value.Append(b, data) })
	if err != nil {
		return e, fmt.Errorf("event %q: %w", tag, err)
	}
	return e, nil
}

// Fire stores the events that from has fired, in their order, or only sends them to listeners
// if they are not to be stored, as decided in d. All are checked before the first is stored.
func (r *Bus) Fire(ctx context.Context, d decision.Decision, f protocol.Fire, from string) (protocol.Fired, error) {
	if err := d.Err(); err != nil {
		return protocol.Fired{}, err
	}
	if err := r.Look(f, func(string) error { return nil }); err != nil {
		return protocol.Fired{}, err
	}
	return r.Put(ctx, f, from)
}

// Put is Fire for events that Look has checked.
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

// drafts returns what is stored of the events. Each message id begins with that of the verified
// sender, so nobody can have another sender's event taken for a duplicate.
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

// hand sends events to those who listen at this moment; nobody can read them later.
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

// NotStored returns why the journal stores nothing, for the program that fires; other errors
// are ours.
func NotStored(err error) error {
	if !errors.Is(err, journal.ErrStore) && !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	e := rpc.Errorf(rpc.Unavailable, "%w", err)
	if errors.Is(err, syscall.ENOSPC) {
		return e.WithHint("the disk is full: free some space, and it continues by itself")
	}
	return e
}

// unsure adds to an error, if begun is true, that a part may be stored, for example when the
// disk became full in between.
func unsure(err error, begun bool) error {
	var refused *rpc.Error
	if !begun || !errors.As(err, &refused) {
		return err
	}
	e := *refused
	e.Unsure = true
	return &e
}

// Look checks the events of a request; check returns an error for a tag that may not be fired.
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
			// as nearly always in a large request: already checked
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
