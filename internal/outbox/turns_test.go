package outbox

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// startReceiver starts a single master that stores what outboxes of minions send.
func startReceiver(t *testing.T) (*bustest.Bus, *Receiver) {
	t.Helper()
	b := bustest.StartStore(t)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{Store: b.Store()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	r, err := NewReceiver(t.Context(), ReceiverOptions{Journal: j, Returns: plain{}, TagSpaces: plain{}, Durable: func() error { return nil }, Log: b.Log})
	if err != nil {
		t.Fatal(err)
	}
	var table bus.Endpoints
	for _, e := range bus.MasterEndpoints {
		if e.Handler == "deliver" || e.Handler == "reserve" {
			table = append(table, e)
		}
	}
	s := rpc.NewServer(b.Conn(), b.Owner, table, b.Log)
	s.Handle("deliver", r.Deliver)
	s.Handle("reserve", r.Reserve)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return b, r
}

// TestLargeBatchesOfTwoOutboxes: a master has one lease for a minion. Two outboxes that are delivered to it do not take it
// from each other, however long they wait for it.
func TestLargeBatchesOfTwoOutboxes(t *testing.T) {
	t.Parallel()
	b, r := startReceiver(t)
	c := b.As(t, bus.RoleMinion, "web1")
	boxes, w := openBoxes(t, session{rpc.NewConn(c.Conn, c.Self)}, nil)
	for i := range 2 {
		if err := boxes.At(i).Put(t.Context(), Outgoing{Op: "ret.20260101000000000000", Body: strings.Repeat("x", 2*SmallBatch)}); err != nil {
			t.Fatal(err)
		}
	}
	w.leads = []int{0, 0}
	all := r.capacity.ask(capacityBytes) // of other minions
	first := make(chan error, 1)
	go func() {
		_, err := boxes.At(0).turn(t.Context())
		first <- err
	}()
	bustest.Until(t, "one waits for capacity", r.capacity.wanted)
	soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := boxes.At(1).turn(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the other one ends with %v", err)
	}
	r.capacity.giveBack(all)
	if err := deadline.Receive(t, first, "the first is delivered"); err != nil {
		t.Error(err)
	}
	drain(t, boxes.At(1))
}

// slow is a master that answers one request when it is told, and no other one meanwhile.
type slow struct {
	*taking
	asked, answer chan struct{}
	at            atomic.Int32 // requests under way
}

func (m *slow) Ask(ctx context.Context, op string, body, answer any) error {
	defer m.at.Add(-1)
	if m.at.Add(1) > 1 {
		return errors.New("it is asked twice at a time")
	}
	m.asked <- struct{}{}
	<-m.answer
	return m.taking.Ask(ctx, op, body, answer)
}

// TestOneDeliveryToASystemAtATime: also if it was begun before it was known that the outboxes are for one system. Those
// that wait can be told to end, and can make space; other systems wait for nothing.
func TestOneDeliveryToASystemAtATime(t *testing.T) {
	_, other, _ := members()
	m := &slow{taking: &taking{took: map[string]int{}}, asked: make(chan struct{}), answer: make(chan struct{})}
	boxes, w := openBoxes(t, nil, m, other)
	defer close(m.answer)
	putAll(t, boxes, strings.Repeat("x", 20<<10), "two")
	turned := make(chan error, 2)
	turn := func(i int) {
		_, err := boxes.At(i).turn(t.Context())
		turned <- err
	}
	go turn(1)
	deadline.Receive(t, m.asked, "the first delivery is under way")
	w.leads = []int{0, 0, 2}
	drain(t, boxes.At(2))
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := boxes.At(0).turn(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the other outbox of the system ends with %v", err)
	}
	entering, enter := make(chan struct{}), boxes.At(0).enter
	boxes.At(0).enter = func(ctx context.Context, generation string) (func(), error) {
		close(entering)
		return enter(ctx, generation)
	}
	go turn(0)
	deadline.Receive(t, entering, "the other outbox waits for its turn")
	if err := boxes.At(0).makeSpace(t.Context(), time.Minute, boxes.At(0).limit-10<<10); err != nil || boxes.At(0).Waiting() != 1 {
		t.Errorf("an outbox that waits for its turn makes no space: %v", err)
	}
	m.answer <- struct{}{}
	if err := deadline.Receive(t, turned, "the first delivery ends"); err != nil {
		t.Error(err)
	}
	deadline.Receive(t, m.asked, "the other outbox is delivered")
	m.answer <- struct{}{}
	if err := deadline.Receive(t, turned, "the second delivery ends"); err != nil {
		t.Error(err)
	}
	if n := boxes.At(0).Waiting() + boxes.At(1).Waiting(); n > 0 {
		t.Errorf("%d messages still wait", n)
	}
}
