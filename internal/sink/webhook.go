package sink

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
)

// Formats in which events are posted.
const (
	formArray  = "array" // one JSON array of events
	formLines  = "lines" // one line of JSON for each event
	formSingle = "event" // one request for each event
)

// webhookTarget is a URL that accepts events as JSON.
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

// webhook is an open webhookTarget.
type webhook struct {
	*poster
	target *webhookTarget
}

func (w *webhook) single() bool { return w.target.form == formSingle }

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
	for _, e := range events {
		if err := w.send(ctx, []Event{e}, "", "", "\n", "application/json"); err != nil {
			return err
		}
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

// key returns an identifier of the events, so that the receiver can recognise a repetition.
func (w *webhook) key(events []Event) string {
	first, last := events[0], events[len(events)-1]
	return fmt.Sprintf("%s-%d-%d-%016x", w.target.origin, first.Seq, last.Seq, uint64(first.Digest()^last.Digest()<<1))
}
