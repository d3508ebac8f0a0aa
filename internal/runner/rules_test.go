package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

func TestMoments(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.Local)
	for text, want := range map[string]time.Time{
		"2h": now.Add(-2 * time.Hour), "90": now.Add(-90 * time.Second), "1d": now.Add(-24 * time.Hour), "0": now,
		"2026-11-21":                   time.Date(2026, 11, 21, 0, 0, 0, 0, time.Local),
		"2026-11-21 08:15":             time.Date(2026, 11, 21, 8, 15, 0, 0, time.Local),
		"2026-11-21T08:15:30":          time.Date(2026, 11, 21, 8, 15, 30, 0, time.Local),
		"2026-11-21T08:15:30Z":         time.Date(2026, 11, 21, 8, 15, 30, 0, time.UTC),
		"2026, Nov 21 08:15:30.000007": time.Date(2026, 11, 21, 8, 15, 30, 7000, time.Local),
	} {
		if got, err := parseMoment("since", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "soon", "-2h", "2026-13-01", "2026-11-21T25:00:00"} {
		if got, err := parseMoment("since", text, now); err == nil || !strings.Contains(err.Error(), "since") {
			t.Errorf("%q is %v, %v, want an error that names the argument", text, got, err)
		}
	}
}

// started is a job of this moment.
func started(change func(*load)) *load {
	l := &load{job.Load{JID: "20261121113344286549", User: "fred", TargetType: "glob"}}
	l.Fun, l.Target = value.Value{V: "test.ping"}, value.Value{V: "web*"}
	change(l)
	return l
}

// TestChosenJobs: each filter takes away, and none is not a filter.
func TestChosenJobs(t *testing.T) {
	at, err := salt.JID("20261121113344286549").Time()
	if err != nil {
		t.Fatal(err)
	}
	meta := map[string]any{"ticket": int64(17)}
	for _, test := range []struct {
		name string
		f    chosen
		l    func(*load)
		want bool
	}{
		{"no filter", chosen{}, func(*load) {}, true},
		{"internal", chosen{}, func(l *load) { l.Internal = true }, false},
		{"internal, wanted", chosen{internal: true}, func(l *load) { l.Internal = true }, true},
		{"the user", chosen{user: "fred"}, func(*load) {}, true},
		{"another user", chosen{user: "fre"}, func(*load) {}, false},
		{"until then", chosen{until: at}, func(*load) {}, true},
		{"until before", chosen{until: at.Add(-time.Second)}, func(*load) {}, false},
		{"a function", chosen{functions: []string{"test.*"}}, func(*load) {}, true},
		{"a module", chosen{functions: []string{"test"}}, func(*load) {}, true},
		{"a part of a module's name", chosen{functions: []string{"tes"}}, func(*load) {}, false},
		{"one of several", chosen{functions: []string{"x", "cmd.run"}}, func(l *load) { l.Fun.V = []any{"test.ping", "cmd.run"} }, true},
		{"none of several", chosen{functions: []string{"x"}}, func(l *load) { l.Fun.V = []any{"test.ping", "cmd.run"} }, false},
		{"a target", chosen{targets: []string{"web?"}}, func(*load) {}, true},
		{"an id of a list", chosen{targets: []string{"db1"}}, func(l *load) { l.TargetType, l.Target.V = "list", "web1,db1" }, true},
		{"no id of a list", chosen{targets: []string{"web1,db1x"}}, func(l *load) { l.TargetType, l.Target.V = "list", "web1,db1" }, false},
		{"metadata", chosen{metadata: meta}, func(l *load) { l.Metadata.V = map[string]any{"ticket": int64(17), "x": true} }, true},
		{"other metadata", chosen{metadata: meta}, func(l *load) { l.Metadata.V = map[string]any{"ticket": int64(18)} }, false},
		{"no metadata", chosen{metadata: meta}, func(*load) {}, false},
		{"no jid", chosen{}, func(l *load) { l.JID = "x" }, false},
	} {
		if got := test.f.takes(started(test.l)); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, test := range []struct {
		v    any
		want []string
	}{{"a,b", []string{"a", "b"}}, {[]any{"a,b", int64(7)}, []string{"a,b", "7"}}, {nil, nil}} {
		if got := patterns(test.v); !slices.Equal(got, test.want) {
			t.Errorf("%v: %q, want %q", test.v, got, test.want)
		}
	}
	for _, test := range []struct {
		pattern, list string
		want          bool
	}{{"", "x", true}, {"test.*", "cmd.run,test.ping", true}, {"test.*", "cmd.run,mytest.ping", false}, {"cmd.run", "cmd.run_all", false}} {
		if got := globs(test.pattern)(test.list); got != test.want {
			t.Errorf("%q matches %q: %v", test.pattern, test.list, got)
		}
	}
}

// TestHowAJobEndedOnAMinion: one function of several that failed is a failure, and who was
// killed has not succeeded, whatever it returned.
func TestHowAJobEndedOnAMinion(t *testing.T) {
	for _, test := range []struct {
		success any
		killed  string
		want    job.State
	}{
		{true, "", job.Done}, {false, "", job.Failed}, {nil, "", job.Done}, {true, "killed by signal 15", job.Killed},
		{map[string]any{"a": true, "b": true}, "", job.Done}, {map[string]any{"a": true, "b": false}, "", job.Failed},
	} {
		r := ret{Killed: test.killed}
		r.Success.V = test.success
		if got := r.state()["state"]; got != string(test.want) || r.succeeded() != (test.want == job.Done) {
			t.Errorf("success %v, killed %q: %v, %v, want %v", test.success, test.killed, got, r.succeeded(), test.want)
		}
	}
}

func TestHardwareAddresses(t *testing.T) {
	for _, text := range []string{"08:00:27:13:69:77", "08-00-27-13-69-77", "0800.2713.6977", "080027136977"} {
		mac, err := parseMAC(text)
		if err != nil || mac.String() != "08:00:27:13:69:77" {
			t.Errorf("%q is %v, %v", text, mac, err)
		}
	}
	for _, text := range []string{"", "08:00:27:13:69", "08:00:27:13:69:77:00", "zz:00:27:13:69:77"} {
		if mac, err := parseMAC(text); err == nil || salt.Hint(err) == "" {
			t.Errorf("%q is %v", text, mac)
		}
	}
	mac, _ := parseMAC("080027136977")
	if p := magicPacket(mac); len(p) != 102 || !bytes.Equal(p[:6], bytes.Repeat([]byte{0xff}, 6)) || !bytes.Equal(p[96:], mac) {
		t.Errorf("the packet is % x", p)
	}
	grains := map[string]any{"hwaddr_interfaces": map[string]any{"lo": "00:00:00:00:00:00", "eth0": "08:00:27:13:69:77", "tun0": "", "odd": 7}}
	if got := hardwareAddresses(grains); !slices.Equal(got, []string{"08:00:27:13:69:77"}) {
		t.Errorf("of the grains are taken %q", got)
	}
}

// TestSecretsAreNoArguments: what the journal would keep is refused, and what it keeps of a
// made token opens nothing.
func TestSecretsAreNoArguments(t *testing.T) {
	token := strings.Repeat("ab", 32)
	for _, test := range []struct {
		c       job.Command
		refused bool
	}{
		{job.Command{Function: "auth.mk_token", Kwargs: map[string]any{"username": "fred"}}, false},
		{job.Command{Function: "auth.mk_token", Kwargs: map[string]any{"password": "x"}}, true},
		{job.Command{Function: "auth.del_token", Args: []any{token}}, true},
		{job.Command{Function: "auth.del_token", Args: []any{" " + token + "\n"}}, true},
		{job.Command{Function: "auth.del_token", Kwargs: map[string]any{"token": token}}, true},
		{job.Command{Function: "auth.del_token", Args: []any{token[:12]}}, false},
		{job.Command{Function: "test.arg", Args: []any{token}, Kwargs: map[string]any{"password": "x"}}, false},
	} {
		if err := CheckSecrets(test.c); (err != nil) != test.refused || err != nil && (salt.Hint(err) == "" || strings.Contains(err.Error(), token)) {
			t.Errorf("%+v: %v, want a refusal: %v", test.c, err, test.refused)
		}
	}
	made := map[string]any{"token": token, "name": "fred"}
	if got := Shown("auth.mk_token", made).(map[string]any); got["token"] != nil || got["name"] != "fred" || made["token"] == nil {
		t.Errorf("shown is %v, and the caller has %v", got, made)
	}
	if got := Shown("test.arg", made).(map[string]any); got["token"] == nil {
		t.Error("what another runner returned is cut")
	}
}

// TestHealth: the levels, where they begin, and what raises them.
func TestHealth(t *testing.T) {
	for _, test := range []struct {
		name          string
		away          int
		kwargs        map[string]any
		unread, store string
		want          int
		says          string
	}{
		{"all are there", 0, nil, "", "", healthOK, "OK: 3 of 3 accepted minions are connected"},
		{"one is away", 1, nil, "", "", healthWarning, "away: m0"},
		{"all are away", 3, nil, "", "", healthCritical, "0 of 3"},
		{"fewer than warning", 1, map[string]any{"warning": 2}, "", "", healthOK, "OK"},
		{"as many as critical", 2, map[string]any{"critical": 2}, "", "", healthCritical, "CRITICAL"},
		{"a configuration that is not in force", 0, nil, "line 3", "", healthWarning, "line 3"},
		{"that, and all are away", 3, nil, "line 3", "", healthCritical, "line 3"},
		{"a journal that cannot be written", 0, nil, "", "no space", healthCritical, "no space"},
	} {
		h := &Host{
			Cluster: ofCluster{err: ErrAlone}, Accepted: accepted{"m0", "m1", "m2"}, Presence: away(test.away), Settings: settings{unread: test.unread}, Journal: store{why: test.store},
		}
		res := Table(h).Run(context.Background(), function.Call{Function: "status.health", Kwargs: test.kwargs, Reach: salt.Reach{Free: true}})
		if text := fmt.Sprint(res.Return); res.Retcode != test.want || !strings.Contains(text, test.says) || strings.Contains(text, "\n") {
			t.Errorf("%s: %d %q, want %d with %q", test.name, res.Retcode, text, test.want, test.says)
		}
	}
	for _, kwargs := range []map[string]any{{"warning": 0}, {"critical": 0}} {
		if res := call(t, Table(&Host{Accepted: accepted{}}), "status.health", nil, kwargs); res.Err == nil {
			t.Errorf("%v is taken: %v", kwargs, res.Return)
		}
	}
}

// ofCluster is a cluster with this state.
type ofCluster struct {
	Cluster
	status ClusterStatus
	err    error
}

func (c ofCluster) ClusterStatus(context.Context) (ClusterStatus, error) { return c.status, c.err }

// TestHealthOfACluster: a member that should run and does not, and copies that lack, are a warning.
func TestHealthOfACluster(t *testing.T) {
	runs := func(name string) MemberStatus { return MemberStatus{Name: name, Running: true} }
	for name, c := range map[string]struct {
		status ClusterStatus
		err    error
		want   int
		says   string
	}{
		"all run":            {ClusterStatus{Members: []MemberStatus{runs("a"), runs("b")}}, nil, healthOK, "OK: 1 of 1 accepted minions are connected"},
		"removed and left":   {ClusterStatus{Members: []MemberStatus{runs("a"), {Name: "b", Removed: true}, {Name: "c", Left: time.Now()}}}, nil, healthOK, "OK: 1 of 1 accepted minions are connected"},
		"one does not run":   {ClusterStatus{Members: []MemberStatus{runs("a"), {Name: "b"}, {Name: "c", Removed: true}}}, nil, healthWarning, "1 of 2 members of the cluster run; not running: b"},
		"copies lack":        {ClusterStatus{Members: []MemberStatus{runs("a")}, Lacking: map[string]string{"x": "", "y": ""}}, nil, healthWarning, "2 streams without all copies"},
		"it cannot be asked": {ClusterStatus{}, errors.New("no route"), healthWarning, "no route"},
	} {
		h := &Host{Cluster: ofCluster{status: c.status, err: c.err}, Accepted: accepted{"m0"}, Presence: away(0), Settings: settings{}, Journal: store{}}
		res := Table(h).Run(context.Background(), function.Call{Function: "status.health", Reach: salt.Reach{Free: true}})
		if text := fmt.Sprint(res.Return); res.Retcode != c.want || !strings.HasSuffix(text, c.says) {
			t.Errorf("%s: %d %q, want %d with %q", name, res.Retcode, text, c.want, c.says)
		}
	}
}

func TestParentsOfFiles(t *testing.T) {
	if got := parents("a/b/c.txt"); !slices.Equal(got, []string{"a/b", "a"}) {
		t.Errorf("%q", got)
	}
	if got := parents("c.txt"); got != nil {
		t.Errorf("%q", got)
	}
}

// accepted implements Accepted.
type accepted []salt.MinionID

func (a accepted) IDs() []salt.MinionID { return a }

// away implements Presence: so many of the first minions are not there.
type away int

func (a away) Connected(id salt.MinionID) (bool, time.Time) {
	return id >= salt.MinionID(fmt.Sprint("m", int(a))), time.Time{}
}

// settings implements what status.health needs of Settings.
type settings struct {
	Settings
	unread string
}

func (s settings) Unreloaded() string { return s.unread }

// store implements what status.health needs of Journal.
type store struct {
	Journal
	why string
}

func (s store) StoreErr() error {
	if s.why == "" {
		return nil
	}
	return errors.New(s.why)
}
