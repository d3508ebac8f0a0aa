package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// PeerQueues returns the names of the others that have a queue of this name, see Journal.Queue: of members, whether
// they run or not, and of those that were members. A single master has those that are left of its cluster.
func PeerQueues(ctx context.Context, j *Journal, name string) (members []string, err error) {
	err = insist(ctx, j.writer.store, "list the queues "+name, func(ctx context.Context) error {
		members = nil
		streams := j.js.StreamNames(ctx)
		for one := range streams.Name() {
			if member, ok := strings.CutPrefix(one, name+"_"); ok && (j.copies == 0 || member != j.member) {
				members = append(members, member)
			}
		}
		return streams.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("list the queues %s: %w", name, err)
	}
	slices.Sort(members)
	return members, nil
}

// PeerQueue opens the Queue of this name of another member; nil if they have none. It is for reading, and for Remove and
// PutAfter where its owner does not write it any more.
func PeerQueue(ctx context.Context, j *Journal, name, member string) (*Queue, error) {
	q := &Queue{nc: j.js.Conn(), name: name + "_" + member, closed: j.closed, far: true}
	q.subject, q.writer = queueRoot+q.name, &writer{nc: q.nc, stream: q.name, store: j.writer.store, closed: j.closed}
	err := insist(ctx, q.writer.store, "open the queue "+q.name, func(ctx context.Context) (err error) {
		if q.stream, err = j.js.Stream(ctx, q.name); err == nil && !byLeader(q.stream.CachedInfo().Cluster) {
			err = errNoLeader
		}
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the queue %s: %w", q.name, err)
	}
	if j.copies > 0 {
		q.writer.fence = newFence(q.stream, j.js, "", nil) // only the leader is asked
		q.known.Store(q.stream.CachedInfo().State.LastSeq)
	}
	return q, nil
}

// PutAfter puts body at the end of a PeerQueue, if last is the end when it arrives: whoever has put something there
// meanwhile comes first. After another error it may be there or not.
func (q *Queue) PutAfter(ctx context.Context, body []byte, last uint64) error {
	m := &nats.Msg{Subject: q.subject, Data: body, Header: nats.Header{jetstream.ExpectedLastSeqHeader: {strconv.FormatUint(last, 10)}}}
	answer, err := q.nc.RequestMsgWithContext(ctx, m)
	if err == nil {
		_, err = acknowledged(answer)
	}
	if err == nil {
		err = q.writer.store.Sync(q.name)
	}
	if err != nil {
		return fmt.Errorf("put into the queue %s: %w", q.name, err)
	}
	return nil
}

// aheadOfQueue is how many messages of a queue of another member are asked for at once: one after the other, each
// would take a round trip.
const aheadOfQueue = 32

// lookahead are the messages of such a queue that were asked for together. The zero value has none.
type lookahead struct {
	first uint64 // the sequence of the first of list
	list  []*jetstream.RawStreamMsg
}

// get returns the message with the sequence seq, or the next one behind it.
func (a *lookahead) get(ctx context.Context, q *Queue, seq uint64, count int) (*jetstream.RawStreamMsg, error) {
	if n := min(count, aheadOfQueue); q.far && n > 1 && seq-a.first >= uint64(len(a.list)) {
		a.fill(ctx, q, seq, n)
	}
	if i := seq - a.first; i < uint64(len(a.list)) && a.list[i] != nil {
		return a.list[i], nil
	}
	return q.stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(q.subject)) // it was removed, or is the last one
}

// fill asks for n messages. What is missing is asked for again by get, which finds out why.
func (a *lookahead) fill(ctx context.Context, q *Queue, seq uint64, n int) {
	a.first, a.list = seq, make([]*jetstream.RawStreamMsg, n)
	var all sync.WaitGroup
	for i := range a.list {
		all.Go(func() {
			if m, err := q.stream.GetMsg(ctx, seq+uint64(i)); err == nil {
				a.list[i] = m
			}
		})
	}
	all.Wait()
}
