package master_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/deadline"
)

// Many minions return at once, from their outboxes, each twice at the same time: every return is
// stored once and confirmed as often as it came, and what does not belong there is
// refused for itself alone.
func TestReturnsInBatches(t *testing.T) {
	const minions = 25
	w := start(t, "auto_accept: True\n")
	links := map[salt.MinionID]*upstream.Connection{}
	envelopes := make(chan *job.Envelope, minions)
	for i := range minions {
		id := salt.MinionID(fmt.Sprintf("web%02d", i))
		links[id] = w.minion(id, func(e *job.Envelope) *job.Report { envelopes <- e; return nil })
	}
	c := w.user()
	var answered sync.WaitGroup
	var begin job.Start
	answered.Go(func() {
		q := ping("*", "glob")
		q.Timeout = 60
		var got map[salt.MinionID]job.Update
		var err error
		if begin, got, err = publish(t, c, q); err != nil || len(got) != minions {
			t.Errorf("%d minions have returned, %v; want %d", len(got), err, minions)
		}
	})
	e := deadline.Receive(t, envelopes, "envelopes")
	for range minions - 1 {
		deadline.Receive(t, envelopes, "envelopes")
	}
	body, err := protocol.Encode(protocol.Return{Report: *pong(e), Commands: e.Commands})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := protocol.Encode(protocol.Return{Report: job.Report{State: job.Done, Return: value.Value{V: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	first := outbox.Message{Epoch: bus.NewNonce(), N: 1, Op: "ret." + string(e.JID), Body: body}
	second := first
	second.N, second.Op, second.Body = 2, "ret.20200101000000000000", foreign
	var wg sync.WaitGroup
	for id, l := range links {
		for range 2 {
			wg.Go(func() {
				var reported outbox.Delivered
				if err := l.Ask(t.Context(), outbox.OpDeliver, outbox.Batch{Messages: []outbox.Message{first}}, &reported); err != nil || len(reported.Messages) != 1 || reported.Messages[0].Refused != nil {
					t.Errorf("%s: the return is answered %+v, %v", id, reported, err)
				}
			})
			wg.Go(func() {
				var reported outbox.Delivered
				if err := l.Ask(t.Context(), outbox.OpDeliver, outbox.Batch{Messages: []outbox.Message{second}}, &reported); err != nil || len(reported.Messages) != 1 || reported.Messages[0].Refused == nil {
					t.Errorf("%s: a return of a job that there is not is answered %+v, %v", id, reported, err)
				}
			})
		}
	}
	deadline.Call(t, wg.Wait, "wg")
	deadline.Call(t, answered.Wait, "answered")
	returns := map[string]int{}
	for _, e := range listenSince(t, c, "salt/job/"+string(begin.JID)+"/ret/") {
		returns[e.Tag[strings.LastIndexByte(e.Tag, '/')+1:]]++
	}
	for id := range links {
		if returns[string(id)] != 1 {
			t.Errorf("%s has %d returns in the journal, want 1", id, returns[string(id)])
		}
	}
}
