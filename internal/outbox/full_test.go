package outbox

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/deadline"
)

// busy is a master that has no capacity for a large batch until it is told.
type busy struct {
	*taking
	asked, free chan struct{}
}

func (m *busy) Call(string, any) (*rpc.Stream, error) {
	m.asked <- struct{}{}
	<-m.free
	return nil, errors.New("it is over")
}

// TestAFullOutboxDoesNotWaitForTheMaster: while the oldest messages of a full outbox wait for capacity at the
// master, a further one is refused after a while, as one that can be sent again. Nothing is dropped for it,
// and it is not stored.
func TestAFullOutboxDoesNotWaitForTheMaster(t *testing.T) {
	m := &busy{taking: &taking{took: map[string]int{}}, asked: make(chan struct{}), free: make(chan struct{})}
	b, _, _ := openBox(t, t.TempDir(), m)
	large := Outgoing{Op: protocol.OpFire, Body: strings.Repeat("x", int(b.limit)*3/4), Events: 1}
	if err := b.Put(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	var drained sync.WaitGroup
	run, stop := context.WithCancel(t.Context())
	drained.Go(func() { b.Drain(run) })
	defer drained.Wait()
	defer close(m.free)
	defer stop()
	deadline.Receive(t, m.asked, "the master is asked for capacity")
	refused := make(chan error, 1)
	go func() { refused <- b.makeSpace(t.Context(), time.Millisecond, b.limit/2) }()
	if err := deadline.Receive(t, refused, "the further message is refused"); rpc.CodeOf(err) != rpc.Unavailable {
		t.Errorf("it is refused with %v", err)
	}
	if n, lost := b.Waiting(), b.Lost(); n != 1 || lost != 0 {
		t.Errorf("%d messages wait, %d are lost", n, lost)
	}
}
