package outbox

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// OpEarly stores a return of a job that somebody waits for, ahead of its turn: Message → nothing. After
// the member of a cluster to which a minion was connected was killed, nobody knows what it had stored of
// the minion's outbox until the others have elected a leader for its journal, and what the minion has not
// been told of waits until then, and all behind it. Of a return of a job that another member follows it is
// known: that member stores it. The message stays in the outbox, where it is recognised in its turn.
const OpEarly = "early"

const (
	// earlyAfter is how long a request may have no answer until the returns in the outbox are sent early,
	// and the pause between two looks for further ones.
	earlyAfter = 300 * time.Millisecond
	// maxEarly is the longest return, in bytes, that is sent early.
	maxEarly = 64 << 10
	// maxNotAwaited is after how many returns that nobody waits for no further ones are tried at one look.
	maxNotAwaited = 16
	// earlyTime limits how long it may take to store one.
	earlyTime = 5 * time.Second
)

// errInTurn means that the outbox of the minion does not wait for anything.
var errInTurn = rpc.Errorf(rpc.Unavailable, "the messages of this minion are stored in their turn")

// Early answers OpEarly, when the return is in the journal of the member that follows the job.
func (r *Receiver) Early(ctx context.Context, req *rpc.Request) error {
	var m Message
	if err := req.Decode(&m); err != nil {
		return err
	}
	if err := checkEpoch(m); err != nil {
		return err
	}
	id := salt.MinionID(req.From.Name)
	text, isReturn := strings.CutPrefix(m.Op, "ret.")
	if !isReturn || len(m.Body) > maxEarly {
		return rpc.Errorf(rpc.Usage, "only a return of at most %d bytes is stored early", maxEarly)
	}
	jid := salt.JID(text)
	if err := r.Returns.WithoutQuorum(); err != nil {
		return rpc.Errorf(rpc.Unavailable, "nothing can be stored now: %w", err)
	}
	if r.Elsewhere == nil || !r.watermarks.waits(id) {
		return errInTurn
	}
	awaits, here := r.Returns.Awaits(ctx, id, jid, false)
	if !awaits {
		return rpc.Errorf(rpc.NotFound, "no member that runs is known to wait for the return of job %s", jid)
	}
	// What has begun is finished even if the minion is cut.
	store, cancel := context.WithTimeout(context.WithoutCancel(ctx), earlyTime)
	defer cancel()
	var err error
	if here {
		err = r.storeEarly(store, id, jid, m)
	} else {
		err = r.Returns.StoreEarly(store, id, jid, m, 0)
	}
	if err == nil {
		err = r.Durable()
	}
	if err != nil {
		return err
	}
	return req.Last(ctx, struct{}{})
}

// storeEarly stores a return of a job of this member, in the turn of the minion: otherwise it could be
// stored at the same time as a message of the outbox.
func (r *Receiver) storeEarly(ctx context.Context, id salt.MinionID, jid salt.JID, m Message) error {
	term := r.Journal.Term() // in a later one, another member may have stored it
	of, err := r.watermarks.beginBefore(ctx, id)
	if err != nil {
		return rpc.Errorf(rpc.Unavailable, "messages of %s are still being stored: %v", id, err)
	}
	defer of.end()
	switch {
	case of.doubt: // what is stored is looked up first
		return errInTurn
	case of.has(m.Epoch, m.N, 0):
		return nil
	}
	return r.Returns.StoreEarly(ctx, id, jid, m, term)
}

// waits reports whether a request of a minion waits until it is known what other members have stored.
func (w *watermarks) waits(id salt.MinionID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.senders[id]
	return s != nil && len(s.asking) > 0
}

// sendEarly sends returns early while the request for batch has no answer: those in it, and those in
// memory, which come after it; end stops that.
func (b *Box) sendEarly(ctx context.Context, to Master, batch []queued) (end func()) {
	if !to.TakesEarly() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		e := early{box: b, to: to, batch: batch, tried: map[uint64]time.Time{}}
		tick := time.NewTicker(earlyAfter)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				e.send(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); running.Wait() }
}

// early is what was sent early during one request.
type early struct {
	box    *Box
	to     Master
	batch  []queued             // of the request
	tried  map[uint64]time.Time // when the message with this sequence was sent last
	pauses backoff.Pauses
	next   time.Time // no further one is sent before
}

// send sends what is there. If the master does not take one now, it takes no other one: it
// is asked again after a pause, and with one return only, since it may be at its limits.
func (e *early) send(ctx context.Context) {
	if time.Now().Before(e.next) {
		return
	}
	vain := 0
	for _, m := range e.inTurn() {
		if vain >= maxNotAwaited || ctx.Err() != nil {
			return
		}
		if time.Since(e.tried[m.entry.Seq]) < RetryPause {
			continue
		}
		e.tried[m.entry.Seq] = time.Now()
		once, cancel := context.WithTimeout(ctx, earlyTime)
		err := e.to.Ask(once, OpEarly, m.Message, nil)
		cancel()
		switch code := rpc.CodeOf(err); {
		case err == nil, code == rpc.Denied, code == rpc.Usage:
			e.done(m.entry.Seq)
			e.pauses.Reset()
		case code == rpc.NotFound:
			vain++
		default:
			e.next = time.Now().Add(e.pauses.Next(earlyAfter, RetryPause))
			delete(e.tried, m.entry.Seq)
			return
		}
	}
}

// inTurn returns those that may be sent early and were not. Those that were not tried yet come first, the
// newest before the others, since somebody waits for it most likely; then those that were not tried for
// longest: so none waits for ever behind many that nobody waits for.
func (e *early) inTurn() []queued {
	list := e.returns()
	slices.SortFunc(list, func(a, b queued) int {
		return cmp.Or(e.tried[a.entry.Seq].Compare(e.tried[b.entry.Seq]), cmp.Compare(b.entry.Seq, a.entry.Seq))
	})
	return list
}

// returns returns those that may be sent early and were not, in their order.
func (e *early) returns() []queued {
	e.box.mu.Lock()
	defer e.box.mu.Unlock()
	list := e.box.recent.returns(e.batch)
	return slices.DeleteFunc(list, func(m queued) bool { return m.Generation != e.batch[0].Generation }) // for another system
}

// done records that a message need not be sent early any more.
func (e *early) done(seq uint64) {
	e.box.mu.Lock()
	defer e.box.mu.Unlock()
	if seq >= e.box.span.First {
		e.box.recent.setEarly(seq)
	}
}
