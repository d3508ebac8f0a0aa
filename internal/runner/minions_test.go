package runner

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
)

// minions implements Accepted, Presence, Facts, Cache and Publisher: a is there and answers,
// b is there and silent, c is away.
type minions struct {
	Publisher
	dropped []string
}

func (*minions) IDs() []salt.MinionID { return []salt.MinionID{"a", "b", "c"} }

func (*minions) Connected(id salt.MinionID) (bool, time.Time) { return id != "c", time.Time{} }

func (*minions) Grains(id salt.MinionID) map[string]any {
	return map[salt.MinionID]map[string]any{"a": {"saltversion": "1.2.3"}, "b": {"saltversion": "1.0.0"}}[id]
}

func (*minions) Mine(id salt.MinionID) (map[string]any, error) {
	return map[salt.MinionID]map[string]any{"a": {"f": "x", "g": "y"}, "b": {"f": "z"}}[id], nil
}

func (*minions) CompilePillar(id salt.MinionID, env string, supposed map[string]any) (map[string]any, error) {
	if id == "b" {
		return nil, errors.New("a mistake in top.sls")
	}
	return map[string]any{"id": string(id), "env": env, "supposed": supposed}, nil
}

func (m *minions) DropGrains(_ context.Context, id salt.MinionID) error {
	m.dropped = append(m.dropped, "grains "+string(id))
	return nil
}

func (m *minions) DropMine(_ context.Context, id salt.MinionID, entry string) error {
	m.dropped = append(m.dropped, "mine "+string(id)+" "+entry)
	return nil
}

func (m *minions) DropPillar(_ context.Context, id salt.MinionID) error {
	m.dropped = append(m.dropped, "pillar "+string(id))
	return nil
}

// Resolve takes a target for an id, * for all and ? for one that the caller may not name.
func (m *minions) Resolve(target, _ string) ([]salt.MinionID, error) {
	switch target {
	case "*":
		return m.IDs(), nil
	case "nosuch":
		return nil, nil
	case "?":
		return nil, errors.New("you may not name it")
	}
	return []salt.MinionID{salt.MinionID(target)}, nil
}

func (*minions) Ping(context.Context, string, string, time.Duration) ([]job.Update, error) {
	return []job.Update{
		{ID: "a", Report: job.Report{State: job.Running}}, {ID: "a", Report: job.Report{State: job.Done}},
		{ID: "b", Report: job.Report{State: job.Silent}}, {ID: "c", Report: job.Report{State: job.NotConnected}},
	}, nil
}

// Each of these runners reports the targeted minions and no others, and a failure with the name of
// its minion.
func TestRunnersAboutMinions(t *testing.T) {
	m := &minions{}
	host := &Host{Accepted: m, Presence: m, Facts: m, Cache: m, Publisher: m, Settings: settings{unread: "line 3"}, Version: "1.2.3"}
	table, wheel := Table(host), Wheel(host)
	type args = []any
	type dict = map[string]any
	for _, test := range []struct {
		fun    string
		args   args
		kwargs dict
		want   any
		err    string
	}{
		{"manage.up", nil, nil, args{"a"}, ""},
		{"manage.down", nil, nil, args{"b", "c"}, ""},
		{"manage.up", nil, dict{"tgt": "?"}, nil, "you may not name it"},
		{"manage.down", nil, dict{"tgt": "b"}, args{"b"}, ""},
		{"manage.status", nil, nil, dict{"up": args{"a"}, "down": args{"b", "c"}, "config": "line 3"}, ""},
		{"manage.present", nil, nil, args{"a", "b"}, ""},
		{"manage.not_present", nil, nil, args{"c"}, ""},
		{"minions.connected", nil, nil, args{"a", "b"}, ""},
		{"manage.joined", nil, dict{"subset": args{"b", "c"}}, args{"b"}, ""},
		{"manage.list_not_state", nil, dict{"subset": args{"a"}}, args{}, ""},
		{"manage.versions", nil, nil, dict{"Master": "1.2.3", "Up to date": dict{"a": "1.2.3"}, "Minion of another version": dict{"b": "1.0.0"}, "Minion offline": dict{"c": ""}}, ""},
		{"cache.grains", nil, nil, dict{"a": dict{"saltversion": "1.2.3"}, "b": dict{"saltversion": "1.0.0"}}, ""},
		{"cache.mine", args{"b"}, nil, dict{"b": dict{"f": "z"}}, ""},
		{"cache.pillar", args{"a"}, nil, dict{"a": dict{"id": "a", "env": "", "supposed": dict(nil)}}, ""},
		{"cache.pillar", nil, nil, nil, "b: a mistake in top.sls"},
		{"mine.get", args{"*", "f"}, nil, dict{"a": "x", "b": "z"}, ""},
		{"mine.get", args{"*", "f,g"}, nil, dict{"f": dict{"a": "x", "b": "z"}, "g": dict{"a": "y"}}, ""},
		{"mine.get", args{"?", "f"}, nil, nil, "you may not name it"},
		{"pillar.show_pillar", args{"a"}, dict{"pillarenv": "dev", "os": "Debian"}, dict{"id": "a", "env": "dev", "supposed": dict{"os": "Debian"}}, ""},
		{"pillar.show_pillar", args{"../a"}, nil, nil, "minion id"},
	} {
		its := table
		if test.fun == "minions.connected" {
			its = wheel
		}
		res := call(t, its, test.fun, test.args, test.kwargs)
		name := fmt.Sprint(test.fun, test.args, test.kwargs)
		if test.err != "" {
			if res.Err == nil || !strings.Contains(res.Err.Error(), test.err) {
				t.Errorf("%s: error %v, want %q", name, res.Err, test.err)
			}
			continue
		}
		if res.Err != nil || !reflect.DeepEqual(res.Return, test.want) {
			t.Errorf("%s = %v, %v; want %v", name, res.Return, res.Err, test.want)
		}
	}
	if m.dropped != nil {
		t.Errorf("looking has made the master forget %q", m.dropped)
	}
}

// Each of these runners makes the master drop the data that it names, and no other.
func TestRunnersThatDropCachedData(t *testing.T) {
	for _, test := range []struct {
		fun  string
		args []any
		want []string
	}{
		{"cache.clear_grains", []any{"a"}, []string{"grains a"}},
		{"cache.clear_pillar", []any{"a"}, []string{"pillar a"}},
		{"cache.clear_mine", []any{"a"}, []string{"mine a "}},
		{"cache.clear_mine_func", []any{"a", "f"}, []string{"mine a f"}},
		{"cache.clear_mine_func", []any{"a", ""}, nil},
		{"cache.clear_all", []any{"b"}, []string{"pillar b", "grains b", "mine b "}},
		{"cache.clear_all", []any{"?"}, nil},
		{"cache.clear_grains", []any{"nosuch"}, nil},
		{"cache.clear_mine_func", []any{"nosuch", "f"}, nil},
	} {
		m := &minions{}
		res := call(t, Table(&Host{Cache: m, Publisher: m}), test.fun, test.args, nil)
		if (res.Err == nil) != (test.want != nil) || !slices.Equal(m.dropped, test.want) {
			t.Errorf("%s%v: forgotten %q, %v; want %q", test.fun, test.args, m.dropped, res.Err, test.want)
		}
	}
}

// running implements Running: one job that has begun on a, waits for b and has returned of
// c, and one of the master itself.
type running struct{ cancelled salt.JID }

func (*running) Runs(context.Context, salt.JID) []job.Summary {
	standings := map[salt.MinionID]job.Standing{
		"a": {State: job.Running}, "b": {State: job.Queued}, "c": {State: job.Done},
	}
	return []job.Summary{
		{JID: "20260102030405678901", User: "root", Target: "*", TargetType: "glob", Fun: "test.sleep", Standings: standings},
		{JID: "20260102030405678902", Internal: true, Standings: map[salt.MinionID]job.Standing{"a": {State: job.Running}}},
		{JID: "20260102030405678903", Standings: map[salt.MinionID]job.Standing{"a": {State: job.Done}}},
	}
}

func (r *running) Cancel(_ context.Context, jid salt.JID) ([]salt.MinionID, error) {
	r.cancelled = jid
	return []salt.MinionID{"b"}, nil
}

func (*running) Await(context.Context, salt.JID) error { return nil }

// TestJobsOfWhichMoreIsExpected: those that run somewhere, with where; neither what has ended
// nor what the master does for itself.
func TestJobsOfWhichMoreIsExpected(t *testing.T) {
	r := &running{}
	table := Table(&Host{Running: r})
	res := call(t, table, "jobs.active", nil, nil)
	all, _ := res.Return.(map[string]any)
	one, _ := all["20260102030405678901"].(map[string]any)
	if res.Err != nil || len(all) != 1 || len(one["Running"].([]any)) != 1 || !reflect.DeepEqual(one["Returned"], []any{"c"}) || !reflect.DeepEqual(one["Queued"], []any{"b"}) {
		t.Errorf("jobs.active = %v, %v", res.Return, res.Err)
	}
	res = call(t, table, "jobs.list_queued", nil, nil)
	if all, _ = res.Return.(map[string]any); res.Err != nil || len(all) != 1 {
		t.Errorf("jobs.list_queued = %v, %v", res.Return, res.Err)
	}
	if res = call(t, table, "jobs.cancel", []any{"20260102030405678901"}, nil); res.Err != nil || !reflect.DeepEqual(res.Return, []any{"b"}) || r.cancelled != "20260102030405678901" {
		t.Errorf("jobs.cancel = %v, %v, of %s", res.Return, res.Err, r.cancelled)
	}
	if res = call(t, table, "jobs.cancel", []any{"../1"}, nil); res.Err == nil {
		t.Errorf("jobs.cancel takes what is not a job id: %v", res.Return)
	}
}
