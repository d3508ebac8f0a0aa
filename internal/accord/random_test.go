package accord

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/brinebus/brine/internal/pki"
)

// half is one of two masters in a random history: what it receives, and when its rounds take
// place, is random.
type half struct {
	*side
	heard map[string][]byte // the mirror of the other one's table, as delivered so far
	was   map[string]Act    // the state of each key after the latest round
}

// refusal is a rejection or deletion by a person.
type refusal struct {
	key                  string
	at                   *half
	recorded, came, seen bool // stored as a decision; delivered to the other master; applied there
	lifted               bool // by an acceptance that was made with knowledge of it
}

// history is a random sequence of acts of people at two masters, of deliveries between the
// masters, and of restarts.
type history struct {
	t        *testing.T
	random   *rand.Rand
	halves   [2]*half
	ids      []string
	keys     map[string]pki.PublicKey
	refusals []*refusal
	log      []string // what happened, for the report of a failure
}

func (h *history) other(of *half) *half {
	if of == h.halves[0] {
		return h.halves[1]
	}
	return h.halves[0]
}

func (h *history) tell(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) name(id string) string { return named(id, h.keys[id]) }

// acts applies an act of a person to a key.
func (h *history) acts(at *half, act Act, id string) {
	present := at.entry(id, h.keys[id]).State != pki.Unknown
	if act == Delete && !present {
		return
	}
	h.tell("%s: %s %s", at.name, act, id)
	at.does(act, id, h.keys[id])
	if act != Accept {
		h.refusals = append(h.refusals, &refusal{key: h.name(id), at: at})
		return
	}
	for _, r := range h.refusals {
		if r.key == h.name(id) && (r.at == at || r.seen) {
			r.lifted = true
		}
	}
}

func (h *history) round(at *half) {
	h.tell("%s: round", at.name)
	h.rounds(at, at.round)
}

// rounds runs do, which ends with a whole round.
func (h *history) rounds(at *half, do func()) {
	same := map[string]bool{} // an act that was undone since the latest round is not a decision
	for _, id := range h.ids {
		same[h.name(id)] = h.state(at, id) == at.was[id]
	}
	do()
	for _, r := range h.refusals {
		switch {
		case r.at == at && !r.recorded && same[r.key]:
			r.lifted = true
		case r.at == at:
			r.recorded = true
		case r.came:
			r.seen = true
		}
	}
	for _, id := range h.ids {
		at.was[id] = h.state(at, id)
	}
}

// deliver brings entries of the other master, each with the given probability.
func (h *history) deliver(to *half, probability float64) {
	from := h.other(to)
	now := map[string][]byte{}
	table, err := from.journal.Decisions(h.t.Context())
	if err == nil {
		err = table.Each(h.t.Context(), func(key string, value []byte) { now[key] = bytes.Clone(value) })
	}
	if err != nil {
		h.t.Fatal(err)
	}
	for _, id := range h.ids {
		key := h.name(id)
		if h.random.Float64() >= probability {
			continue
		}
		if !bytes.Equal(now[key], to.heard[key]) {
			h.tell("%s hears of %s: %s", to.name, id, now[key])
			to.follower.hear(from.name, key, now[key])
			to.heard[key] = now[key]
		}
		for _, r := range h.refusals {
			if r.key == key && r.at == from && r.recorded {
				r.came = true
			}
		}
	}
}

// restart is a stop of any kind, after that many writes of the current round: only the tables
// and the key store are left.
func (h *history) restart(at *half, writes int) {
	h.tell("%s: restart after %d writes", at.name, writes)
	h.rounds(at, func() {
		if at.follower != nil {
			l := &at.follower.opts
			l.Own, l.Agreed = &killing{l.Own, &writes}, &killing{l.Agreed, &writes}
			at.killed()
		}
		at.start(true)
		at.stop()
		at.follower.Follow(h.other(at).name, nil)
		for key, value := range at.heard {
			if value != nil {
				at.follower.hear(h.other(at).name, key, value)
			}
		}
		at.round()
	})
}

// killing is a table that can be written only that many times.
type killing struct {
	Table
	left *int
}

// errKilled ends a round in its middle.
var errKilled = errors.New("the daemon was killed")

func (f *killing) Keep(ctx context.Context, key string, value []byte) error {
	if *f.left == 0 {
		panic(errKilled)
	}
	*f.left--
	return f.Table.Keep(ctx, key, value)
}

// killed is a round that may end in its middle.
func (s *half) killed() {
	defer func() {
		if r := recover(); r != nil && r != errKilled {
			panic(r)
		}
	}()
	s.round()
}

func (h *history) step() {
	at := h.halves[h.random.IntN(2)]
	switch n := h.random.IntN(20); {
	case n < 8:
		h.acts(at, []Act{Accept, Reject, Delete}[h.random.IntN(3)], h.ids[h.random.IntN(len(h.ids))])
	case n < 13:
		h.round(at)
	case n < 18:
		h.deliver(at, 0.5)
	default:
		h.restart(at, h.random.IntN(5))
	}
}

func (h *history) fail(format string, args ...any) {
	h.t.Helper()
	for _, line := range h.log {
		h.t.Log(line)
	}
	h.t.Fatalf(format, args...)
}

func (h *history) state(at *half, id string) Act { return stateOf(at.entry(id, h.keys[id])) }

// settle delivers everything to both until nothing changes any more.
func (h *history) settle() {
	h.t.Helper()
	h.tell("both hear everything")
	for range 10 {
		before := fmt.Sprint(h.halves[0].heard, h.halves[1].heard)
		for _, at := range h.halves {
			h.round(at)
		}
		for _, at := range h.halves {
			h.deliver(at, 1)
			h.round(at)
		}
		if fmt.Sprint(h.halves[0].heard, h.halves[1].heard) == before {
			return
		}
	}
	h.fail("the two masters never come to rest")
}

// check compares both masters, and the accepted keys with the refusals.
func (h *history) check() {
	h.t.Helper()
	for _, id := range h.ids {
		one, two := h.state(h.halves[0], id), h.state(h.halves[1], id)
		if one != two {
			h.fail("%s is %q at %s and %q at %s", id, one, h.halves[0].name, two, h.halves[1].name)
		}
		for _, r := range h.refusals {
			if one == Accept && r.key == h.name(id) && !r.lifted {
				h.fail("%s is accepted, though %s has refused it and nobody who knew has lifted that", id, r.at.name)
			}
		}
	}
}

// TestRandomHistories: whatever people do at two masters, in whatever order the masters learn
// of it, and however often they restart: once both have received everything they have the same
// keys, a refusal is lifted only by an act that was made with knowledge of it, and the next
// decision counts on both.
func TestRandomHistories(t *testing.T) { tryHistories(t, 0, 10) }

// tryHistories tries those of a range of seeds.
func tryHistories(t *testing.T, from, to uint64) {
	t.Parallel()
	const steps = 60
	for n := from; n < to; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			h := &history{t: t, random: rand.New(rand.NewPCG(n, 1)), keys: map[string]pki.PublicKey{}}
			for i := range 3 {
				id := fmt.Sprintf("web%d", i)
				h.ids, h.keys[id] = append(h.ids, id), newKey(t).Public()
			}
			for i, name := range []string{"a", "b"} {
				h.halves[i] = &half{newSide(t, name), map[string][]byte{}, map[string]Act{}}
			}
			for _, at := range h.halves {
				h.restart(at, 0)
			}
			for range steps {
				h.step()
			}
			h.settle()
			h.check()
			for _, act := range []Act{Accept, Reject, Accept, Delete} {
				at := h.halves[h.random.IntN(2)]
				h.acts(at, act, h.ids[0])
				h.settle()
				h.check()
				if got := h.state(h.other(at), h.ids[0]); got != act.inForce() {
					h.fail("%s was decided last, and the state is %q", act, got)
				}
			}
		})
	}
}

// cutTable is a table that cannot be written.
type cutTable struct{ Table }

func (cutTable) Keep(context.Context, string, []byte) error { return errUnwritten }

// TestARefusalOfTheOtherMasterIsNotDecidedAgain: a master applies a refusal of the other one, and cannot record that, or ends before
// it has. Meanwhile the other one accepts the key again. The refusal is not taken for one of its own, which would count more; one
// that is made there after that is.
func TestARefusalOfTheOtherMasterIsNotDecidedAgain(t *testing.T) {
	cases := map[string]struct {
		first Act
		cut   bool // otherwise it ends
	}{
		"deleted, not recorded":            {Accept, true},
		"deleted, killed":                  {Accept, false},
		"no longer rejected, not recorded": {Reject, true},
		"no longer rejected, killed":       {Reject, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := &history{t: t, random: rand.New(rand.NewPCG(1, 1)), ids: []string{"web1"}, keys: map[string]pki.PublicKey{"web1": newKey(t).Public()}}
			for i, name := range []string{"a", "b"} {
				h.halves[i] = &half{newSide(t, name), map[string][]byte{}, map[string]Act{}}
			}
			a, b := h.halves[0], h.halves[1]
			for _, at := range h.halves {
				h.restart(at, 0)
			}
			acts := []Act{Accept, Delete}
			if c.first == Reject {
				acts = []Act{Accept, Reject, Delete}
			}
			for _, act := range acts[:len(acts)-1] {
				h.acts(a, act, "web1")
				h.settle()
			}
			h.acts(a, Delete, "web1")
			h.round(a)
			before := b.follower.opts.Agreed
			writes := 1
			if c.cut {
				b.follower.opts.Agreed = cutTable{before}
			} else {
				b.follower.opts.Agreed = &killing{before, &writes}
			}
			h.deliver(b, 1)
			h.rounds(b, b.killed)
			h.acts(a, Accept, "web1")
			h.round(a)
			h.deliver(b, 1)
			if c.cut {
				h.round(b)
				b.follower.opts.Agreed = before
				b.follower.retry(false)
			} else {
				h.restart(b, 0)
			}
			h.settle()
			for _, act := range []Act{Accept, Delete} {
				if act == Delete {
					h.acts(b, Delete, "web1")
					h.settle()
				}
				for _, at := range h.halves {
					if got := h.state(at, "web1"); got != act.inForce() {
						h.fail("at %s the state is %q after %s", at.name, got, act)
					}
				}
			}
		})
	}
}
