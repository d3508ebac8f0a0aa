package cluster

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// none has no minions.
type none struct{}

func (none) Came(string, Minion)        {}
func (none) Went(string, salt.MinionID) {}
func (none) Rules() string              { return "" }

// TestNothingRunsWhenItHasStopped: a message that was on its way then is not handled.
func TestNothingRunsWhenItHasStopped(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t)
	x := New(Options{Name: "m1", Conn: b.Conn(), Minions: none{}, Log: b.Log})
	ran := 0
	x.Handle("look", func(context.Context, string, []byte) (any, error) { ran++; return nil, nil })
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	handle := func() {
		x.receive(&nats.Msg{Subject: bus.MemberSubject("m1", "look") + ".m2", Reply: "answer", Data: []byte("{}")})
	}
	handle()
	x.Stop()
	if ran != 1 {
		t.Errorf("before it stops, %d messages are handled of 1", ran)
	}
	handle()
	if x.wg.Wait(); ran != 1 {
		t.Error("a message is handled after it has stopped")
	}
}
