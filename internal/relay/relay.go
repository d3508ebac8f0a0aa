// Package relay carries events between the journal and whoever fires or listens
// over a daemon's bus. Both daemons use it, each with its own journal.
//
// It does not ask who may: the daemon's handlers decide before they call it.
package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"brine/internal/bus"
	"brine/internal/event"
	"brine/internal/journal"
	"brine/internal/protocol"
	"brine/internal/value"
)

// maxBatch bounds how many events one request may fire.
const maxBatch = 10_000

// Relay stores events and hands them out.
type Relay struct {
	journal *journal.Journal
	limit   int64 // bytes of one event
	log     *slog.Logger
}

// New returns a relay over j. Events whose data has more than limit bytes are
// refused; 0 is no limit.
func New(j *journal.Journal, limit int64, log *slog.Logger) *Relay {
	return &Relay{journal: j, limit: limit, log: log}
}

// Store stores one event of the daemon itself and returns its place. id names it
// against repetition; "" never repeats.
func (r *Relay) Store(ctx context.Context, tag string, data any, id string) (uint64, error) {
	p, err := r.begin(tag, data, id)
	if err != nil {
		return 0, err
	}
	return p.Wait(ctx)
}

// Announce stores one event of the daemon itself without waiting; that it could
// not be stored is told to the log.
func (r *Relay) Announce(tag string, data any) {
	p, err := r.begin(tag, data, "")
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

func (r *Relay) begin(tag string, data any, id string) (*journal.Pending, error) {
	raw, err := value.Encode(data)
	if err != nil {
		return nil, fmt.Errorf("event %q: %w", tag, err)
	}
	e, err := event.New(tag, raw, "", time.Now())
	if err != nil {
		return nil, err
	}
	return r.journal.Begin(e, id)
}

// Fire stores the events that from fired, in their order. All are looked at
// before the first is stored. check says whether from may fire a tag.
func (r *Relay) Fire(ctx context.Context, f protocol.Fire, from string, check func(tag string) error) (protocol.Fired, error) {
	events, err := r.events(f, from, check)
	if err != nil {
		return protocol.Fired{}, err
	}
	pending := make([]*journal.Pending, len(events))
	for i, e := range events {
		id := ""
		if f.ID != "" {
			// Named by the verified sender, so that nobody can make the journal take
			// somebody else's event for a repetition.
			id = event.Escape(from) + "/" + event.Escape(f.ID) + "/" + strconv.Itoa(i)
		}
		if pending[i], err = r.journal.Begin(e, id); err != nil {
			return protocol.Fired{}, err
		}
	}
	fired := protocol.Fired{Outcome: protocol.Stored}
	for _, p := range pending {
		if fired.Seq, err = p.Wait(ctx); err != nil {
			return protocol.Fired{}, err
		}
	}
	return fired, nil
}

func (r *Relay) events(f protocol.Fire, from string, check func(tag string) error) ([]event.Event, error) {
	if len(f.Events) == 0 {
		return nil, bus.Errorf(bus.Usage, "there is no event to fire")
	}
	if len(f.Events) > maxBatch {
		return nil, bus.Errorf(bus.Usage, "%d events at once: the limit is %d", len(f.Events), maxBatch)
	}
	now := time.Now()
	events := make([]event.Event, 0, len(f.Events))
	for _, one := range f.Events {
		if err := check(one.Tag); err != nil {
			return nil, err
		}
		if r.limit > 0 && int64(len(one.Data)) > r.limit {
			return nil, bus.Errorf(bus.Usage, "event %q has %d bytes of data: the limit is %d", one.Tag, len(one.Data), r.limit).
				WithHint("max_event_size in the configuration is the limit")
		}
		e, err := event.New(one.Tag, one.Data, from, now)
		if err != nil {
			return nil, bus.Errorf(bus.Usage, "%v", err)
		}
		events = append(events, e)
	}
	return events, nil
}

// Listen answers a request with events until the asker is gone. may says which
// tags the asker may hear.
func (r *Relay) Listen(ctx context.Context, req *bus.Request, may func(tag string) bool) error {
	var q protocol.Listen
	if err := req.Decode(&q); err != nil {
		return err
	}
	cursor, err := r.journal.Open(ctx, journal.Query{Since: q.Since, New: q.Since.IsZero(), Follow: true})
	if err != nil {
		return err
	}
	if err := req.Send(ctx, protocol.Ready{Ready: true}); err != nil {
		return err
	}
	return cursor.Each(ctx, func(e event.Event) error {
		if !hasPrefix(e.Tag, q.Tags) || !may(e.Tag) {
			return nil
		}
		b, err := json.Marshal(e)
		if err != nil {
			return err
		}
		return req.SendRaw(ctx, b)
	})
}

func hasPrefix(tag string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(tag, p) {
			return true
		}
	}
	return len(prefixes) == 0
}
