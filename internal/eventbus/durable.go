package eventbus

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sort"
	"strconv"
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

// A position is how far a durable listener has come: everything up to its sequence is handled.
// It is stored in the journal, in a table whose key is the user's number and the name, so a
// million listeners of one name leave one entry behind. One listener at a time holds it, and
// only the connection that holds it may move it.

// Limits of what users may keep in the journal.
const (
	maxName      = 64  // bytes of the name of a position or of a handler
	maxPositions = 100 // of one ordinary user
	// handover is how long a new listener waits for the one that holds the position: a listener
	// that was killed is gone within that time.
	handover = 3 * time.Second
)

// stored is a position as stored in its table.
type stored struct {
	Seq  uint64    `json:"seq"`
	User string    `json:"user"`
	Time time.Time `json:"time"`
	// At is the same for the journals of other masters.
	At event.Position `json:"at,omitempty"`
}

// positions are those of one bus.
type positions struct {
	tables *tables
	log    *slog.Logger

	mu      sync.Mutex
	holders map[string]*holder // by key
}

// holder is the listener that holds a position.
type holder struct {
	nonce string        // of its connection
	done  chan struct{} // closed when it has left
	mu    sync.Mutex    // one write at a time, in order
	seq   uint64        // what is stored
	at    event.Position

	// Guarded by the lock of positions.
	begun   bool              // seq is known
	listens decision.Decision // the decision that it may listen
}

func positionKey(owner, name string) string { return owner + "/" + name }

func checkName(name string) error {
	if err := event.CheckTag(name); err != nil || len(name) > maxName {
		return rpc.Errorf(rpc.Usage, "%q is not a name for a position: it is 1 to %d bytes without control characters", name, maxName)
	}
	return nil
}

// hold takes the position for a connection. While another holds it, it waits a short time.
func (p *positions) hold(ctx context.Context, who eventacl.Principal, name, nonce string) (release func(), err error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	return p.take(ctx, who.Owner, name, nonce)
}

func (p *positions) take(ctx context.Context, owner, name, nonce string) (release func(), err error) {
	key := positionKey(owner, name)
	mine := &holder{nonce: nonce, done: make(chan struct{})}
	limit := time.NewTimer(handover)
	defer limit.Stop()
	for {
		p.mu.Lock()
		other := p.holders[key]
		if other == nil {
			p.holders[key] = mine
			p.mu.Unlock()
			return func() { p.letGo(key, mine) }, nil
		}
		p.mu.Unlock()
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

// listening records the decision about the listener that holds a position; from then on it may
// move the position.
func (p *positions) listening(key string, d decision.Decision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.holders[key]; h != nil {
		h.listens, h.begun = d, true
	}
}

func (p *positions) letGo(key string, h *holder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holders[key] == h {
		delete(p.holders, key)
	}
	close(h.done)
}

// start returns the sequence at which a durable listener continues. A new one begins at from,
// which is stored before any event is sent. With resume, everything before from counts as
// handled.
func (p *positions) start(ctx context.Context, who eventacl.Principal, name string, from uint64, resume bool) (uint64, error) {
	t, err := p.tables.get(ctx, "positions")
	if err != nil {
		return 0, err
	}
	key := positionKey(who.Owner, name)
	have, err := getPosition(ctx, t, key)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	h := p.holders[key]
	p.mu.Unlock()
	if have != nil {
		h.seq, h.at = have.Seq, have.At
		if resume {
			return max(have.Seq+1, from), nil
		}
		return have.Seq + 1, nil
	}
	if err := p.checkCount(ctx, t, who); err != nil {
		return 0, err
	}
	h.seq = from - 1
	return from, putPosition(ctx, t, key, stored{Seq: from - 1, User: who.Name(), Time: time.Now().UTC()})
}

// back stores a position before the present one.
func (p *positions) back(ctx context.Context, who eventacl.Principal, name string, seq uint64) error {
	t, err := p.tables.get(ctx, "positions")
	if err != nil {
		return err
	}
	key := positionKey(who.Owner, name)
	p.mu.Lock()
	h := p.holders[key]
	p.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := putPosition(ctx, t, key, stored{Seq: seq, User: who.Name(), Time: time.Now().UTC(), At: h.at}); err != nil {
		return err
	}
	h.seq = seq
	return nil
}

// checkCount checks that an ordinary user may have one more position.
func (p *positions) checkCount(ctx context.Context, t *journal.Table, who eventacl.Principal) error {
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
	have := new(stored)
	if err := json.Unmarshal(b, have); err != nil {
		return nil, fmt.Errorf("position %s: %w", key, err)
	}
	return have, nil
}

func putPosition(ctx context.Context, t *journal.Table, key string, p stored) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return t.Put(ctx, key, b)
}

func (p *positions) stats(ctx context.Context, last uint64) ([]protocol.PositionStat, error) {
	t, err := p.tables.get(ctx, "positions")
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	held := map[string]bool{}
	for key := range p.holders {
		held[key] = true
	}
	p.mu.Unlock()
	var list []protocol.PositionStat
	err = t.Each(ctx, func(key string, b []byte) {
		var have stored
		owner, name, _ := strings.Cut(key, "/")
		uid, err := strconv.Atoi(owner)
		if err != nil {
			uid = -1 // a client
		}
		if json.Unmarshal(b, &have) != nil {
			p.log.Error("unreadable position skipped", "key", key)
			return
		}
		list = append(list, protocol.PositionStat{
			User: have.User, UID: uid, Name: name, Seq: have.Seq, Behind: behind(last, have.Seq), Held: held[key], Time: have.Time,
		})
	})
	sort.Slice(list, func(i, j int) bool { return list[i].User+"/"+list[i].Name < list[j].User+"/"+list[j].Name })
	return list, err
}

// keyOf finds the position of another user by the user name that is stored with it.
func (p *positions) keyOf(ctx context.Context, user, name string) (key string, err error) {
	list, err := p.stats(ctx, 0)
	if err != nil {
		return "", err
	}
	for _, one := range list {
		if one.User == user && one.Name == name {
			if one.UID < 0 {
				return positionKey(one.User, name), nil
			}
			return positionKey(strconv.Itoa(one.UID), name), nil
		}
	}
	return "", rpc.Errorf(rpc.NotFound, "user %s has no position %q", user, name)
}

// Confirm stores how far a durable listener has come. A sequence before the stored one changes
// nothing.
func (r *Bus) Confirm(ctx context.Context, req *rpc.Request, who eventacl.Principal) error {
	var q protocol.Confirm
	if err := req.Decode(&q); err != nil {
		return err
	}
	key := positionKey(who.Owner, q.Durable)
	r.positions.mu.Lock()
	h := r.positions.holders[key]
	var listens decision.Decision
	begun := false
	if h != nil {
		listens, begun = h.listens, h.begun
	}
	r.positions.mu.Unlock()
	if h == nil || h.nonce != req.From.Nonce {
		return rpc.Errorf(rpc.NotFound, "this connection does not hold the position %q", q.Durable)
	}
	if !begun { // a listener that reconnects confirms at once what it has handled meanwhile
		return rpc.Errorf(rpc.Unavailable, "the listener of the position %q has not begun yet", q.Durable)
	}
	if err := req.Decide(listens); err != nil {
		return err
	}
	last, err := r.journal.Last(ctx)
	if err != nil {
		return err
	}
	if q.Seq > last {
		return rpc.Errorf(rpc.Usage, "the sequence %d is not in the journal: its newest event is %d", q.Seq, last)
	}
	t, err := r.tables.get(ctx, "positions")
	if err != nil {
		return err
	}
	if err := r.checkAt(ctx, q.At); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	at, more := further(h.at, q.At)
	if q.Seq <= h.seq && !more {
		return nil
	}
	seq := max(q.Seq, h.seq)
	if err := putPosition(ctx, t, key, stored{Seq: seq, User: who.Name(), Time: time.Now().UTC(), At: at}); err != nil {
		return err
	}
	h.seq, h.at = seq, at
	return nil
}

// tables are the journal's tables that a bus has opened.
type tables struct {
	journal *journal.Journal
	mu      sync.Mutex
	open    map[string]*journal.Table
}

// openTime limits the opening of a table while the daemon serves.
const openTime = 15 * time.Second

// get opens a table once. Opening is not cancelled: the server would go on creating the table
// while the daemon stops it, and leave its files open.
func (t *tables) get(ctx context.Context, name string) (*journal.Table, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if open := t.open[name]; open != nil {
		return open, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTime)
	defer cancel()
	opened, err := t.journal.Table(ctx, name)
	if err != nil {
		return nil, err
	}
	t.open[name] = opened
	return opened, nil
}
