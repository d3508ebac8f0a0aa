package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Limits of reading by count.
const (
	batchMessages = 512     // requested at once: the store stores nothing meanwhile
	batchBytes    = 1 << 20 // their bytes, about
	batchesAhead  = 2       // under way
	// fewBytes are requested by a reader that may not hold more, one batch at a time: with long
	// messages that is one message.
	fewBytes = 32 << 10
	// stretch is how far a consumer reads where reading by count is not possible.
	stretch = 16 << 10
	// batchTime is how long the store may take for a batch before a consumer reads all that is left.
	batchTime = 2 * time.Second
)

// Replay is Reader.Replay for the daemon itself.
func (j *source) Replay(ctx context.Context, from, to uint64, f func(Text) error) error {
	return j.For("", nil).Replay(ctx, from, to, f)
}

// Replay calls f for each event from the sequence from to the sequence to.
//
// Mostly it reads by count, which takes half the CPU time of a consumer: it requests batches of
// messages without their headers. If a batch has as many messages as sequences, none is
// missing, and each message's sequence is known. Where some are missing, or are pieces of a
// long event, whose headers are needed, a consumer reads on.
func (r Reader) Replay(ctx context.Context, from, to uint64, f func(Text) error) error {
	if !r.journal.stream.CachedInfo().Config.AllowDirect { // reading by count needs direct access
		if from > to {
			return nil
		}
		return r.texts(ctx, from, to, f)
	}
	for from <= to {
		next, silent, err := r.count(ctx, from, to, f)
		if err != nil || next > to {
			return err
		}
		end := next + min(to-next, stretch)
		if silent {
			end = to
		}
		if err := r.texts(ctx, next, end, f); err != nil {
			return err
		}
		from = end + 1
	}
	return nil
}

// count reads as long as the sequences are certain, and returns the next one, and whether the store has
// not answered in time.
func (r Reader) count(ctx context.Context, from, to uint64, f func(Text) error) (next uint64, silent bool, err error) {
	c, err := r.newCounter(from, to)
	if err != nil {
		return from, false, fmt.Errorf("read the journal: %w", err)
	}
	defer c.close()
	for next = from; next <= to; {
		bodies, err := c.next(ctx, next)
		if err != nil || len(bodies) == 0 {
			return next, c.silent, err
		}
		for _, body := range bodies {
			if len(body) == 0 || body[0] == partMark || len(body) >= maxPart { // pieces of an older daemon have no mark
				return next, false, nil
			}
			if err := f(Text{next, body, 1}); err != nil {
				return next, false, err
			}
			next++
		}
	}
	return next, false, nil
}

// counter requests one batch after the other; the next one arrives while the caller works on
// one.
type counter struct {
	nc      *nats.Conn
	stream  string
	sub     *nats.Subscription
	closed  <-chan struct{}
	batches chan batch
	coming  batch // used by the callback of sub only

	to    uint64
	ahead uint64 // the sequence to request next
	size  uint64 // messages to request
	bytes int    // their bytes, about
	spare int    // batches to request in advance
	asked []span // requests, the oldest first
	end   func()

	silent bool // no answer has come in time
}

// span is a range of requested messages.
type span struct{ from, size uint64 }

// batch is the answer to it.
type batch struct {
	bodies [][]byte
	bytes  int
	last   uint64 // the sequence of the latest; 0 if not known
}

func (r Reader) newCounter(from, to uint64) (*counter, error) {
	c := &counter{
		nc: r.journal.js.Conn(), stream: r.journal.name, closed: r.journal.closed, batches: make(chan batch, batchesAhead), to: to, ahead: from, size: batchMessages,
		bytes: fewBytes, end: func() {},
	}
	const size = (batchesAhead + 1) * 2 * batchBytes
	if r.journal.ahead.take(r.of, size) {
		c.bytes, c.spare, c.end = batchBytes, batchesAhead-1, func() { r.journal.ahead.give(r.of, size) }
	}
	var err error
	if c.sub, err = c.nc.Subscribe(c.nc.NewInbox(), c.take); err != nil {
		c.end()
		return nil, err
	}
	return c, c.sub.SetPendingLimits(-1, -1)
}

func (c *counter) close() {
	_ = c.sub.Unsubscribe() // fails only when the connection is gone
	c.end()
}

// next returns the messages from the sequence from on; none if it is not certain that their
// sequences are consecutive.
func (c *counter) next(ctx context.Context, from uint64) ([][]byte, error) {
	for {
		if err := c.ask(1 + c.spare); err != nil {
			return nil, fmt.Errorf("read the journal: %w", err)
		}
		q := c.asked[0]
		c.asked = c.asked[1:]
		l, err := c.batch(ctx)
		if err != nil {
			return nil, err
		}
		if q.from != from {
			continue // it was requested before the previous batch turned out incomplete
		}
		n := uint64(len(l.bodies))
		if n == 0 || l.last != from+n-1 {
			return nil, nil
		}
		if n < q.size {
			c.ahead = from + n
		}
		c.size = min(batchMessages, max(1, uint64(c.bytes)*n/uint64(l.bytes+1)))
		if err := c.ask(2 * c.spare); err != nil {
			return nil, fmt.Errorf("read the journal: %w", err)
		}
		return l.bodies, nil
	}
}

// ask requests batches until most are under way.
func (c *counter) ask(most int) error {
	for len(c.asked) < most && c.ahead <= c.to {
		size := min(c.to-c.ahead+1, c.size)
		q, err := json.Marshal(struct {
			Seq       uint64 `json:"seq"`
			Batch     uint64 `json:"batch"`
			MaxBytes  int    `json:"max_bytes"`
			NoHeaders bool   `json:"no_hdr"`
		}{c.ahead, size, 2 * c.bytes, true})
		if err != nil {
			return err
		}
		if err := c.nc.PublishRequest(jetstream.DefaultAPIPrefix+"DIRECT.GET."+c.stream, c.sub.Subject, q); err != nil {
			return err
		}
		c.asked = append(c.asked, span{c.ahead, size})
		c.ahead += size
	}
	return nil
}

// take collects messages until the status that ends a batch, or reports that there is none. A
// server that sends headers although asked not to sends no batch that can be counted.
func (c *counter) take(m *nats.Msg) {
	if m.Header == nil {
		c.coming.bodies = append(c.coming.bodies, m.Data)
		c.coming.bytes += len(m.Data)
		return
	}
	if m.Header.Get("Status") == "" {
		return
	}
	c.coming.last, _ = strconv.ParseUint(m.Header.Get("Nats-Last-Sequence"), 10, 64)
	select {
	case c.batches <- c.coming:
	default: // not requested
	}
	c.coming = batch{bodies: make([][]byte, 0, len(c.coming.bodies))}
}

// batch returns the next batch; an empty one if none comes.
func (c *counter) batch(ctx context.Context) (batch, error) {
	late := time.NewTimer(batchTime)
	defer late.Stop()
	select {
	case l := <-c.batches:
		return l, nil
	case <-late.C:
		c.silent = true
		return batch{}, nil
	case <-c.closed:
		return batch{}, fmt.Errorf("read the journal: %w", nats.ErrConnectionClosed)
	case <-ctx.Done():
		return batch{}, context.Cause(ctx)
	}
}
