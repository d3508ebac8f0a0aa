package outbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/rpc"
)

const (
	// readBytes is about how many bytes of the queue are read at once.
	readBytes = MaxBatchBytes
	// maxEpochs is how many epochs one request may contain: fewer than the master remembers.
	maxEpochs = 16
	// lookEvery is how often messages are checked for their age.
	lookEvery = 30 * time.Second
	// RetryPause follows a request that was not answered, and longPause is the longest one while
	// the master says that it cannot store anything.
	RetryPause = time.Second
	longPause  = 4 * time.Second
	// Delivered messages are removed from the store together, since that costs as much as the
	// delivery: after that many messages, or that much time. After a kill they are delivered
	// again, and the master recognises them.
	clearAfter   = 500 * time.Millisecond
	maxUncleared = 5000
)

// Drain delivers waiting messages, in order, whenever there is a master, until ctx ends.
func (b *Box) Drain(ctx context.Context) {
	tick := time.NewTicker(clearAfter)
	defer tick.Stop()
	// What is delivered is removed even if ctx ends meanwhile: at the end of a minion the returns of
	// the jobs that it has ended are delivered.
	lasting := context.WithoutCancel(ctx)
	defer b.clear(lasting, true)
	var pauses backoff.Pauses
	for ctx.Err() == nil {
		more, err := b.turn(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			b.log.Warn("outbox not delivered, trying again", "err", err, "waiting", b.Waiting())
			longest := RetryPause
			if rpc.CodeOf(err) == rpc.Unavailable { // the master has answered that it cannot store it
				longest = longPause
			}
			backoff.Sleep(ctx, pauses.Next(RetryPause, longest))
			continue
		}
		pauses.Reset()
		b.clear(lasting, false)
		if more {
			continue
		}
		select {
		case <-b.ready:
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// turn makes one request of waiting messages. It reports whether to call it again at once.
func (b *Box) turn(ctx context.Context) (more bool, err error) {
	if b.master(b.generation()) != nil {
		if err := b.tellLosses(ctx); err != nil {
			return false, err
		}
	}
	var master Master
	generation := ""
	if b.Waiting() > 0 { // a message that comes now wakes the next turn
		if generation, err = b.headGeneration(ctx); err != nil {
			return false, err
		}
		master = b.master(generation)
	}
	if master != nil {
		leave, err := b.enter(ctx, generation) // before head is held, which a message that needs space waits for
		if err != nil {
			return false, err
		}
		defer leave()
		master = b.master(generation) // by now it may be another one
	}
	b.head.Lock()
	defer b.head.Unlock()
	if err := b.dropOld(ctx); err != nil || master == nil || b.Waiting() == 0 { // those that were waiting may be dropped
		return false, err
	}
	batch, err := b.batch(ctx)
	if err != nil || len(batch) == 0 {
		return false, err
	}
	batch, readable := firstRun(batch)
	if !readable {
		b.dropUnreadable(ctx, batch)
		return true, nil
	}
	if batch = ofOne(batch); batch[0].Generation != generation { // those before it were dropped meanwhile, or nothing is known of another one
		b.mixed = true
		return true, nil
	}
	deliveries, err := b.deliver(ctx, master, batch)
	if err != nil {
		b.failed(generation, master)
		return false, err
	}
	b.delivered(batch[:len(deliveries)], deliveries)
	return b.Waiting() > 0, nil
}

// queued is a message with its entry in the queue.
type queued struct {
	kept
	entry      journal.Entry
	unreadable error // nearly always nil
}

// firstRun returns the messages at the head that can be read, or else those that cannot.
func firstRun(batch []queued) (run []queued, readable bool) {
	readable = batch[0].unreadable == nil
	end := slices.IndexFunc(batch, func(m queued) bool { return (m.unreadable == nil) != readable })
	if end < 0 {
		end = len(batch)
	}
	return batch[:end], readable
}

// ofOne returns the messages at the head of one generation: the others may be for another system.
func ofOne(batch []queued) []queued {
	for i, m := range batch {
		if m.Generation != batch[0].Generation {
			return batch[:i]
		}
	}
	return batch
}

// headGeneration is that of the message at the head.
func (b *Box) headGeneration(ctx context.Context) (string, error) {
	if b.generation() == "" && !b.mixed { // there was no other one
		return "", nil
	}
	b.mu.Lock()
	m, here := b.recent.fresh[b.span.First]
	b.mu.Unlock()
	if here {
		return m.Generation, nil
	}
	entries, err := b.queue.Read(ctx, b.first(), 1, readBytes)
	if err != nil || len(entries) == 0 {
		return "", err
	}
	k, err := unpack(entries[0])
	if err != nil {
		return b.generation(), nil // it is dropped when there is a master
	}
	return k.Generation, nil
}

// takes returns how many bytes of the outbox it takes.
func (m queued) takes() int64 { return m.entry.Size + m.Size }

// batch returns the messages for one request. A large message is sent alone.
func (b *Box) batch(ctx context.Context) ([]queued, error) {
	b.mu.Lock()
	messages := b.recent.from(b.span.First)
	b.mu.Unlock()
	if len(messages) == 0 {
		var err error
		if messages, err = b.read(ctx); err != nil {
			return nil, err
		}
	}
	epochs := map[string]bool{}
	for i, m := range messages {
		epochs[m.Epoch] = true
		if i > 0 && (m.File != "" || len(epochs) > maxEpochs) {
			return messages[:i], nil
		}
		if m.File != "" {
			return messages[:i+1], nil
		}
	}
	return messages, nil
}

// read reads the messages at the head of the queue.
func (b *Box) read(ctx context.Context) ([]queued, error) {
	entries, err := b.queue.Read(ctx, b.first(), MaxBatch, readBytes)
	if err != nil {
		return nil, err
	}
	messages := make([]queued, len(entries))
	for i, e := range entries {
		k, err := unpack(e)
		if err != nil {
			k = kept{}
		}
		messages[i] = queued{k, e, err}
	}
	return messages, nil
}

func (b *Box) first() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.span.First
}

// deliver sends a batch and returns the outcomes, possibly only of the first messages.
func (b *Box) deliver(ctx context.Context, master Master, batch []queued) ([]Delivery, error) {
	q := Batch{Messages: make([]Message, len(batch))}
	size := 0
	for i, m := range batch {
		if err := b.fetch(&m.kept); err != nil {
			return nil, err
		}
		q.Messages[i] = m.Message
		size += len(m.Body)
	}
	leave, err := askCapacity(ctx, master, size)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, answerTime+time.Duration(size/slowest)*time.Second)
	defer cancel()
	var d Delivered
	op := OpDeliver
	if master.Framed() {
		op = opLetters
	}
	end := b.sendEarly(ctx, master, batch)
	err = master.Ask(ctx, op, q, &d)
	end()
	var refused *rpc.Error
	if errors.As(err, &refused) && refused.Permanent() && len(batch) == 1 {
		return []Delivery{{Refused: refused}}, nil // the request itself is refused, for example as too large
	}
	if err != nil {
		return nil, err
	}
	list := append(d.Messages, d.Letters...)
	if len(list) == 0 || len(list) > len(batch) {
		return nil, fmt.Errorf("the master's answer tells of %d messages, it was sent %d", len(list), len(batch))
	}
	return list, nil
}

// capacityTime limits the wait until the master accepts a large batch: those of others come
// first.
const capacityTime = 10 * time.Minute

// askCapacity waits until the master has capacity for a batch of this size. A master without
// that request has capacity.
func askCapacity(ctx context.Context, master Master, size int) (leave func(), err error) {
	if size <= SmallBatch {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, capacityTime)
	defer cancel()
	stream, err := master.Call(OpCapacity, Capacity{Bytes: int64(size)})
	if err != nil {
		return nil, err
	}
	var given Capacity
	if err := stream.Decode(ctx, &given); err != nil && rpc.CodeOf(err) != rpc.NotFound {
		stream.Close()
		return nil, err
	}
	return stream.Close, nil
}

// fetch reads a large body from its file. If the file is missing, the message has no content,
// and the master refuses it.
func (b *Box) fetch(k *kept) error {
	if k.File == "" {
		return nil
	}
	body, err := os.ReadFile(b.path(*k))
	if errors.Is(err, fs.ErrNotExist) {
		b.log.Error("a large message in the outbox has lost its file", "op", k.Op, "file", b.path(*k))
		return nil
	}
	k.Body = body
	return err
}

// delivered removes a batch from the waiting messages, and informs the senders.
func (b *Box) delivered(batch []queued, deliveries []Delivery) {
	for i, m := range batch {
		if r := deliveries[i].Refused; r != nil {
			b.log.Error("the master refuses a message, which is dropped", "op", m.Op, "err", r)
		}
		b.tell(m.kept, deliveries[i])
	}
	b.remove(batch)
}

// remove records that messages at the head are done. They stay in the store until clear, so
// until then the store recognises their ids. Their requests must then be recorded, even where
// the sender was told that the message may not be stored.
func (b *Box) remove(batch []queued) {
	var freed int64
	for _, m := range batch {
		if _, known := b.requests.find(m.entry.ID); m.entry.ID != "" && !known {
			_ = b.record(m.entry.ID, m.entry.Seq) // if the minion is ending, it is recorded after the next start
		}
		freed += m.takes()
		if m.File != "" {
			b.files = append(b.files, b.path(m.kept))
		}
	}
	b.uncleared += len(batch)
	last := batch[len(batch)-1].entry.Seq
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recent.remove(batch)
	close(b.left)
	b.left = make(chan struct{})
	b.span.First = max(b.span.First, last+1)
	b.span.Last = max(b.span.Last, last)
	if b.span.Bytes -= freed; b.span.First > b.span.Last {
		b.span.Bytes = 0 // a duplicate was counted, and is not there
	}
}

// clear removes delivered messages from the store, now or when it is time.
func (b *Box) clear(ctx context.Context, now bool) {
	b.head.Lock()
	defer b.head.Unlock()
	if b.uncleared > 0 && (now || b.uncleared >= maxUncleared || time.Since(b.cleared) >= clearAfter) {
		b.clearNow(ctx)
	}
}

// clearNow removes delivered messages from the store, and then their files: in the other order,
// a kill in between would leave a message without its body. Their requests are on the disk before that: while a
// message is in the store, a request that is repeated after a power cut is recognised there. The caller
// holds head.
func (b *Box) clearNow(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	b.keep.Lock()
	last := b.first() - 1
	b.keep.Unlock() // all up to that one are recorded
	err := b.requests.sync()
	if err == nil {
		b.keep.Lock()
		err = b.queue.Remove(ctx, last)
		b.keep.Unlock()
	}
	if err != nil {
		b.log.Warn("delivered messages are not removed from the store yet", "err", err)
		return
	}
	for _, path := range b.files {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.log.Warn("file of a message that has left the outbox not removed", "err", err)
		}
	}
	b.files, b.uncleared, b.cleared = nil, 0, time.Now()
}
