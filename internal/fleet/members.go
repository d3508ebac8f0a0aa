package fleet

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/cluster"
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
	keys map[salt.MinionID]string // of the minions that are connected here
}

// tellMembers tells the other members whether a minion is connected here. Several may say so at
// once; the last one says what is true. key is that of its connection, "" for the one before.
func (f *Fleet) tellMembers(id salt.MinionID, key string) {
	if f.Members == nil {
		return
	}
	f.announced.mu.Lock()
	defer f.announced.mu.Unlock()
	if !f.Here(id) {
		delete(f.announced.keys, id)
		f.Members.Left(id)
		return
	}
	if key != "" {
		if f.announced.keys == nil {
			f.announced.keys = map[salt.MinionID]string{}
		}
		f.announced.keys[id] = key
	}
	f.Members.Joined(cluster.Minion{ID: id, Key: f.announced.keys[id], Grains: f.grains.sum(id)})
}

// kindGrains is the request of one member to another for the grains of a minion.
const kindGrains = "grains"

// AnswerGrains answers another member.
func (f *Fleet) AnswerGrains(_ context.Context, _ string, body []byte) (any, error) {
	var id salt.MinionID
	if err := json.Unmarshal(body, &id); err != nil {
		return nil, rpc.Errorf(rpc.Usage, "%v", err)
	}
	grains := f.Grains(id)
	if grains == nil {
		return nil, rpc.Errorf(rpc.NotFound, "there are no grains of %s", id)
	}
	return value.Value{V: grains}, nil
}

// Elsewhere registers the minions that are connected to other members: they are targets as those
// of this master are. It implements cluster.Minions.
type Elsewhere struct {
	Fleet *Fleet
	Jobs  Jobs
	// Ask asks another member.
	Ask func(ctx context.Context, member, kind string, body, answer any) error
	Log *slog.Logger

	mu   sync.Mutex
	due  map[salt.MinionID]due // minions whose grains are not those that are stored here
	wake chan struct{}
}

type due struct {
	member string
	sum    string
}

// Serve registers what other members ask for.
func (e *Elsewhere) Serve(handle func(kind string, h func(ctx context.Context, from string, body []byte) (any, error))) {
	e.due, e.wake = map[salt.MinionID]due{}, make(chan struct{}, 1)
	handle(kindGrains, e.Fleet.AnswerGrains)
}

// placeAt is the place of a minion that is connected to another member, among its inboxes.
func placeAt(member string) string { return "member " + member }

// Came implements cluster.Minions. The grains that a minion itself has told here count more than
// what another member says.
func (e *Elsewhere) Came(member string, m cluster.Minion) {
	e.Fleet.Join(m.ID, placeAt(member), false)
	if m.Grains != "" && m.Grains != e.Fleet.grains.sum(m.ID) && !e.Fleet.Here(m.ID) {
		e.mu.Lock()
		e.due[m.ID] = due{member, m.Grains}
		e.mu.Unlock()
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
	e.Jobs.Back(m.ID, m.Key)
}

// Went implements cluster.Minions.
func (e *Elsewhere) Went(member string, id salt.MinionID) {
	if e.Fleet.Leave(id, placeAt(member), time.Now()) {
		e.Jobs.Lost(id)
	}
}

// grainsPause is the pause before grains that could not be had are asked for again.
const grainsPause = 5 * time.Second

// Run fetches grains from other members until ctx ends.
func (e *Elsewhere) Run(ctx context.Context) {
	for {
		e.mu.Lock()
		list := e.due
		e.due = map[salt.MinionID]due{}
		e.mu.Unlock()
		failed := false
		for id, d := range list {
			if err := e.fetch(ctx, id, d); err != nil && ctx.Err() == nil {
				e.Log.Warn("the grains of a minion at another member are not known here", "minion", id, "member", d.member, "err", err)
				failed = e.again(id, d, err) || failed
			}
		}
		var later <-chan time.Time
		if failed {
			later = time.After(grainsPause)
		}
		select {
		case <-e.wake:
		case <-later:
		case <-ctx.Done():
			return
		}
	}
}

// again puts a minion back, unless the answer would be the same.
func (e *Elsewhere) again(id salt.MinionID, d due, err error) bool {
	if code := rpc.CodeOf(err); code != rpc.Internal && code != rpc.Unavailable && code != rpc.Busy {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, newer := e.due[id]; !newer {
		e.due[id] = d
	}
	return true
}

func (e *Elsewhere) fetch(ctx context.Context, id salt.MinionID, d due) error {
	if e.Fleet.Here(id) || e.Fleet.grains.sum(id) == d.sum {
		return nil
	}
	if connected, _ := e.Fleet.Connected(id); !connected {
		return nil
	}
	var raw json.RawMessage
	if err := e.Ask(ctx, d.member, kindGrains, id, &raw); err != nil {
		return err
	}
	if err := checkGrains(raw); err != nil {
		return err
	}
	v, err := value.Decode(raw)
	if err != nil {
		return rpc.Errorf(rpc.Usage, "%v", err)
	}
	return e.Fleet.StoreGrains(ctx, id, v)
}
