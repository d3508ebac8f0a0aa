package outbox

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// storeTime limits how long it may take to store one request; a large one has one second more
// for each slowest bytes.
const storeTime = 30 * time.Second

// timeFor returns how long it may take to store this batch.
func timeFor(batch []Message) time.Duration {
	size := 0
	for _, m := range batch {
		size += len(m.Body)
	}
	return storeTime + time.Duration(size/slowest)*time.Second
}

// maxEpoch is the longest epoch, in bytes; it is part of a message id of the journal.
const maxEpoch = 64

// Record is what a message becomes in the master's journal.
type Record struct {
	Events []event.Event
	// Also is a second name of the only event, under which it may be stored already, see journal.Batch.
	Also string
	// After, if not nil, is called once the events are stored, with the latest of them alone if
	// it was not stored before.
	After func(*journal.Pending)
}

// ReceiverOptions are what a receiver needs. All but MaxEventSize, Keys and Elsewhere are
// required.
type ReceiverOptions struct {
	Journal      *journal.Journal
	Returns      Returns
	TagSpaces    TagSpaces
	MaxEventSize int64 // bytes of the data of one event; 0 means no limit
	// Durable returns when stored messages are on the disk: only then the minion gets an
	// answer, after which it removes its copy.
	Durable   func() error
	Elsewhere Elsewhere // nil for a single master
	Keys      Keys      // nil if no minion is ever forgotten
	Log       *slog.Logger
}

// Receiver is the master's end: it stores what minions' outboxes send, each message once and in
// the order of its outbox.
type Receiver struct {
	ReceiverOptions
	watermarks *watermarks
	capacity   *capacity
	asked      *rpc.Shares // questions of other members, by minion and member
	refusals   logging.Throttle
}

// NewReceiver returns a receiver that knows what is stored already. Keep must run beside it.
func NewReceiver(ctx context.Context, o ReceiverOptions) (*Receiver, error) {
	watermarks, err := openWatermarks(ctx, o.Journal, o.Durable)
	if err != nil {
		return nil, err
	}
	return &Receiver{ReceiverOptions: o, watermarks: watermarks, capacity: newCapacity(), asked: rpc.NewShares(maxAsked, math.MaxInt)}, nil
}

// Keep records now and then how far each outbox is stored, until ctx ends, and then a last
// time. It forgets minions that have had no key for an hour.
func (r *Receiver) Keep(ctx context.Context) { r.watermarks.keep(ctx, r.Keys, r.Log) }

// Deliver answers OpDeliver, when all of the batch is in the journal, once and in order.
func (r *Receiver) Deliver(ctx context.Context, req *rpc.Request) error {
	var q Batch
	if err := req.Decode(&q); err != nil {
		return err
	}
	if len(q.Messages) > MaxBatch {
		return rpc.Errorf(rpc.Usage, "%d messages at once: the limit is %d", len(q.Messages), MaxBatch)
	}
	id := salt.MinionID(req.From.Name)
	defer r.capacity.stored(id)
	if err := r.Returns.WithoutQuorum(); err != nil {
		return r.show(id, q.Messages, err)
	}
	// What has begun is finished even if the minion is cut: the watermarks must know the
	// outcome.
	store, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeFor(q.Messages))
	defer cancel()
	defer r.arrived(store, id, q.Messages)()
	deliveries, err := r.store(store, id, req.Inbox(), q.Messages)
	if err != nil && len(deliveries) == 0 {
		return err
	}
	if err := r.Durable(); err != nil {
		return err
	}
	if err != nil {
		r.refusals.Log(r.Log, slog.LevelError, "rest of "+string(id), 1, "not all messages from a minion's outbox are stored", "minion", id, "err", err)
	}
	return req.Last(ctx, answer(req.Op, deliveries))
}

// arrived says that the returns of a batch are here, until end is called.
func (r *Receiver) arrived(ctx context.Context, id salt.MinionID, batch []Message) (end func()) {
	var jids []salt.JID
	for _, m := range batch {
		if jid, isReturn := strings.CutPrefix(m.Op, "ret."); isReturn {
			jids = append(jids, salt.JID(jid))
		}
	}
	if len(jids) == 0 {
		return func() {}
	}
	return r.Returns.Arrived(ctx, id, jids)
}

// show shows the returns of a batch that cannot be stored now; why is the reason. The minion keeps it.
func (r *Receiver) show(id salt.MinionID, batch []Message, why error) error {
	for _, m := range batch {
		if jid, isReturn := strings.CutPrefix(m.Op, "ret."); isReturn {
			r.Returns.Show(id, salt.JID(jid), m)
		}
	}
	return rpc.Errorf(rpc.Unavailable, "nothing can be stored now: %w", why)
}

// incoming is a message on its way into the journal.
type incoming struct {
	Message
	Record
	refused *rpc.Error
	pending *journal.Pending // of the last of its events; nil if all are stored already
}

// store stores messages in order: it begins all before it waits for the first. The result ends
// before a message that could not be stored now.
func (r *Receiver) store(ctx context.Context, id salt.MinionID, inbox string, batch []Message) ([]Delivery, error) {
	from, awaited, err := r.beginFor(ctx, id, inbox, batch)
	if err != nil {
		return nil, err
	}
	defer from.end()
	var broken error
	begun := make([]*incoming, 0, len(batch))
	for _, m := range batch {
		in, err := r.open(ctx, id, m)
		if err == nil && awaited {
			err = r.isAwaited(ctx, id, in)
		}
		if err == nil {
			err = in.begin(r.Journal, id, from)
		}
		if err != nil {
			broken = err // the started part of this message is recognised when it comes again
			break
		}
		begun = append(begun, in)
	}
	deliveries := make([]Delivery, 0, len(begun))
	for _, in := range begun {
		seq, err := in.wait(ctx, from)
		if err != nil {
			return deliveries, err
		}
		in.after()
		deliveries = append(deliveries, Delivery{Seq: seq, Refused: in.refused})
	}
	return deliveries, broken
}

// beginFor waits for the minion's turn to store a batch. awaited means that it is not known what
// other members have stored, and that this batch need not wait for that.
func (r *Receiver) beginFor(ctx context.Context, id salt.MinionID, inbox string, batch []Message) (from *sender, awaited bool, err error) {
	term := r.Journal.Term()
	from = r.watermarks.begin(id)
	if r.knows(from, connection{inbox, term}) {
		return from, false, nil
	}
	from.end()
	if !r.awaits(ctx, id, batch) {
		from, err = r.begin(ctx, id, inbox)
		return from, false, err
	}
	soon, cancel := context.WithTimeout(ctx, awaitedTime)
	defer cancel()
	if from, err = r.begin(soon, id, inbox); err != nil {
		from = r.watermarks.begin(id)
		from.term = term // in another one, another member may have stored it
		return from, true, nil
	}
	return from, false, nil
}

// open reads a message. A refusal is final. err is any other error.
func (r *Receiver) open(ctx context.Context, id salt.MinionID, m Message) (*incoming, error) {
	in := &incoming{Message: m}
	err := checkEpoch(m)
	if err == nil {
		in.Record, err = r.read(ctx, id, m)
	}
	switch {
	case err == nil:
		return in, nil
	case errors.As(err, &in.refused) && in.refused.Permanent():
		r.refusals.Log(r.Log, slog.LevelWarn, string(id), 1, "a message from a minion's outbox is refused", "minion", id, "op", m.Op, "err", err)
		in.Record = Record{}
		return in, nil
	}
	return nil, err
}

func checkEpoch(m Message) error {
	if m.Epoch == "" || len(m.Epoch) > maxEpoch {
		return rpc.Errorf(rpc.Usage, "a message without a valid epoch")
	}
	return nil
}

// begin starts to store what is not stored already.
func (in *incoming) begin(j *journal.Journal, id salt.MinionID, from *sender) (err error) {
	first := 0
	for first < len(in.Events) && from.has(in.Epoch, in.N, first) { // the order is kept within a message, too
		first++
	}
	if first == len(in.Events) {
		return nil
	}
	if in.pending, err = j.BeginAll(in.batch(id, first, from.term)); err != nil {
		from.fails()
	}
	return err
}

// batch is what the journal stores of the message, without the first events, which are stored already.
func (in *incoming) batch(id salt.MinionID, first int, term uint64) journal.Batch {
	l := drafts(in.Events, messageName(id, in.Epoch, in.N), first, term)
	l.Also = in.Also
	return l
}

// drafts returns events as the journal stores them under one name, in that term; those before first
// are stored already.
func drafts(events []event.Event, name string, first int, term uint64) journal.Batch {
	return journal.Batch{Name: name, Term: term, First: first, Count: len(events) - first, Drafts: func(yield func(journal.Draft) bool) {
		for _, e := range events[first:] {
			if !yield(journal.Draft{Tag: e.Tag, Text: e.Text()}) {
				return
			}
		}
	}}
}

// wait returns when all of it is stored. If only a part is, the journal recognises that when
// the message comes again.
func (in *incoming) wait(ctx context.Context, from *sender) (last uint64, err error) {
	if in.pending == nil {
		return 0, nil
	}
	if last, err = in.pending.Wait(ctx); err != nil {
		from.fails()
		return 0, err
	}
	from.set(Watermark{in.Epoch, in.N, len(in.Events) - 1})
	return last, nil
}

func (in *incoming) after() {
	if in.After != nil {
		in.After(in.pending)
	}
}
