package master_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// What a runner returned that is longer than an event may be goes to whoever ran it and not
// into the journal as well, which whoever asks again and again would fill. The return of one
// that nobody waits for is there whole.
func TestLongReturnsOfRunnersAreTrimmed(t *testing.T) {
	w := start(t, "max_event_size: 1024\n")
	c := w.user()
	long := strings.Repeat("x", 2000)
	run := func(async bool, arg string) (jid salt.JID, answer string) {
		s, err := c.Call(protocol.OpRun, protocol.Run{Async: async, Command: job.Command{Function: "test.arg", Args: []any{arg}}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var begun protocol.RunStart
		if err := s.Decode(t.Context(), &begun); err != nil {
			t.Fatal(err)
		}
		if async {
			return begun.JID, ""
		}
		b, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return begun.JID, string(b)
	}
	for name, test := range map[string]struct {
		async bool
		arg   string
		whole bool
	}{
		"short":                  {false, "x", true},
		"long":                   {false, long, false},
		"long, nobody waits for": {true, long, true},
	} {
		jid, answer := run(test.async, test.arg)
		if !test.async && !strings.Contains(answer, test.arg) {
			t.Errorf("%s: the answer has %d bytes, want the whole return in it", name, len(answer))
		}
		returned := returnEvent(t, c, jid)
		if want := !test.whole; (string(returned) == `"VALUE_TRIMMED"`) != want || test.whole != strings.Contains(string(returned), test.arg) {
			t.Errorf("%s: the event has the return %.100s", name, returned)
		}
	}
}

// returnEvent waits for the event of a runner that has ended, and returns what it returned.
func returnEvent(t *testing.T, c *rpc.Conn, jid salt.JID) json.RawMessage {
	t.Helper()
	s, err := c.Call(protocol.OpListen, protocol.Listen{Tags: []string{"salt/run/" + string(jid) + "/ret"}, FromSeq: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for {
		var e event.Event
		if err := s.Decode(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
		if e.Tag == "" {
			continue // that it has begun
		}
		var data struct {
			Return json.RawMessage `json:"return"`
		}
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		return data.Return
	}
}

// TestARunnerWhoseCallerGoes: whenever that is, a runner that has an event of its start has one of
// its end, too, with the reason if it failed.
func TestARunnerWhoseCallerGoes(t *testing.T) {
	w := start(t, "")
	for i := range 200 {
		w.leave(time.Duration(i) * 10 * time.Microsecond)
	}
	c := w.user()
	var events map[string][]event.Event
	bustest.Until(t, "each runner that has begun has its end", func() bool {
		events = runnerEvents(t, c)
		return len(events["new"]) > 0 && len(events["new"]) == len(events["ret"])
	})
	not := 0
	for _, e := range events["ret"] {
		var data struct {
			Return  string
			Success bool
		}
		if err := json.Unmarshal(e.Data, &data); err == nil && !data.Success {
			not++
			if !strings.Contains(data.Return, context.Canceled.Error()) {
				t.Errorf("the event of a runner that failed gives the reason %q", data.Return)
			}
		}
	}
	t.Logf("%d runners have begun, of which %d failed", len(events["new"]), not)
}

// leave runs a runner for a user whose connection ends after that time.
func (w *world) leave(after time.Duration) {
	w.t.Helper()
	c, err := rpc.Dial(filepath.Join(w.cfg.SockDir, master.SocketName))
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Call(protocol.OpRun, protocol.Run{Command: job.Command{Function: "test.arg"}})
	if err != nil {
		w.t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), after)
	defer cancel()
	_, _ = s.Next(ctx)
}

// runnerEvents are the events of runners by the last word of their tags.
func runnerEvents(t *testing.T, c *rpc.Conn) map[string][]event.Event {
	t.Helper()
	s, err := c.Call(protocol.OpListen, protocol.Listen{Tags: []string{"salt/run/"}, FromSeq: 1, UntilEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	events := map[string][]event.Event{}
	for {
		var e event.Event
		if err := s.Decode(t.Context(), &e); errors.Is(err, io.EOF) {
			return events
		} else if err != nil {
			t.Fatal(err)
		}
		if e.Tag != "" {
			word := filepath.Base(e.Tag)
			events[word] = append(events[word], e)
		}
	}
}
