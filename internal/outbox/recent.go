package outbox

import (
	"cmp"
	"slices"
	"strings"
)

// recent are messages of the queue that are in memory, too: what is delivered at once need not be read
// back from the store, and a return that somebody waits for can be sent early, see OpEarly.
type recent struct {
	fresh  map[uint64]queued // by sequence
	bytes  int               // size of their bodies
	behind []queued          // returns for which fresh had no space, the latest last
	early  map[uint64]bool   // sequences of returns that were sent early, or need not be
}

// maxBehind is how many returns are in memory beside the other messages, and readBytes limits the size of
// their bodies: a minion that fires much fills the space of the others in seconds.
const maxBehind = 64

func newRecent() recent { return recent{fresh: map[uint64]queued{}, early: map[uint64]bool{}} }

// add adds a message if there is space. The oldest of the returns behind makes space for another one: it
// was tried most often, and comes first in its turn.
func (r *recent) add(m queued) {
	if len(r.fresh) < MaxBatch && r.bytes+len(m.Body) <= readBytes {
		r.fresh[m.entry.Seq] = m
		r.bytes += len(m.Body)
		return
	}
	if !mayBeEarly(m) {
		return
	}
	r.behind = append(r.behind, m)
	size := 0
	for i, m := range slices.Backward(r.behind) {
		if size += len(m.Body); size > readBytes || len(r.behind)-i > maxBehind {
			r.behind = slices.Delete(r.behind, 0, i+1)
			return
		}
	}
}

// from returns the messages from the sequence first on, up to one that is not in memory.
func (r *recent) from(first uint64) (batch []queued) {
	for seq := first; ; seq++ {
		m, here := r.fresh[seq]
		if !here {
			return batch
		}
		batch = append(batch, m)
	}
}

// remove removes messages that have left the queue.
func (r *recent) remove(batch []queued) {
	for _, m := range batch {
		if have, here := r.fresh[m.entry.Seq]; here {
			delete(r.fresh, m.entry.Seq)
			r.bytes -= len(have.Body)
		}
		delete(r.early, m.entry.Seq)
	}
	last := batch[len(batch)-1].entry.Seq
	r.behind = slices.DeleteFunc(r.behind, func(m queued) bool { return m.entry.Seq <= last })
}

// mayBeEarly reports whether a message is a return that a master takes early.
func mayBeEarly(m queued) bool {
	return strings.HasPrefix(m.Op, "ret.") && m.File == "" && len(m.Body) <= maxEarly
}

// returns returns those in memory and in batch that may be sent early and were not, in their order.
func (r *recent) returns(batch []queued) (list []queued) {
	add := func(m queued) {
		if mayBeEarly(m) && !r.early[m.entry.Seq] {
			list = append(list, m)
		}
	}
	for _, m := range r.fresh {
		add(m)
	}
	for _, m := range slices.Concat(r.behind, batch) {
		add(m)
	}
	slices.SortFunc(list, func(a, b queued) int { return cmp.Compare(a.entry.Seq, b.entry.Seq) })
	return slices.CompactFunc(list, func(a, b queued) bool { return a.entry.Seq == b.entry.Seq })
}

// setEarly records that a return in the queue need not be sent early any more; its space is for another one.
func (r *recent) setEarly(seq uint64) {
	r.early[seq] = true
	r.behind = slices.DeleteFunc(r.behind, func(m queued) bool { return m.entry.Seq == seq })
}
