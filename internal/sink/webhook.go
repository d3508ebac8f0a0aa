package sink

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
)

// The forms in which events are posted.
const (
	formArray  = "array" // one JSON array of events
	formLines  = "lines" // a line of JSON for each
	formSingle = "event" // each by itself
)

// webhookTarget is an address that takes events as JSON.
type webhookTarget struct {
	endpoint
	form   string
	origin string
}

func readWebhook(s *section, origin string) target {
	return &webhookTarget{readEndpoint(s), s.word("form", formArray, formArray, formLines, formSingle), origin}
}

func (t *webhookTarget) String() string { return "webhook " + t.endpoint.String() }

func (t *webhookTarget) open(context.Context, *slog.Logger) (destination, error) {
	p, err := t.endpoint.open()
	if err != nil {
		return nil, err
	}
	return &webhook{poster: p, target: t}, nil
}

// webhook is an open address.
type webhook struct {
	*poster
	target *webhookTarget
	// The event that was posted last: with formSingle a batch that is tried again
	// goes on behind it.
	seq    uint64
	digest int64
}

func (w *webhook) write(ctx context.Context, events []Event) error {
	switch w.target.form {
	case formSingle:
		return w.each(ctx, events)
	case formLines:
		return w.send(ctx, events, "", "\n", "\n", "application/x-ndjson")
	}
	return w.send(ctx, events, "[", ",", "]\n", "application/json")
}

func (w *webhook) each(ctx context.Context, events []Event) error {
	for i, e := range events {
		if e.Seq == w.seq && e.Digest() == w.digest {
			events = events[i+1:]
			break
		}
	}
	for _, e := range events {
		if err := w.send(ctx, []Event{e}, "", "", "\n", "application/json"); err != nil {
			return err
		}
		w.seq, w.digest = e.Seq, e.Digest()
	}
	return nil
}

func (w *webhook) send(ctx context.Context, events []Event, before, between, after, contentType string) error {
	lines := make([][]byte, len(events))
	for i, e := range events {
		lines[i] = e.Line
	}
	body := append([]byte(before), bytes.Join(lines, []byte(between))...)
	return w.post(ctx, append(body, after...), contentType, w.key(events))
}

// key names the events, so that the other side can tell a repetition.
func (w *webhook) key(events []Event) string {
	first, last := events[0], events[len(events)-1]
	return fmt.Sprintf("%s-%d-%d-%016x", w.target.origin, first.Seq, last.Seq, uint64(first.Digest()^last.Digest()<<1))
}
