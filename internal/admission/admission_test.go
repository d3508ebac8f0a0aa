package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/auth"
	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/socket"
	"github.com/brinebus/brine/test/bustest"
)

// world is an admission over a real key directory, and what it says and does.
type world struct {
	*Admission
	t     *testing.T
	acts  []any // of the events
	notes []audit.Entry
	told  int            // entries about what has taken effect
	walks int            // looks at all connections
	mu    sync.Mutex     // guards what follows, notes and acts, where Watch runs
	open  []bus.Identity // connections
	cuts  []string       // names of those that were ended
	gone  []salt.MinionID
	order []string // of what is said and done
}

// Note implements Audit.
func (w *world) Note(e audit.Entry) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, e)
	return true
}

// Tell implements Decided.
func (w *world) Tell(e audit.Entry, tag string, data any) {
	w.Note(e)
	w.mu.Lock()
	w.told++
	w.mu.Unlock()
	if tag != "" {
		w.Announce(tag, data)
	}
}

// Announce implements Events.
func (w *world) Announce(_ string, data any) {
	act := data.(map[string]any)["act"]
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acts, w.order = append(w.acts, act), append(w.order, fmt.Sprint("event ", act))
}

// Forget implements Minions.
func (w *world) Forget(id salt.MinionID) { w.gone = append(w.gone, id) }

// Revoke implements Jobs.
func (w *world) Revoke() {}

// Owner implements Connections.
func (w *world) Owner(inbox string) (bus.Identity, bool) {
	for _, i := range w.open {
		if i.Inbox() == inbox {
			return i, true
		}
	}
	return bus.Identity{}, false
}

// ConnectionsOf implements Connections.
func (w *world) ConnectionsOf(match func(bus.Identity) bool, f func(bus.Identity, func())) {
	w.walks++
	w.each(match, f)
}

func (w *world) each(match func(bus.Identity) bool, f func(bus.Identity, func())) {
	w.mu.Lock()
	open := slices.Clone(w.open)
	w.mu.Unlock()
	for _, i := range open {
		if match == nil || match(i) {
			f(i, func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.cuts, w.order = append(w.cuts, i.Name), append(w.order, "cut "+i.Name)
			})
		}
	}
}

// ConnectionsOfID implements Connections.
func (w *world) ConnectionsOfID(id string, f func(bus.Identity, func())) {
	w.each(func(i bus.Identity) bool {
		return (i.Role == bus.RoleMinion || i.Role == bus.RoleCaller) && i.Name == id
	}, f)
}

// ConnectionsOfMinion implements Connections.
func (w *world) ConnectionsOfMinion(id string, f func(bus.Identity, func())) {
	w.each(func(i bus.Identity) bool { return i.Role == bus.RoleMinion && i.Name == id }, f)
}

// CutInbox implements Connections.
func (w *world) CutInbox(inbox string) {
	w.each(func(i bus.Identity) bool { return i.Inbox() == inbox }, func(_ bus.Identity, cut func()) { cut() })
}

// Anybody can be cut as often as they connect, so that costs no look at all connections.
func TestACutLooksAtOneConnection(t *testing.T) {
	w := begin(t)
	w.open = []bus.Identity{{Role: bus.RoleMinion, Name: "web1", Nonce: "a"}, {Role: bus.RoleUnaccepted, Name: "web2", Nonce: "b"}}
	w.Cut(w.open[1].Inbox())
	if !slices.Equal(w.cuts, []string{"web2"}) || w.walks > 0 {
		t.Errorf("%v were cut, and all looked at %d times", w.cuts, w.walks)
	}
}

// CountMinions implements Connections.
func (w *world) CountMinions() int {
	names := map[string]bool{}
	w.each(func(i bus.Identity) bool { return i.Role == bus.RoleMinion }, func(i bus.Identity, _ func()) { names[i.Name] = true })
	return len(names)
}

// Lookup implements Users: 0 is an operator, everybody else is not.
func (w *world) Lookup(_ context.Context, uid int) auth.User {
	if uid == 0 {
		return auth.User{Name: "root", Operator: true}
	}
	return auth.User{UID: uid, Name: "fred"}
}

func begin(t *testing.T) *world {
	t.Helper()
	cfg := &config.Master{}
	cfg.PKIDir = t.TempDir()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	keys, err := keyring.Open(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	keys.Here = func(string) bool { return false }
	w := &world{t: t}
	w.Admission = New(t.Context(), Options{Keys: keys, Users: w, Version: "test", Log: log})
	w.Admission.Audit, w.Decided, w.Events, w.Minions, w.Jobs, w.Connections = w, w, w, w, w, w
	w.Unwritable = func() error { return nil }
	w.DecidedElsewhere = func() bool { return false }
	return w
}

// peer is a connection whose certificate has this name.
func (w *world) peer(name string, key *pki.PrivateKey) broker.Peer {
	w.t.Helper()
	c, err := key.Certificate(name)
	if err != nil {
		w.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		w.t.Fatal(err)
	}
	return broker.Peer{Remote: "192.0.2.1:1", Host: "192.0.2.1", TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}}
}

// entry is what the key directory has of an id.
func (w *world) entry(id salt.MinionID) pki.Entry {
	w.t.Helper()
	list, err := w.Keys.Store.Of(id)
	if err != nil || len(list) != 1 {
		w.t.Fatalf("%d keys of %s, %v", len(list), id, err)
	}
	return list[0]
}

func TestAKeyDecidesTheRole(t *testing.T) {
	w := begin(t)
	p := w.peer("web1", bustest.Key(t))
	if i := w.Admit(p); i.Role != bus.RoleUnaccepted || i.Name != "web1" {
		t.Errorf("a new key is %+v", i)
	}
	if i := w.Admit(p); i.Role != bus.RoleUnaccepted {
		t.Errorf("a waiting key is %+v", i)
	}
	if err := w.Keys.Store.Accept(w.entry("web1")); err != nil {
		t.Fatal(err)
	}
	if i := w.Admit(p); i.Role != bus.RoleMinion || i.Source != "192.0.2.1:1" {
		t.Errorf("an accepted key is %+v", i)
	}
	call := p
	call.Caller = true
	if i := w.Admit(call); i.Role != bus.RoleCaller {
		t.Errorf("salt-call with an accepted key is %+v", i)
	}
	if i := w.Admit(w.peer("web1", bustest.Key(t))); i.Role != bus.RoleUnaccepted {
		t.Errorf("another key for the same id is %+v", i)
	}
	if err := w.Keys.Store.Reject(w.entryIn("web1", pki.Accepted)); err != nil {
		t.Fatal(err)
	}
	if i := w.Admit(p); i.Role != bus.RoleUnaccepted {
		t.Errorf("a rejected key is %+v", i)
	}
	if want := []any{"pend", "accept", "denied", "reject"}; !slices.Equal(w.acts, want) {
		t.Errorf("events: %v, want %v: the waiting key and salt-call leave none", w.acts, want)
	}
	for _, n := range w.notes {
		if n.Verdict == audit.Allowed || n.Reason == "" || n.Fun != "key.connect" {
			t.Errorf("the audit log has %+v", n)
		}
	}
	if len(w.notes) != 3 {
		t.Errorf("%d entries in the audit log, want 3", len(w.notes))
	}
}

// entryIn is the key of an id in this state.
func (w *world) entryIn(id salt.MinionID, s pki.State) pki.Entry {
	w.t.Helper()
	list, err := w.Keys.Store.Of(id)
	for _, e := range list {
		if e.State == s {
			return e
		}
	}
	w.t.Fatalf("no key of %s is %s: %v", id, s, err)
	return pki.Entry{}
}

// TestNobodyComesInWithoutAKey: the zero identity may nothing.
func TestNobodyComesInWithoutAKey(t *testing.T) {
	w := begin(t)
	key := bustest.Key(t)
	for what, p := range map[string]broker.Peer{
		"no certificate": {TLS: new(tls.ConnectionState)}, "an id that is none": w.peer("../web1", key),
		"a client that nobody made": w.peer(salt.ClientPrefix+"dash", key), "a client whose name is none": w.peer(salt.ClientPrefix+"../dash", key),
	} {
		if i := w.Admit(p); i != (bus.Identity{}) {
			t.Errorf("%s is %+v", what, i)
		}
	}
}

func TestClients(t *testing.T) {
	w := begin(t)
	good, old := bustest.Key(t), bustest.Key(t)
	for _, c := range []pki.Client{{Name: "good", Key: good.Public()}, {Name: "old", Key: old.Public(), Expires: time.Now().Add(-time.Second)}} {
		if err := w.Keys.Store.AddClient(c); err != nil {
			t.Fatal(err)
		}
	}
	i := w.Admit(w.peer(salt.ClientPrefix+"good", good))
	if i.Role != bus.RoleClient || i.Name != "good" {
		t.Errorf("a client is %+v", i)
	}
	for what, p := range map[string]broker.Peer{
		"one with the key of another": w.peer(salt.ClientPrefix+"good", old), "one whose time is over": w.peer(salt.ClientPrefix+"old", old),
	} {
		if i := w.Admit(p); i != (bus.Identity{}) {
			t.Errorf("%s is %+v", what, i)
		}
	}
	w.open = []bus.Identity{i, {Role: bus.RoleClient, Name: "old", Key: bus.KeyToken(old.Public().Key())}, {Role: bus.RoleMinion, Name: "web1"}}
	w.cutRefused(suspects{clients: true})
	if !slices.Equal(w.cuts, []string{"old"}) {
		t.Errorf("cut: %q, want the client whose time is over and nobody else", w.cuts)
	}
}

// Of the ids that are checked, those whose key is not accepted are disconnected.
func TestOnlyRefusedKeysAreDisconnected(t *testing.T) {
	w := begin(t)
	for _, name := range []string{"kept", "deleted", "other"} {
		p := w.peer(name, bustest.Key(t))
		w.Admit(p)
		id := salt.MinionID(name)
		if err := w.Keys.Store.Accept(w.entry(id)); err != nil {
			t.Fatal(err)
		}
		w.open = append(w.open, w.Admit(p))
	}
	for _, id := range []salt.MinionID{"deleted", "other"} {
		if err := w.Keys.Store.Delete(w.entry(id)); err != nil {
			t.Fatal(err)
		}
	}
	w.cutRefused(suspects{ids: map[salt.MinionID]bool{"kept": true, "deleted": true}})
	if !slices.Equal(w.cuts, []string{"deleted"}) || !slices.Equal(w.gone, []salt.MinionID{"deleted"}) {
		t.Errorf("cut %q and forgotten %q, want deleted alone: nobody has said that other changed", w.cuts, w.gone)
	}
}

// TestAChangeOfKeysLooksAtItsConnections: many keys may be deleted one by one, or give way to new ones that anybody brings,
// and each change is checked twice. No change may cost a look at all connections, of which there are thousands; salt-call,
// which has the key of the minion, is cut with it.
func TestAChangeOfKeysLooksAtItsConnections(t *testing.T) {
	w := begin(t)
	ids := []salt.MinionID{"web1", "web2", "web3"}
	for _, id := range ids {
		p := w.peer(string(id), bustest.Key(t))
		w.Admit(p)
		if err := w.Keys.Store.Accept(w.entry(id)); err != nil {
			t.Fatal(err)
		}
		w.open = append(w.open, w.Admit(p))
		p.Caller = true
		w.open = append(w.open, w.Admit(p))
	}
	changed := make(chan pki.Seen)
	done := make(chan struct{})
	go func() { defer close(done); w.Watch(changed) }()
	for _, id := range ids[:2] {
		if err := w.Keys.Store.Delete(w.entry(id)); err != nil {
			t.Fatal(err)
		}
		changed <- ofID(id)
	}
	close(changed)
	<-done
	if want := []string{"web1", "web1", "web2", "web2"}; !slices.Equal(w.cuts, want) {
		t.Errorf("cut are %q, want %q", w.cuts, want)
	}
	if w.walks > 0 {
		t.Errorf("for two keys all connections were looked at %d times", w.walks)
	}
}

// Anybody can set SUDO_USER: it counts only where the process runs as an operator.
func TestSudoUserCountsOnlyForOperators(t *testing.T) {
	w := begin(t)
	for _, c := range []struct {
		uid  uint32
		sudo string
		want bus.Identity
	}{
		{0, "", bus.Identity{Name: "0"}}, {0, "root", bus.Identity{Name: "0"}}, {0, "fred", bus.Identity{Name: "0", Sudo: "fred"}},
		{1000, "root", bus.Identity{Name: "1000"}}, {1000, "anna", bus.Identity{Name: "1000"}},
	} {
		i := w.Admit(broker.Peer{Local: socket.Peer{UID: c.uid}, Sudo: c.sudo})
		if i.Role != bus.RoleUser || i.Name != c.want.Name || i.Sudo != c.want.Sudo {
			t.Errorf("uid %d with SUDO_USER=%q is %+v", c.uid, c.sudo, i)
		}
	}
	if i := w.Admit(broker.Peer{Sudo: "no\nname"}); i != (bus.Identity{}) {
		t.Errorf("an operator behind sudo without a name is %+v", i)
	}
}

// TestHostsThatBringTooManyKeys: however many hosts send keys that are turned away, or
// certificates that make no sense, the log has a line of few of them.
func TestHostsThatBringTooManyKeys(t *testing.T) {
	w := begin(t)
	var said bytes.Buffer
	w.Log = slog.New(slog.NewTextHandler(&said, nil))
	for n := range 3 * maxHostsLogged {
		p := broker.Peer{Host: fmt.Sprint("192.0.2.", n)}
		for i := range maxOfHost + 2 {
			if got, want := w.tooMany(p, false), i >= maxOfHost; got != want && n*maxOfHost+i < maxOfAnybody {
				t.Fatalf("key %d of host %d is too many: %t, want %t", i, n, got, want)
			}
		}
		for range 3 {
			w.refuseUnaccepted(p, errors.New("no client certificate"))
		}
	}
	for what, most := range map[string]int{"more keys are refused": maxHostsLogged, "connection refused": maxHostsLogged} {
		if n := strings.Count(said.String(), what); n != most {
			t.Errorf("%q is said %d times of %d hosts, want %d", what, n, 3*maxHostsLogged, most)
		}
	}
}

// An accepted key and the credentials of a client can connect as often as they like without
// filling the log.
func TestAllowedConnectionsAreNotLoggedEachTime(t *testing.T) {
	w := begin(t)
	var said bytes.Buffer
	w.Log = slog.New(slog.NewTextHandler(&said, nil))
	minion, key := w.peer("web1", bustest.Key(t)), bustest.Key(t)
	client := w.peer(salt.ClientPrefix+"dash", key)
	w.Admit(minion)
	if err := w.Keys.Store.Accept(w.entry("web1")); err != nil {
		t.Fatal(err)
	}
	if err := w.Keys.Store.AddClient(pki.Client{Name: "dash", Key: key.Public()}); err != nil {
		t.Fatal(err)
	}
	newer := bus.Identity{Role: bus.RoleMinion, Name: "web1", Nonce: "newer", Source: "192.0.2.2:1025"}
	w.open = []bus.Identity{{Role: bus.RoleMinion, Name: "web1", Nonce: "older", Source: "192.0.2.1:1024"}, newer}
	w.acts = nil
	for range 3 * maxAnnounced {
		w.Admit(minion)
		w.CutOlder("web1", newer.Inbox())
		w.Admit(client)
	}
	if w.walks > 0 {
		t.Errorf("for %d connections all were looked at %d times", 3*maxAnnounced, w.walks)
	}
	for _, what := range []string{"Authentication accepted from web1", "client connected", "minion connected again"} {
		if n := strings.Count(said.String(), what); n != maxConnected {
			t.Errorf("%q is said %d times of %d, want %d", what, n, 3*maxAnnounced, maxConnected)
		}
	}
	if text := said.String(); strings.Count(text, "remote=192.0.2.2:1025 older_remote=192.0.2.1:1024") != maxConnected || strings.Count(text, "more=") != 1 {
		t.Errorf("the addresses of both connections are not logged: %s", text)
	}
	if len(w.acts) != maxAnnounced {
		t.Errorf("%d events of one minion that connects, want %d", len(w.acts), maxAnnounced)
	}
}

// TestADecisionOfAnotherMemberIsNoEventHere: its member has stored that for all, and reactions to it would run
// once for each member. The audit log of each has it.
func TestADecisionOfAnotherMemberIsNoEventHere(t *testing.T) {
	w := begin(t)
	var said bytes.Buffer
	w.Log = slog.New(slog.NewTextHandler(&said, nil))
	for id, elsewhere := range map[salt.MinionID]bool{"web1": true, "web2": false} {
		w.Admit(w.peer(string(id), bustest.Key(t)))
		w.acts, w.notes = nil, nil
		if err := w.Keys.By(audit.Who{Source: "the master m2", Elsewhere: elsewhere}).Accept(w.entry(id)); err != nil {
			t.Fatal(err)
		}
		if err := w.Keys.Refresh(); err != nil {
			t.Fatal(err)
		}
		w.announceKeys(w.Keys.Take())
		if len(w.notes) != 1 || w.notes[0].Source != "the master m2" || len(w.acts) > 0 == elsewhere {
			t.Errorf("%s, elsewhere %v: events %v, entries %v", id, elsewhere, w.acts, w.notes)
		}
	}
	if !strings.Contains(said.String(), `source="the master m2"`) {
		t.Errorf("the log does not say where it was decided:\n%s", &said)
	}
}
