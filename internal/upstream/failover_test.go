package upstream

import (
	"context"
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
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
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
	Accepted bool
	Verdict  string
}

// different are the cases in which Brine does another thing than Salt, with the
// reason.
var different = map[string]string{
	"master_failover-0148": "a list with master_type str is not failover: all masters are in use",
	"master_failover-0150": "a list with master_type str is not failover: all masters are in use",
	"master_failover-0165": "random_master has precedence over its older name master_shuffle, like all new names",
	"master_failover-0176": "a name with a port that is not a number is one master that cannot be reached; Salt's minion ends",
	"master_failover-0180": "an empty name is one master that cannot be reached; Salt's minion ends",
	"master_failover-0194": "there is no syndic: master_type is a setting of the minion only",
	"master_failover-0217": "the minion leaves the second master only when the first one has accepted it; Salt's minion leaves it first, and comes back",
	"master_failover-0231": "a master that failed is recognised although its name has a port; Salt's minion tries it again first",
	"master_failover-0233": "if the first master is in use there is nothing to go back to; Salt's minion connects again",
	"master_failover-0246": "master_type func is refused when the configuration is read",
	"master_failover-0251": "the pause never exceeds acceptance_wait_time_max; in Salt it can",
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
func check(t *testing.T, count *documented.Comparison, id string, got, want any) {
	t.Helper()
	equal := fmt.Sprint(got) == fmt.Sprint(want)
	count.Count(documented.Refusal(equal, true, true))
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

// play is an uplink whose masters are played, in a bubble of synctest: all else is what a
// minion does.
type play struct {
	u        *Uplink
	mu       sync.Mutex
	up       func(n int) []string // the masters that take the minion at the attempt n
	attempts []string
	close    func() // ends the connection in use
}

// hosts are the names that have an address.
var hosts = []string{"A", "B", "C", "salt", "m1.example.com", "m2.example.com"}

// begin lets the minion look for its masters, until the test ends it.
func begin(t *testing.T, cfg *config.Minion, r *roster, up func(n int) []string) (p *play, end func()) {
	cfg.RandomStartupDelay = 0
	p = &play{up: up}
	log := slog.New(slog.DiscardHandler)
	p.u = (&Uplinks{Setup: Setup{Config: cfg, Service: true, Daemon: idle{}, Announce: func(string, map[string]any) {}, Log: log}}).add(r)
	p.u.log, p.u.dial, p.u.all.cluster = log, p.dial, r.cluster
	p.u.greet = func(_ context.Context, l *Connection, name string) (*Session, error) {
		return &Session{Connection: l, Up: p.u, Name: name, begun: make(chan struct{}), leave: make(chan struct{})}, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.u.Keep(ctx) }()
	synctest.Wait()
	return p, func() {
		cancel()
		<-ended // also with an error, where no name has an address
	}
}

// dial is an attempt. A name without an address is none, as in the cases.
func (p *play) dial(_ context.Context, name string) (*Connection, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, host := p.up(len(p.attempts)), hostOf(name)
	if !slices.Contains(hosts, host) && !slices.Contains(now, host) {
		return nil, ErrNoAddress
	}
	p.attempts = append(p.attempts, host)
	if !slices.Contains(now, host) {
		return nil, errors.New("nobody listens")
	}
	closed := make(chan struct{})
	p.close = sync.OnceFunc(func() { close(closed) })
	return &Connection{Conn: &rpc.Conn{}, Closed: closed, answer: protocol.AskAnswer{State: protocol.KeyAccepted}}, nil
}

// tried are the attempts so far.
func (p *play) tried() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.attempts)
}

// current is the host of the master in use, "" for none.
func (p *play) current() string {
	if s := p.u.Session(); s != nil {
		return hostOf(s.Name)
	}
	return ""
}

func hostOf(name string) string {
	if host, _, err := net.SplitHostPort(name); err == nil {
		return host
	}
	return name
}

// idle is a minion that does nothing with a session.
type idle struct{}

func (idle) Facts(context.Context) (map[string]any, error) { return nil, nil }
func (idle) Job(*Session, []byte)                          {}
func (idle) Attend(ctx context.Context, _ *Session)        { <-ctx.Done() }

func TestOrderOfMastersAsInSalt(t *testing.T) {
	var count documented.Comparison
	for _, c := range readFailoverCases(t, "eval_master") {
		cfg, err := load(t, c.Config)
		r := rosterOf(t, c.Config)
		if err != nil || r == nil || c.Role != "" {
			check(t, &count, c.ID, []string(nil), c.Attempts)
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			p, end := begin(t, cfg, r, func(n int) []string { return c.Up[min(n, len(c.Up)-1)] })
			defer end()
			for range 100_000 { // rounds follow each other after pauses
				if p.current() != "" || len(p.tried()) >= len(c.Attempts) {
					break
				}
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
			}
			check(t, &count, c.ID, p.tried(), c.Attempts)
		})
	}
	count.Stands(t, "order of masters")
}

func TestFailoverFollowsSalt(t *testing.T) {
	var count documented.Comparison
	for _, c := range readFailoverCases(t, "scenario") {
		cfg, err := load(t, c.Config)
		if err != nil {
			t.Fatal(err)
		}
		r := rosterOf(t, c.Config)
		synctest.Test(t, func(t *testing.T) {
			up := c.Steps[0].Up
			p, end := begin(t, cfg, r, func(int) []string { return up })
			defer end()
			var got, want [][]string
			for i, step := range c.Steps {
				if i > 0 {
					p.mu.Lock()
					p.attempts, up = nil, step.Up
					p.mu.Unlock()
					p.happen(step.Event, step.Master)
				}
				got, want = append(got, p.tried()), append(want, step.Attempts)
			}
			check(t, &count, c.ID, got, want)
		})
	}
	count.Stands(t, "course of a failover")
}

// happen has the connection to a master end, if it is the one in use: no other can end. Or
// it lets the time pass after which a minion looks for its first master: no other is looked
// for.
func (p *play) happen(event, master string) {
	switch {
	case event == "__master_disconnected" && p.current() == master:
		time.Sleep(2 * shortSession)
		p.mu.Lock()
		p.close()
		p.mu.Unlock()
	case event == "__master_failback" && p.u.roster.masters[0] == master:
		time.Sleep(p.u.failbackInterval() + time.Millisecond)
	}
	synctest.Wait()
}

func TestUplinksAsInSalt(t *testing.T) {
	var count documented.Comparison
	for _, c := range readFailoverCases(t, "spawn") {
		got, want := [][]string{}, [][]string{}
		if cfg, err := load(t, c.Config); err == nil {
			for _, r := range newRosters(cfg) {
				var names []string
				for _, name := range r.masters {
					names = append(names, hostOf(name))
				}
				slices.Sort(names) // their order is what the cases of kind eval_master are about
				got = append(got, names)
			}
		}
		for _, m := range c.Masters {
			list, ok := m.([]any)
			if !ok {
				list = []any{m}
			}
			var names []string
			for _, name := range list {
				names = append(names, fmt.Sprint(name))
			}
			want = append(want, names)
		}
		check(t, &count, c.ID, got, want)
	}
	count.Stands(t, "masters in use")
}

func TestPausesAsInSalt(t *testing.T) {
	var count documented.Comparison
	for _, c := range readFailoverCases(t, "connect_retry") {
		cfg, err := load(t, c.Config)
		if err != nil {
			t.Fatal(err)
		}
		p := pauses{cfg: cfg}
		var got []float64
		for range c.Waits {
			got = append(got, p.refused().Seconds())
		}
		check(t, &count, c.ID, got, c.Waits)
	}
	count.Stands(t, "pauses")
}

func TestAnswersOfAMasterAsInSalt(t *testing.T) {
	var count documented.Comparison
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
		check(t, &count, c.ID, got, c.Verdict)
	}
	count.Stands(t, "answers of a master")
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

// TestDecisionAfterAFailedRound has an uplink judge rounds that found no master.
func TestDecisionAfterAFailedRound(t *testing.T) {
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

// TestARefusalNamesItsMaster: each of several masters may have its own reason, and way out.
func TestARefusalNamesItsMaster(t *testing.T) {
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, nil))
	refusals := map[string]error{"a": salt.WithHint(ErrMasterKey, "compare"), "b": salt.WithHint(ErrDenied, "delete"), "c": salt.WithHint(ErrDenied, "delete")}
	u := (&Uplinks{Setup: Setup{Config: config.NewMinion(), Service: true, Daemon: idle{}, Log: log}}).add(&roster{masters: []string{"a", "b", "c"}})
	u.log = log
	u.dial = func(_ context.Context, name string) (*Connection, error) { return nil, refusals[name] }
	err := u.tryAll(t.Context())
	if _, end := u.judge(err); end != nil {
		t.Fatal(end)
	}
	for name, refusal := range refusals {
		if want := "master " + name + ": " + refusal.Error(); !strings.Contains(err.Error(), want) || !errors.Is(err, refusal) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, "nothing is run") || !strings.Contains(last, "master b: ") || !strings.HasSuffix(last, ` hint="compare; delete"`) {
		t.Errorf("the log ends with %s", last)
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
	unseen := maps.Clone(different)
	for _, kind := range []string{"eval_master", "scenario", "spawn", "connect_retry", "signin_answer"} {
		for _, c := range readFailoverCases(t, kind) {
			delete(unseen, c.ID)
		}
	}
	for id := range unseen {
		t.Errorf("%s is listed as different, and is not a case", id)
	}
}
