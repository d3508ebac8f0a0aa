package master_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
)

// A minion tries each operation that any table has, of any role, beside its own: the bus
// refuses what its row does not have.
func TestOperationsOfOtherRoles(t *testing.T) {
	a := underAttack(t)
	var ops []string
	for _, e := range slices.Concat(bus.MasterEndpoints, bus.MinionEndpoints) {
		if bus.MasterEndpoints.Find(bus.RoleMinion, e.Op) == nil && !slices.Contains(ops, e.Op) {
			ops = append(ops, e.Op)
		}
	}
	if len(ops) < 5 {
		t.Fatalf("only %v are tried", ops)
	}
	heard, err := a.evil.NC.SubscribeSync(a.evil.NC.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		subject := bus.RequestSubject(bus.RoleMinion, "evil", op)
		if err := a.evil.NC.PublishMsg(&nats.Msg{Subject: subject, Reply: heard.Subject, Data: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		expectViolation(t, a, "Publish", subject)
	}
	if m, err := heard.NextMsg(time.Millisecond); err == nil {
		t.Errorf("answered: %.100s", strings.TrimSpace(string(m.Data)))
	}
	a.stands()
}
