package eventbus

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// Bounds of the dead letters. One lives in a single message of the store.
const (
	maxLetter  = 900 << 10 // bytes of one; a larger event is kept by its place only
	maxLetters = 10_000    // of one user

	// The bytes of one user, and of all users together. An event for which there is no
	// room is kept by its place only, as long as there is room for that.
	maxOfUser  = 16 << 20
	maxOfUsers = 128 << 20
	// Those of the daemon's own handlers are apart: nobody may make its reactor stop.
	maxOfDaemon = 64 << 20
	// maxWords bounds a letter beside its event: what the handler said.
	maxWords = 64 << 10
)

func letterKey(owner, name string, seq uint64) string {
	return fmt.Sprintf("%s/%s/%020d", owner, name, seq)
}

// Dead keeps, lists and drops the dead letters of the asking user.
func (r *Bus) Dead(ctx context.Context, req *rpc.Request, who eventacl.Principal) error {
	var q protocol.Dead
	if err := req.Decode(&q); err != nil {
		return err
	}
	if err := req.Decide(r.rules.Heard(who)); err != nil {
		return err
	}
	switch q.Do {
	case protocol.DeadPut:
		return r.bury(ctx, who, q.Letter)
	case protocol.DeadList, protocol.DeadDrop:
		return r.exhume(ctx, req, who, q)
	}
	return rpc.Errorf(rpc.Usage, "there is nothing like %q to do with dead letters", q.Do)
}

func (r *Bus) bury(ctx context.Context, who eventacl.Principal, l *protocol.DeadLetter) error {
	if l == nil || l.Seq == 0 {
		return rpc.Errorf(rpc.Usage, "there is no letter to keep")
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
	full := rpc.Errorf(rpc.Busy, "user %s has %d dead letters: that is the limit", who.Name(), len(have)).
		WithHint("'salt-event dead list' shows them; retry or drop some")
	if len(have) >= maxLetters {
		return full
	}
	return r.keepLetter(ctx, who.Owner, l, r.roomOf(who.Owner, l), full)
}

// roomOf is how many bytes a letter of an owner may have. Its caller holds deadMu and
// has counted.
func (r *Bus) roomOf(owner string, l *protocol.DeadLetter) int {
	his, all := 0, 0
	for _, p := range r.dead {
		if p.owner == owner {
			his += p.size
		}
		if p.owner != daemonOwner {
			all += p.size
		}
	}
	if old, again := r.dead[letterKey(owner, l.Name, l.Seq)]; again {
		his, all = his-old.size, all-old.size
	}
	if owner == daemonOwner {
		return maxOfDaemon - his
	}
	return min(maxOfUser-his, maxOfUsers-all)
}

// letterPlace is what is known of a letter without reading it: to read all at each
// burial would take longer with each.
type letterPlace struct {
	owner   string
	name    string // of the handler
	speaker string // whose event it is
	seq     uint64
	size    int // bytes
}

func placeOf(owner string, l *protocol.DeadLetter, size int) letterPlace {
	return letterPlace{owner, l.Name, event.Head{Tag: l.Tag, From: l.From}.Speaker(), l.Seq, size}
}

// buried returns the letters of an owner, the oldest first. Its caller holds deadMu.
func (r *Bus) buried(ctx context.Context, owner string) ([]letterPlace, error) {
	if r.dead == nil {
		dead := map[string]letterPlace{}
		err := r.eachLetter(ctx, func(string) bool { return true }, func(l owned) {
			dead[letterKey(l.owner, l.Name, l.Seq)] = placeOf(l.owner, &l.DeadLetter, l.size)
		})
		if err != nil {
			return nil, err
		}
		r.dead = dead
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

// keepLetter stores a letter of at most room bytes: whole, or its event by the place
// only. The error full says that there is not even room for that. Its caller holds
// deadMu.
func (r *Bus) keepLetter(ctx context.Context, owner string, l *protocol.DeadLetter, room int, full error) error {
	t, err := r.table(ctx, "dead")
	if err != nil {
		return err
	}
	l.Time = time.Now().UTC()
	b, err := json.Marshal(l)
	if err == nil && len(b) > min(maxLetter, room) {
		l.Event = nil
		b, err = json.Marshal(l)
	}
	if err != nil {
		return err
	}
	if words := len(b) - len(l.Event); words > maxWords {
		return rpc.Errorf(rpc.Usage, "the dead letter has %d bytes beside its event: the limit is %d", words, maxWords)
	}
	if len(b) > room {
		return full
	}
	key := letterKey(owner, l.Name, l.Seq)
	if err := t.Keep(ctx, key, b); err != nil {
		return err
	}
	if r.dead != nil {
		r.dead[key] = placeOf(owner, l, len(b))
	}
	return nil
}

// dropLetter forgets a letter. Its caller holds deadMu.
func (r *Bus) dropLetter(ctx context.Context, owner, name string, seq uint64) error {
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
func (r *Bus) exhume(ctx context.Context, req *rpc.Request, who eventacl.Principal, q protocol.Dead) error {
	return r.eachOf(ctx, who, q, func(l owned) error {
		if q.Do == protocol.DeadDrop {
			if err := r.dropOne(ctx, l.owner, l.DeadLetter); err != nil {
				return err
			}
		}
		return req.Send(ctx, l.DeadLetter)
	})
}

func (r *Bus) dropOne(ctx context.Context, owner string, l protocol.DeadLetter) error {
	r.deadMu.Lock()
	defer r.deadMu.Unlock()
	return r.dropLetter(ctx, owner, l.Name, l.Seq)
}

// owned is a letter with whose it is, and its bytes in the store.
type owned struct {
	protocol.DeadLetter
	owner string
	size  int
}

// letters returns the letters of who that q names, in the order of the journal.
// Operators see those of the daemon's own handlers, too.
func (r *Bus) letters(ctx context.Context, who eventacl.Principal, q protocol.Dead) (list []owned, err error) {
	err = r.eachOf(ctx, who, q, func(l owned) error {
		list = append(list, l)
		return nil
	})
	return list, err
}

// eachOf calls f for each letter that is asked for, in order. One at a time is read: whoever
// takes none of them costs no more than one.
func (r *Bus) eachOf(ctx context.Context, who eventacl.Principal, q protocol.Dead, f func(owned) error) error {
	places, err := r.places(ctx, who, q)
	if err != nil {
		return err
	}
	t, err := r.table(ctx, "dead")
	if err != nil {
		return err
	}
	for _, p := range places {
		key := letterKey(p.owner, p.name, p.seq)
		b, err := t.Get(ctx, key)
		if err != nil {
			return err
		}
		if b == nil {
			continue // it was dropped meanwhile
		}
		l := owned{owner: p.owner, size: len(b)}
		if err := json.Unmarshal(b, &l.DeadLetter); err != nil {
			r.log.Error("unreadable dead letter passed over", "key", key, "err", err)
			continue
		}
		if err := f(l); err != nil {
			return err
		}
	}
	return nil
}

// places are where the letters lie that are asked for.
func (r *Bus) places(ctx context.Context, who eventacl.Principal, q protocol.Dead) ([]letterPlace, error) {
	r.deadMu.Lock()
	defer r.deadMu.Unlock()
	list, err := r.buried(ctx, who.Owner)
	if err == nil && who.Operator() && who.Owner != daemonOwner {
		var own []letterPlace
		own, err = r.buried(ctx, daemonOwner)
		list = append(list, own...)
	}
	list = slices.DeleteFunc(list, func(p letterPlace) bool {
		return q.Name != "" && q.Name != p.name || q.Seq != 0 && q.Seq != p.seq
	})
	slices.SortStableFunc(list, func(a, b letterPlace) int { return cmp.Compare(a.seq, b.seq) })
	return list, err
}

// eachLetter reads the letters of those owners.
func (r *Bus) eachLetter(ctx context.Context, of func(owner string) bool, f func(owned)) error {
	t, err := r.table(ctx, "dead")
	if err != nil {
		return err
	}
	return t.Each(ctx, func(key string, b []byte) {
		l := owned{size: len(b)}
		if l.owner, _, _ = strings.Cut(key, "/"); !of(l.owner) {
			return
		}
		if err := json.Unmarshal(b, &l.DeadLetter); err != nil {
			r.log.Error("unreadable dead letter passed over", "key", key, "err", err)
			return
		}
		f(l)
	})
}
