package module

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
)

// recorder is an event bus that remembers.
type recorder struct {
	local, master []Event
	refuse        error
}

func (r *recorder) Fire(_ context.Context, tag string, data any) error {
	r.local = append(r.local, Event{Tag: tag, Data: data})
	return r.refuse
}

func (r *recorder) FireMaster(_ context.Context, events ...Event) (Outcomes, error) {
	if r.refuse != nil {
		return nil, r.refuse
	}
	r.master = append(r.master, events...)
	return Outcomes{"m": true}, nil
}

func TestEvents(t *testing.T) {
	t.Setenv("COLOUR", "blue")
	bus := &recorder{}
	host := &function.Host{
		Services: &Services{Events: bus},
		Data:     minionData{grains: map[string]any{"os": "Debian", "id": "web1"}, pillar: map[string]any{"secret": "x"}},
	}
	dict := map[string]any{"data": "x"}
	tests := map[string]struct {
		function string
		args     []any
		kwargs   map[string]any
		want     Event
	}{
		"fire_master":         {"event.fire_master", []any{dict, "mytag"}, nil, Event{Tag: "mytag", Data: dict}},
		"any data":            {"event.fire_master", []any{"text", "mytag"}, nil, Event{Tag: "mytag", Data: "text"}},
		"pretag":              {"event.fire_master", []any{dict, "t"}, map[string]any{"preload": map[string]any{"pretag": "PT"}}, Event{Tag: "t", Data: dict, Pretag: "PT"}},
		"send":                {"event.send", []any{"my/tag"}, map[string]any{"foo": "Foo", "bar": int64(2), "__pub_jid": "1"}, Event{Tag: "my/tag", Data: map[string]any{"foo": "Foo", "bar": int64(2)}}},
		"send nothing":        {"event.send", []any{"my/tag"}, nil, Event{Tag: "my/tag", Data: map[string]any{}}},
		"data over keywords":  {"event.send", []any{"t", map[string]any{"a": "data"}}, map[string]any{"a": "keyword", "b": "c"}, Event{Tag: "t", Data: map[string]any{"a": "data", "b": "c"}}},
		"with chosen grains":  {"event.send", []any{"t"}, map[string]any{"with_grains": []any{"os", "nosuch"}}, Event{Tag: "t", Data: map[string]any{"grains": map[string]any{"os": "Debian"}}}},
		"with all the pillar": {"event.send", []any{"t"}, map[string]any{"with_pillar": true}, Event{Tag: "t", Data: map[string]any{"pillar": map[string]any{"secret": "x"}}}},
		"with chosen env":     {"event.send", []any{"t"}, map[string]any{"with_env": "COLOUR"}, Event{Tag: "t", Data: map[string]any{"environ": map[string]any{"COLOUR": "blue"}}}},
		"without":             {"event.send", []any{"t"}, map[string]any{"with_env": false, "with_pillar": nil}, Event{Tag: "t", Data: map[string]any{}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bus.master = nil
			same(t, tt.function, good(t, host, tt.function, tt.kwargs, tt.args...), true)
			if len(bus.master) != 1 || len(bus.local) != 0 || bus.master[0].Tag != tt.want.Tag || bus.master[0].Pretag != tt.want.Pretag {
				t.Fatalf("fired %v and %v, want %v", bus.master, bus.local, tt.want)
			}
			same(t, "data", bus.master[0].Data, tt.want.Data)
		})
	}
}

func TestEventsOnTheMinionsBus(t *testing.T) {
	bus := &recorder{}
	same(t, "event.fire", good(t, &function.Host{Services: &Services{Events: bus}}, "event.fire", nil, map[string]any{"a": "b"}, "tag"), true)
	if len(bus.local) != 1 || bus.local[0].Tag != "tag" || len(bus.master) != 0 {
		t.Errorf("fired %v and %v", bus.local, bus.master)
	}
}

func TestEventRefusals(t *testing.T) {
	host := &function.Host{Services: &Services{Events: &recorder{refuse: errors.New("the tag salt/job belongs to the master")}}}
	bad(t, host, "event.fire_master", "ERROR: the tag salt/job belongs to the master", nil, "x", "salt/job/1")
	bad(t, host, "event.fire_master", "preload can set pretag", map[string]any{"preload": map[string]any{"id": "db1"}}, "x", "t")
	bad(t, host, "event.fire", `argument "data": want a dictionary`, nil, "x", "t")
	bad(t, host, "event.send", `missing required argument "tag"`, nil)
	bad(t, host, "event.send", `argument "data": want a dictionary`, nil, "t", "x")
	bad(t, nil, "event.fire", "event bus: not available here", nil, map[string]any{}, "t")
	bad(t, nil, "event.send", "event bus: not available here", nil, "t")
}

// jobTable is a table of running jobs that remembers signals.
type jobTable struct {
	jobs []Running
	sent map[salt.JID]syscall.Signal
}

func (j *jobTable) List() []Running { return j.jobs }

func (j *jobTable) Signal(jid salt.JID, sig syscall.Signal, _ string) error {
	j.sent[jid] = sig
	return nil
}

func TestSaltutil(t *testing.T) {
	const own, first, second = "20261121113344286549", "20261121113344000001", "20261121113344000002"
	table := &jobTable{sent: map[salt.JID]syscall.Signal{}, jobs: []Running{
		{JID: own, Function: "saltutil.running"},
		{JID: first, Function: "cmd.run", PID: 42, Args: []any{"sleep 5"}, Target: "*", TargetType: "glob", User: "root"},
		{JID: second, Function: "test.sleep", PID: 43},
	}}
	host := &function.Host{Services: &Services{Jobs: table}}
	job1 := map[string]any{"jid": first, "fun": "cmd.run", "pid": 42, "arg": []any{"sleep 5"}, "tgt": "*", "tgt_type": "glob", "ret": "", "user": "root"}
	same(t, "find_job", good(t, host, "saltutil.find_job", nil, first), job1)
	same(t, "find_job of no job", good(t, host, "saltutil.find_job", nil, "20261121113344999999"), map[string]any{})
	same(t, "is_running", good(t, host, "saltutil.is_running", nil, "cmd.*"), []any{job1})
	if all := good(t, host, "saltutil.running", nil).([]any); len(all) != 2 {
		t.Errorf("running = %v", all)
	}
	same(t, "kill_job", good(t, host, "saltutil.kill_job", nil, first), "Signal 9 sent to job "+first+" at pid 42")
	same(t, "term_job", good(t, host, "saltutil.term_job", nil, second), "Signal 15 sent to job "+second+" at pid 43")
	same(t, "signal_job", good(t, host, "saltutil.signal_job", nil, second, "usr1"), "Signal 10 sent to job "+second+" at pid 43")
	same(t, "kill_job of no job", good(t, host, "saltutil.kill_job", nil, "20261121113344999999"), "")
	if table.sent[first] != syscall.SIGKILL || table.sent[second] != syscall.SIGUSR1 || len(table.sent) != 2 {
		t.Errorf("sent %v", table.sent)
	}
	if all := good(t, host, "saltutil.term_all_jobs", nil).([]any); len(all) != 2 || table.sent[own] != 0 {
		t.Errorf("term_all_jobs = %v, sent %v", all, table.sent)
	}
	good(t, host, "saltutil.kill_all_jobs", nil)
	if table.sent[second] != syscall.SIGKILL {
		t.Errorf("sent %v", table.sent)
	}
	bad(t, host, "saltutil.kill_job", "invalid job id", nil, "*")
	bad(t, host, "saltutil.signal_job", `unknown signal "nosuch"`, nil, first, "nosuch")
	bad(t, host, "saltutil.signal_job", `unknown signal "0"`, nil, first, int64(0))
	bad(t, nil, "saltutil.running", "job table: not available here", nil)
	bad(t, nil, "saltutil.refresh_grains", "not available here", nil)
	refreshed := 0
	same(t, "refresh_grains", good(t, &function.Host{Services: &Services{Facts: refresher(func() error { refreshed++; return nil })}}, "saltutil.refresh_grains", nil), true)
	if refreshed != 1 {
		t.Errorf("refreshed %d times", refreshed)
	}
}

// refresher is facts that are found out again by a function.
type refresher func() error

func (r refresher) RefreshGrains(context.Context) error { return r() }
func (r refresher) RefreshPillar(context.Context) error { return r() }

// keys are fingerprints.
type keys struct{ own, masters string }

func (k keys) Fingerprint() string       { return k.own }
func (k keys) MasterFingerprint() string { return k.masters }

func TestKeyFingerprints(t *testing.T) {
	host := &function.Host{Services: &Services{Keys: keys{"aa:bb", "cc:dd"}}}
	same(t, "finger", good(t, host, "key.finger", nil), "aa:bb")
	same(t, "finger_master", good(t, host, "key.finger_master", nil), "cc:dd")
	bad(t, nil, "key.finger", "minion key: not available here", nil)
	bad(t, &function.Host{Services: &Services{Keys: keys{}}}, "key.finger", "minion key: not available here", nil)
	bad(t, nil, "key.finger_master", "pinned master key: not available here", nil)
}
