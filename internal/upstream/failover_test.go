package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/test/documented"
)

// failoverCase is one case of testdata/failover.json, which describes itself.
type failoverCase struct {
	ID, Kind string
	Config   json.RawMessage
	Role     string
	Up       [][]string
	Attempts []string
	Exit     int
	Error    string
	Steps    []struct {
		Up, Attempts  []string
		Event, Master string
	}
	Masters  []any
	Waits    []float64
	Answers  []string
	Accepted bool
	Verdict  string
}

// different are the cases in which Brine does another thing than Salt, with the
// reason.
var different = map[string]string{
	"master_failover-0148": "a list with master_type str is no failover: all masters are in use, see the cases of kind spawn",
	"master_failover-0150": "a list with master_type str is no failover: all masters are in use, see the cases of kind spawn",
	"master_failover-0165": "random_master goes before its older name master_shuffle, as all new names do",
	"master_failover-0176": "a name with a port that is no number is one master that cannot be reached; Salt stops",
	"master_failover-0180": "an empty name is one master that cannot be reached; Salt stops",
	"master_failover-0206": "ip_only does not make a name an error; Salt stops",
	"master_failover-0194": "there is no syndic: master_type is the minion's",
	"master_failover-0217": "the second master is left only once the first one has taken the minion; Salt leaves it, and comes back",
	"master_failover-0231": "a master with a port of its own is known as the one that failed; Salt tries it again first",
	"master_failover-0233": "the first master is in use, so there is nothing to go back to; Salt connects anew",
	"master_failover-0246": "func is refused when the configuration is read",
	"master_failover-0251": "the pause never exceeds acceptance_wait_time_max; Salt overshoots it",
	"master_failover-0259": "a key that waits is not asked for again: the master tells when it is accepted",
}

func readFailoverCases(t *testing.T, kind string) (cases []failoverCase) {
	t.Helper()
	text, err := os.ReadFile("testdata/failover.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []failoverCase }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, c := range file.Cases {
		if c.Kind == kind {
			cases = append(cases, c)
		}
	}
	if len(cases) == 0 {
		t.Fatalf("no cases of kind %s", kind)
	}
	return cases
}

// check compares what Brine does with what Salt did.
func check(t *testing.T, id string, got, want any) {
	t.Helper()
	equal := fmt.Sprint(got) == fmt.Sprint(want)
	switch reason := different[id]; {
	case !equal && reason == "":
		t.Errorf("%s: %v, Salt: %v", id, got, want)
	case equal && reason != "":
		t.Errorf("%s is listed as a difference and is none: %v", id, got)
	}
}

// load reads settings as a minion would.
func load(t *testing.T, settings json.RawMessage) (*config.Minion, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "minion"), append([]byte("# "+dir+"\n"), settings...), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.LoadMinion(dir)
	return cfg, err
}

// rosterOf is the roster of these settings, which shuffles as the cases do. There
// is none for settings that are refused.
func rosterOf(t *testing.T, settings json.RawMessage) *roster {
	t.Helper()
	cfg, err := load(t, settings)
	if err != nil {
		return nil
	}
	rosters := newRosters(cfg)
	if len(rosters) != 1 {
		return nil
	}
	if r := rosters[0]; r.shuffle != nil {
		r.shuffle = func(n int, swap func(i, j int)) {
			for i := range n / 2 {
				swap(i, n-1-i)
			}
		}
	}
	return rosters[0]
}

// attemptsOf tries the masters of one round, the first of which that is up is used.
// A name without an address is no attempt, as in the cases.
func attemptsOf(r *roster, up func(n int) []string, before int) (attempts []string, used string) {
	known := []string{"A", "B", "C", "salt", "m1.example.com", "m2.example.com"}
	for _, name := range r.round() {
		host := name
		if h, _, err := net.SplitHostPort(name); err == nil {
			host = h
		}
		now := up(before + len(attempts))
		if !slices.Contains(known, host) && !slices.Contains(now, host) {
			continue
		}
		attempts = append(attempts, host)
		if slices.Contains(now, host) {
			return attempts, host
		}
	}
	return attempts, ""
}

func TestOrderOfMastersAsInSalt(t *testing.T) {
	for _, c := range readFailoverCases(t, "eval_master") {
		up := func(n int) []string { return c.Up[min(n, len(c.Up)-1)] }
		var attempts []string
		if r := rosterOf(t, c.Config); r != nil && c.Role == "" {
			for used := ""; used == "" && len(attempts) < max(len(c.Attempts), 1); {
				var more []string
				if more, used = attemptsOf(r, up, len(attempts)); len(more) == 0 {
					break
				}
				attempts = append(attempts, more...)
			}
		}
		check(t, c.ID, attempts, c.Attempts)
	}
}

func TestCourseOfFailoverAsInSalt(t *testing.T) {
	for _, c := range readFailoverCases(t, "scenario") {
		r := rosterOf(t, c.Config)
		var got, want [][]string
		current := ""
		for _, step := range c.Steps {
			up := func(int) []string { return step.Up }
			var attempts []string
			switch step.Event {
			case "__master_disconnected":
				if step.Master == current {
					r.failed(r.masters[slices.IndexFunc(r.masters, func(m string) bool {
						return strings.TrimSuffix(m, ":4510") == current || strings.TrimSuffix(m, ":4511") == current
					})])
					attempts, current = attemptsOf(r, up, 0)
				}
			case "__master_failback":
				if first := r.first(); first == step.Master && first != current && slices.Contains(step.Up, first) {
					attempts, current = []string{first}, first
				}
			default:
				attempts, current = attemptsOf(r, up, 0)
			}
			got, want = append(got, attempts), append(want, step.Attempts)
		}
		check(t, c.ID, got, want)
	}
}

func TestNumberOfUplinksAsInSalt(t *testing.T) {
	for _, c := range readFailoverCases(t, "spawn") {
		n := 0
		if cfg, err := load(t, c.Config); err == nil {
			n = len(newRosters(cfg))
		}
		check(t, c.ID, n, len(c.Masters))
	}
}

func TestPausesAsInSalt(t *testing.T) {
	for _, c := range append(readFailoverCases(t, "connect_retry"), readFailoverCases(t, "authenticate_retry")...) {
		if len(c.Waits) == 0 {
			continue // it says nothing about pauses
		}
		cfg, err := load(t, c.Config)
		if err != nil {
			t.Fatal(err)
		}
		p := pauses{cfg: cfg}
		var got []float64
		for range c.Waits {
			if c.Kind == "connect_retry" {
				got = append(got, p.refused().Seconds())
			}
		}
		check(t, c.ID, got, c.Waits)
	}
}

func TestAnswersOfAMasterAsInSalt(t *testing.T) {
	for _, c := range readFailoverCases(t, "signin_answer") {
		cfg, err := load(t, c.Config)
		if err != nil {
			t.Fatal(err)
		}
		u := (&Uplinks{Setup: Setup{Config: cfg}}).add(&roster{masters: []string{"a"}})
		answer := errAccepted // one that waits, until it is accepted
		if !c.Accepted {
			answer = ErrRejected
		}
		got := "retry"
		if u.ends(answer) {
			got = "exit 77"
		}
		check(t, c.ID, got, c.Verdict)
	}
}

func TestPauses(t *testing.T) {
	cfg := config.NewMinion()
	p := pauses{cfg: cfg}
	for i := range 20 {
		if d, low := p.unreachable(), min(firstPause<<i, cfg.ReconMax); d < low || d > 2*low {
			t.Errorf("pause %d: %s, want %s and up to as much again", i, d, low)
		}
	}
	for i := range 20 {
		if d, low := p.nameless(), min(firstPause<<i, cfg.RetryDNS); d < low || d > low+cfg.RandomReauthDelay {
			t.Errorf("pause %d after a name without an address: %s, want %s and a random part", i, d, low)
		}
	}
	p.reset()
	cfg.RandomReauthDelay = 0
	if d := p.unreachable(); d != firstPause {
		t.Errorf("without a random part, anew: %s", d)
	}
	cfg.ReconMax, cfg.ReconRandomize, cfg.RandomReauthDelay = 2*time.Second, false, time.Hour
	for range 20 {
		p.unreachable()
	}
	if d := p.unreachable(); d != 2*time.Second {
		t.Errorf("recon_max 2 s, not random: %s", d)
	}
}

// TestWhatFollowsFromARound has an uplink judge rounds that found no master.
func TestWhatFollowsFromARound(t *testing.T) {
	zero := 0
	for name, c := range map[string]struct {
		change  func(*config.Minion)
		masters string
		err     error
		ends    bool
	}{
		"unreachable":                     {nil, "a", errors.New("x"), false},
		"rejected":                        {nil, "a", ErrRejected, true},
		"rejected, a list":                {nil, "a b", ErrRejected, true},
		"rejected_retry":                  {func(c *config.Minion) { c.RejectedRetry = true }, "a", ErrRejected, false},
		"rejected_retry, another refusal": {func(c *config.Minion) { c.RejectedRetry = true }, "a", ErrSignature, true},
		"auth_safemode":                   {func(c *config.Minion) { c.AuthSafemode = true }, "a", ErrSignature, false},
		"too many keys wait":              {nil, "a", errFull, false},
		"no address":                      {nil, "a", ErrNoAddress, false},
		"no address, retry_dns_count":     {func(c *config.Minion) { c.RetryDNSCount = &zero }, "a", ErrNoAddress, true},
		"no address, a list":              {func(c *config.Minion) { c.RetryDNSCount = &zero }, "a b", ErrNoAddress, false},
		"no address, retry_dns 0":         {func(c *config.Minion) { c.RetryDNSCount, c.RetryDNS = &zero, 0 }, "a", ErrNoAddress, false},
		"master_tries":                    {func(c *config.Minion) { c.MasterTries = 1 }, "a", errors.New("x"), false},
	} {
		cfg := config.NewMinion()
		if c.change != nil {
			c.change(cfg)
		}
		all := &Uplinks{Setup: Setup{Config: cfg, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}}
		u := all.add(&roster{masters: strings.Fields(c.masters)})
		pause, err := u.judge(fmt.Errorf("round: %w", c.err))
		if (err != nil) != c.ends || err == nil && pause <= 0 {
			t.Errorf("%s: pause %s, %v; want an end: %v", name, pause, err, c.ends)
		}
		if err != nil && !errors.Is(err, c.err) {
			t.Errorf("%s: ends with %v", name, err)
		}
	}
}

// TestAServiceIsNotEnded has nobody who would start it again.
func TestAServiceIsNotEnded(t *testing.T) {
	cfg := config.NewMinion()
	all := &Uplinks{Setup: Setup{Config: cfg, Service: true, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}}
	u := all.add(&roster{masters: []string{"a"}})
	for _, refusal := range []error{ErrMasterKey, ErrSignature, ErrRejected, ErrDenied} {
		u.pauses.reset()
		want := cfg.AcceptanceWaitTime
		for i := range 10 {
			pause, err := u.judge(fmt.Errorf("round %d: %w", i, refusal))
			if err != nil || pause < want || pause >= 2*want {
				t.Errorf("%v, round %d: pause %s, %v; want %s and up to as much again", refusal, i, pause, err, want)
			}
			want = min(2*want, longestBar)
		}
	}
	u.pauses.reset()
	cfg.AcceptanceWaitTime, cfg.AcceptanceWaitTimeMax = 0, time.Second
	for range 10 {
		if pause := u.pauses.barred(); pause < firstPause || pause >= 2*time.Second {
			t.Errorf("up to a second: %s", pause)
		}
	}
}

// TestAllUplinksRefused ends the minion only when no uplink is left.
func TestAllUplinksRefused(t *testing.T) {
	all := &Uplinks{Setup: Setup{Config: config.NewMinion(), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}}
	for _, name := range []string{"a", "b", "c"} {
		all.add(&roster{masters: []string{name}})
	}
	for _, step := range []struct {
		uplink int
		err    error
		ends   bool
	}{
		{0, ErrRejected, false}, {1, ErrSignature, false}, {0, ErrRejected, false}, {1, errors.New("unreachable"), false},
		{2, ErrMasterKey, false}, {1, ErrDenied, true},
	} {
		if _, err := all.list[step.uplink].judge(step.err); (err != nil) != step.ends {
			t.Errorf("uplink %d, %v: %v", step.uplink, step.err, err)
		}
	}
}

// TestDoubts keeps a first master waiting that does not last.
func TestDoubts(t *testing.T) {
	cfg := config.NewMinion()
	cfg.MasterAliveInterval = time.Second
	u := (&Uplinks{Setup: Setup{Config: cfg}}).add(&roster{masters: []string{"a", "b"}, failback: true})
	back := &Session{Name: "a", first: true}
	for i := range 10 {
		if got, want := u.failbackInterval(), time.Second<<min(i, maxDoubts); got != want {
			t.Errorf("after %d short sessions: %s, want %s", i, got, want)
		}
		u.doubt(back, time.Second)
	}
	u.doubt(&Session{Name: "b"}, time.Hour)
	if u.failbackInterval() == time.Second {
		t.Error("another master's session says nothing of the first")
	}
	u.doubt(back, time.Hour)
	if got := u.failbackInterval(); got != time.Second {
		t.Errorf("after a long session: %s", got)
	}
}

func TestDifferencesOfFailoverAreDocumented(t *testing.T) {
	documented.Differences(t, slices.Collect(maps.Values(different))...)
}
