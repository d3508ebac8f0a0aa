package minion_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/minion"
	"github.com/brinebus/brine/internal/protocol"
)

func TestReturners(t *testing.T) {
	file := filepath.Join(t.TempDir(), "returns")
	p := startPair(t, "master_bus.tag: configured\nrawfile_json.filename: "+file+"\n")
	c := dial(t, p.master.SockDir, master.SocketName)
	q := protocol.Publish{Commands: call("cmd.run", "echo fine; exit 2"), Returner: "master_bus,rawfile_json", ReturnTag: "monitoring"}
	u, _ := publish(t, c, q)
	if u.State != job.Failed {
		t.Errorf("job: %+v", u)
	}
	// The event is there when the return is: nothing is waited for.
	events := p.atMaster("monitoring", "salt/job")
	if len(events) != 3 || events[1].Tag != "monitoring" || events[1].From != "web1" || !strings.Contains(events[2].Tag, "/ret/web1") {
		t.Fatalf("at the master: %+v, want the start, the event and the return", events)
	}
	var data map[string]any
	if err := json.Unmarshal(events[1].Data, &data); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"id": "web1", "fun": "cmd.run", "return": "fine", "retcode": 2.0, "success": false} {
		if data[key] != want {
			t.Errorf("event: %s is %v, want %v", key, data[key], want)
		}
	}
	until(t, "the file has the return", func() bool { b, err := os.ReadFile(file); return err == nil && strings.Contains(string(b), "fine") })
	q.ReturnTag = ""
	if publish(t, c, q); len(p.atMaster("configured")) != 1 {
		t.Error("the configured tag has not the return")
	}
}

// What cannot be handed on is said before anything runs; a return is never lost
// by its returner.
func TestReturnersThatFail(t *testing.T) {
	p := startPair(t, "rawfile_json.filename: /nosuch/folder/file\n")
	c := dial(t, p.master.SockDir, master.SocketName)
	marker := filepath.Join(t.TempDir(), "ran")
	for name, q := range map[string]protocol.Publish{
		"unknown":      {Returner: "nosuch"},
		"one of two":   {Returner: "local,nosuch"},
		"no tag":       {Returner: "master_bus"},
		"not its tag":  {Returner: "master_bus", ReturnTag: "salt/job/x"},
		"not even one": {Returner: "http"},
	} {
		q.Commands = call("cmd.run", "touch "+marker)
		if u, _ := publish(t, c, q); u.State != job.Refused || !strings.Contains(u.Text, "; ") {
			t.Errorf("%s: %s (%s), want it refused with a hint", name, u.State, u.Text)
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a job with a bad returner ran")
	}
	if u, _ := publish(t, c, protocol.Publish{Commands: call("test.ping"), Returner: "rawfile_json"}); u.State != job.Done || u.Return.V != true {
		t.Errorf("with a returner that fails: %+v", u)
	}
}

func TestBadReturnSetting(t *testing.T) {
	_, addr, _ := startMaster(t)
	cfg := minionConfig(t, addr, "return: nosuch\n")
	if _, err := minion.New(t.Context(), minion.Options{Config: cfg, Version: "test", Log: logger(t, "minion")}); err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("a minion with return: nosuch: %v", err)
	}
}
