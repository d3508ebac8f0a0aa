package minion_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/minion"
	"github.com/brinebus/brine/internal/protocol"
)

// TestSchedule runs a job by the clock: its returns come under the tag and as
// returns of the minion.
func TestSchedule(t *testing.T) {
	p := startPair(t, `schedule:
  often:
    function: test.echo
    args: [fine]
    seconds: 0.05
    returner: master_bus
    tag: checks
  mute:
    function: test.ping
    seconds: 0.05
    return_job: false
`)
	until(t, "the job has run often", func() bool { return len(p.atMaster("checks")) >= 5 && len(p.atMaster("salt/job")) >= 5 })
	jids := map[string]bool{}
	for _, e := range p.atMaster("checks") {
		var data struct{ JID, Return string }
		if err := json.Unmarshal(e.Data, &data); err != nil || data.Return != "fine" || jids[data.JID] || e.From != "web1" {
			t.Errorf("event %s: %v", e.Data, err)
		}
		jids[data.JID] = true
	}
	returns := 0
	for _, e := range p.atMaster("salt/job") {
		var data struct {
			JID, Fun, Schedule string
			Success            bool
		}
		if err := json.Unmarshal(e.Data, &data); err != nil || data.Fun != "test.echo" || data.Schedule != "often" || !data.Success {
			t.Errorf("return %s: %v", e.Data, err)
		}
		returns++
	}
	if returns < 5 {
		t.Errorf("%d returns", returns)
	}
}

// TestScheduleFunctions changes the schedule from the master; the change outlives
// the daemon.
func TestScheduleFunctions(t *testing.T) {
	mcfg, addr, _ := startMaster(t)
	cfg := minionConfig(t, addr, "schedule:\n  rare:\n    function: test.ping\n    days: 1\n    returner: master_bus\n    tag: rare\n")
	d := startMinion(t, cfg)
	connected(t, cfg)
	c := dial(t, mcfg.SockDir, master.SocketName)
	do := func(fun string, kwargs map[string]any, args ...any) job.Update {
		t.Helper()
		u, _ := publish(t, c, protocol.Publish{Commands: []job.Command{{Function: call(fun)[0].Function, Args: args, Kwargs: kwargs}}})
		return u
	}
	if u := do("schedule.run_job", nil, "rare"); u.State != job.Done {
		t.Errorf("run_job: %+v", u)
	}
	until(t, "the job that was asked for has run", func() bool { return len(heard(t, mcfg.SockDir, master.SocketName, "rare")) == 1 })
	for name, kwargs := range map[string]map[string]any{
		"no time":      {"function": "test.ping"},
		"bad returner": {"function": "test.ping", "hours": int64(1), "returner": "nosuch"},
	} {
		if u := do("schedule.add", kwargs, "odd"); u.State != job.Failed {
			t.Errorf("add with %s: %+v", name, u)
		}
	}
	if u := do("schedule.add", map[string]any{"function": "test.ping", "hours": int64(1)}, "more"); u.State != job.Done {
		t.Errorf("add: %+v", u)
	}
	u := do("schedule.show_next_fire_time", nil, "more")
	next, _ := u.Return.V.(map[string]any)
	if text, _ := next["next_fire_time"].(string); !strings.HasPrefix(text, time.Now().Add(time.Hour).Format("2006-01-02T15")) {
		t.Errorf("next_fire_time: %v", u.Return.V)
	}
	d.stop()
	again, _, err := config.LoadMinion(cfg.ConfigDir)
	if err != nil {
		t.Fatal(err)
	}
	startMinion(t, again)
	connected(t, again)
	if list, _ := do("schedule.list", nil).Return.V.(string); !strings.Contains(list, "more:") || !strings.Contains(list, "rare:") || strings.Contains(list, "odd:") {
		t.Errorf("after a restart: %s", list)
	}
}

func TestBadSchedule(t *testing.T) {
	_, addr, _ := startMaster(t)
	cfg := minionConfig(t, addr, "schedule:\n  odd:\n    function: test.ping\n    second: 5\n")
	_, err := minion.New(t.Context(), minion.Options{Config: cfg, Version: "test", Log: logger(t, "minion")})
	if err == nil || !strings.Contains(err.Error(), "odd") || !strings.Contains(err.Error(), filepath.Join(cfg.ConfigDir, "minion")) {
		t.Errorf("a minion with a bad schedule: %v", err)
	}
	if _, err := os.Stat(filepath.Join(cfg.SockDir, minion.SocketName)); err == nil {
		t.Error("it has a socket")
	}
}

// soon is a moment that is far enough ahead for what a test does before it, which takes no
// more than a few times as long as what the test has done since began.
func soon(began time.Time) string {
	now := time.Now()
	return now.Add(3*time.Second + 5*now.Sub(began)).Format("2006-01-02T15:04:05")
}

// TestScheduleOnceForEachDueTime: a job that is due at one moment runs once, with two
// masters of which the first is lost, and over restarts before and after.
func TestScheduleOnceForEachDueTime(t *testing.T) {
	first, a, firstRun := signedMaster(t, t.TempDir())
	second, b, _ := signedMaster(t, first.PKIDir)
	settings := func(more string) string {
		return "master_alive_interval: 1\nschedule:\n  tick: {function: test.echo, args: [tick], seconds: 0.3, returner: master_bus, tag: tick}\n" + more
	}
	plain := verifying(t, first.PKIDir, settings(""), a, b)
	began := time.Now()
	m := startMinion(t, plain)
	uses(t, plain, a)
	m.stop()
	cfg := verifying(t, first.PKIDir, settings("  once: {function: test.echo, args: [once], once: '"+soon(began)+"', returner: master_bus, tag: once}\n"), a, b)
	cfg.PKIDir = plain.PKIDir // it is the same minion
	m = startMinion(t, cfg)
	uses(t, cfg, a)
	m.stop()
	m = startMinion(t, cfg)
	firstRun.stop()
	uses(t, cfg, b)
	atSecond := func(tag string) []protocol.Heard { return heard(t, second.SockDir, master.SocketName, tag) }
	until(t, "the job has run", func() bool { return len(atSecond("once")) > 0 })
	m.stop()
	startMinion(t, cfg)
	uses(t, cfg, b)
	ticks := len(atSecond("tick"))
	until(t, "the other job has gone on", func() bool { return len(atSecond("tick")) >= ticks+4 })
	if n := len(atSecond("once")); n != 1 {
		t.Errorf("the job ran %d times", n)
	}
}

// TestScheduleOnceWithAllMasters: with two masters at once, both of which are connected,
// each job runs once for each moment at which it is due, over a restart of the minion and
// with one master lost. The runs are counted where they happen.
func TestScheduleOnceWithAllMasters(t *testing.T) {
	began := time.Now()
	acfg, a, arun := startMaster(t)
	bcfg, b, _ := startMaster(t)
	runs := filepath.Join(t.TempDir(), "runs")
	ran := func(name string) int {
		text, _ := os.ReadFile(runs) // there is none before the first run
		return strings.Count(string(text), name+"\n")
	}
	entry := func(name, due string) string {
		return fmt.Sprintf("  %s: {function: cmd.run, args: ['echo %[1]s >>%s'], kwargs: {python_shell: true}, %s, returner: master_bus, tag: runs/%[1]s}\n", name, runs, due)
	}
	moment := func() string { return soon(began) }
	cfg := listed(t, "schedule:\n"+entry("before", "once: '"+moment()+"'")+entry("daily", "days: 1, run_on_start: true"), a, b)
	m := startMinion(t, cfg)
	connected(t, cfg)
	until(t, "both masters are connected", func() bool { return masterStates(t, cfg) == "++" })
	until(t, "what was due has run", func() bool { return ran("before") > 0 && ran("daily") > 0 })
	m.stop()
	again, _, err := config.LoadMinion(cfg.ConfigDir)
	if err != nil {
		t.Fatal(err)
	}
	again.Master, again.MasterIsList = cfg.Master, true
	startMinion(t, again)
	connected(t, again)
	until(t, "both masters are connected again", func() bool { return masterStates(t, again) == "++" })
	add := func(from *config.Master, name string) {
		t.Helper()
		began = time.Now()
		c := dial(t, from.SockDir, master.SocketName)
		publish(t, c, protocol.Publish{Commands: call("test.ping")}) // how long one takes now
		q := protocol.Publish{Commands: []job.Command{{Function: call("schedule.add")[0].Function, Args: []any{name}, Kwargs: map[string]any{
			"function": "cmd.run", "job_args": []any{"echo " + name + " >>" + runs}, "job_kwargs": map[string]any{"python_shell": true},
			"once": moment(), "returner": "master_bus", "tag": "runs/" + name,
		}}}}
		if u, _ := publish(t, c, q); u.State != job.Done {
			t.Fatalf("add %s: %+v", name, u)
		}
	}
	add(acfg, "after")
	until(t, "it has run", func() bool { return ran("after") > 0 })
	arun.stop()
	add(bcfg, "alone")
	until(t, "it has run with one master, which has heard of it", func() bool {
		return ran("alone") > 0 && len(heard(t, bcfg.SockDir, master.SocketName, "runs/alone")) > 0
	})
	for _, name := range []string{"before", "after", "alone"} {
		if n := ran(name); n != 1 {
			t.Errorf("%s ran %d times", name, n)
		}
		if n := len(heard(t, bcfg.SockDir, master.SocketName, "runs/"+name)); n != 1 {
			t.Errorf("the second master has %d events of %s", n, name)
		}
	}
	if n := ran("daily"); n > 2 {
		t.Errorf("what is due at each start ran %d times in two of them", n)
	}
}
