package minion

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/brinebus/brine/internal/journal"
	wire "github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/rpc"
)

const (
	// readBytes is about how much of the queue is read at once.
	readBytes = wire.MaxBatchBytes
	// maxEpochs is how many epochs one request may have: fewer than the master
	// remembers.
	maxEpochs = 16
	// lookEvery is how often letters that are too old are looked for.
	lookEvery = 30 * time.Second
	// retryPause follows a request that was not answered.
	retryPause = time.Second
	// What has been delivered is removed from the store together, since that costs
	// as much as the delivery: so many letters, or after so long. After a kill they
	// are delivered again, which the master knows.
	tidyAfter = 500 * time.Millisecond
	maxUntidy = 5000
)

// drain delivers what waits, in order, whenever there is a master, until ctx ends.
func (o *outbox) drain(ctx context.Context) {
	tick := time.NewTicker(tidyAfter)
	defer tick.Stop()
	defer o.tidy(context.WithoutCancel(ctx), true)
	for ctx.Err() == nil {
		more, err := o.turn(ctx)
		if ctx.Err() == nil && err != nil {
			o.log.Warn("outbox not delivered, trying again", "err", err, "waiting", o.waiting())
			sleep(ctx, retryPause)
			continue
		}
		o.tidy(ctx, false)
		if more {
			continue
		}
		select {
		case <-o.ready:
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// turn makes one request of what waits. It says whether it should be called again
// at once.
func (o *outbox) turn(ctx context.Context) (more bool, err error) {
	s := o.link.Load()
	if s != nil {
		if err := o.tellLosses(ctx); err != nil {
			return false, err
		}
	}
	o.head.Lock()
	defer o.head.Unlock()
	if err := o.dropOld(ctx); err != nil || s == nil || o.waiting() == 0 {
		return false, err
	}
	batch, err := o.batch(ctx)
	if err != nil || len(batch) == 0 {
		return false, err
	}
	told, err := o.ask(ctx, s, batch)
	if err != nil {
		return false, err
	}
	o.settle(batch[:len(told)], told)
	return o.waiting() > 0, nil
}

// waitingLetter is a letter with its place in the queue.
type waitingLetter struct {
	letter
	entry journal.Entry
}

// takes is how many bytes of the outbox it takes.
func (l waitingLetter) takes() int64 { return l.entry.Size + l.Size }

// batch returns the letters for one request. A large one goes alone.
func (o *outbox) batch(ctx context.Context) ([]waitingLetter, error) {
	letters := o.atHead()
	if len(letters) == 0 {
		var err error
		if letters, err = o.read(ctx); err != nil {
			return nil, err
		}
	}
	epochs := map[string]bool{}
	for i, l := range letters {
		epochs[l.Epoch] = true
		if i > 0 && (l.File != "" || len(epochs) > maxEpochs) {
			return letters[:i], nil
		}
		if l.File != "" {
			return letters[:i+1], nil
		}
	}
	return letters, nil
}

// read reads the letters at the head of the queue.
func (o *outbox) read(ctx context.Context) ([]waitingLetter, error) {
	entries, err := o.queue.Read(ctx, o.first(), wire.MaxBatch, readBytes)
	if err != nil {
		return nil, err
	}
	letters := make([]waitingLetter, len(entries))
	for i, e := range entries {
		l, err := unpack(e)
		if err != nil {
			o.log.Error("unreadable letter in the outbox", "err", err)
			l = letter{Message: wire.Message{Epoch: o.epoch, Op: "unreadable"}} // which is refused, and so goes
		}
		letters[i] = waitingLetter{l, e}
	}
	return letters, nil
}

func (o *outbox) first() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.span.First
}

// ask sends the letters and returns what became of them, which may be told of a
// part.
func (o *outbox) ask(ctx context.Context, s *session, batch []waitingLetter) ([]wire.Delivery, error) {
	q := wire.Batch{Messages: make([]wire.Message, len(batch))}
	size := 0
	for i, l := range batch {
		if err := o.fetch(&l.letter); err != nil {
			return nil, err
		}
		q.Messages[i] = l.Message
		size += len(l.Body)
	}
	leave, err := askRoom(ctx, s, size)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, answerTime+time.Duration(size/slowest)*time.Second)
	defer cancel()
	var d wire.Delivered
	err = s.Ask(ctx, wire.OpDeliver, q, &d)
	var refused *rpc.Error
	if errors.As(err, &refused) && refused.Permanent() && len(batch) == 1 {
		return []wire.Delivery{{Refused: refused}}, nil // the request itself, as one that is too large
	}
	if err != nil {
		return nil, err
	}
	if len(d.Messages) == 0 || len(d.Messages) > len(batch) {
		return nil, fmt.Errorf("the master's answer tells of %d letters, it was sent %d", len(d.Messages), len(batch))
	}
	return d.Messages, nil
}

// roomTime bounds the wait until the master has room for large letters: others'
// go first.
const roomTime = 10 * time.Minute

// askRoom waits until the master has room for letters of this size. A master that
// knows nothing of rooms has it.
func askRoom(ctx context.Context, s *session, size int) (leave func(), err error) {
	if size <= wire.SmallBatch {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, roomTime)
	defer cancel()
	stream, err := s.Call(wire.OpCapacity, wire.Capacity{Bytes: int64(size)})
	if err != nil {
		return nil, err
	}
	var room wire.Capacity
	if err := stream.Decode(ctx, &room); err != nil && rpc.CodeOf(err) != rpc.NotFound {
		stream.Close()
		return nil, err
	}
	return stream.Close, nil
}

// fetch gets a large body. A letter whose file is gone has nothing left to say, and
// is refused by the master.
func (o *outbox) fetch(l *letter) error {
	if l.File == "" {
		return nil
	}
	b, err := os.ReadFile(o.path(*l))
	if errors.Is(err, fs.ErrNotExist) {
		o.log.Error("a large letter in the outbox has lost its file", "op", l.Op, "file", o.path(*l))
		return nil
	}
	l.Body = b
	return err
}

// settle takes the letters out of what waits, and tells the senders.
func (o *outbox) settle(batch []waitingLetter, told []wire.Delivery) {
	for i, l := range batch {
		if r := told[i].Refused; r != nil {
			o.log.Error("the master refuses what was for it; it is dropped", "op", l.Op, "err", r)
		}
		o.tell(l.letter, told[i])
	}
	o.leave(batch)
}

// leave notes that letters at the head are dealt with. They are in the store until
// tidy.
func (o *outbox) leave(batch []waitingLetter) {
	var freed int64
	for _, l := range batch {
		freed += l.takes()
		if l.File != "" {
			o.files = append(o.files, o.path(l.letter))
		}
	}
	o.untidy += len(batch)
	last := batch[len(batch)-1].entry.Seq
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range batch {
		if have, here := o.fresh[l.entry.Seq]; here {
			delete(o.fresh, l.entry.Seq)
			o.freshBytes -= len(have.Body)
		}
	}
	close(o.left)
	o.left = make(chan struct{})
	o.span.First = max(o.span.First, last+1)
	o.span.Last = max(o.span.Last, last)
	if o.span.Bytes -= freed; o.span.First > o.span.Last {
		o.span.Bytes = 0 // a repetition was counted, and is not there
	}
}

// tidy removes what has left from the store, now or when it is time.
func (o *outbox) tidy(ctx context.Context, now bool) {
	o.head.Lock()
	defer o.head.Unlock()
	if o.untidy > 0 && (now || o.untidy >= maxUntidy || time.Since(o.tidied) >= tidyAfter) {
		o.clear(ctx)
	}
}

// clear removes from the store what has left, and then its files: in the other
// order a kill between the two would leave a letter without its body. Its caller
// holds the head.
func (o *outbox) clear(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	o.keep.Lock()
	err := o.queue.Remove(ctx, o.first()-1)
	o.keep.Unlock()
	if err != nil {
		o.log.Warn("delivered letters are not removed from the store yet", "err", err)
		return
	}
	for _, path := range o.files {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			o.log.Warn("file of a letter that has left the outbox not removed", "err", err)
		}
	}
	o.files, o.untidy, o.tidied = nil, 0, time.Now()
}
