package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Elsewhere knows what the other members of a cluster have stored of a minion's outbox: of each member the latest epochs.
type Elsewhere interface {
	Stored(ctx context.Context, id salt.MinionID) ([]Watermark, error)
}

// kindStored is the request of one member to another for that.
const kindStored = "outbox"

// question is that request.
type question struct {
	ID salt.MinionID `json:"id"`
}

const (
	// knowTime limits how long it may take to find out what others have stored: nobody can tell what
	// is in the journal of a member that was killed while the others elect a leader for it.
	knowTime = 12 * time.Second
	// awaitedTime is that for a return that somebody waits for, and need not wait for it.
	awaitedTime = 250 * time.Millisecond
	// knowPause is about the pause of a member that has asked another one and was asked meanwhile.
	knowPause = 20 * time.Millisecond
)

// awaits reports whether a batch has only returns of jobs of running members. The minion sends in
// order, so all that came before is confirmed; and no other member has stored these, since the one
// that has sent a job stores its returns. So they need not wait until it is known what a member has
// stored that was killed.
func (r *Receiver) awaits(ctx context.Context, id salt.MinionID, batch []Message) bool {
	for _, m := range batch {
		jid, isReturn := strings.CutPrefix(m.Op, "ret.")
		if !isReturn {
			return false
		}
		if awaits, _ := r.Returns.Awaits(ctx, id, salt.JID(jid), true); !awaits {
			return false
		}
	}
	return len(batch) > 0
}

// errFollower means that the member that follows the job of a return is gone.
var errFollower = rpc.Errorf(rpc.Unavailable, "the member that follows the job is gone")

// isAwaited checks a return that is stored although it is not known what other members have stored.
func (r *Receiver) isAwaited(ctx context.Context, id salt.MinionID, in *incoming) error {
	if len(in.Events) == 0 { // another member has stored it
		return nil
	}
	if _, here := r.Returns.Awaits(ctx, id, salt.JID(strings.TrimPrefix(in.Op, "ret.")), true); !here {
		return errFollower
	}
	return nil
}

// begin waits for the minion's turn to store what comes over the connection inbox. In a cluster it
// first finds out what other members have stored: the minion repeats what they have not confirmed.
// If that cannot be known, nothing is stored.
//
// Of two members that store for the same minion only one can know it: whoever answers another one what
// is stored here has to ask again, and so has a member whose term of the journal was ended because it
// could not answer.
//
// One request of a minion asks at a time: the others wait here, and not at all members. They cannot use
// the answer to a question that was asked before theirs, but what is known after it.
func (r *Receiver) begin(ctx context.Context, id salt.MinionID, inbox string) (*sender, error) {
	ctx, cancel := context.WithTimeout(ctx, knowTime)
	defer cancel()
	asking := r.watermarks.sender(id).asking
	select {
	case asking <- struct{}{}:
		defer func() { <-asking }()
	case <-ctx.Done():
		return nil, notKnown(id, context.Cause(ctx))
	}
	for {
		from := r.watermarks.begin(id)
		term := r.Journal.Term()
		if r.knows(from, connection{inbox, term}) {
			return from, nil
		}
		answered := from.answered
		from.end() // another member may ask meanwhile
		marks, err := r.Elsewhere.Stored(ctx, id)
		if err == nil && !r.learn(id, connection{inbox, term}, answered, marks) && !backoff.Sleep(ctx, knowPause/2+rand.N(knowPause)) {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, notKnown(id, err)
		}
	}
}

func notKnown(id salt.MinionID, err error) error {
	return rpc.Errorf(rpc.Unavailable, "it is not known what other members have stored of the messages of %s: %v", id, err).
		WithHint("the minion keeps its messages, and sends them again")
}

// knows reports whether it is known what other members have stored. The caller has the turn, in
// which messages are stored in this term only.
func (r *Receiver) knows(from *sender, over connection) bool {
	from.term = over.term
	return r.Elsewhere == nil || from.known == over
}

// learn takes over what other members have stored, unless one of them has asked meanwhile.
func (r *Receiver) learn(id salt.MinionID, over connection, answered uint64, marks []Watermark) bool {
	from := r.watermarks.begin(id)
	defer from.end()
	if from.answered != answered {
		return false
	}
	from.learn(marks)
	from.known = over
	return true
}

// ServeMembers registers the handler for requests of other members.
func (r *Receiver) ServeMembers(handle func(kind string, h func(ctx context.Context, from string, body []byte) (any, error))) {
	handle(kindStored, r.answerStored)
}

// maxAsked is how many questions of one member about one minion may wait here. A member asks one at a
// time, and one of an older version once for each batch of the minion.
const maxAsked = 4

// answerStored tells another member what is stored here of a minion's outbox, when what is being
// stored is finished.
func (r *Receiver) answerStored(ctx context.Context, from string, body []byte) (any, error) {
	var q question
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, rpc.Errorf(rpc.Usage, "%v", err)
	}
	if !r.watermarks.met(q.ID) { // whatever ids another member names, nothing is kept for them
		return []Watermark{}, nil
	}
	asked := string(q.ID) + " " + from
	if !r.asked.Take(asked, 1) {
		return nil, rpc.Errorf(rpc.Busy, "member %s has asked %d times already what is stored of %s", from, maxAsked, q.ID)
	}
	defer r.asked.Give(asked, 1)
	ctx, cancel := context.WithTimeout(ctx, knowTime)
	defer cancel()
	of, err := r.watermarks.beginBefore(ctx, q.ID)
	if err != nil {
		return nil, rpc.Errorf(rpc.Unavailable, "messages of %s are still being stored: %v", q.ID, err)
	}
	defer of.end()
	if err := of.resolve(ctx); err != nil {
		return nil, rpc.Errorf(rpc.Unavailable, "it is not known which messages of %s are stored: %v", q.ID, err)
	}
	of.known = connection{}
	of.answered++
	return of.stored(), nil
}

// Exchange carries requests to the other members of a cluster.
type Exchange interface {
	// Others returns the other members that are running.
	Others() []string
	// Ask sends a request to a member. IsGone reports whether its error means that the member is
	// not running, or has stopped.
	Ask(ctx context.Context, member, kind string, body, answer any) error
	IsGone(error) bool
}

// Members implement Elsewhere: those that run are asked, and of the others their journals are read.
type Members struct {
	Exchange Exchange
	Journal  *journal.Journal         // the own one
	Journals func() []*journal.Mirror // of the other members

	mu    sync.Mutex
	pasts map[string]*past
}

// Stored implements Elsewhere.
func (m *Members) Stored(ctx context.Context, id salt.MinionID) ([]Watermark, error) {
	ctx = journal.Starting(ctx) // an election takes some seconds
	running, journals := m.Exchange.Others(), map[string]*journal.Mirror{}
	names := slices.Clone(running)
	for _, one := range m.Journals() {
		journals[one.Name] = one
		if !slices.Contains(running, one.Name) {
			names = append(names, one.Name)
		}
	}
	all, errs := make([][]Watermark, len(names)), make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			all[i], errs[i] = m.storedAt(ctx, name, slices.Contains(running, name), journals[name], id)
		})
	}
	wg.Wait()
	return latest(all), errors.Join(errs...)
}

// maxLearned is how many epochs of each other member are remembered: twice what one request may contain. The minion repeats what it
// has sent last.
const maxLearned = 2 * maxEpochs

// latest returns the watermarks of several members: of each the latest, which are the last ones.
func latest(all [][]Watermark) (marks []Watermark) {
	for _, list := range all {
		for _, one := range list[max(0, len(list)-maxLearned):] {
			switch i := find(marks, one.Epoch); {
			case i < 0:
				marks = append(marks, one)
			case covers([]Watermark{one}, marks[i]):
				marks[i] = one
			}
		}
	}
	return marks
}

// storedAt returns what one member has stored.
func (m *Members) storedAt(ctx context.Context, name string, runs bool, of *journal.Mirror, id salt.MinionID) (marks []Watermark, err error) {
	if runs {
		err = m.Exchange.Ask(ctx, name, kindStored, question{id}, &marks)
		if !m.Exchange.IsGone(err) {
			m.forget(name)
			return marks, err
		}
	}
	if of == nil {
		return nil, fmt.Errorf("the journal of %s is not known here yet", name)
	}
	p := m.past(name)
	if err := p.read(ctx, m.Journal, of); err != nil {
		return nil, fmt.Errorf("read what %s has stored: %w", name, err)
	}
	return p.marks.sender(id).stored(), nil
}

func (m *Members) past(name string) *past {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pasts == nil {
		m.pasts = map[string]*past{}
	}
	if m.pasts[name] == nil {
		m.pasts[name] = &past{turn: make(chan struct{}, 1)}
	}
	return m.pasts[name]
}

// forget makes the next reading begin with the checkpoint that the member has written since.
func (m *Members) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pasts, name)
}

// past is what a member that does not run has stored of all minions: its checkpoint, and the names
// in its journal after that. Many minions arrive at once when a member is killed, so it is kept.
type past struct {
	turn  chan struct{} // taken by whoever reads; guards the rest
	ended journal.Ended // the term at the latest reading
	marks *watermarks   // nil before the first reading
	next  uint64        // where the next reading begins
	begun time.Time     // when the latest one began
}

// read reads what is there and was not read before, unless a reading has begun since it was
// called. The term of the journal is ended first: the member may be cut off or stopped only, and
// store more later.
func (p *past) read(ctx context.Context, j *journal.Journal, of *journal.Mirror) error {
	called := time.Now()
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-p.turn }()
	if p.begun.After(called) {
		return nil
	}
	begun := time.Now()
	ended, err := of.EndTerm(ctx, p.ended)
	if err == nil {
		err = p.open(ctx, j, of.Name)
	}
	if err == nil && ended != p.ended {
		err = p.readNames(ctx, of, ended.Mark)
	}
	if err != nil {
		return err
	}
	p.ended, p.begun = ended, begun
	return nil
}

// open reads the checkpoint.
func (p *past) open(ctx context.Context, j *journal.Journal, member string) error {
	if p.marks != nil {
		return nil
	}
	marks, position := &watermarks{senders: map[salt.MinionID]*sender{}}, uint64(0)
	table, err := j.PeerTable(ctx, outboxes, member)
	if err == nil && table != nil {
		position, err = readCheckpoint(ctx, table, func(id salt.MinionID, list []Watermark) { marks.sender(id).marks = list })
	}
	if err != nil {
		return err
	}
	p.marks, p.next = marks, position+1
	return nil
}

// readNames reads the names of messages. The next reading begins with the first event of the last
// message, since only that has the name.
func (p *past) readNames(ctx context.Context, of *journal.Mirror, least uint64) error {
	latest := ""
	return of.Names(ctx, p.next, least, func(seq uint64, name string, item int) {
		if name != latest {
			latest, p.next = name, seq
		}
		if minion, epoch, n, ok := parseMessageName(name); ok {
			p.marks.sender(minion).set(Watermark{epoch, n, item})
		}
	})
}
