package host

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// TestFactsAreWaitedFor: until the first collection there are none, and who asks for them
// waits no longer than they want to.
func TestFactsAreWaitedFor(t *testing.T) {
	f := &Facts{done: make(chan struct{})}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if facts, err := f.get(ctx); facts != nil || !errors.Is(err, why) {
		t.Errorf("%v, %v", facts, err)
	}
	if f.now() != nil {
		t.Error("there are facts before they were collected")
	}
	f.facts, f.err = map[string]any{"os": "Debian"}, why
	close(f.done)
	if facts, err := f.get(t.Context()); facts["os"] != "Debian" || !errors.Is(err, why) {
		t.Errorf("incomplete facts are %v, %v", facts, err)
	}
}

func TestEventsOfFunctions(t *testing.T) {
	f, err := single(module.Event{Tag: "x", Data: map[string]any{"a": 1}})
	if err != nil || f.Form != protocol.FormSingle || f.Pretag != nil || len(f.Events) != 1 || string(f.Events[0].Data) != `{"a":1}` {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err = single(module.Event{Tag: "x", Pretag: "below"}); err != nil || f.Pretag == nil || *f.Pretag != "below" {
		t.Errorf("with a pretag: %+v, %v", f, err)
	}
	if _, err = single(module.Event{Tag: "x", Data: func() {}}); err == nil {
		t.Error("what is not data is fired")
	}
}

// TestARefusalIsMarked: functions do not know the bus, and callers want exit code 77.
func TestARefusalIsMarked(t *testing.T) {
	for code, want := range map[rpc.Code]bool{rpc.Denied: true, rpc.Usage: false, rpc.Unavailable: false} {
		err := refusedByMaster(fmt.Errorf("fire: %w", rpc.Errorf(code, "no")))
		if errors.Is(err, function.ErrRefused) != want || rpc.CodeOf(err) != code {
			t.Errorf("%v: %v", code, err)
		}
	}
	if refusedByMaster(nil) != nil {
		t.Error("what went well is an error")
	}
}

// TestStrangeSettings: a module that nobody has is told, since what was to be off may be on.
func TestStrangeSettings(t *testing.T) {
	cfg := &config.Minion{DisableModules: []string{"cmd", "cmdd"}, WhitelistModules: []string{"test", "tset"}}
	got := Lint(cfg)
	if len(got) != 2 || got[0].Key != "disable_modules" || got[1].Key != "whitelist_modules" {
		t.Errorf("%+v", got)
	}
}
