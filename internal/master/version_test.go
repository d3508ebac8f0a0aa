package master_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/upstream"
)

// TestProtocolOne: a minion that has not been upgraded yet works with this master: it gets jobs,
// also long ones, its returns arrive, and it hears refusals.
func TestProtocolOne(t *testing.T) {
	w := start(t, "auto_accept: True\n")
	old := upstream.Protocol{Newest: 1, Oldest: 1, Version: "0.2.0"}
	c, err := w.connectAs("old", key(t), nil, old)
	l := w.attend("old", c, err, pong)
	if !l.Framed() {
		t.Fatal("it speaks the present protocol")
	}
	hello(t, l)
	now := w.minion("now", pong)
	if now.Framed() {
		t.Error("a minion of this version speaks protocol 1")
	}
	long := ping("*", "glob")
	long.Commands[0].Args = []any{strings.Repeat("x", 2*rpc.MaxPart)}
	short := ping("*", "glob")
	short.Timeout, long.Timeout = 60, 60
	for name, q := range map[string]protocol.Publish{"a short job": short, "one in pieces": long} {
		if _, got, err := publish(t, w.user(), q); err != nil || got["old"].State != job.Done || got["now"].State != job.Done {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	waiting := outbox.Batch{Messages: []outbox.Message{{Epoch: "e", N: 1, Op: protocol.OpFire, Body: json.RawMessage(`{"events":[{"tag":"old/1","data":1}]}`)}}}
	var reply struct{ Letters []outbox.Delivery }
	if err := l.Ask(t.Context(), "letters", waiting, &reply); err != nil || len(reply.Letters) != 1 || reply.Letters[0].Refused != nil {
		t.Errorf("its outbox: %+v, %v", reply, err)
	}
	if err := l.Ask(t.Context(), protocol.OpRun, protocol.Run{Command: job.Command{Function: "manage.up"}}, nil); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("what it may not: %v", err)
	}
}

// TestProtocolsThatDoNotFit connects minions of other times: each side names both
// versions, and what is to be upgraded.
func TestProtocolsThatDoNotFit(t *testing.T) {
	w, minion := start(t, ""), key(t)
	for _, test := range []struct {
		name    string
		speaks  upstream.Protocol
		upgrade string // "" where they fit
	}{
		{"newer", upstream.Protocol{Newest: 9, Oldest: 9, Version: "9.0.0\x1b[2J"}, "upgrade the master"},
		{"older", upstream.Protocol{Newest: -1, Oldest: -1, Version: "0.0.1"}, "upgrade the minion"},
		{"newer, and still understands", upstream.Protocol{Newest: 9, Oldest: 1, Version: "9.0.0"}, ""},
		{"the same", upstream.Spoken("test"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := len(w.said())
			l, err := upstream.Connect(t.Context(), upstream.Options{
				Address: w.m.Addr().String(), ID: "web1", Key: minion, PinFile: filepath.Join(t.TempDir(), "minion_master.pub"), Version: "test",
				Speaks: test.speaks, Timeout: 10 * time.Second, PingInterval: 10 * time.Second, Log: logger(t),
			})
			if test.upgrade == "" {
				if err != nil {
					t.Fatal(err)
				}
				l.Close()
				return
			}
			if err == nil {
				l.Close()
				t.Fatal("it is let in")
			}
			version := strings.TrimSuffix(test.speaks.Version, "\x1b[2J")
			for _, want := range []string{"the versions do not fit together", "version test", "version " + version, test.upgrade} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the minion hears %q, which has no %q", err, want)
				}
				if said := w.said()[before:]; !strings.Contains(said, want) {
					t.Errorf("the master says %q, which has no %q", said, want)
				}
			}
			if strings.Contains(err.Error(), "\x1b") {
				t.Errorf("the minion hears %q", err)
			}
		})
	}
}
