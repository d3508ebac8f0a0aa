package membership

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/test/bustest"
)

// removing is a system whose members have the names of their addresses, and lists of removed members of
// their own.
func removing(t *testing.T, n int) (*bustest.System, []string) {
	t.Helper()
	s := bustest.NewSystem(t, n)
	var dirs []string
	for i, m := range s.Members {
		dir := t.TempDir()
		m.Name = nameOf(s.Peers[i])
		m.Change = func(o *broker.Options) {
			o.Cluster.Rule.Removed = func() (member.Fingerprints, error) { return member.ReadRemoved(member.RemovedFile(dir)) }
		}
		dirs = append(dirs, dir)
	}
	return s, dirs
}

// with returns a running member with its exchange, and with what concerns removals.
func with(t *testing.T, m *bustest.Member, dir string) *Membership {
	t.Helper()
	cluster, err := m.Options()
	if err != nil {
		t.Fatal(err)
	}
	cluster.Rule.Key = m.Key.Public()
	return linked(t, m, func(k *Membership) {
		k.peers, k.cluster, k.cfg = m.System.Peers, cluster, &config.Master{RetPort: 4506}
		k.cfg.PKIDir, k.journal = dir, &journal.Journal{}
		k.removals = removals{path: member.RemovedFile(dir), name: m.Name, key: k.fingerprint(), log: m.Log}
		k.met = met{path: member.KnownFile(dir), names: k.place().All, log: m.Log}
		k.leaving.departed = departed{path: member.LeftFile(dir), names: k.place().All, log: m.Log}
		k.self = m.System.Peers[slices.IndexFunc(m.System.Peers, func(peer string) bool { return nameOf(peer) == m.Name })]
		k.serveStatus()
		k.exchange.Handle(kindRemove, k.removeFor)
	})
}

// follows compares the member with the others until the end of the test.
func follows(t *testing.T, k *Membership) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.follow(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// others waits until a member knows n others, which are linked.
func others(t *testing.T, k *Membership, n int) {
	t.Helper()
	bustest.Until(t, "others are known", func() bool {
		names, keys := k.exchange.Others(), keysOf(k.broker.Cluster.Members())
		return len(names) == n && !slices.ContainsFunc(names, func(name string) bool { return keys[name] == "" })
	})
}

func refuses(t *testing.T, dir string, key pki.PublicKey) bool {
	t.Helper()
	list, err := member.ReadRemoved(member.RemovedFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	return list.Has(key)
}

// TestAMemberThatWasAwayLearnsWhoWasRemoved: one member is removed while another one does not run. Who asked
// learns that this one was not told; when it comes back it learns of the removal, keeps it and has no route to the
// removed member any more, although that runs all the time and says nothing of it.
func TestAMemberThatWasAwayLearnsWhoWasRemoved(t *testing.T) {
	t.Parallel()
	s, dirs := removing(t, 3)
	s.Start(t)
	s.Linked(t)
	s.Leader(t)
	stolen, away := s.Members[1], s.Members[2]
	one, two := with(t, s.Members[0], dirs[0]), with(t, stolen, dirs[1])
	follows(t, one)
	follows(t, two)
	others(t, one, 1)
	away.Stop()
	bustest.Until(t, "it is away", func() bool { return s.Members[0].Cluster.Routes() == 1 })

	short, cancel := context.WithTimeout(t.Context(), 2*time.Second) // two of three are gone then, so nobody leads
	defer cancel()
	_, unaware, err := one.RemoveMember(short, stolen.Name)
	if err == nil || !slices.Equal(unaware, []string{away.Name}) || !strings.Contains(err.Error(), away.Name) {
		t.Errorf("not told are %q, and the error is %v; want %s in both", unaware, err, away.Name)
	}

	away.Start(t)
	three := with(t, away, dirs[2])
	others(t, three, 2) // it is linked with the removed one, too
	follows(t, three)
	bustest.Until(t, "it has learned of the removal", func() bool { return refuses(t, dirs[2], stolen.Key.Public()) })
	bustest.Until(t, "the removed member has no route", func() bool { return stolen.Cluster.Routes() == 0 && away.Cluster.Routes() == 1 })
	list, err := member.ReadRemovals(member.RemovedFile(dirs[2]))
	if err != nil || len(list.List) != 1 || list.List[0].Name != stolen.Name {
		t.Errorf("its list is %v, %v", list, err)
	}
	if refuses(t, dirs[1], stolen.Key.Public()) {
		t.Error("the removed member has added its own key")
	}
}

// TestARemovalComesWithAQuestion: a member learns from answers, and also from the questions of others, so that
// it does not depend on who answers its own.
func TestARemovalComesWithAQuestion(t *testing.T) {
	t.Parallel()
	s, dirs := removing(t, 2)
	s.Start(t)
	s.Linked(t)
	one, two := with(t, s.Members[0], dirs[0]), with(t, s.Members[1], dirs[1])
	others(t, one, 1)
	gone := bustest.Key(t).Public()
	if err := one.removals.add(member.Removal{Fingerprint: gone.SHA256()}, "here"); err != nil {
		t.Fatal(err)
	}
	others(t, two, 1)
	if list := two.ask(t.Context())[one.name].Removed; len(list) != 1 || list[0].Fingerprint != gone.SHA256() {
		t.Errorf("the answer has %v", list)
	}
	one.ask(t.Context())
	two.removals.learn(nil, keysOf(two.broker.Cluster.Members()))
	if !refuses(t, dirs[1], gone) {
		t.Error("it does not refuse the key")
	}
	if body, _ := json.Marshal(nil); two.removals.hear(one.name, keysOf(two.broker.Cluster.Members()), body) != nil { // as earlier versions ask
		t.Error("a question without a list is refused")
	}
}

// TestAMemberThatStartsLearnsFirst: before it answers anybody, a member refuses what the others have removed.
func TestAMemberThatStartsLearnsFirst(t *testing.T) {
	t.Parallel()
	s, dirs := removing(t, 3)
	s.Start(t)
	s.Linked(t)
	one := with(t, s.Members[0], dirs[0])
	late, stolen := s.Members[1], s.Members[2]
	if err := os.WriteFile(member.RemovedFile(dirs[0]), []byte(stolen.Key.Public().SHA256()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bustest.Until(t, "it has no route to the one that knows", func() bool { return stolen.Cluster.Routes() == 1 })
	r := removals{path: member.RemovedFile(dirs[1]), name: late.Name, key: late.Key.Public().SHA256(), log: late.Log}
	x := cluster.New(cluster.Options{Name: late.Name, Conn: late.Conn(), Minions: noMinions{}, Log: late.Log})
	end := r.start(t.Context(), x, late.Cluster, &leaving{})
	// A route may also end by itself for a moment, so this alone says nothing.
	bustest.Until(t, "it is cut", func() bool {
		return refuses(t, dirs[1], stolen.Key.Public()) && stolen.Cluster.Routes() == 0
	})
	end()
	if len(one.exchange.Others()) > 0 {
		t.Errorf("it has not learned first: %q run", one.exchange.Others())
	}
}

// TestUnawareAreAllThatHaveNotConfirmed: also a member that runs and refuses, and one that never ran.
func TestUnawareAreAllThatHaveNotConfirmed(t *testing.T) {
	t.Parallel()
	s, dirs := removing(t, 4)
	for _, m := range s.Members[:3] {
		m.Start(t)
	}
	s.Linked(t)
	one := with(t, s.Members[0], dirs[0])
	with(t, s.Members[1], dirs[1])
	others(t, one, 1)
	if err := os.WriteFile(member.RemovedFile(dirs[1]), []byte("no fingerprint\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := one.tellRemoval(t.Context(), member.Removal{Fingerprint: bustest.Key(t).Public().SHA256(), Name: s.Members[2].Name})
	want := []string{s.Members[1].Name, s.Members[3].Name}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("not told are %q, want %q", got, want)
	}
}

// TestAMemberThatWasLostBeforeTheStartIsRemoved: all others were started after the loss of one. It can be
// removed by its name and by its key, is refused and does not count any more; so it is when the removal is
// repeated by a member that has nothing but the list of removed ones.
func TestAMemberThatWasLostBeforeTheStartIsRemoved(t *testing.T) {
	t.Parallel()
	s, dirs := removing(t, 3)
	s.Start(t)
	s.Linked(t)
	s.Leader(t)
	lost := s.Members[2]
	first := with(t, s.Members[0], dirs[0])
	first.known()
	lost.Stop()
	first.exchange.Stop()
	for _, m := range s.Members[:2] {
		m.Stop()
	}
	s.Members[0].Start(t)
	s.Members[1].Start(t)
	s.Linked(t)
	s.Leader(t)
	one, two := with(t, s.Members[0], dirs[0]), with(t, s.Members[1], dirs[1])
	others(t, one, 1)
	others(t, two, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := two.find(lost.Name); err == nil {
		t.Error("a member knows a key that it was never shown")
	}
	forgotten := &keeping{}
	forgotten.fails.Store(1)
	one.own = forgotten
	for _, who := range []string{lost.Name, lost.Key.Public().SHA256()} {
		finger, unaware, err := one.RemoveMember(ctx, who)
		if err != nil || finger != lost.Key.Public().SHA256() || len(unaware) > 0 {
			t.Errorf("remove %s: %s, not told are %q, %v", who, finger, unaware, err)
		}
		if list := waiting(one); len(list) > 0 { // it does not count any more, and others may leave
			t.Errorf("%q are taken for members that leave", list)
		}
		if got, again := forgotten.name.Load(), one.former.all()[lost.Name]; (got == nil || *got != lost.Name) && again != finger {
			t.Errorf("what is stored of %s is kept", who)
		}
	}
	bustest.Until(t, "two count", func() bool { return two.broker.Cluster.Known() == 2 && one.broker.Cluster.Known() == 2 })
	if !refuses(t, dirs[0], lost.Key.Public()) || !refuses(t, dirs[1], lost.Key.Public()) {
		t.Error("the key of the removed member is not refused")
	}
	if _, _, err := two.RemoveMember(ctx, lost.Name); err != nil {
		t.Errorf("remove it by the other member: %v", err)
	}
}

// TestAMemberIsNamedByItsAddress: what cluster.status shows as the address of a member stands for its name; a name and a
// fingerprint stay as they are.
func TestAMemberIsNamedByItsAddress(t *testing.T) {
	t.Parallel()
	finger := bustest.Key(t).Public().SHA256()
	for who, want := range map[string]string{"172.16.0.12:4520": "172_16_0_12_4520", "[2001:db8::10]:4520": "ip_2001_db8__10__4520", "172_16_0_12_4520": "172_16_0_12_4520", finger: finger, "": ""} {
		if got := nameFor(who); got != want {
			t.Errorf("%q is taken for %q, want %q", who, got, want)
		}
	}
}

// TestWhatIsLearned: what a member adds to its list of what another one tells.
func TestWhatIsLearned(t *testing.T) {
	t.Parallel()
	s, dirs := removing(t, 2)
	s.Start(t)
	s.Linked(t)
	one, teller := with(t, s.Members[0], dirs[0]), s.Members[1]
	gone, back := bustest.Key(t).Public(), bustest.Key(t).Public()
	path := member.RemovedFile(dirs[0])
	if err := os.WriteFile(path, []byte("# "+back.SHA256()+" comes back\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	learn := func(name string, list ...member.Removal) {
		one.removals.learn(map[string]said{name: {Removed: list}}, keysOf(one.broker.Cluster.Members()))
	}
	learn("m9", member.Removal{Fingerprint: gone.SHA256()})
	learn(teller.Name, member.Removal{Fingerprint: one.fingerprint()}, member.Removal{Fingerprint: back.SHA256()}, member.Removal{Fingerprint: "m3"})
	if list, err := member.ReadRemovals(path); err != nil || len(list.List) > 0 {
		t.Errorf("it has added %v, %v", list, err)
	}
	learn(teller.Name, member.Removal{Fingerprint: gone.SHA256(), Name: "m 3\nm4"})
	list, err := member.ReadRemovals(path)
	if err != nil || len(list.List) != 1 || list.List[0] != (member.Removal{Fingerprint: gone.SHA256()}) {
		t.Errorf("it has added %v, %v, want %s without a name", list, err, gone.SHA256())
	}
	var many []member.Removal
	for n := range 2 * maxListed {
		many = append(many, member.Removal{Fingerprint: number(n)})
	}
	learn(teller.Name, many...)
	if list, err := member.ReadRemovals(path); err != nil || len(list.List) != 1+maxListed {
		t.Errorf("it has %d keys, %v, want %d", len(list.List), err, 1+maxListed)
	}
	if told := one.removals.newest(); len(told) != maxListed || told[maxListed-1] != many[maxListed-1] {
		t.Errorf("it tells %d keys", len(told))
	}
}

// number returns a fingerprint for a number.
func number(n int) string {
	var parts []string
	for i := range 32 {
		parts = append(parts, fmt.Sprintf("%02x", n>>(8*i)&255))
	}
	return strings.Join(parts, ":")
}

// TestALongListLearnsOfLinkedMembersOnly: others cannot fill the list, and a linked member is refused
// however long it is.
func TestALongListLearnsOfLinkedMembersOnly(t *testing.T) {
	t.Parallel()
	s, dirs := removing(t, 3)
	s.Start(t)
	s.Linked(t)
	one := with(t, s.Members[0], dirs[0])
	var text strings.Builder
	for n := range maxLearned {
		fmt.Fprintln(&text, number(n))
	}
	if err := os.WriteFile(member.RemovedFile(dirs[0]), []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	gone, linked := bustest.Key(t).Public(), s.Members[2].Key.Public()
	one.removals.learn(map[string]said{s.Members[1].Name: {Removed: []member.Removal{{Fingerprint: gone.SHA256()}, {Fingerprint: linked.SHA256()}}}}, keysOf(one.broker.Cluster.Members()))
	if refuses(t, dirs[0], gone) || !refuses(t, dirs[0], linked) {
		t.Error("it has added the wrong keys")
	}
}

// TestWhomIsBelieved: of members that call each other removed.
func TestWhomIsBelieved(t *testing.T) {
	a, b, c, d, old := number(1), number(2), number(3), number(4), number(5)
	keys := map[string]string{"a": a, "b": b, "c": c, "d": d}
	type lists map[string][]string
	for name, test := range map[string]struct {
		lists lists
		own   []string
		want  []string
	}{
		"one says it":                                  {lists{"a": {b}}, nil, []string{b}},
		"all say it":                                   {lists{"a": {b, old}, "c": {old, b}, "d": {b}}, nil, []string{b, old}},
		"nobody who is not linked":                     {lists{"e": {a}}, nil, nil},
		"nobody who is refused already":                {lists{"b": {a, old}}, []string{b}, nil},
		"the removed one says the same of one":         {lists{"a": {b}, "b": {a}}, nil, []string{b, a}},
		"the removed one says the same of all":         {lists{"a": {b}, "b": {a, c, d}, "c": {b}, "d": {b}}, nil, []string{b}},
		"the removed one calls somebody else removed":  {lists{"a": {b}, "b": {d, old}}, nil, []string{b}},
		"its own key":                                  {lists{"a": {a}}, nil, nil},
		"its own key, which takes nothing of its word": {lists{"a": {a, b}}, nil, []string{b}},
		"no fingerprint":                               {lists{"a": {"b"}}, nil, nil},
	} {
		said, own := map[string][]member.Removal{}, member.Removals{}
		for from, list := range test.lists {
			for _, finger := range list {
				said[from] = append(said[from], member.Removal{Fingerprint: finger})
			}
		}
		for _, finger := range test.own {
			own.List = append(own.List, member.Removal{Fingerprint: finger})
		}
		var got []string
		for _, c := range claims(said, keys, own) {
			got = append(got, c.Fingerprint)
		}
		slices.Sort(got)
		slices.Sort(test.want)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestADamagedFileOfMembers: a member that is linked can be removed, although the file of those that were
// linked before cannot be read. Of one that is not linked, the caller learns that.
func TestADamagedFileOfMembers(t *testing.T) {
	t.Parallel()
	s, dirs := removing(t, 3)
	s.Members[0].Start(t)
	s.Members[1].Start(t)
	s.Linked(t)
	if err := os.WriteFile(member.KnownFile(dirs[0]), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	one := with(t, s.Members[0], dirs[0])
	bustest.Until(t, "it has met the other one", func() bool { return len(one.known()) == 1 })
	want := s.Members[1].Key.Public().SHA256()
	for _, who := range []string{s.Members[1].Name, want} {
		if r, err := one.find(who); err != nil || r.Fingerprint != want {
			t.Errorf("%s: %+v, %v", who, r, err)
		}
	}
	if _, err := one.find(s.Members[2].Name); err == nil || !strings.Contains(err.Error(), member.KnownFile(dirs[0])) {
		t.Errorf("the error is %v, and does not name the file", err)
	}
}

// TestMinionsAreNotSentToARemovedMember: also by a member that was restarted since, and so has never heard of
// its key. Another member that takes its place is named again. While the list of removed members cannot be
// read, minions are told what they were told before.
func TestMinionsAreNotSentToARemovedMember(t *testing.T) {
	t.Parallel()
	s, dirs := removing(t, 3)
	removed := s.Members[2]
	s.Members[0].Start(t)
	s.Members[1].Start(t)
	s.Linked(t)
	one := with(t, s.Members[0], dirs[0])
	bustest.Until(t, "it has met the other one", func() bool { return len(one.known()) == 1 }) // routes that both ends have dialled may be replaced
	names := func() (list []string) {
		for _, m := range one.Members() {
			list = append(list, m.Name)
		}
		slices.Sort(list)
		return list
	}
	all := []string{s.Members[0].Name, s.Members[1].Name, removed.Name}
	slices.Sort(all)
	if got := names(); !slices.Equal(got, all) {
		t.Fatalf("minions are told about %q, want %q", got, all)
	}
	list := ""
	for _, m := range []*bustest.Member{removed, s.Members[1], s.Members[0]} { // earlier members with these names
		list += number(len(list)) + " member=" + m.Name + "\n"
	}
	if err := os.WriteFile(filepath.Join(dirs[0], "cluster_removed"), []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	left := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == removed.Name })
	if got := names(); !slices.Equal(got, left) {
		t.Errorf("minions are told about %q, want %q", got, left)
	}
	removed.Start(t) // with a key that is not in the list
	bustest.Until(t, "it is named again", func() bool { return slices.Equal(names(), all) })
	if err := one.removals.add(member.Removal{Fingerprint: removed.Key.Public().SHA256()}, "here"); err != nil {
		t.Fatal(err)
	}
	one.heard.set(removed.Name, said{Key: number(9), Address: "127.0.0.9:4506"}) // it says that it has another key
	if got := names(); !slices.Equal(got, left) {
		t.Errorf("minions are told about %q, want %q", got, left)
	}
	file := filepath.Join(dirs[0], "cluster_removed")
	if err := os.WriteFile(file, []byte("half a li"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := member.ReadRemovals(file); err == nil {
		t.Fatal("the list can be read")
	}
	if got := names(); !slices.Equal(got, left) {
		t.Errorf("while the list cannot be read minions are told about %q, want %q", got, left)
	}
	two := with(t, s.Members[1], dirs[0])
	if got := two.Members(); got != nil {
		t.Errorf("a member that has never read the list tells minions about %v", got)
	}
}
