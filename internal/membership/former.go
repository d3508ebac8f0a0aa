package membership

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// formerEvery is how often it is tried again to forget what is stored of former members.
const formerEvery = 5 * time.Second

// former are the members that do not count any more, and of which something is still stored. They are not among
// those that leave: nobody waits for them, and a member of the same name that joins is not made to go.
type former struct {
	mu   sync.Mutex
	keys map[string]string // by name: the fingerprint that was removed, "" for one that has left
}

func (f *former) add(name, key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keys == nil {
		f.keys = map[string]string{}
	}
	f.keys[name] = key
}

// remove takes one out, unless it was added again with another key.
func (f *former) remove(name, key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keys[name] == key {
		delete(f.keys, name)
	}
}

func (f *former) all() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.keys)
}

// retry forgets what is stored of them. linked are the keys of the members that are linked, by their names: one of the
// same name with another key than the removed one, or that is back, is a member, and what is stored is its own.
func (f *former) retry(ctx context.Context, linked map[string]string, own func(ctx context.Context, member string) error, log *slog.Logger) {
	for name, key := range f.all() {
		switch now := linked[name]; {
		case now == "":
			once, cancel := context.WithTimeout(ctx, forgetTime)
			err := own(once, name)
			cancel()
			if err != nil {
				log.Warn("something of a former member is still stored: it is tried again", "member", name, "err", err)
				continue
			}
			log.Info("nothing of a former member is stored any more", "member", name)
		case now == key: // its link is about to end
			continue
		}
		f.remove(name, key)
	}
}

// watch retries until ctx ends.
func (f *former) watch(ctx context.Context, linked func() map[string]string, own func(ctx context.Context, member string) error, log *slog.Logger) {
	tick := time.NewTicker(formerEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		f.retry(ctx, linked(), own, log)
	}
}

// Auditors are the other members, as far as their audit logs are concerned.
type Auditors struct{ member *Membership }

// AuditorsOf returns them; ok is false for a single master.
func AuditorsOf(m *Membership) (of Auditors, ok bool) { return Auditors{m}, m != nil }

// Ask implements audit.Members.
func (a Auditors) Ask(ctx context.Context, to, kind string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	return a.member.exchange.Ask(ctx, to, kind, body, answer)
}

// Runs implements audit.Members.
func (a Auditors) Runs(name string) bool { return slices.Contains(a.member.exchange.Others(), name) }

// Former implements audit.Members. Whether a member counts for elections is known to the one that leads the group of all
// members. One that is only away counts, and one that has come back is linked a while before it does.
func (a Auditors) Former(name string) bool {
	c := a.member.broker.Cluster
	counts, known := c.Counts(name)
	return known && !counts && !a.Runs(name) && keysOf(c.Members())[name] == ""
}
