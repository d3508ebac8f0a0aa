package minion

import (
	"context"
	"errors"
	"fmt"

	"brine/internal/bus"
	"brine/internal/protocol"
	"brine/internal/value"
)

// pillarData returns what the master gave this minion last, an empty map for
// nothing. It must not be changed.
func (m *Minion) pillarData() map[string]any {
	if p := m.pillar.Load(); p != nil {
		return *p
	}
	return map[string]any{}
}

// fetchPillar asks the master of a session for this minion's pillar. After an
// error the old one stays.
func (m *Minion) fetchPillar(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var p protocol.Pillar
	if err := s.Ask(ctx, protocol.OpPillar, nil, &p); err != nil {
		return fmt.Errorf("ask the master for the pillar: %w", err)
	}
	data, ok := p.Data.V.(map[string]any)
	if !ok {
		return errors.New("the pillar that the master sent is no map")
	}
	m.pillar.Store(&data)
	return nil
}

// refreshPillar asks again, for saltutil.refresh_pillar.
func (m *Minion) refreshPillar(ctx context.Context) error {
	s := m.link.Load()
	if s == nil {
		return errors.New("no master is connected")
	}
	return m.fetchPillar(ctx, s)
}

// showPillar hands the pillar to salt-call.
func (m *Minion) showPillar(ctx context.Context, r *bus.Request) error {
	return r.Send(ctx, protocol.Pillar{Data: value.Value{V: m.pillarData()}})
}
