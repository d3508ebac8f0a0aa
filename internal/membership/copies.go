package membership

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/logging"
)

// copiesTime limits one change of a stream. The copies themselves are made later.
const copiesTime = 10 * time.Second

// copyKeeper gives all streams the number of copies that cluster_copies says. A member does that for what it opens when
// it starts; but some tables are opened when they are used only, and nobody opens the journal and the audit log of a
// member that has left.
type copyKeeper struct {
	every    time.Duration // 0 means lookEvery
	throttle logging.Throttle
}

// otherCopies returns the streams that this member leads and that are to get another number of copies, each with what
// it has; none while the members that run have different settings, which is so while these are changed.
func otherCopies(m *Membership) map[string]int {
	if !m.heard.agree(m.exchange.Others(), m.copies) {
		return nil
	}
	other := map[string]int{}
	for stream, n := range m.broker.Cluster.Copies() {
		if n != m.copies && !m.writes(stream) {
			other[stream] = n
		}
	}
	return other
}

// writes reports whether a stream is the journal of one that may write it: of a member that runs, is started again, or
// whose jobs another one takes over. Its own member gives it the copies.
func (i identity) writes(stream string) bool {
	p, err := journal.PlaceOf(stream, []byte("{}"))
	return err != nil || p.Kind == journal.EventsKind && (p.Member == i.name || slices.ContainsFunc(i.peers, func(peer string) bool { return nameOf(peer) == p.Member }))
}

// agree reports whether all of these members have said that they keep so many copies.
func (h *heard) agree(members []string, copies int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !slices.ContainsFunc(members, func(name string) bool { return h.of[name].Copies != copies })
}

// keepCopies is one look of the copyKeeper.
func keepCopies(ctx context.Context, m *Membership) {
	for stream, n := range otherCopies(m) {
		once, cancel := context.WithTimeout(ctx, copiesTime)
		err := journal.SetCopies(once, m.broker.Conn(), stream, m.copies)
		cancel()
		switch {
		case err == nil:
			m.log.Info("a stream gets another number of copies", "stream", stream, "copies", m.copies, "before", n)
		case ctx.Err() == nil:
			m.copyKeeper.throttle.Log(m.log, slog.LevelWarn, "copies", 1, "a stream does not get as many copies as cluster_copies says: it is tried again", "stream", stream, "copies", m.copies, "has", n, "err", err)
		}
	}
}

// otherThan is what a stream lacks that is to get another number of copies.
func otherThan(has, copies int) string {
	return fmt.Sprintf("it is to have %d copies, and gets the %d of cluster_copies", has, copies)
}
