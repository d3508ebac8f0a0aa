package accord_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/accord"
	"github.com/brinebus/brine/internal/admission"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/test/bustest"
)

// master is a member of a cluster with a key directory, which admits minions by their keys.
type master struct {
	*bustest.Member
	t         *testing.T
	dir       string // of its keys
	keys      *keyring.Keyring
	admission *admission.Admission
	shared    *accord.Shared
	end       func()

	mu      sync.Mutex
	updates []bool   // what Tell said
	notes   []string // of the audit log: the act, the minion and the source
}

// Note implements admission.Audit.
func (m *master) Note(e audit.Entry) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notes = append(m.notes, fmt.Sprint(e.Fun, " ", e.Minions, " ", e.Who.Source))
	return true
}

// Tell implements admission.Decided.
func (m *master) Tell(e audit.Entry, _ string, _ any) { m.Note(e) }

func (m *master) noted(want string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.notes, want)
}

func (m *master) current() []bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.updates)
}

func (m *master) Announce(string, any) {}

func (m *master) Forget(salt.MinionID) {}

// ConnectionsOfID implements admission.Connections.
func (m *master) ConnectionsOfID(id string, f func(bus.Identity, func())) {
	m.Minions.WithCallers(id, f)
}

// ConnectionsOfMinion implements admission.Connections.
func (m *master) ConnectionsOfMinion(id string, f func(bus.Identity, func())) { m.Minions.Of(id, f) }

// CutInbox implements admission.Connections.
func (m *master) CutInbox(inbox string) { m.Cut.Inbox(inbox) }

// CountMinions implements admission.Connections.
func (m *master) CountMinions() int { return m.Minions.Count() }

func (m *master) Revoke() {}

// startMasters starts three members with empty key directories.
func startMasters(t *testing.T) (*bustest.System, []*master) {
	t.Helper()
	s, list := startBrokers(t)
	for _, m := range list {
		m.run()
	}
	return s, list
}

// startBrokers starts three members, without anything that decides about keys.
func startBrokers(t *testing.T) (*bustest.System, []*master) {
	t.Helper()
	s := bustest.NewSystem(t, 3)
	var list []*master
	for _, member := range s.Members {
		m := &master{Member: member, t: t}
		member.Change = func(o *broker.Options) { o.Admit = func(p broker.Peer) bus.Identity { return m.admission.Admit(p) } }
		cfg := config.NewMaster()
		m.dir = t.TempDir()
		cfg.PKIDir = m.dir
		var err error
		if m.keys, err = keyring.Open(cfg, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		m.admission = admission.New(t.Context(), admission.Options{Keys: m.keys, Version: "test", Log: bustest.Log(t).With("member", m.Name)})
		m.admission.Audit, m.admission.Decided, m.admission.Events, m.admission.Minions, m.admission.Jobs = m, m, m, m, m
		m.admission.Current = func() bool { return !m.shared.Stale() }
		m.end = func() {}
		list = append(list, m)
	}
	s.Start(t)
	s.Linked(t)
	s.Leader(t)
	return s, list
}

// run opens the tables of a member, and applies the decisions until the test ends or end is called.
func (m *master) run() {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	starting := journal.Starting(ctx)
	j, err := journal.Open(starting, m.Conn(), journal.Options{Store: m.Store(), Copies: 3, Name: m.Name, Server: m.Name})
	if err != nil {
		m.t.Fatal(err)
	}
	table, err := j.Table(starting, "keys")
	if err != nil {
		m.t.Fatal(err)
	}
	agreed, err := j.OwnTable(starting, "agreed")
	if err != nil {
		m.t.Fatal(err)
	}
	m.shared, err = accord.OpenShared(starting, accord.SharedOptions{
		Name: m.Name, Dir: m.dir, Table: table, Agreed: agreed, Keys: m.keys, Log: bustest.Log(m.t).With("member", m.Name),
		Tell: func(current bool) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.updates = append(m.updates, current)
		},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.admission.Changed, m.admission.Connections = m.shared.Changed, m
	changed, err := m.keys.Store.Watch(ctx, bustest.Log(m.t))
	if err != nil {
		m.t.Fatal(err)
	}
	if err := m.keys.Refresh(); err != nil {
		m.t.Fatal(err)
	}
	m.Server.Handle("ask", m.admission.Ask)
	if err := m.Server.Start(); err != nil {
		m.t.Fatal(err)
	}
	var parts sync.WaitGroup
	parts.Go(func() { m.admission.Watch(changed) })
	parts.Go(func() { m.admission.WatchCurrent(ctx) })
	parts.Go(func() { m.shared.Run(ctx) })
	m.end = sync.OnceFunc(func() { cancel(); parts.Wait(); j.Close() })
	m.t.Cleanup(m.end)
	bustest.Until(m.t, m.Name+" is current", func() bool { return !m.shared.Stale() })
}

// entry is a key in the directory of this member, with the state Unknown if it is not there.
func (m *master) entry(id string, key pki.PublicKey) pki.Entry {
	m.t.Helper()
	list, err := m.keys.Store.Of(salt.MinionID(id))
	if err != nil {
		m.t.Fatal(err)
	}
	for _, e := range list {
		if e.Key == key {
			return e
		}
	}
	return pki.Entry{ID: salt.MinionID(id), Key: key}
}

// does applies an act of a person at this member, who may bring the key.
func (m *master) does(act accord.Act, id string, key pki.PublicKey) {
	m.t.Helper()
	e := m.entry(id, key)
	var err error
	if e.State == pki.Unknown {
		e.State, _, err = m.keys.Store.SubmitFrom(pki.Submission{ID: e.ID, Key: e.Key, Decided: true})
	}
	switch {
	case err != nil:
	case act == accord.Accept:
		err = m.keys.Store.Accept(e)
	case act == accord.Reject:
		err = m.keys.Store.Reject(e)
	default:
		err = m.keys.Store.Delete(e)
	}
	if err != nil {
		m.t.Fatalf("%s %s at %s: %v", act, id, m.Name, err)
	}
}

// all waits until a key has this state at all of these members, and returns how long that took.
func all(t *testing.T, list []*master, id string, key pki.PublicKey, want pki.State) time.Duration {
	t.Helper()
	begun := time.Now()
	for _, m := range list {
		bustest.Until(t, fmt.Sprintf("%s is %s at %s", id, want, m.Name), func() bool { return m.entry(id, key).State == want })
	}
	return time.Since(begun)
}

// dial connects as a minion.
func (m *master) dial(id string, key *pki.PrivateKey) *bustest.Client {
	m.t.Helper()
	c, err := m.Dial(bustest.Claim{ID: id, Key: key}, nats.MaxPingsOutstanding(10))
	if err != nil {
		m.t.Fatalf("%s at %s: %v", id, m.Name, err)
	}
	m.t.Cleanup(c.Close)
	return c
}

// connect connects as the program of a minion does.
func (m *master) connect(id string, key *pki.PrivateKey) (*upstream.Connection, error) {
	m.t.Helper()
	return upstream.Connect(m.t.Context(), upstream.Options{
		Address: m.Addr().String(), ID: salt.MinionID(id), Key: key, PinFile: filepath.Join(m.t.TempDir(), "minion_master.pub"),
		Version: "test", Timeout: 10 * time.Second, PingInterval: 10 * time.Second, Log: bustest.Log(m.t),
	})
}

// cut waits until a connection has ended, and returns how long that took.
func cut(t *testing.T, what string, c *bustest.Client) time.Duration {
	t.Helper()
	begun := time.Now()
	bustest.Until(t, what+" is cut", c.IsClosed)
	return time.Since(begun)
}

// TestAKeyCountsAtAllMembers: whoever accepts, rejects or deletes a key at one member does so at all
// of them: within a second in the median, since one decision can meet a busy moment. A key that waits at
// one member can be accepted at another one, and its minion hears of it where it waits.
func TestAKeyCountsAtAllMembers(t *testing.T) {
	t.Parallel()
	const soon = 15 * time.Second
	_, list := startMasters(t)
	a, b, c := list[0], list[1], list[2]

	waits := bustest.Key(t)
	minion, err := a.connect("waits", waits)
	if err != nil || minion.State() != protocol.KeyPending {
		t.Fatal(minion, err)
	}
	defer minion.Close()
	shown := all(t, list, "waits", waits.Public(), pki.Pending)
	b.does(accord.Accept, "waits", waits.Public())
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := minion.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	woken := time.Since(begun)
	all(t, list, "waits", waits.Public(), pki.Accepted)
	bustest.Until(t, "the audit log says who accepted", func() bool { return a.noted("key.accept [waits] the master m2") })

	var accepts, cuts []time.Duration
	for n := range 6 {
		key, id := bustest.Key(t), fmt.Sprint("web", n)
		list[n%3].does(accord.Accept, id, key.Public())
		accepts = append(accepts, all(t, list, id, key.Public(), pki.Accepted))
		var connections []*bustest.Client
		for _, m := range list {
			connections = append(connections, m.dial(id, key))
		}
		other := bustest.Key(t)
		c.does(accord.Accept, id+"-stays", other.Public())
		all(t, list, id+"-stays", other.Public(), pki.Accepted)
		stays := a.dial(id+"-stays", other)
		act, state := accord.Delete, pki.Unknown
		if n%2 == 0 {
			act, state = accord.Reject, pki.Rejected
		}
		list[(n+1)%3].does(act, id, key.Public())
		begun := time.Now()
		for i, connection := range connections {
			cut(t, fmt.Sprint(id, " at ", list[i].Name), connection)
		}
		cuts = append(cuts, time.Since(begun))
		all(t, list, id, key.Public(), state)
		if stays.IsClosed() {
			t.Error("a minion whose key is accepted was cut")
		}
	}
	t.Logf("a waiting key was shown by all after %s, its minion was woken after %s; accepted at all after %s, cut at all after %s", shown, woken, accepts, cuts)
	if m := max(shown, woken, slices.Max(accepts), slices.Max(cuts)); m > soon {
		t.Errorf("something took %s", m)
	}
	for what, took := range map[string][]time.Duration{"accepted at all": accepts, "cut at all": cuts} {
		slices.Sort(took)
		if median := took[len(took)/2]; median > time.Second {
			t.Errorf("a key is %s after %s in the median, more than a second", what, median)
		}
	}

	// A waiting key that is deleted at another member waits nowhere any more.
	dropped := bustest.Key(t)
	c.dial("dropped", dropped)
	all(t, list, "dropped", dropped.Public(), pki.Pending)
	bustest.Until(t, "a person could have seen it", func() bool { return a.keys.Count()[pki.Pending] > 0 })
	a.does(accord.Delete, "dropped", dropped.Public())
	all(t, list, "dropped", dropped.Public(), pki.Unknown)
}

// TestAMemberThatIsCutOff: it stops serving minions, since their keys may have been refused by the
// others. What was decided on both sides meanwhile is the same everywhere when it is back, and the
// refusal counts.
func TestAMemberThatIsCutOff(t *testing.T) {
	t.Parallel()
	s, list := startMasters(t)
	a, b, c := list[0], list[1], list[2]
	keys := map[string]*pki.PrivateKey{}
	for _, id := range []string{"deleted", "stays", "rejected-there", "rejected-here"} {
		keys[id] = bustest.Key(t)
		a.does(accord.Accept, id, keys[id].Public())
		all(t, list, id, keys[id].Public(), pki.Accepted)
	}
	deleted, stays := c.dial("deleted", keys["deleted"]), c.dial("stays", keys["stays"])
	elsewhere := a.dial("stays", keys["stays"])

	s.Isolate(t, c.Member)
	begun := time.Now()
	bustest.Until(t, "the others decide", func() bool { return !a.shared.Stale() && time.Since(a.shared.Current()) < 3*time.Second })
	a.does(accord.Delete, "deleted", keys["deleted"].Public())
	cut(t, "the minion with the deleted key", deleted)
	cut(t, "the other minion there", stays)
	t.Logf("%s after it was cut off, it has no minions", time.Since(begun))
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	if elsewhere.IsClosed() {
		t.Error("a minion of another member was cut, too")
	}
	_, err := c.connect("stays", keys["stays"])
	if rpc.CodeOf(err) != rpc.Unavailable || errors.Is(err, upstream.ErrRejected) || errors.Is(err, upstream.ErrDenied) || !strings.Contains(err.Error(), "does not know at the moment") {
		t.Errorf("a minion hears: %v", err)
	}
	if l, err := b.connect("stays", keys["stays"]); err != nil || !l.Ready() {
		t.Errorf("the next master: %v, %v", l, err)
	}

	for _, id := range []string{"new-here", "new-there", "both-differ"} {
		keys[id] = bustest.Key(t)
	}
	a.does(accord.Reject, "rejected-here", keys["rejected-here"].Public())
	c.does(accord.Reject, "rejected-there", keys["rejected-there"].Public())
	a.does(accord.Accept, "new-here", keys["new-here"].Public())
	c.does(accord.Accept, "new-there", keys["new-there"].Public())
	a.does(accord.Accept, "both-differ", keys["both-differ"].Public())
	c.does(accord.Reject, "both-differ", keys["both-differ"].Public())
	one, two := bustest.Key(t), bustest.Key(t)
	a.does(accord.Accept, "two-keys", one.Public())
	c.does(accord.Accept, "two-keys", two.Public())
	all(t, list[:2], "new-here", keys["new-here"].Public(), pki.Accepted)
	all(t, list[:2], "two-keys", one.Public(), pki.Accepted)
	if c.entry("deleted", keys["deleted"].Public()).State != pki.Accepted {
		t.Error("it knows of a deletion while it is cut off")
	}
	s.Rejoin(c.Member)
	begun = time.Now()
	for id, want := range map[string]pki.State{
		"deleted": pki.Unknown, "stays": pki.Accepted, "rejected-here": pki.Rejected, "rejected-there": pki.Rejected,
		"new-here": pki.Accepted, "new-there": pki.Accepted, "both-differ": pki.Rejected,
	} {
		all(t, list, id, keys[id].Public(), want)
	}
	all(t, list, "two-keys", one.Public(), pki.Accepted)
	if got := []pki.State{a.entry("two-keys", two.Public()).State, b.entry("two-keys", two.Public()).State}; slices.Contains(got, pki.Accepted) {
		t.Errorf("the second key of an id is %v", got)
	}
	bustest.Until(t, "the second key of an id is not accepted", func() bool { return c.entry("two-keys", two.Public()).State != pki.Accepted })
	t.Logf("all agree %s after it came back", time.Since(begun))
	bustest.Until(t, "it admits minions again", func() bool {
		l, err := c.connect("stays", keys["stays"])
		if err != nil {
			return false
		}
		defer l.Close()
		return l.Ready()
	})
	bustest.Until(t, "it is told that it is current again", func() bool { return slices.Equal(c.current(), []bool{true, false, true}) })
	if got := a.current(); !slices.Equal(got, []bool{true}) {
		t.Errorf("another member got %v", got)
	}
}

// manyKeys is how many keys there are where a member joins.
var manyKeys = flag.Int("keys", 300, "")

// TestAMemberJoinsWithManyKeys: one member has many keys and publishes them, another one with an empty
// directory gets all of them, and is current soon, long before it has all: only refusals must be in
// force for that. When it starts again, nothing is done twice.
func TestAMemberJoinsWithManyKeys(t *testing.T) {
	t.Parallel()
	_, list := startBrokers(t)
	a, b := list[0], list[1]
	for n := range *manyKeys {
		id := fmt.Sprintf("web%05d", n)
		if err := os.WriteFile(filepath.Join(a.dir, "minions", id), bustest.Key(t).Public().PEM(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	accepted := func(m *master) int {
		t.Helper()
		names, err := os.ReadDir(filepath.Join(m.dir, "minions"))
		if err != nil {
			t.Fatal(err)
		}
		return len(slices.DeleteFunc(names, func(e os.DirEntry) bool { return e.Name() == "guest" || strings.HasPrefix(e.Name(), ".") })) // without the mark of the directory, which may be written at the moment
	}
	has := func(m *master) {
		t.Helper()
		for end := time.Now().Add(5 * time.Minute); accepted(m) < *manyKeys; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s has %d keys after five minutes", m.Name, accepted(m))
			}
		}
	}
	begun := time.Now()
	a.run()
	first := time.Since(begun)
	begun = time.Now()
	b.run()
	current, early := time.Since(begun), accepted(b)
	if early == *manyKeys {
		t.Errorf("it has all %d keys when it is current", early)
	}
	key := bustest.Key(t)
	b.does(accord.Accept, "guest", key.Public())
	l, err := b.connect("guest", key)
	if err != nil || !l.Ready() {
		t.Fatalf("a minion that comes then: %v, %v", l, err)
	}
	l.Close()
	if n := accepted(b); n >= *manyKeys {
		t.Errorf("the minion was admitted when it had %d keys", n)
	}
	has(b)
	joined := time.Since(begun)
	b.does(accord.Delete, "web00000", a.onlyKey("web00000"))
	bustest.Until(t, "a deletion comes through", func() bool { return accepted(a) == *manyKeys-1 })
	if accepted(b) != *manyKeys-1 {
		t.Errorf("%d keys are left", accepted(b))
	}
	b.end()
	begun = time.Now()
	b.run()
	t.Logf("%d keys: the first member was current after %s; the next one after %s, and had all after %s; started again, it was current after %s", *manyKeys, first, current, joined, time.Since(begun))
	if accepted(a) != *manyKeys-1 || accepted(b) != *manyKeys-1 {
		t.Errorf("after the start there are %d and %d keys", accepted(a), accepted(b))
	}
}

// onlyKey is the key of an id that has one.
func (m *master) onlyKey(id string) pki.PublicKey {
	m.t.Helper()
	list, err := m.keys.Store.Of(salt.MinionID(id))
	if err != nil || len(list) != 1 {
		m.t.Fatal(list, err)
	}
	return list[0].Key
}
