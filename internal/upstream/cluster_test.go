package upstream

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
)

// settings is a minion with these settings, below a directory of its own.
func settings(t *testing.T, text string) *config.Minion {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "minion"), []byte("root_dir: "+dir+"\nid: web1\n"+text), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.LoadMinion(dir)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func openCluster(t *testing.T, cfg *config.Minion) *Cluster {
	t.Helper()
	c := OpenCluster(cfg, slog.New(slog.DiscardHandler))
	if c == nil {
		t.Fatal("the minion uses no members")
	}
	return c
}

// cluster has members that run, with their addresses at the names of hosts.
func cluster(names ...string) *protocol.Cluster {
	c := &protocol.Cluster{}
	for _, name := range names {
		c.Members = append(c.Members, protocol.Member{Name: strings.ToLower(name), Address: name + ":4506", Running: true})
	}
	return c
}

func TestMembersAreKeptAndForgotten(t *testing.T) {
	const one = "master: A\n"
	cfg := settings(t, one)
	finger := generate(t).Public()
	listed := cluster("A", "B", "C")
	listed.Members[1].Key = finger.SHA256()
	file := filepath.Join(cfg.PKIDir, clusterFile)
	if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
		t.Fatal(err)
	}
	openCluster(t, cfg).learn(finger, listed)
	if got := fmt.Sprint(openCluster(t, cfg).Masters()); got != "[A B:4506 C:4506]" {
		t.Errorf("after a restart the masters are %s", got)
	}
	if list, _ := openCluster(t, cfg).now(); !list.named(finger) {
		t.Error("the key of a member is not kept")
	}
	other := *cfg
	other.Master = []string{"D"}
	if got := fmt.Sprint(openCluster(t, &other).Masters()); got != "[D]" {
		t.Errorf("with another master in the configuration the masters are %s", got)
	}

	c := openCluster(t, cfg)
	listed.Members[1].Key = "" // by a member that has not met it yet
	c.learn(finger, listed)
	if list, _ := c.now(); !list.named(finger) {
		t.Error("a key that a master does not know is forgotten")
	}
	c.learn(finger, cluster("A", "C"))
	if list, _ := openCluster(t, cfg).now(); list.named(finger) || len(list) != 2 {
		t.Errorf("a member that is no longer named is kept: %v", list)
	}
	c.learn(finger, nil)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the members of a single master: %v", err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(openCluster(t, cfg).Masters()); got != "[A]" {
		t.Errorf("with a damaged file the masters are %s", got)
	}
}

// What a master names is checked, also when it is read from the file.
func TestNonsenseIsNoMember(t *testing.T) {
	good := protocol.Member{Name: "m", Address: "h:1"}
	change := func(f func(*protocol.Member)) protocol.Member {
		m := good
		f(&m)
		return m
	}
	for what, m := range map[string]protocol.Member{
		"no name":               change(func(m *protocol.Member) { m.Name = "" }),
		"a long name":           change(func(m *protocol.Member) { m.Name = strings.Repeat("m", maxNameLen+1) }),
		"a line in the name":    change(func(m *protocol.Member) { m.Name = "a\nb" }),
		"no port":               change(func(m *protocol.Member) { m.Address = "h" }),
		"port 0":                change(func(m *protocol.Member) { m.Address = "h:0" }),
		"a large port":          change(func(m *protocol.Member) { m.Address = "h:65536" }),
		"the name of a port":    change(func(m *protocol.Member) { m.Address = "h:ssh" }),
		"no host":               change(func(m *protocol.Member) { m.Address = ":1" }),
		"every address":         change(func(m *protocol.Member) { m.Address = "[::]:1" }),
		"many hosts":            change(func(m *protocol.Member) { m.Address = "224.0.0.1:1" }),
		"a path":                change(func(m *protocol.Member) { m.Address = "../h:1" }),
		"a user":                change(func(m *protocol.Member) { m.Address = "u@h:1" }),
		"a long host":           change(func(m *protocol.Member) { m.Address = strings.Repeat("h", maxHostLen+1) + ":1" }),
		"a key that is none":    change(func(m *protocol.Member) { m.Key = "aa:bb" }),
		"a key with other text": change(func(m *protocol.Member) { m.Key = strings.Repeat("zz:", 31) + "zz" }),
	} {
		if _, err := checkMember(m); err == nil {
			t.Errorf("%s: %+v is accepted", what, m)
		}
	}
	if m, err := checkMember(good); err != nil || m != good {
		t.Errorf("%+v: %+v, %v", good, m, err)
	}
	c := openCluster(t, settings(t, "master: A\n"))
	var many []protocol.Member
	for i := range 2 * protocol.MaxMembers {
		many = append(many, protocol.Member{Name: fmt.Sprint("m", i), Address: fmt.Sprint("h", i, ":1")})
	}
	if got := len(c.checked(many)); got != protocol.MaxMembers {
		t.Errorf("%d members are remembered", got)
	}
	if got := c.checked([]protocol.Member{good, {Name: "m", Address: "i:1"}, {Name: "n", Address: "h:01"}}); len(got) != 1 {
		t.Errorf("members that are named twice: %v", got)
	}
}

func TestWhoUsesMembers(t *testing.T) {
	for text, want := range map[string]string{
		"master: A\n":                             "home",
		"master: A\nmaster_cluster: False\n":      "none",
		"master: [A]\n":                           "home",
		"master: [A, B]\n":                        "none", // all at once
		"master: [A, B]\nmaster_type: failover\n": "after",
		"master: [A, B]\nmaster_type: failover\nrandom_master: True\n":                          "home",
		"master: [A, B]\nmaster_type: failover\nrandom_master: True\nmaster_failback: True\n":   "after",
		"master: [A, B]\nmaster_type: distributed\n":                                            "after",
		"master: A\nmaster_type: disable\n":                                                     "none",
		"master: A\nnats_servers: ['h:4222']\nnats_finger: " + strings.Repeat("aa:", 31) + "aa": "none",
	} {
		cfg := settings(t, text)
		c := OpenCluster(cfg, slog.New(slog.DiscardHandler))
		got := "none"
		if rosters := newRosters(cfg); c != nil && len(rosters) == 1 {
			r := rosters[0]
			r.join(c, cfg)
			if got = "after"; r.spreads {
				got = "home"
			}
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// Members get the same number of minions, and a loss moves only those of the lost one, to each of
// the others as many.
func TestMinionsDistributeEvenly(t *testing.T) {
	const n = 3000
	homeOf := func(i int, list members) string {
		c := &Cluster{id: salt.MinionID(fmt.Sprintf("web%d.example.com", i)), known: learned{Members: list}}
		m, _, _ := c.home()
		return m.Name
	}
	all := members(cluster("A", "B", "C").Members)
	lost := slices.Clone(all)
	lost[0].Running = false
	before, after := map[string]int{}, map[string]int{}
	for i := range n {
		was, is := homeOf(i, all), homeOf(i, lost)
		before[was]++
		if was == "a" {
			after[is]++
		} else if is != was {
			t.Fatalf("minion %d of %s moves to %s although %s runs", i, was, is, was)
		}
	}
	for name, count := range before {
		if count < n/3*9/10 || count > n/3*11/10 {
			t.Errorf("%s has %d of %d minions", name, count, n)
		}
	}
	if len(after) != 2 || after["b"] < before["a"]*4/10 || after["c"] < before["a"]*4/10 {
		t.Errorf("the minions of the lost one are at %v", after)
	}
}

func TestOrderWithMembers(t *testing.T) {
	r := func(text string, listed *protocol.Cluster) *roster {
		cfg := settings(t, text)
		if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
			t.Fatal(err)
		}
		r := newRosters(cfg)[0]
		r.join(openCluster(t, cfg), cfg)
		r.cluster.learn(generate(t).Public(), listed)
		return r
	}
	list := r("master: [A, B]\nmaster_type: failover\n", cluster("C", "B"))
	if got := fmt.Sprint(list.round()); got != "[A B C:4506]" {
		t.Errorf("a list, then the other members: %s", got)
	}
	list.failed("A")
	if got := fmt.Sprint(list.round()); got != "[B C:4506 A]" {
		t.Errorf("after a loss: %s", got)
	}
	list.cluster.learn(generate(t).Public(), cluster("B", "D"))
	if got := fmt.Sprint(list.round()); got != "[B A D:4506]" {
		t.Errorf("after C was removed and D added: %s", got)
	}

	single := r("master: vip\n", cluster("A", "B", "C"))
	names := single.round()
	if len(names) != 4 || names[3] != "vip" {
		t.Fatalf("a single one: %v, want it after the members", names)
	}
	single.failed(names[0])
	if got, want := single.round(), []string{names[1], names[2], "vip", names[0]}; !slices.Equal(got, want) {
		t.Errorf("after a loss: %v, want %v", got, want)
	}
	listed := cluster("A", "B", "C")
	for i, m := range listed.Members {
		listed.Members[i].Running = m.Address != names[0]
	}
	single.cluster.learn(generate(t).Public(), listed)
	if got, want := single.round(), []string{names[1], names[2], names[0], "vip"}; !slices.Equal(got, want) {
		t.Errorf("with the first one not running: %v, want %v", got, want)
	}
}

// At the address of a member, a key is trusted that is signed, pinned, or named by a trusted
// master for this address, and no other one: whatever the minion trusts elsewhere.
func TestTrustInMembers(t *testing.T) {
	first, b, c, unknown, sign := generate(t), generate(t), generate(t), generate(t), generate(t)
	signed := func(key *pki.PrivateKey) []byte {
		sig, err := sign.SignPublic(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		return sig
	}
	verify := Trust{Verify: true, VerifyKey: sign.Public(), VerifyFile: "master_sign.pub"}
	for _, test := range []struct {
		what    string
		address string
		trust   Trust
		shows   *pki.PrivateKey
		signed  bool
		taken   bool
	}{
		{"the named key", "B:4506", Trust{}, b, false, true},
		{"the key of another member", "B:4506", Trust{}, c, false, false},
		{"an unknown key", "B:4506", Trust{}, unknown, false, false},
		{"an unknown key, with open_mode", "B:4506", Trust{OpenMode: true}, unknown, false, false},
		{"an unknown key, where each is trusted at first", "B:4506", Trust{FirstUse: EachMaster}, unknown, false, false},
		{"the named key, which master_finger does not name", "B:4506", Trust{Fingers: []string{first.Public().SHA256()}, FingerHash: "sha256"}, b, false, false},
		{"the key of the first master", "B:4506", Trust{}, first, false, true},
		{"the named key without the signature that is wanted", "B:4506", verify, b, false, false},
		{"the named key, signed", "B:4506", verify, b, true, true},
		{"a new key, signed", "B:4506", verify, unknown, true, true},
		{"any key of a member whose key is not known", "D:4506", Trust{}, unknown, false, false},
		{"the key of another member where none is known", "D:4506", Trust{}, c, false, false},
		{"the key of a member at the configured address", "A", Trust{}, c, false, true},
		{"an unknown key at the configured address", "A", Trust{}, unknown, false, false},
	} {
		cfg := settings(t, "master: A\n")
		if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(cfg.PKIDir, plainPin), first.Public().PEM(), 0o600); err != nil {
			t.Fatal(err)
		}
		cluster := openCluster(t, cfg)
		listed := clusterWith(map[string]*pki.PrivateKey{"A": first, "B": b, "C": c, "D": nil})
		cluster.learn(first.Public(), listed)
		o := FromConfig(cfg, nil, test.address, slog.New(slog.DiscardHandler))
		o.Trust = test.trust
		cluster.Trust(&o)
		var sig []byte
		if test.signed {
			sig = signed(test.shows)
		}
		if err := meet(t, o, test.shows, sig); (err == nil) != test.taken {
			t.Errorf("%s at %s: %v", test.what, test.address, err)
		}
		files, err := filepath.Glob(filepath.Join(cfg.PKIDir, "minion_master*"))
		if key := pinnedAs(t, filepath.Join(cfg.PKIDir, plainPin), first.Public()); err != nil || len(files) != 1 || key != "the key sent" {
			t.Errorf("%s at %s: pinned is %v, in the first place %s", test.what, test.address, files, key)
		}
	}
}

// TestAFormerMemberIsNotTrustedAsAConfiguredMaster: the list of members may end while a minion tries them
// one by one. The next ones are tried nevertheless, and whoever is there is trusted no more than before.
func TestAFormerMemberIsNotTrustedAsAConfiguredMaster(t *testing.T) {
	first, c, unknown := generate(t), generate(t), generate(t)
	cfg := settings(t, "master: [A, 'B:4507']\nmaster_type: failover\nmaster_trust_on_first_use: each\nopen_mode: True\n")
	if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.PKIDir, "minion_master.A%3A4506.pub"), first.Public().PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := openCluster(t, cfg)
	cluster.learn(first.Public(), clusterWith(map[string]*pki.PrivateKey{"A": first, "C": c}))
	cluster.learn(first.Public(), nil)
	options := func(name string) Options {
		o := FromConfig(cfg, nil, name, slog.New(slog.DiscardHandler))
		cluster.Trust(&o)
		return o
	}
	for what, key := range map[string]*pki.PrivateKey{"its key": c, "an unknown key": unknown} {
		if o := options("C:4506"); !o.Trust.Learned || meet(t, o, key, nil) == nil {
			t.Errorf("%s is trusted at the address of a former member", what)
		}
	}
	for _, name := range []string{"A", "A:4506", "B:4507"} {
		if o := options(name); o.Trust.Learned {
			t.Errorf("%s counts as learned", name)
		}
	}
	files, err := filepath.Glob(filepath.Join(cfg.PKIDir, "minion_master*"))
	if err != nil || len(files) != 1 {
		t.Errorf("pinned is %v, %v", files, err)
	}
}

// TestAWelcomeDoesNotReplaceWhatCameLater: a change of the members that is handled before the answer to
// hello is newer than that.
func TestAWelcomeDoesNotReplaceWhatCameLater(t *testing.T) {
	c := openCluster(t, settings(t, "master: A\n"))
	log := slog.New(slog.DiscardHandler)
	begin := func() *Session {
		l := &Connection{Master: generate(t).Public(), basis: onPin}
		return &Session{Connection: l, Up: &Uplink{log: log, all: &Uplinks{cluster: c}}, leave: make(chan struct{})}
	}
	s := begin()
	changed, err := json.Marshal(protocol.Control{Cluster: cluster("A", "B")})
	if err != nil {
		t.Fatal(err)
	}
	s.said(changed)
	s.welcomed(cluster("A", "B", "C"))
	if list, _ := c.now(); len(list) != 2 {
		t.Errorf("the list of before the change is back: %v", list)
	}
	begin().welcomed(cluster("A", "B", "C")) // of another session
	if list, _ := c.now(); len(list) != 3 {
		t.Errorf("a welcome names %v", list)
	}
}

func clusterWith(keys map[string]*pki.PrivateKey) *protocol.Cluster {
	listed := &protocol.Cluster{}
	for name, key := range keys {
		m := protocol.Member{Name: name, Address: name + ":4506"}
		if key != nil {
			m.Key = key.Public().SHA256()
		}
		listed.Members = append(listed.Members, m)
	}
	return listed
}

// With open_mode any key is accepted, and its holder must not name others.
func TestNothingIsLearnedFromAMasterThatIsNotTrusted(t *testing.T) {
	for basis, want := range map[basis]bool{refused: false, onOpening: false, onSign: true, onPin: true, onFirst: true, onFinger: true, onMember: true} {
		cfg := settings(t, "master: A\n")
		if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
			t.Fatal(err)
		}
		u := (&Uplinks{Setup: Setup{Config: cfg, Log: slog.New(slog.DiscardHandler)}, cluster: openCluster(t, cfg)}).add(&roster{masters: []string{"A"}})
		s := &Session{Connection: &Connection{basis: basis, Master: generate(t).Public()}, Up: u}
		s.learn(cluster("A", "B"))
		if list, _ := u.all.cluster.now(); (len(list) > 0) != want {
			t.Errorf("basis %d: learned %v", basis, list)
		}
	}
}

// inCluster is a play with a single configured master and a cluster. The members that the minion
// prefers are called home, second and third.
func inCluster(t *testing.T, busy *atomic.Bool, up func(int) []string, f func(p *play, home, second, third string)) {
	cfg := settings(t, "master: A\n")
	if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRosters(cfg)[0]
		r.join(openCluster(t, cfg), cfg)
		r.cluster.learn(pki.PublicKey{}, cluster("A", "B", "C"))
		names := r.round()
		p, end := begin(t, cfg, r, up)
		defer end()
		p.u.all.Busy = busy.Load
		f(p, hostOf(names[0]), hostOf(names[1]), hostOf(names[2]))
	})
}

func (p *play) lose() {
	time.Sleep(2 * shortSession)
	p.mu.Lock()
	p.close()
	p.mu.Unlock()
	synctest.Wait()
}

// A minion whose member was lost returns to it within minutes, and not while it runs jobs.
func TestMinionsComeHome(t *testing.T) {
	var busy atomic.Bool
	var down atomic.Value
	down.Store("")
	up := func(int) []string {
		return slices.DeleteFunc([]string{"A", "B", "C"}, func(s string) bool { return s == down.Load() })
	}
	inCluster(t, &busy, up, func(p *play, home, second, _ string) {
		if p.current() != home {
			t.Fatalf("the minion begins at %s, its member is %s", p.current(), home)
		}
		down.Store(home)
		p.lose()
		if p.current() != second {
			t.Fatalf("after the loss the minion is at %q, want %s", p.current(), second)
		}
		listed := cluster("A", "B", "C")
		for i := range listed.Members {
			listed.Members[i].Running = hostOf(listed.Members[i].Address) != home
		}
		p.u.all.cluster.learn(pki.PublicKey{}, listed)
		tried := len(p.tried())
		time.Sleep(2 * homeTime)
		synctest.Wait()
		if now := p.tried(); len(now) != tried {
			t.Errorf("a member that does not run was tried: %v", now[tried:])
		}
		busy.Store(true)
		down.Store("")
		p.u.all.cluster.learn(pki.PublicKey{}, cluster("A", "B", "C"))
		time.Sleep(2 * homeTime)
		synctest.Wait()
		if p.current() != second {
			t.Errorf("the minion has moved to %s while it runs jobs", p.current())
		}
		busy.Store(false)
		time.Sleep(busyTime + time.Second)
		synctest.Wait()
		if p.current() != home {
			t.Errorf("the minion is at %s, and its member %s runs again", p.current(), home)
		}
	})
}

// A master that stops is left at once, for whichever member takes the minion.
func TestAMasterThatStopsIsLeft(t *testing.T) {
	var busy atomic.Bool
	busy.Store(true)
	var up atomic.Value
	up.Store([]string{"A", "B", "C"})
	inCluster(t, &busy, func(int) []string { return up.Load().([]string) }, func(p *play, home, second, third string) {
		s := p.u.Session()
		up.Store([]string{home})
		b, err := json.Marshal(protocol.Control{Leave: true})
		if err != nil {
			t.Fatal(err)
		}
		s.said(b)
		s.said(b)
		synctest.Wait()
		if p.current() != home {
			t.Errorf("the minion is at %q, and no other member takes it", p.current())
		}
		up.Store([]string{home, third})
		time.Sleep(2 * (firstLeavePause + maxLeavePause))
		synctest.Wait()
		if p.current() != third {
			t.Errorf("the minion is at %q, want %s", p.current(), third)
		}
		if tried := p.tried(); !slices.Contains(tried, second) || slices.Contains(tried[1:], home) {
			t.Errorf("tried: %v", tried)
		}
	})
}

// After a loss the minions of a member wait for a random time, which is as long as the master has
// said before.
func TestMinionsOfALostMemberDistribute(t *testing.T) {
	const spread = 8 * time.Second
	var waits []time.Duration
	for range 20 {
		inCluster(t, &atomic.Bool{}, func(int) []string { return []string{"A", "B", "C"} }, func(p *play, _, second, _ string) {
			listed := cluster("A", "B", "C")
			listed.Spread = spread
			p.u.all.cluster.learn(pki.PublicKey{}, listed)
			p.lose()
			began := time.Now()
			for p.current() != second && time.Since(began) < 2*spread {
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
			}
			waits = append(waits, time.Since(began))
		})
	}
	slices.Sort(waits)
	if waits[0] > spread/2 || waits[len(waits)-1] < spread/2 || waits[len(waits)-1] > spread+time.Second {
		t.Errorf("the pauses are %v", waits)
	}
}
