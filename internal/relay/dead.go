package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"brine/internal/bus"
	"brine/internal/event"
	"brine/internal/protocol"
)

// Bounds of the dead letters. One lives in a single message of the store.
const (
	maxLetter  = 900 << 10 // bytes of one; a larger event is kept by its place only
	maxLetters = 10_000    // of one user
)

func letterKey(owner, name string, seq uint64) string {
	return fmt.Sprintf("%s/%s/%020d", owner, name, seq)
}

// Dead keeps, lists and drops the dead letters of the asking user.
func (r *Relay) Dead(ctx context.Context, req *bus.Request, who Asker) error {
	var q protocol.Dead
	if err := req.Decode(&q); err != nil {
		return err
	}
	if _, ok := who.Hearing.Covers(""); !ok {
		return r.ungranted(who, "listen", "")
	}
	_ = req.Decide(nil)
	switch q.Do {
	case protocol.DeadPut:
		return r.bury(ctx, who, q.Letter)
	case protocol.DeadList, protocol.DeadDrop:
		return r.exhume(ctx, req, who, q)
	}
	return bus.Errorf(bus.Usage, "there is nothing like %q to do with dead letters", q.Do)
}

func (r *Relay) bury(ctx context.Context, who Asker, l *protocol.DeadLetter) error {
	if l == nil || l.Seq == 0 {
		return bus.Errorf(bus.Usage, "there is no letter to keep")
	}
	if err := checkName(l.Name); err != nil {
		return err
	}
	r.deadMu.Lock()
	defer r.deadMu.Unlock()
	have, err := r.buried(ctx, who.Owner)
	if err != nil {
		return err
	}
	if len(have) >= maxLetters {
		return bus.Errorf(bus.Busy, "user %s has %d dead letters: that is the limit", who.Name, len(have)).
			WithHint("'salt-event dead list' shows them; retry or drop some")
	}
	return r.keepLetter(ctx, who.Owner, l)
}

// letterPlace is what is known of a letter without reading it: to read all at each
// burial would take longer with each.
type letterPlace struct {
	owner   string
	name    string // of the handler
	speaker string // whose event it is
	seq     uint64
}

func placeOf(owner string, l *protocol.DeadLetter) letterPlace {
	return letterPlace{owner, l.Name, event.Head{Tag: l.Tag, From: l.From}.Speaker(), l.Seq}
}

// buried returns the letters of an owner, the oldest first. Its caller holds deadMu.
func (r *Relay) buried(ctx context.Context, owner string) ([]letterPlace, error) {
	if r.dead == nil {
		all, err := r.everyLetter(ctx)
		if err != nil {
			return nil, err
		}
		r.dead = map[string]letterPlace{}
		for _, l := range all {
			r.dead[letterKey(l.owner, l.Name, l.Seq)] = placeOf(l.owner, &l.DeadLetter)
		}
	}
	var list []letterPlace
	for _, p := range r.dead {
		if p.owner == owner {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b letterPlace) int { return cmp.Compare(a.seq, b.seq) })
	return list, nil
}

// keepLetter stores a letter. Its caller holds deadMu.
func (r *Relay) keepLetter(ctx context.Context, owner string, l *protocol.DeadLetter) error {
	t, err := r.table(ctx, "dead")
	if err != nil {
		return err
	}
	l.Time = time.Now().UTC()
	b, err := json.Marshal(l)
	if err == nil && len(b) > maxLetter {
		l.Event = nil
		b, err = json.Marshal(l)
	}
	if err != nil {
		return err
	}
	if len(b) > maxLetter {
		return bus.Errorf(bus.Usage, "the dead letter has %d bytes: the limit is %d", len(b), maxLetter)
	}
	key := letterKey(owner, l.Name, l.Seq)
	if err := t.Put(ctx, key, b); err != nil {
		return err
	}
	if r.dead != nil {
		r.dead[key] = placeOf(owner, l)
	}
	return nil
}

// dropLetter forgets a letter. Its caller holds deadMu.
func (r *Relay) dropLetter(ctx context.Context, owner, name string, seq uint64) error {
	t, err := r.table(ctx, "dead")
	if err != nil {
		return err
	}
	key := letterKey(owner, name, seq)
	if err := t.Delete(ctx, key); err != nil {
		return err
	}
	delete(r.dead, key)
	return nil
}

// exhume sends the letters that q names, and removes them if it says so.
func (r *Relay) exhume(ctx context.Context, req *bus.Request, who Asker, q protocol.Dead) error {
	list, err := r.letters(ctx, who, q)
	if err != nil {
		return err
	}
	for _, l := range list {
		if q.Do == protocol.DeadDrop {
			if err := r.dropOne(ctx, l.owner, l.DeadLetter); err != nil {
				return err
			}
		}
		if err := req.Send(ctx, l.DeadLetter); err != nil {
			return err
		}
	}
	return nil
}

func (r *Relay) dropOne(ctx context.Context, owner string, l protocol.DeadLetter) error {
	r.deadMu.Lock()
	defer r.deadMu.Unlock()
	return r.dropLetter(ctx, owner, l.Name, l.Seq)
}

// owned is a letter with whose it is.
type owned struct {
	protocol.DeadLetter
	owner string
}

// letters returns the letters of who that q names, in the order of the journal.
// Operators see those of the daemon's own handlers, too.
func (r *Relay) letters(ctx context.Context, who Asker, q protocol.Dead) ([]owned, error) {
	all, err := r.everyLetter(ctx)
	return slices.DeleteFunc(all, func(l owned) bool {
		his := l.owner == who.Owner || who.Operator && l.owner == daemonOwner
		return !his || q.Name != "" && q.Name != l.Name || q.Seq != 0 && q.Seq != l.Seq
	}), err
}

// everyLetter reads all letters.
func (r *Relay) everyLetter(ctx context.Context) ([]owned, error) {
	t, err := r.table(ctx, "dead")
	if err != nil {
		return nil, err
	}
	var list []owned
	err = t.Each(ctx, func(key string, b []byte) {
		var l owned
		l.owner, _, _ = strings.Cut(key, "/")
		if err := json.Unmarshal(b, &l.DeadLetter); err != nil {
			r.log.Error("unreadable dead letter passed over", "key", key, "err", err)
			return
		}
		list = append(list, l)
	})
	sort.Slice(list, func(i, j int) bool { return list[i].Seq < list[j].Seq })
	return list, err
}
