package master_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
)

// bomb is JSON that takes a hundred times its size when it is built.
func bomb(size int) string {
	const one = `{"":0},`
	return "[" + strings.Repeat(one, size/len(one)) + "{}]"
}

// A return that waited in an outbox brings nothing that the master builds without a bound,
// whatever stands in it beside what was returned.
func TestBombsInReturns(t *testing.T) {
	w := start(t, "auto_accept: True\n")
	l := w.minion("evil", pong)
	for name, body := range map[string]string{
		"commands": `{"state":"done","return":1,"retcode":0,"success":true,"commands":` + bomb(4<<20) + `}`,
		"output":   `{"state":"done","return":1,"retcode":0,"success":true,"output":` + bomb(5<<20) + `}`,
		"retcode":  `{"state":"done","return":1,"retcode":` + bomb(300<<10) + `,"success":true,"commands":[{"fun":"x.y"}]}`,
		"success":  `{"state":"done","return":1,"retcode":0,"success":` + bomb(300<<10) + `,"commands":[{"fun":"x.y"}]}`,
	} {
		m := outbox.Message{Epoch: name, N: 1, Op: "ret.20260101000000000000", Body: json.RawMessage(body)}
		var reported outbox.Delivered
		if err := l.Ask(t.Context(), outbox.OpDeliver, outbox.Batch{Messages: []outbox.Message{m}}, &reported); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(reported.Messages) != 1 || reported.Messages[0].Refused == nil {
			t.Errorf("%s: %+v, want a refusal", name, reported.Messages)
		}
	}
	q := fmt.Appendf(nil, `{"jid":"20260101000000000000","command":{"fun":"x.y","arg":%s},"return":1,"retcode":0,"success":true}`, bomb(4<<20))
	if err := l.Ask(t.Context(), protocol.OpReturn, json.RawMessage(q), nil); err == nil || !strings.Contains(err.Error(), "too many parts") {
		t.Errorf("the command of a return of its own: %v, want a refusal", err)
	}
}

// A runner that has asked minions builds no more of their answers than one request may hold:
// a minion that answers with more has failed, and the others are heard.
func TestBombsForRunners(t *testing.T) {
	w := start(t, "auto_accept: True\n")
	w.minion("web1", pong)
	evil := make(chan *upstream.Connection, 1)
	evil <- w.minion("evil", func(e *job.Envelope) *job.Report {
		l := <-evil
		body := `{"state":"done","return":` + bomb(4<<20) + `,"retcode":0,"success":true}`
		m := outbox.Message{Epoch: "e", N: 1, Op: "ret." + string(e.JID), Body: json.RawMessage(body)}
		var reported outbox.Delivered
		if err := l.Ask(t.Context(), outbox.OpDeliver, outbox.Batch{Messages: []outbox.Message{m}}, &reported); err != nil {
			t.Errorf("the bomb: %v", err)
		}
		return nil
	})
	s, err := w.user().Call(protocol.OpRun, protocol.Run{Command: job.Command{Function: "salt.execute", Args: []any{"*", "test.ping"}, Kwargs: map[string]any{"timeout": 60}}, Timeout: job.Seconds(60)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var begun protocol.RunStart
	var res protocol.RunResult
	for _, v := range []any{&begun, &res} {
		if err := s.Decode(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := res.Return.V.(map[string]any)
	if text := value.Repr(got["evil"]); !strings.Contains(text, "the return is not read: it has too many parts") || got["web1"] != true {
		t.Errorf("salt.execute: web1 %v, evil %.200s", got["web1"], text)
	}
}
