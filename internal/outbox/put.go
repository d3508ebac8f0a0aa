package outbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
)

// Put stores a message at the end of the queue. When it returns nil, the message survives a
// kill of the process.
func (b *Box) Put(ctx context.Context, out Outgoing) error {
	_, err := b.put(ctx, out, false)
	return err
}

// put is Put. With watch the answer of the master is kept for the sender.
func (b *Box) put(ctx context.Context, out Outgoing, watch bool) (placed, error) {
	body, err := protocol.Encode(out.Body)
	if err != nil {
		return placed{}, err
	}
	return b.putBody(ctx, out, body, watch)
}

// putBody is put for a message with this body.
func (b *Box) putBody(ctx context.Context, out Outgoing, body []byte, watch bool) (placed, error) {
	if seq, known := b.requests.find(out.ID); known {
		return placed{seq: seq}, nil
	}
	// What has begun is finished even if the caller is gone.
	if err := b.makeSpace(context.WithoutCancel(ctx), putTime(body), int64(len(body))); err != nil {
		return placed{}, err
	}
	return b.begin(out, body, watch, number{}).wait(ctx)
}

// putTime limits how long it may take to put a body.
func putTime(body []byte) time.Duration {
	return answerTime + time.Duration(len(body)/slowest)*time.Second
}

// putting is a message on its way into the queue.
type putting struct {
	box *Box
	placed
	kept    kept
	id      string
	limit   time.Duration
	pending *journal.Pending
	takes   int64 // bytes of the outbox
	err     error
}

// begin begins to put a message; wait must follow. It has this number, or with the zero one the next one of the
// outbox. The caller has made space.
func (b *Box) begin(out Outgoing, body []byte, watch bool, of number) *putting {
	p := &putting{box: b, placed: placed{number: of}, id: out.ID, limit: putTime(body), kept: kept{Message: Message{Op: out.Op, Body: body}, Events: out.Events, Generation: out.generation, Put: b.ran.now()}}
	p.size = len(body)
	b.keep.RLock()
	if len(body) > maxInline {
		if p.err = b.toFile(&p.kept); p.err != nil {
			return p
		}
	}
	p.enter(watch, of)
	return p
}

// enter assigns number and sequence to the message in one step: the master takes a lower number
// after a higher one for a duplicate.
func (p *putting) enter(watch bool, of number) {
	b := p.box
	b.mu.Lock()
	defer b.mu.Unlock()
	if of.epoch == "" {
		b.n++
		of = number{b.epoch, b.n}
	}
	p.number, p.kept.Epoch, p.kept.N = of, of.epoch, of.n
	packed, err := p.kept.pack()
	if err != nil {
		p.err = err
		return
	}
	if watch {
		p.outcome = make(chan Delivery, 1)
		b.asks[of] = p.outcome
	}
	p.takes = b.queue.Size(packed) + p.kept.Size
	p.pending, p.err = b.queue.Begin(packed, p.id)
}

// wait returns when the message is in the queue, and its request recorded.
func (p *putting) wait(ctx context.Context) (placed, error) {
	b := p.box
	defer b.keep.RUnlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.limit)
	defer cancel()
	err := p.err
	if err == nil {
		p.seq, err = p.pending.Wait(ctx)
	}
	if err == nil && p.id != "" {
		err = b.record(p.id, p.seq)
	}
	if err != nil {
		b.forget(p.number)
		return placed{}, eventbus.NotStored(fmt.Errorf("keep it in the outbox: %w", err))
	}
	p.entered()
	b.Wake()
	return p.placed, nil
}

// entered counts a message that is in the queue.
func (p *putting) entered() {
	b := p.box
	b.mu.Lock()
	defer b.mu.Unlock()
	b.span.Last = max(b.span.Last, p.seq)
	b.span.Bytes += p.takes
	if !p.pending.Repeated() && p.seq >= b.span.First {
		b.recent.add(queued{kept: p.kept, entry: journal.Entry{Seq: p.seq, Stored: time.Now(), Size: p.takes - p.kept.Size}})
	}
}

// record records the request of a message in the queue, which stays there even if this fails.
func (b *Box) record(id string, seq uint64) error {
	if err := b.requests.add(id, seq); errors.Is(err, errClosed) {
		return err
	}
	return nil
}

// toFile moves the body into a separate file.
func (b *Box) toFile(k *kept) error {
	k.File, k.Size = bus.NewNonce(), int64(len(k.Body))
	if err := atomicfile.Write(filepath.Join(b.dir, k.File), k.Body, 0o600); err != nil {
		return err
	}
	k.Body = nil
	return nil
}
