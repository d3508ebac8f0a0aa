package membership

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// noMinions has none.
type noMinions struct{}

func (noMinions) Came(string, cluster.Minion) {}
func (noMinions) Went(string, salt.MinionID)  {}
func (noMinions) Rules() string               { return "" }
func (noMinions) Minions() int                { return 0 }

// linked returns a member with its exchange. serve registers what it answers.
func linked(t *testing.T, m *bustest.Member, serve func(*Membership)) *Membership {
	t.Helper()
	k := &Membership{identity: identity{name: m.Name}, log: m.Log}
	k.broker, k.own = m.Broker, noMinions{}
	k.exchange = cluster.New(cluster.Options{Name: m.Name, Conn: m.Conn(), Minions: noMinions{}, Log: m.Log})
	serve(k)
	if err := k.exchange.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.exchange.Stop)
	return k
}

// TestALeaveThatFailsIsWithdrawn: a member that cannot inform all others does not leave. Those that it
// has informed do not forget it when it is restarted.
func TestALeaveThatFailsIsWithdrawn(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	asked := make(chan string, 1)
	one := linked(t, s.Members[0], func(*Membership) {})
	two := linked(t, s.Members[1], func(k *Membership) { k.leaving.serve(k.exchange, k.log) })
	linked(t, s.Members[2], func(k *Membership) {
		k.exchange.Handle(kindLeave, func(context.Context, string, []byte) (any, error) {
			asked <- two.leaving.names()[0]
			return nil, errors.New("its disk is full")
		})
	})
	bustest.Until(t, "the members know each other", func() bool { return len(one.exchange.Others()) == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	marks := 0
	_, err := one.Leave(ctx, func() error { marks++; return nil }, func() error { marks--; return nil })
	if err == nil || marks != 0 {
		t.Errorf("it leaves: %v, %d marks", err, marks)
	}
	if name := <-asked; name != one.name {
		t.Errorf("%s was told that %q leaves", two.name, name)
	}
	if names := two.leaving.names(); len(names) > 0 {
		t.Errorf("%s still takes %q for members that leave", two.name, names)
	}
}
