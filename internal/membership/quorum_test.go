package membership

import (
	"errors"
	"testing"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/test/bustest"
)

// TestOnlyALostQuorumCounts: a member runs jobs that it cannot store only with the setting, and only
// while it does not reach most members: never because an election takes long.
func TestOnlyALostQuorumCounts(t *testing.T) {
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	m := s.Members[1]
	with := func(setting string) *Membership {
		one := &Membership{links: links{broker: m.Broker}}
		one.cfg = &config.Master{ClusterWithoutQuorum: setting}
		return one
	}
	run, refuse := with("run"), with("refuse")
	s.Members[0].Kill(t)
	elected := make(chan error, 1)
	go func() { elected <- m.Cluster.Leader(t.Context()) }()
	bustest.Until(t, "there is a leader", func() bool {
		if err := run.WithoutQuorum(); err != nil {
			t.Errorf("two of three are reached: %v", err)
		}
		select {
		case err := <-elected:
			return err == nil
		default:
			return false
		}
	})
	s.Isolate(t, m)
	bustest.Until(t, "it is alone", func() bool { return m.Store().Err() != nil })
	if err := run.WithoutQuorum(); !errors.Is(err, broker.ErrMinority) {
		t.Errorf("alone: %v", err)
	}
	if err := refuse.WithoutQuorum(); err != nil {
		t.Errorf("alone, without the setting: %v", err)
	}
	if err := (*Membership)(nil).WithoutQuorum(); err != nil {
		t.Errorf("a single master: %v", err)
	}
	s.Rejoin(m)
	bustest.Until(t, "it is back", func() bool { return run.WithoutQuorum() == nil })
}
