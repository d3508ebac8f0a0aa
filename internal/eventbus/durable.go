package eventbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/lease"
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
	// At is the same for the journals of other masters. In a cluster it is the position in each
	// journal, the own one included: the listener may continue at any member.
	At event.Position `json:"at,omitempty"`
	// Holder is the member of a cluster that has the position.
	Holder lease.Holder `json:"holder,omitzero"`
}

// positions are those of one bus.
type positions struct {
	tables *tables
	member *Member // nil for a single master
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
	claim *claim // in a cluster
	key   string
	fresh bool // in a cluster: nothing is stored yet

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

// hold takes the position for a connection. While another holds it, it waits a short time. The
// context that it returns ends if a listener at another member of a cluster may take the position.
func (p *positions) hold(ctx context.Context, who eventacl.Principal, name, nonce string) (held context.Context, release func(), err error) {
	if err := checkName(name); err != nil {
		return nil, nil, err
	}
	here, err := p.take(ctx, who.Owner, name, nonce)
	if err != nil || p.member == nil {
		return ctx, here, err
	}
	mine, err := p.holdInCluster(ctx, who.Owner, name)
	if err != nil {
		here()
		return nil, nil, err
	}
	return mine.claim.term, func() {
		p.leave(mine)
		here()
	}, nil
}

// holdInCluster takes the position of a listener that has it at this member.
func (p *positions) holdInCluster(ctx context.Context, owner, name string) (*holder, error) {
	t, err := p.tables.get(ctx, "positions")
	if err != nil {
		return nil, err
	}
	key := positionKey(owner, name)
	mine := p.holder(key)
	begun := time.Now()
	for {
		have, c, err := p.member.claim(ctx, t, key)
		var held *heldError
		switch {
		case err == nil:
			mine.claim, mine.key, mine.fresh = c, key, have == nil
			if have != nil {
				mine.at = have.in(p.member.opts.Name)
			}
			return mine, nil
		case !errors.As(err, &held):
			if mine.claim, mine.key = c, key; c != nil {
				p.leave(mine) // what is taken without an answer is taken all the same
			}
			return nil, err
		case time.Since(begun) > p.patience(held.by):
			return nil, rpc.Errorf(rpc.Busy, "another listener works on the position %q, at the member %s", name, held.by).
				WithHint("stop it first, or choose another name; 'salt-event stat' there shows who listens")
		}
		if !backoff.Sleep(ctx, claimPause) {
			return nil, context.Cause(ctx)
		}
	}
}

// claimPause is the pause between attempts to take a position that another member has.
const claimPause = 100 * time.Millisecond

// patience is how long a listener waits for one at another member. If that is gone, its lease is
// over after a while.
func (p *positions) patience(member string) time.Duration {
	if p.member.runs(member) {
		return handover
	}
	return handover + lease.Longest
}

// in is the position in each journal of a cluster. A position of a single master is one in its own
// journal.
func (s *stored) in(own string) event.Position {
	if len(s.At) == 0 && s.Seq > 0 {
		return event.Position{own: s.Seq}
	}
	return maps.Clone(s.At)
}

// leave gives a position back to the listeners at all members.
func (p *positions) leave(mine *holder) {
	p.member.giveBack(mine.claim.term, mine.key, func(ctx context.Context) error {
		t, err := p.tables.get(ctx, "positions")
		if err != nil {
			return err
		}
		mine.mu.Lock()
		defer mine.mu.Unlock()
		return mine.claim.release(ctx, t, mine.key)
	})
}

// holder returns who has a position at this member.
func (p *positions) holder(key string) *holder {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holders[key]
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
	h := p.holder(key)
	if p.member != nil {
		return p.startInCluster(ctx, t, who, h, from, resume)
	}
	have, err := getPosition(ctx, t, key)
	if err != nil {
		return 0, err
	}
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

// startInCluster is start for a member of a cluster. A new position is stored by begin, once the
// positions in all journals are known.
func (p *positions) startInCluster(ctx context.Context, t *journal.Table, who eventacl.Principal, h *holder, from uint64, resume bool) (uint64, error) {
	own := p.member.opts.Name
	if h.fresh {
		return from, p.checkCount(ctx, t, who)
	}
	h.seq = h.at[own] // 0 if this journal is newer than the position
	if resume {
		return max(h.seq+1, from), nil
	}
	return h.seq + 1, nil
}

// begin stores a new position of a listener that is about to begin with these sequences.
func (p *positions) begin(ctx context.Context, who eventacl.Principal, name string, next event.Position) error {
	h := p.holder(positionKey(who.Owner, name))
	if h == nil || !h.fresh {
		return nil
	}
	t, err := p.tables.get(ctx, "positions")
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	at := event.Position{}
	for journal, seq := range next {
		at[journal] = seq - 1
	}
	if err := h.claim.put(ctx, t, h.key, stored{User: who.Name(), Time: time.Now().UTC(), At: at}); err != nil {
		return err
	}
	h.at, h.seq, h.fresh = at, at[p.member.opts.Name], false
	return nil
}

// stored returns the stored position of the listener that holds it, in each journal.
func (p *positions) stored(key string) event.Position {
	h := p.holder(key)
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.member == nil {
		return event.Position{"": h.seq}
	}
	return maps.Clone(h.at)
}

// put stores a position, seq in the own journal and at in others. The caller holds h.mu.
func (p *positions) put(ctx context.Context, t *journal.Table, key string, h *holder, who eventacl.Principal, seq uint64, at event.Position) error {
	s := stored{Seq: seq, User: who.Name(), Time: time.Now().UTC(), At: at}
	if p.member != nil {
		s.Seq, s.At = 0, maps.Clone(at)
		if s.At == nil { // a position where nothing is handled yet
			s.At = event.Position{}
		}
		s.At[p.member.opts.Name] = seq
	}
	if err := h.claim.put(ctx, t, key, s); err != nil {
		return err
	}
	h.seq, h.at = seq, s.At
	return nil
}

// back stores a position before the present one. One that begin stores later is not there yet.
func (p *positions) back(ctx context.Context, who eventacl.Principal, name string, seq uint64) error {
	t, err := p.tables.get(ctx, "positions")
	if err != nil {
		return err
	}
	key := positionKey(who.Owner, name)
	h := p.holder(key)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fresh {
		return nil
	}
	return p.put(ctx, t, key, h, who, seq, h.at)
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

func getPosition(ctx context.Context, t positionTable, key string) (*stored, error) {
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

func putPosition(ctx context.Context, t positionTable, key string, p stored) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return t.Put(ctx, key, b)
}

// stats describes all positions. ends are the ends of the journals, by name; in the journal of a
// single master it is that of "".
func (p *positions) stats(ctx context.Context, ends event.Position) ([]protocol.PositionStat, error) {
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
	var holders []lease.Holder
	err = t.Each(ctx, func(key string, b []byte) {
		var have stored
		if json.Unmarshal(b, &have) != nil {
			p.log.Error("unreadable position skipped", "key", key)
			return
		}
		list, holders = append(list, p.stat(key, have, ends, held[key])), append(holders, have.Holder)
	})
	if p.member != nil {
		for i := range list {
			list[i].Held = list[i].Held || p.member.holds(ctx, holders[i])
		}
	}
	sort.Slice(list, func(i, j int) bool { return nameOf(list[i]) < nameOf(list[j]) })
	return list, err
}

func nameOf(s protocol.PositionStat) string { return s.User + "/" + s.Name + "@" + s.Journal }

func (p *positions) stat(key string, have stored, ends event.Position, held bool) protocol.PositionStat {
	owner, name, _ := strings.Cut(key, "/")
	uid, err := strconv.Atoi(owner)
	if err != nil {
		uid = -1 // a client
	}
	s := protocol.PositionStat{User: have.User, UID: uid, Name: name, Seq: have.Seq, Held: held, Time: have.Time}
	if of, isOne := strings.CutPrefix(owner, daemonOwner+"@"); isOne {
		s.Journal = of
		s.Behind = behind(ends[of], have.Seq)
		return s
	}
	if p.member == nil {
		s.Behind = behind(ends[""], have.Seq)
		return s
	}
	s.At = have.in(p.member.opts.Name)
	s.Seq = s.At[p.member.opts.Name]
	for journal, end := range ends {
		s.Behind += behind(end, s.At[journal])
	}
	return s
}

// keysOf finds the position of another user by the user name that is stored with it. A handler of
// the reactor has one in each journal of a cluster.
func (p *positions) keysOf(ctx context.Context, user, name string) (keys []string, err error) {
	t, err := p.tables.get(ctx, "positions")
	if err != nil {
		return nil, err
	}
	err = t.Each(ctx, func(key string, b []byte) {
		var have stored
		if _, of, _ := strings.Cut(key, "/"); of == name && json.Unmarshal(b, &have) == nil && have.User == user {
			keys = append(keys, key)
		}
	})
	if err == nil && len(keys) == 0 {
		err = rpc.Errorf(rpc.NotFound, "user %s has no position %q", user, name)
	}
	return keys, err
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
	err = r.positions.put(ctx, t, key, h, who, max(q.Seq, h.seq), at)
	if errors.Is(err, errMoved) {
		return rpc.Errorf(rpc.NotFound, "this connection does not hold the position %q any more: %w", q.Durable, err)
	}
	return err
}

// tables are the journal's tables that a bus has opened.
type tables struct {
	journal *journal.Journal
	mu      sync.Mutex // not held while the store is asked
	open    map[string]*opening
}

// opening is a table that is open or is being opened.
type opening struct {
	done  chan struct{} // closed when table or err is set
	table *journal.Table
	err   error
}

// openTime limits the opening of a table while the daemon serves.
const openTime = 15 * time.Second

// get opens a table once. Others who need that table meanwhile wait for it, as long as their ctx
// allows, and share the outcome: if the store does not answer, each waits for it once, and not for
// each of those before. Opening is not cancelled: the server would go on creating the table
// while the daemon stops it, and leave its files open.
func (t *tables) get(ctx context.Context, name string) (*journal.Table, error) {
	o, mine := t.begin(name)
	if mine {
		t.finish(ctx, name, o)
		return o.table, o.err
	}
	select {
	case <-o.done:
		return o.table, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// begin returns a table, open or not; mine means that the caller has to open it.
func (t *tables) begin(name string) (o *opening, mine bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o = t.open[name]; o != nil {
		return o, false
	}
	o = &opening{done: make(chan struct{})}
	t.open[name] = o
	return o, true
}

// finish opens a table. What could not be opened is opened by the next who needs it.
func (t *tables) finish(ctx context.Context, name string, o *opening) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTime)
	defer cancel()
	o.table, o.err = t.journal.Table(ctx, name)
	if o.err != nil {
		t.mu.Lock()
		delete(t.open, name)
		t.mu.Unlock()
	}
	close(o.done)
}
