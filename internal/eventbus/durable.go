package eventbus

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// A position is how far a durable listener has come: everything up to its place is
// done. It lives in the journal, in a table keyed by the user's number and the
// name, so that a million listeners of one name leave one entry behind. One
// listener at a time holds it; only the connection that holds it may move it.

// Bounds of what users may keep in the journal.
const (
	maxName      = 64  // bytes of the name of a position or of a handler
	maxPositions = 100 // of one ordinary user
	// handover is how long a newcomer waits for the one that holds the position: a
	// listener that was killed is gone within that time.
	handover = 3 * time.Second
)

// stored is a position in its table.
type stored struct {
	Seq  uint64    `json:"seq"`
	User string    `json:"user"`
	Time time.Time `json:"time"`
}

// holder is the listener that works on a position.
type holder struct {
	nonce string        // of its connection
	done  chan struct{} // closed when it has left
	mu    sync.Mutex    // one write at a time, in order
	seq   uint64        // what is stored

	listens decision.Decision // that it may; guarded by the bus's lock
}

func positionKey(owner, name string) string { return owner + "/" + name }

func checkName(name string) error {
	if err := event.CheckTag(name); err != nil || len(name) > maxName {
		return rpc.Errorf(rpc.Usage, "%q is no name for a position: it is 1 to %d bytes without control characters", name, maxName)
	}
	return nil
}

// hold takes the position for a connection, waiting a little while another has
// it.
func (r *Bus) hold(ctx context.Context, who eventacl.Principal, name, nonce string) (release func(), err error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	return r.take(ctx, who.Owner, name, nonce)
}

func (r *Bus) take(ctx context.Context, owner, name, nonce string) (release func(), err error) {
	key := positionKey(owner, name)
	mine := &holder{nonce: nonce, done: make(chan struct{})}
	limit := time.NewTimer(handover)
	defer limit.Stop()
	for {
		r.mu.Lock()
		other := r.holders[key]
		if other == nil {
			r.holders[key] = mine
			r.mu.Unlock()
			return func() { r.letGo(key, mine) }, nil
		}
		r.mu.Unlock()
		select {
		case <-other.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-limit.C:
			return nil, rpc.Errorf(rpc.Busy, "another listener works on the position %q", name).
				WithHint("stop it first, or choose another name; 'salt-event stat' shows who listens")
		}
	}
}

// listening notes what was decided about the listener that holds a position: it may move it.
func (r *Bus) listening(key string, d decision.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.holders[key]; h != nil {
		h.listens = d
	}
}

func (r *Bus) letGo(key string, h *holder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holders[key] == h {
		delete(r.holders, key)
	}
	close(h.done)
}

// position returns the place at which a durable listener goes on. A new one
// begins at from, and that is stored before anything is sent: it has a position
// before it has an event. With resume, what is done before from is done.
func (r *Bus) position(ctx context.Context, who eventacl.Principal, name string, from uint64, resume bool) (uint64, error) {
	t, err := r.table(ctx, "positions")
	if err != nil {
		return 0, err
	}
	key := positionKey(who.Owner, name)
	have, err := getPosition(ctx, t, key)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	h := r.holders[key]
	r.mu.Unlock()
	if have != nil {
		h.seq = have.Seq
		if resume {
			return max(have.Seq+1, from), nil
		}
		return have.Seq + 1, nil
	}
	if err := r.room(ctx, t, who); err != nil {
		return 0, err
	}
	h.seq = from - 1
	return from, putPosition(ctx, t, key, stored{from - 1, who.Name(), time.Now().UTC()})
}

// room checks that an ordinary user may keep one more position.
func (r *Bus) room(ctx context.Context, t *journal.Table, who eventacl.Principal) error {
	if who.Operator() {
		return nil
	}
	n := 0
	err := t.Each(ctx, func(key string, _ []byte) {
		if strings.HasPrefix(key, who.Owner+"/") {
			n++
		}
	})
	if err != nil {
		return err
	}
	if n >= maxPositions {
		return rpc.Errorf(rpc.Usage, "user %s has %d positions: that is the limit", who.Name(), n).
			WithHint("'salt-event purge --durable NAME' forgets one")
	}
	return nil
}

func getPosition(ctx context.Context, t *journal.Table, key string) (*stored, error) {
	b, err := t.Get(ctx, key)
	if b == nil || err != nil {
		return nil, err
	}
	p := new(stored)
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("position %s: %w", key, err)
	}
	return p, nil
}

func putPosition(ctx context.Context, t *journal.Table, key string, p stored) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return t.Put(ctx, key, b)
}

// Confirm stores how far a durable listener has come. A place before the stored
// one changes nothing.
func (r *Bus) Confirm(ctx context.Context, req *rpc.Request, who eventacl.Principal) error {
	var q protocol.Confirm
	if err := req.Decode(&q); err != nil {
		return err
	}
	key := positionKey(who.Owner, q.Durable)
	r.mu.Lock()
	h := r.holders[key]
	var listens decision.Decision
	if h != nil {
		listens = h.listens
	}
	r.mu.Unlock()
	if h == nil || h.nonce != req.From.Nonce {
		return rpc.Errorf(rpc.NotFound, "this connection does not hold the position %q", q.Durable)
	}
	if err := req.Decide(listens); err != nil {
		return err
	}
	last, err := r.journal.Last(ctx)
	if err != nil {
		return err
	}
	if q.Seq > last {
		return rpc.Errorf(rpc.Usage, "the place %d is not in the journal: its newest event is %d", q.Seq, last)
	}
	t, err := r.table(ctx, "positions")
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if q.Seq <= h.seq {
		return nil
	}
	if err := putPosition(ctx, t, key, stored{q.Seq, who.Name(), time.Now().UTC()}); err != nil {
		return err
	}
	h.seq = q.Seq
	return nil
}

// table opens a table once.
func (r *Bus) table(ctx context.Context, name string) (*journal.Table, error) {
	r.tablesMu.Lock()
	defer r.tablesMu.Unlock()
	if t := r.tables[name]; t != nil {
		return t, nil
	}
	t, err := r.journal.Table(ctx, name)
	if err != nil {
		return nil, err
	}
	r.tables[name] = t
	return t, nil
}
