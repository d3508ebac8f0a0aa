package journal

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A start of a daemon stores a mark in each of its queues that has copies, as in its journal: the server that tells
// where the queue ends may have led before, and lack the newest messages, and what was sent before a kill may
// still be on its way. A mark is stored only behind the message that the server says is the last one, so that is
// the last one, and nothing is stored any more that was to follow it. No reader sees marks.

// entryHeader has the sequence of the newest message before a mark that is not a mark; 0 if that is not known. In a journal,
// not every mark has it.
const entryHeader = "Salt-Newest"

// isMark reports whether the message with this header is a mark.
func isMark(h nats.Header) bool { return h.Get(partHeader) == markLabel }

// openQueue stores a mark in a queue, unless it is new, and returns the end; given is what a server has said of it.
func (f *fence) openQueue(ctx context.Context, delays Delays, given uint64, mark func(ctx context.Context, last, newest uint64) (uint64, error)) (end uint64, err error) {
	if given == 0 {
		return 0, nil
	}
	err = insist(ctx, delays, "find the end of a queue", func(ctx context.Context) error {
		last, _, err := f.last(ctx)
		if err != nil {
			return err
		}
		newest := last
		switch m, err := f.readAt(ctx, last); {
		case err != nil:
			return err
		case m == nil:
			newest = 0
		case isMark(m.Header):
			newest = newestOf(m.Header)
		}
		end, err = mark(ctx, last, newest)
		if code := codeOf(err); errors.Is(err, nats.ErrNoResponders) || isSequence(err) || code == notLeader || code == notStored {
			err = errNoLeader // nobody leads, or one leads no more, or something has been stored just now
		}
		return err
	})
	return end, err
}

// mark stores a mark behind the message with the sequence last.
func (q *Queue) mark(ctx context.Context, turn *Turn, last, newest uint64) (uint64, error) {
	m := &nats.Msg{Subject: q.subject, Data: []byte{partMark}, Header: nats.Header{
		partHeader: {markLabel}, entryHeader: {strconv.FormatUint(newest, 10)}, jetstream.ExpectedLastSeqHeader: {strconv.FormatUint(last, 10)},
	}}
	if turn != nil {
		m.Header[writerHeader] = []string{turn.id}
	}
	answer, err := q.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return 0, err
	}
	return acknowledged(answer)
}

func newestOf(h nats.Header) uint64 {
	seq, _ := strconv.ParseUint(h.Get(entryHeader), 10, 64) // 0 is unknown
	return seq
}

// beforeMark returns the newest message before a mark that is not a mark; jetstream.ErrMsgNotFound if there is none.
// It asks for a message from a sequence on, which finds the mark at least: who has that lacks no message before it
// that is stored, and whoever has nothing there led before.
func (q *Queue) beforeMark(ctx context.Context, mark *jetstream.RawStreamMsg) (*jetstream.RawStreamMsg, error) {
	span, err := q.extent(ctx)
	if err != nil {
		return nil, err
	}
	seq := mark.Sequence - 1
	if known := newestOf(mark.Header); known > 0 {
		seq = known
	}
	for ; seq >= max(span.First, 1); seq-- {
		m, err := q.stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(q.subject))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound) && q.writer.fence != nil:
			return nil, errNoLeader
		case err != nil:
			return nil, err
		case m.Sequence == seq && !isMark(m.Header): // otherwise it was removed, or is lost
			return m, nil
		}
	}
	return nil, fmt.Errorf("before the mark: %w", jetstream.ErrMsgNotFound)
}
