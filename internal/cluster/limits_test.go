package cluster_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// within returns a context for one step of a test.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// held are requests whose handlers wait until the test lets them end.
type held struct {
	started atomic.Int64
	bytes   atomic.Int64
	ends    chan struct{}
}

// hold registers the kind "hold" at a member that is not started yet.
func (h *held) hold(ctx context.Context, _ string, body []byte) (any, error) {
	h.started.Add(1)
	h.bytes.Add(int64(len(body)))
	select {
	case <-h.ends:
	case <-ctx.Done():
	}
	return nil, nil
}

// flood sends that many requests of the kind "hold", and returns how many were refused as too many
// when the rest is under way.
func (h *held) flood(t *testing.T, from *member, to string, count int, body any) (refused int64) {
	t.Helper()
	var busy atomic.Int64
	before := h.started.Load()
	for range count {
		go func() {
			if err := from.Ask(t.Context(), to, "hold", body, nil); rpc.CodeOf(err) == rpc.Busy {
				busy.Add(1)
			}
		}()
	}
	bustest.Until(t, "each request is under way or refused", func() bool { return h.started.Load()-before+busy.Load() == int64(count) })
	return busy.Load()
}

// TestAFloodOfOneKindDelaysNoOther: the places of a kind of request that minions cause are all taken,
// and what somebody waits for is answered at once. Another member still has places of that kind.
func TestAFloodOfOneKindDelaysNoOther(t *testing.T) {
	all, h := beginHeld(t, 3)
	const many = 2500
	if refused := h.flood(t, all[0], "m2", many, "x"); refused == 0 {
		t.Errorf("all of %d requests are taken", many)
	}
	began := time.Now()
	for _, m := range []*member{all[0], all[2]} {
		var text string
		if err := m.Ask(within(t, 10*time.Second), "m2", "echo", "job", &text); err != nil || !strings.HasSuffix(text, ":job") {
			t.Errorf("another kind of request of %s: %q, %v", m.bus.Name, text, err)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if refused := h.flood(t, all[2], "m2", 100, "x"); refused > 0 {
		t.Errorf("%d requests of a member that has none under way are refused", refused)
	}
}

// TestBodiesUnderWayAreLimited: the memory for requests of one kind is limited, whether they are being
// handled or have come in part only, and other kinds have their own. It is free again afterwards.
func TestBodiesUnderWayAreLimited(t *testing.T) {
	all, h := beginHeld(t, 2)
	large := strings.Repeat("x", 8<<20-2) // with its quotes
	if refused := h.flood(t, all[0], "m2", 14, large); refused != 2 || h.bytes.Load() > 100<<20 {
		t.Errorf("of 14 requests %d are refused, and %d bytes under way", refused, h.bytes.Load())
	}
	if refused := h.flood(t, all[0], "m2", 1, "small"); refused > 0 {
		t.Error("a small request is refused")
	}
	var n int
	if err := all[0].Ask(within(t, time.Minute), "m2", "length", large, &n); err != nil || n != 8<<20 {
		t.Errorf("another kind: %d, %v", n, err)
	}
	close(h.ends)
	bustest.Until(t, "one of them fits again", func() bool { return all[0].Ask(within(t, time.Minute), "m2", "hold", large, nil) == nil })
	// The last piece is never sent.
	piece, conn := make([]byte, rpc.MaxPart), all[0].bus.Conn()
	for range 12 {
		reply := conn.NewInbox()
		for range 16 {
			m := &nats.Msg{Subject: bus.MemberSubject("m2", "hold") + ".m1", Reply: reply, Data: piece, Header: nats.Header{"Salt-Part": {"more"}}}
			if err := conn.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := all[0].Ask(within(t, time.Minute), "m2", "hold", large, nil); rpc.CodeOf(err) != rpc.Busy {
		t.Errorf("beside 96 MiB that are incomplete: %v", err)
	}
	all[1].Unlinked("m1")
	bustest.Until(t, "m2 knows m1 again", func() bool { return len(all[1].Others()) == 1 })
	if err := all[0].Ask(within(t, time.Minute), "m2", "hold", large, nil); err != nil {
		t.Errorf("after the member that has not sent the rest was gone: %v", err)
	}
}

// TestAHandlerEndsWithItsRequest: it does not go on when nobody waits for its answer any more. A member
// of an older version does not say how long it waits.
func TestAHandlerEndsWithItsRequest(t *testing.T) {
	all, _ := beginHeld(t, 2)
	left := func(body string) time.Duration {
		t.Helper()
		var d time.Duration
		if err := all[0].Ask(within(t, 10*time.Second), "m2", "left", body, &d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, body := range []string{"x", strings.Repeat("x", 2<<20)} {
		if d := left(body); d > 10*time.Second {
			t.Errorf("%d bytes: the handler has %s, and its sender waits for ten seconds", len(body), d)
		}
	}
	for _, header := range []nats.Header{nil, {"Salt-Time": {"never"}}, {"Salt-Time": {"-1"}}, {"Salt-Time": {"9000000000000000000"}}} {
		m, err := all[0].bus.Conn().RequestMsg(&nats.Msg{Subject: bus.MemberSubject("m2", "left") + ".m1", Data: []byte(`"x"`), Header: header}, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct{ Body time.Duration }
		if err := json.Unmarshal(m.Data, &answer); err != nil || answer.Body < time.Minute || answer.Body > 2*time.Minute {
			t.Errorf("with %v the handler has %s, %v", header, answer.Body, err)
		}
	}
}
