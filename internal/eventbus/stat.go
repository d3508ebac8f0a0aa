package eventbus

import (
	"context"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// Stat describes the bus to an operator.
func (r *Bus) Stat(ctx context.Context, req *rpc.Request, who eventacl.Principal) error {
	if err := req.Decide(r.rules.Stat(who)); err != nil {
		return err
	}
	extent, err := r.journal.Extent(ctx)
	if err != nil {
		return err
	}
	s := protocol.Stat{
		Journal: extent, Fired: r.fired.Load(), Sent: r.sent.Load(), Started: r.started, MaxEvent: r.limit,
		Listeners: r.listenerStats(extent.Last),
	}
	if r.member != nil {
		s.Name = r.name
		s.Handler, s.HandlerUnknown = r.member.handler(ctx, r.name)
	}
	ends, err := allEnds(ctx, r, extent.Last)
	if err != nil {
		return err
	}
	if s.Positions, err = r.positions.stats(ctx, ends); err != nil {
		return err
	}
	dead, err := r.tables.get(ctx, "dead")
	if err != nil {
		return err
	}
	letters, err := dead.Keys(ctx)
	if err != nil {
		return err
	}
	s.Dead = len(letters)
	s.Mirrors = r.mirrorStats(ctx)
	return req.Send(ctx, s)
}

func (r *Bus) listenerStats(last uint64) []protocol.ListenerStat {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]protocol.ListenerStat, 0, len(r.listeners))
	for _, l := range r.listeners {
		next := l.next.Load()
		if next == 0 {
			continue // it has not started yet
		}
		list = append(list, protocol.ListenerStat{
			User: l.who.Name(), Durable: l.q.Durable, Tags: l.q.Tags, Next: next, Behind: behind(last, next-1), Sent: l.sent.Load(), Started: l.started,
		})
	}
	return list
}

func behind(last, done uint64) uint64 {
	if done >= last {
		return 0
	}
	return last - done
}

// Purge removes events for an operator, or forgets a position. Before that it records who
// removes what.
func (r *Bus) Purge(ctx context.Context, req *rpc.Request, who eventacl.Principal) error {
	var q protocol.Purge
	if err := req.Decode(&q); err != nil {
		return err
	}
	if q.Durable != "" {
		if err := req.Decide(r.rules.Position(who, q.User)); err != nil {
			return err
		}
		return r.forget(ctx, req, who, q)
	}
	if err := req.Decide(r.rules.Purge(ctx, who, string(req.Body))); err != nil {
		return err
	}
	var record uint64
	if r.rules.Tell == nil { // there is no audit log, so the journal has the record
		var err error
		if record, err = r.Store(ctx, event.AuditSpace+"/purge", map[string]any{"user": who.Name(), "query": string(req.Body)}, ""); err != nil {
			return err
		}
	}
	n, err := r.purge(ctx, q, record)
	if err != nil {
		return err
	}
	r.log.Warn("journal purged", "user", who.Name(), "journal", q.Journal, "count", n)
	return req.Send(ctx, protocol.Purged{Count: n, Journal: q.Journal})
}

// purge removes what q selects, but not the record of that in this daemon's journal; 0 if there is none.
func (r *Bus) purge(ctx context.Context, q protocol.Purge, record uint64) (uint64, error) {
	p, before, own, err := purgeable(ctx, r, q.Journal)
	if err != nil {
		return 0, err
	}
	if own && record > 0 {
		before = min(before, record)
	}
	if q.Journal != "" {
		q.Before = q.JournalBefore
	}
	if q.Before > 0 {
		before = min(before, q.Before)
	}
	if !q.Until.IsZero() {
		seq, err := p.SequenceAt(ctx, q.Until)
		if err != nil {
			return 0, err
		}
		before = min(before, seq)
	}
	if len(q.Tags) == 0 {
		return p.PurgeBefore(ctx, before)
	}
	m, err := event.NewMatcher(q.Match, q.Tags)
	if err != nil {
		return 0, rpc.Errorf(rpc.Usage, "%w", err)
	}
	return p.PurgeWhere(ctx, before, func(text []byte) (bool, error) {
		h, err := event.HeadOf(text)
		if err != nil || event.IsAudit(h.Tag) { // no tag selects entries of the audit log
			return false, nil
		}
		return m.Match(h.Tag)
	})
}

// purgeable returns what removes events from a journal, the sequence before which it may, and whether it is that of
// this daemon.
func purgeable(ctx context.Context, r *Bus, name string) (p journal.Purger, before uint64, own bool, err error) {
	if name == "" || name == r.name {
		before, err = r.journal.Last(ctx)
		return r.journal.Purger(), before + 1, true, err
	}
	list, _ := r.mirrors.now()
	for _, m := range list {
		if m.Name != name {
			continue
		}
		p, known := journal.PurgerOf(r.journal, m)
		if !known {
			return p, 0, false, rpc.Errorf(rpc.Usage, "the journal %q is that of another master, and only mirrored here", name).WithHint("purge it at that master")
		}
		before, err = m.Last(ctx)
		return p, before + 1, false, err
	}
	return p, 0, false, rpc.Errorf(rpc.NotFound, "there is no journal %.100q here", name).WithHint("'salt-event stat' lists them")
}

// forget removes a position that no listener holds.
func (r *Bus) forget(ctx context.Context, req *rpc.Request, who eventacl.Principal, q protocol.Purge) error {
	t, err := r.tables.get(ctx, "positions")
	if err != nil {
		return err
	}
	keys := []string{positionKey(who.Owner, q.Durable)}
	if q.User != "" && q.User != who.Name() {
		if keys, err = r.positions.keysOf(ctx, q.User, q.Durable); err != nil {
			return err
		}
	}
	for _, key := range keys {
		if err := r.positions.forget(ctx, t, key, q.Durable); err != nil {
			return err
		}
	}
	return req.Send(ctx, protocol.Purged{Count: uint64(len(keys))})
}

// forget removes one position that no listener holds.
func (p *positions) forget(ctx context.Context, t *journal.Table, key, name string) error {
	have, err := getPosition(ctx, t, key)
	if err != nil {
		return err
	}
	if have == nil {
		return rpc.Errorf(rpc.NotFound, "there is no position %q", name).WithHint("'salt-event stat' lists them")
	}
	held := p.holder(key) != nil
	if p.member != nil {
		held = held || p.member.holds(ctx, have.Holder)
	}
	if held {
		return rpc.Errorf(rpc.Busy, "a listener works on the position %q", name).WithHint("stop it first")
	}
	return t.Delete(ctx, key)
}
