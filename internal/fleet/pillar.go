package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/brinebus/brine/internal/pillar"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/template"
	"github.com/brinebus/brine/internal/value"
)

// pillars holds the latest pillar of each minion, to match targets. It is in memory only, so
// that private data of a minion is in no other file than the pillar files.
type pillars struct {
	mu   sync.RWMutex
	byID map[salt.MinionID]map[string]any
	sums map[salt.MinionID]string // checksums, of those that were asked for
	// Of those that were not learned from another member: which of the pillars that were set here it is; and of those
	// that were forgotten on purpose: when that was, among them.
	updates map[salt.MinionID]uint64
	last    uint64
}

func (p *pillars) of(id salt.MinionID) map[string]any {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.byID[id]
}

func (p *pillars) set(id salt.MinionID, data map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(id, data)
	if data != nil {
		p.last++
		p.updates[id] = p.last
	}
}

// clear forgets a pillar on purpose: what another member was asked for before does not count either.
func (p *pillars) clear(id salt.MinionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(id, nil)
	p.last++
	p.updates[id] = p.last
}

// cleared reports whether a pillar was forgotten on purpose, and is not known again.
func (p *pillars) cleared(id salt.MinionID) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.byID[id] == nil && p.updates[id] != 0
}

// learn takes over the pillar that another member knows, unless one was set here since lastUpdate returned
// before.
func (p *pillars) learn(id salt.MinionID, data map[string]any, before uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.updates[id] != before {
		return errUpdated
	}
	p.put(id, data)
	return nil
}

// lastUpdate returns which pillar of id was set here last, 0 for none.
func (p *pillars) lastUpdate(id salt.MinionID) uint64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.updates[id]
}

// put replaces a pillar. The caller holds mu.
func (p *pillars) put(id salt.MinionID, data map[string]any) {
	if p.byID == nil {
		p.byID, p.sums, p.updates = map[salt.MinionID]map[string]any{}, map[salt.MinionID]string{}, map[salt.MinionID]uint64{}
	}
	delete(p.sums, id)
	delete(p.updates, id)
	if data == nil {
		delete(p.byID, id)
		return
	}
	p.byID[id] = data
}

// sum returns a checksum of the pillar of id, "" if there is none. It is made when it is asked
// for first: only members of a cluster ask.
func (p *pillars) sum(id salt.MinionID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	data := p.byID[id]
	if data == nil {
		return ""
	}
	if p.sums[id] == "" {
		b, err := value.Encode(data)
		if err != nil {
			return ""
		}
		p.sums[id] = checksum(b)
	}
	return p.sums[id]
}

// SendPillar compiles the pillar of the minion that sends the request and answers with it, or
// with its errors. The connection says which minion that is. After an error, targets still use
// the latest valid pillar, as the minion does.
func (f *Fleet) SendPillar(ctx context.Context, r *rpc.Request) error {
	id := salt.MinionID(r.From.Name)
	data, err := pillar.Compile(target.Facts{ID: id, Grains: f.grains.of(id)}, f.pillarOptions(ctx, f.PillarRoots))
	if err != nil {
		f.warned.Log(f.Log, slog.LevelError, "pillar "+string(id), maxLines, "pillar not compiled", "minion", id, "err", err)
		return r.Send(ctx, protocol.Pillar{Errors: []string{pillar.Shown(err)}})
	}
	f.pillars.set(id, data)
	f.tellMembers(id, held{})
	return r.Send(ctx, protocol.Pillar{Data: value.Value{V: data}})
}

// CompilePillar returns the pillar of a minion, of one environment or of all (""), with the
// grains of supposed in addition to the known ones.
func (f *Fleet) CompilePillar(id salt.MinionID, env string, supposed map[string]any) (map[string]any, error) {
	roots := f.PillarRoots
	if env != "" {
		dirs, ok := roots[env]
		if !ok {
			return nil, fmt.Errorf("pillar_roots has no environment %q", env)
		}
		roots = map[string][]string{env: dirs}
	}
	grains := maps.Clone(f.grains.of(id))
	if grains == nil {
		grains = map[string]any{}
	}
	maps.Copy(grains, supposed)
	return pillar.Compile(target.Facts{ID: id, Grains: grains}, f.pillarOptions(context.Background(), roots)) // each template has its own limit
}

// pillarOptions are the options for compiling a pillar. Each template takes a process, so
// minions take turns.
func (f *Fleet) pillarOptions(ctx context.Context, roots map[string][]string) pillar.Options {
	renderer := template.Beside()
	return pillar.Options{Roots: roots, Nodegroups: f.Nodegroups(), Render: func(text string, id salt.MinionID, grains map[string]any) (string, error) {
		end, err := f.evaluations.Acquire(ctx, "pillar of "+string(id))
		if err != nil {
			return "", err
		}
		defer end()
		return renderer.Render(ctx, text, template.Values(id, grains, nil))
	}}
}
