package fleet_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/fleet"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// jobs implements fleet.Jobs, and notes in order what it is told.
type jobs struct {
	mu   sync.Mutex
	said []string
	back chan string
}

func (j *jobs) note(words ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.said = append(j.said, strings.TrimSuffix(fmt.Sprintln(words...), "\n"))
}

func (j *jobs) Awaited(id salt.MinionID) []salt.JID {
	j.note("awaited", id)
	return []salt.JID{"20260102030405678901"}
}

func (j *jobs) Back(id salt.MinionID, key string) {
	j.note("back", id)
	j.back <- key
}

func (j *jobs) Lost(id salt.MinionID) { j.note("lost", id) }

func (j *jobs) all() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.said, ", ")
}

// keys implements fleet.Keys: web1 is accepted.
type keys struct{}

func (keys) IDs() []salt.MinionID                { return []salt.MinionID{"web1"} }
func (keys) Token(salt.MinionID) (string, error) { return "", nil }

// arrivals are those of a master behind a real broker.
type arrivals struct {
	*fleet.Arrivals
	bus         *bustest.Bus
	connections *connections
	jobs        *jobs
	cut         []string
}

func open(t *testing.T) *arrivals {
	t.Helper()
	b := bustest.StartStore(t)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	f, err := fleet.Open(t.Context(), fleet.Options{Journal: j, Keys: keys{}, Log: b.Log})
	if err != nil {
		t.Fatal(err)
	}
	a := &arrivals{bus: b, connections: &connections{Bus: b}, jobs: &jobs{back: make(chan string, 10)}}
	a.Arrivals = &fleet.Arrivals{
		Fleet: f, Connections: a.connections, Jobs: a.jobs, Now: func() time.Time { return time.Unix(1e9, 0).UTC() }, Version: "1.2.3", Log: slog.New(slog.DiscardHandler),
		CutOlder: func(id salt.MinionID, inbox string) { a.cut = append(a.cut, string(id)+" but "+inbox) },
	}
	var table bus.Endpoints
	for _, e := range bus.MasterEndpoints {
		if e.Op == protocol.OpHello {
			table = append(table, e)
		}
	}
	s := rpc.NewServer(b.Conn(), b.Owner, table, b.Log)
	s.Handle("hello", a.Hello)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return a
}

// TestHello: a minion that says hello is a target with its facts, its older connections are
// cut, and jobs hear that it is there once it knows so. When it goes they hear that too.
func TestHello(t *testing.T) {
	t.Parallel()
	a := open(t)
	c := a.bus.As(t, bus.RoleMinion, "web1")
	var w protocol.Welcome
	if err := rpc.NewConn(c.Conn, c.Self).Ask(t.Context(), protocol.OpHello, protocol.Hello{Grains: value.Value{V: map[string]any{"os": "Debian"}}, Version: "1"}, &w); err != nil {
		t.Fatal(err)
	}
	if !w.Time.Equal(time.Unix(1e9, 0)) || w.Version != "1.2.3" || !slices.Equal(w.Jobs, []salt.JID{"20260102030405678901"}) {
		t.Errorf("welcomed with %+v", w)
	}
	if key := deadline.Receive(t, a.jobs.back, "back"); key != c.Self.Key {
		t.Errorf("it is back with the key %s, want %s", key, c.Self.Key)
	}
	if there, _ := a.Fleet.Connected("web1"); !there || a.Fleet.Grains("web1")["os"] != "Debian" {
		t.Errorf("connected: %v, grains %v", there, a.Fleet.Grains("web1"))
	}
	if want := []string{"web1 but " + c.Self.Inbox()}; !slices.Equal(a.cut, want) {
		t.Errorf("cut: %q, want %q", a.cut, want)
	}
	a.Gone(bus.Identity{Role: bus.RoleCaller, Name: "web1", Key: c.Self.Key, Nonce: c.Self.Nonce})
	a.Gone(bus.Identity{Role: bus.RoleMinion, Name: "web1", Key: c.Self.Key, Nonce: bus.NewNonce()}) // one of before
	if there, _ := a.Fleet.Connected("web1"); !there {
		t.Error("another connection has ended, and the minion counts as gone")
	}
	a.Gone(c.Self)
	if there, seen := a.Fleet.Connected("web1"); there || seen.IsZero() {
		t.Errorf("gone: connected %v, last seen %v", there, seen)
	}
	if got, want := a.jobs.all(), "awaited web1, back web1, lost web1"; got != want {
		t.Errorf("jobs heard %q, want %q", got, want)
	}
}

// TestOnlyTheDaemonOfAMinionTakesJobs: salt-call has the minion's key and may not; nor does
// a connection become a target that ends meanwhile, or facts that are not a map.
func TestOnlyTheDaemonOfAMinionTakesJobs(t *testing.T) {
	t.Parallel()
	a := open(t)
	hello := protocol.Hello{Grains: value.Value{V: map[string]any{}}, Version: "1"}
	caller := a.bus.As(t, bus.RoleCaller, "web1")
	stream, err := rpc.NewConn(caller.Conn, caller.Self).Call(protocol.OpHello, hello)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-caller.Violations:
		if !strings.Contains(err.Error(), "Permissions Violation") {
			t.Errorf("salt-call says hello: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("salt-call may say hello")
	}
	stream.Close()
	c := a.bus.As(t, bus.RoleMinion, "web2")
	if err := rpc.NewConn(c.Conn, c.Self).Ask(t.Context(), protocol.OpHello, protocol.Hello{Grains: value.Value{V: []any{"os"}}, Version: "1"}, nil); err == nil {
		t.Error("grains that are not a map were taken")
	}
	a.connections.ended.Store(true)
	d := a.bus.As(t, bus.RoleMinion, "web3")
	if err := rpc.NewConn(d.Conn, d.Self).Ask(t.Context(), protocol.OpHello, hello, nil); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("a connection that has ended: %v", err)
	}
	for _, id := range []salt.MinionID{"web1", "web2", "web3"} {
		if there, _ := a.Fleet.Connected(id); there {
			t.Errorf("%s is a target", id)
		}
	}
	if said := a.jobs.all(); said != "" {
		t.Errorf("jobs heard %q", said)
	}
}

// connections implements fleet.Connections.
type connections struct {
	*bustest.Bus
	ended atomic.Bool // all of them
}

// Owner implements fleet.Connections.
func (c *connections) Owner(inbox string) (bus.Identity, bool) {
	if c.ended.Load() {
		return bus.Identity{}, false
	}
	return c.Bus.Owner(inbox)
}
