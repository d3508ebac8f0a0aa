package journal

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// IDs calls f for each stored event from the place seq on that was given an id,
// in the order of the journal, until the end of what was stored when it began. It
// reads no data, so that a daemon which starts can find out what it has stored.
func (j *Journal) IDs(ctx context.Context, seq uint64, f func(seq uint64, id string)) error {
	consumer, err := j.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(seq, 1), HeadersOnly: true,
	})
	if err != nil {
		return fmt.Errorf("read the journal's ids: %w", err)
	}
	left := consumer.CachedInfo().NumPending
	for left > 0 {
		batch, err := consumer.FetchNoWait(int(min(left, 4096)))
		if err != nil {
			return fmt.Errorf("read the journal's ids: %w", err)
		}
		got := uint64(0)
		for m := range batch.Messages() {
			got++
			tellID(m, f)
		}
		if err := batch.Error(); err != nil {
			return fmt.Errorf("read the journal's ids: %w", err)
		}
		if got == 0 {
			return nil // the rest was discarded, by age or size, since it began
		}
		left -= min(got, left)
	}
	return ctx.Err()
}

// tellID calls f for a message that ends an event: a long one has several, of
// which the last has the id with its number behind it.
func tellID(m jetstream.Msg, f func(seq uint64, id string)) {
	id := m.Headers().Get(jetstream.MsgIDHeader)
	if part := m.Headers().Get(partHeader); part != "" {
		_, n, count, ok := splitPart(part)
		if !ok || n != count-1 {
			return
		}
		id = id[:max(strings.LastIndexByte(id, '#'), 0)]
	}
	if meta, err := m.Metadata(); err == nil && id != "" {
		f(meta.Sequence.Stream, id)
	}
}
