package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Members are the other masters of a cluster.
type Members interface {
	// Joined tells them that a minion is connected here, or what is known of it now; Left that it
	// is not any more.
	Joined(cluster.Minion)
	Left(salt.MinionID)
}

// announced is what the other members were told.
type announced struct {
	mu   sync.Mutex
	held map[salt.MinionID]held // of the minions that are connected here
}

// held is what a connection of a minion was made with.
type held struct {
	key     string
	process string // see cluster.Minion
	source  string // its address, as far as known
	inbox   string
	since   time.Time
}

// tellMembers tells the other members whether a minion is connected here. Several may say so at
// once; the last one says what is true. by is that of its connection, zero for the one before.
func (f *Fleet) tellMembers(id salt.MinionID, by held) {
	if f.Members == nil {
		return
	}
	f.announced.mu.Lock()
	defer f.announced.mu.Unlock()
	if !f.Here(id) {
		delete(f.announced.held, id)
		f.Members.Left(id)
		select {
		case f.gone <- struct{}{}:
		default:
		}
		return
	}
	if by.key != "" {
		if f.announced.held == nil {
			f.announced.held = map[salt.MinionID]held{}
		}
		f.announced.held[id] = by
	}
	by = f.announced.held[id]
	f.Members.Joined(cluster.Minion{ID: id, Key: by.key, Process: by.process, Source: by.source, Since: by.since, Grains: f.grains.sum(id), Pillar: f.pillars.sum(id), NoPillar: f.pillars.cleared(id)})
}

// tellChanged tells the other members of a minion that is connected here what is known of it now.
func (f *Fleet) tellChanged(id salt.MinionID) {
	if f.KeyHere(id) != "" { // they were told of it
		f.tellMembers(id, held{})
	}
}

// KeyHere returns the key of the connection that a minion has here, "" if it has none, or there are no members.
func (f *Fleet) KeyHere(id salt.MinionID) string {
	f.announced.mu.Lock()
	defer f.announced.mu.Unlock()
	return f.announced.held[id].key
}

// heldHere returns what the connection of a minion was made with that is connected here, zero if it is not.
func (f *Fleet) heldHere(id salt.MinionID) held {
	f.announced.mu.Lock()
	defer f.announced.mu.Unlock()
	return f.announced.held[id]
}

// kindFacts is the request of one member to another for what is known of a minion.
const kindFacts = "facts"

// kindClear is the request to forget one of these facts.
const kindClear = "clear"

// The facts of minions that members tell each other.
const (
	ofGrains = "grains"
	ofPillar = "pillar"
)

// wanted is such a request.
type wanted struct {
	ID   salt.MinionID `json:"id"`
	Fact string        `json:"fact"`
}

// answerFacts answers another member.
func (f *Fleet) answerFacts(_ context.Context, _ string, body []byte) (any, error) {
	var q wanted
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, rpc.Errorf(rpc.Usage, "%v", err)
	}
	switch q.Fact {
	case ofGrains:
		if grains := f.Grains(q.ID); grains != nil {
			return value.Value{V: grains}, nil
		}
	case ofPillar:
		if data := f.pillars.of(q.ID); data != nil {
			return value.Value{V: data}, nil
		}
	}
	return nil, rpc.Errorf(rpc.NotFound, "there are no %.20s of %s", q.Fact, q.ID)
}

// sum returns a checksum of what is known of a minion.
func (f *Fleet) sum(id salt.MinionID, fact string) string {
	if fact == ofPillar {
		return f.pillars.sum(id)
	}
	return f.grains.sum(id)
}

// lastUpdate returns a number that changes when something is known here of a minion that no other member has
// told.
func (f *Fleet) lastUpdate(id salt.MinionID, fact string) uint64 {
	if fact == ofPillar {
		return f.pillars.lastUpdate(id)
	}
	return f.grains.lastUpdate(id)
}

// learn takes over what another member knows of a minion, unless lastUpdate has changed since it returned
// before: a minion tells its grains before it is connected. The other member has stored that already. Its
// text may be longer than it is here: other encoders escape more characters.
//
// What the minion has told meanwhile may be older, if that was handled late and the minion is elsewhere
// by now. So the error is then errUpdated, and the member is asked again.
func (f *Fleet) learn(id salt.MinionID, fact string, raw []byte, before uint64) error {
	if fact == ofGrains {
		if items := value.Count(raw); items > maxGrainItems {
			return tooLargeGrains(len(raw), items)
		}
	}
	v, err := value.Decode(raw)
	data, ok := v.(map[string]any)
	if err != nil || !ok {
		return rpc.Errorf(rpc.Usage, "the %s of %s are not a map: %v", fact, id, err)
	}
	if fact == ofPillar {
		return f.pillars.learn(id, data, before)
	}
	return f.grains.learn(id, data, before)
}

// errUpdated is why what another member knows was not taken over.
var errUpdated = rpc.Errorf(rpc.Busy, "the minion has told something here meanwhile")

// Elsewhere registers the minions that are connected to other members: they are targets as those
// of this master are. It implements cluster.Minions.
type Elsewhere struct {
	Fleet *Fleet
	Jobs  Jobs
	// Ask asks another member.
	Ask func(ctx context.Context, member, kind string, body, answer any) error
	// Others returns the other members that run.
	Others func() []string
	// Cut ends the connection with this inbox.
	Cut func(inbox string)
	Log *slog.Logger

	mu     sync.Mutex
	due    map[wanted]due // what is not known here as another member knows it
	wake   chan struct{}
	warned logging.Throttle
}

type due struct {
	member string
	sum    string
}

// Serve registers what other members ask for.
func (e *Elsewhere) Serve(handle func(kind string, h func(ctx context.Context, from string, body []byte) (any, error))) {
	e.due, e.wake = map[wanted]due{}, make(chan struct{}, 1)
	e.Fleet.elsewhere = e
	handle(kindFacts, e.Fleet.answerFacts)
	handle(kindClear, func(_ context.Context, _ string, body []byte) (any, error) {
		var q wanted
		if err := json.Unmarshal(body, &q); err != nil || q.Fact != ofPillar {
			return nil, rpc.Errorf(rpc.Usage, "the %.20s of a minion are not forgotten: %v", q.Fact, err)
		}
		if connected, _ := e.Fleet.Connected(q.ID); connected || e.Fleet.pillars.of(q.ID) != nil { // of others nothing is known or asked for
			clearPillar(e.Fleet, q.ID)
		}
		return nil, nil
	})
}

// clearPillar has the other members forget the pillar of a minion. One that does not run has forgotten it already; to one
// that is cut off, the member of the minion says so when it is back.
func (e *Elsewhere) clearPillar(ctx context.Context, id salt.MinionID) error {
	members := e.Others()
	errs := make([]error, len(members))
	var asking sync.WaitGroup
	for i, member := range members {
		asking.Go(func() {
			if err := e.Ask(ctx, member, kindClear, wanted{id, ofPillar}, nil); err != nil && !errors.Is(err, cluster.ErrGone) {
				errs[i] = fmt.Errorf("the pillar is not forgotten at the member %s: %w", member, err)
			}
		})
	}
	asking.Wait()
	return errors.Join(errs...)
}

// placeAt is the place of a minion that is connected to another member, among its inboxes.
func placeAt(member string) string { return "member " + member }

// Came implements cluster.Minions. What a minion itself has told here counts more than what
// another member says, until its connection here ends: then it has moved there.
func (e *Elsewhere) Came(member string, m cluster.Minion) {
	e.cutTwin(member, m)
	e.Fleet.Join(m.ID, placeAt(member), false)
	if m.NoPillar && !e.Fleet.Here(m.ID) {
		e.dropPillar(m.ID)
	}
	e.want(wanted{m.ID, ofGrains}, due{member, m.Grains})
	e.want(wanted{m.ID, ofPillar}, due{member, m.Pillar})
	e.Jobs.Back(m.ID, m.Key)
}

// cutTwin ends the connection that a minion has here if it has connected to another member since, by another process:
// either its end was not noticed yet, or another machine has a copy of the key. Both would run jobs. A minion that is
// connected to several members does that by one process. Members say the same of a minion again and again, for example when
// its grains have changed, or when they were apart: if the connection here is the younger one, the other member cuts its own.
func (e *Elsewhere) cutTwin(member string, m cluster.Minion) {
	here := e.Fleet.heldHere(m.ID)
	if here.process == "" || m.Process == "" || here.process == m.Process {
		return
	}
	if !m.Since.IsZero() && m.Since.Before(here.since) {
		return
	}
	e.warned.LogMarked(e.Log, slog.LevelWarn, "twin "+string(m.ID), maxLines, "minion connected to another member while its older connection, of another process, lasts here; the older one is cut. If this goes on, two machines share its key",
		append([]any{"minion", m.ID, "member", member}, logging.Remotes(m.Source, here.source)...)...)
	e.Cut(here.inbox)
}

// dropPillar forgets the pillar of a minion, and that another member was to be asked for it.
func (e *Elsewhere) dropPillar(id salt.MinionID) {
	e.Fleet.pillars.clear(id)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.due, wanted{id, ofPillar})
}

// want has a fact fetched, unless it is known. Where the member of a minion knows no grains of it, they were forgotten,
// and the table says whether that is so.
func (e *Elsewhere) want(q wanted, d due) {
	if d.sum == "" && q.Fact != ofGrains {
		return
	}
	known := d.sum == e.Fleet.sum(q.ID, q.Fact)
	e.mu.Lock()
	if known {
		delete(e.due, q)
	} else {
		e.due[q] = d
	}
	e.mu.Unlock()
	if known {
		return
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Went implements cluster.Minions.
func (e *Elsewhere) Went(member string, id salt.MinionID) {
	if e.Fleet.Leave(id, placeAt(member), time.Now()) {
		e.Jobs.Lost(id)
	}
	if !e.Fleet.Here(id) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, q := range []wanted{{id, ofGrains}, {id, ofPillar}} {
		if e.due[q].member == member {
			delete(e.due, q) // it has moved from there to here
		}
	}
}

// factsPause is the pause before facts that could not be had are asked for again.
const factsPause = 5 * time.Second

// Run fetches facts of minions from other members, and stores those of minions here, until ctx ends.
func (e *Elsewhere) Run(ctx context.Context) {
	var kept sync.WaitGroup
	defer kept.Wait()
	kept.Go(func() { e.Fleet.grains.keepLater(ctx, e.Log) })
	for {
		failed := false
		for q, d := range e.take() {
			err := e.fetch(ctx, q, d)
			if err == nil || ctx.Err() != nil {
				continue
			}
			failed = e.again(q, d, err) || failed
			if !errors.Is(err, errUpdated) { // which is no fault
				e.warned.Log(e.Log, slog.LevelWarn, string(q.ID), maxLines, "what another member knows of a minion is not known here", "minion", q.ID, "fact", q.Fact, "member", d.member, "err", err)
			}
		}
		var later <-chan time.Time
		if failed {
			later = time.After(factsPause)
		}
		select {
		case <-e.wake:
		case <-e.Fleet.gone:
		case <-later:
		case <-ctx.Done():
			return
		}
	}
}

// take returns what is to be fetched now. What is wanted of minions that are connected here stays until
// they are not.
func (e *Elsewhere) take() map[wanted]due {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := map[wanted]due{}
	for q, d := range e.due {
		if !e.Fleet.Here(q.ID) {
			list[q] = d
			delete(e.due, q)
		}
	}
	return list
}

// again puts a fact back, unless the answer would be the same.
func (e *Elsewhere) again(q wanted, d due, err error) bool {
	if code := rpc.CodeOf(err); code != rpc.Internal && code != rpc.Unavailable && code != rpc.Busy {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, newer := e.due[q]; !newer {
		e.due[q] = d
	}
	return true
}

func (e *Elsewhere) fetch(ctx context.Context, q wanted, d due) error {
	before := e.Fleet.lastUpdate(q.ID, q.Fact)
	if e.Fleet.Here(q.ID) || e.Fleet.sum(q.ID, q.Fact) == d.sum {
		return nil
	}
	if connected, _ := e.Fleet.Connected(q.ID); !connected {
		return nil
	}
	if d.sum == "" {
		return e.Fleet.grains.check(ctx, q.ID)
	}
	var raw json.RawMessage
	if err := e.Ask(ctx, d.member, kindFacts, q, &raw); err != nil {
		return err
	}
	if e.Fleet.Here(q.ID) {
		return nil // it has said hello meanwhile, which is newer
	}
	return e.Fleet.learn(q.ID, q.Fact, raw, before)
}
