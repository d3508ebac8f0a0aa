package minion

import (
	"context"
	"errors"
	"fmt"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/value"
)

// pillarData returns what a master gave this minion last, an empty map for
// nothing. It must not be changed. With several masters it is that of the first
// that is connected, or else of the first that ever was.
func (m *Minion) pillarData() map[string]any {
	if s := m.session(); s != nil {
		return s.up.pillarData()
	}
	for _, u := range m.uplinks {
		if u.pillar.Load() != nil {
			return u.pillarData()
		}
	}
	return map[string]any{}
}

// pillarData is what the uplink's master gave: each master has pillar data of its
// own.
func (u *uplink) pillarData() map[string]any {
	if p := u.pillar.Load(); p != nil {
		return *p
	}
	return map[string]any{}
}

// fetchPillar asks the master of a session for this minion's pillar. After an
// error the old one stays.
func (s *session) fetchPillar(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var p protocol.Pillar
	if err := s.Ask(ctx, protocol.OpPillar, nil, &p); err != nil {
		return fmt.Errorf("ask the master at %s for the pillar: %w", s.name, err)
	}
	data, ok := p.Data.V.(map[string]any)
	if !ok {
		return errors.New("the pillar that the master sent is no map")
	}
	s.up.pillar.Store(&data)
	return nil
}

// refreshPillar asks all masters again, for saltutil.refresh_pillar.
func (m *Minion) refreshPillar(ctx context.Context) error {
	return m.eachSession(func(s *session) error { return s.fetchPillar(ctx) })
}

// showPillar hands the pillar to salt-call.
func (m *Minion) showPillar(ctx context.Context, r *rpc.Request) error {
	return r.Send(ctx, protocol.Pillar{Data: value.Value{V: m.pillarData()}})
}
