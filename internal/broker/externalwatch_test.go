package broker

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/test/capture"
)

// played is a NATS server of others, whose answers about its connections are made by a test.
type played struct {
	t  *testing.T
	nc *nats.Conn
	x  *External
}

const playedID = "PLAYED"

// play returns one, with an External that asks it.
func play(t *testing.T) *played {
	t.Helper()
	s, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	connect := func() *nats.Conn {
		nc, err := nats.Connect("", nats.InProcessServer(s))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	c, err := EnsureCredentials(filepath.Join(t.TempDir(), "seed"))
	if err != nil {
		t.Fatal(err)
	}
	x := &External{
		opts: ExternalOptions{Credentials: c}, log: slog.New(slog.DiscardHandler), watcher: connect(), look: make(chan struct{}, 1), gone: make(chan struct{}, 1), page: connzPage,
		in: map[place]*guest{}, inboxes: map[string]place{}, minions: minions[place]{}, perKey: keys[place]{}, servers: map[string]time.Time{},
	}
	x.remote, x.store = newRemote(x), connect()
	return &played{t, connect(), x}
}

// answer has answers made by f.
func (p *played) answer(subject string, f func(body []byte) any) {
	p.t.Helper()
	_, err := p.nc.Subscribe(subject, func(m *nats.Msg) {
		b, err := json.Marshal(f(m.Data))
		if err == nil {
			err = m.Respond(b)
		}
		if err != nil {
			p.t.Error(err)
		}
	})
	if err == nil {
		err = p.nc.Flush()
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// connz has questions about connections answered as a server does it: list has those of that time, after n
// answers.
func (p *played) connz(list func(n int) (cids []uint64)) {
	p.t.Helper()
	n := 0
	p.answer("$SYS.REQ.SERVER.PING.IDZ", func([]byte) any { return server.ServerID{ID: playedID} })
	p.answer("$SYS.REQ.SERVER."+playedID+".CONNZ", func(body []byte) any {
		var q server.ConnzOptions
		if err := json.Unmarshal(body, &q); err != nil {
			p.t.Error(err)
		}
		cids := list(n)
		n++
		c := &server.Connz{}
		for _, cid := range cids[min(q.Offset, len(cids)):min(q.Offset+q.Limit, len(cids))] {
			c.Conns = append(c.Conns, &server.ConnInfo{Cid: cid})
		}
		return struct {
			Data *server.Connz `json:"data"`
		}{c}
	})
}

// enter admits connections, some time ago.
func (p *played) enter(cids ...uint64) {
	for _, cid := range cids {
		i := bus.Identity{Role: bus.RoleMinion, Name: string(rune('a' + cid)), Nonce: bus.NewNonce()}
		at := place{playedID, cid}
		p.x.in[at], p.x.inboxes[i.Inbox()] = &guest{i, time.Now().Add(-time.Hour)}, at
		p.x.minions.add(i, at)
		p.x.perKey.add(i.Key, at)
	}
}

// known are the connections that count.
func (p *played) known() (cids []uint64) {
	p.x.mu.Lock()
	defer p.x.mu.Unlock()
	for at := range p.x.in {
		cids = append(cids, at.cid)
	}
	slices.Sort(cids)
	return cids
}

// TestAConnectionBetweenTwoPagesIsThere: while a long list of connections is read, connections at its
// beginning end, so that what follows moves to pages that were read already. Only who is not there is forgotten.
func TestAConnectionBetweenTwoPagesIsThere(t *testing.T) {
	for _, test := range []struct {
		what string
		from map[int][]uint64 // the list from this answer on
		want []uint64
		fits bool
	}{
		{"none ends", map[int][]uint64{0: {1, 2, 3, 4, 5, 7, 8}}, []uint64{1, 2, 3, 4, 5, 7, 8}, true},
		{"one ends", map[int][]uint64{0: {1, 2, 3, 4, 5, 7}, 1: {2, 3, 4, 5, 7}}, []uint64{1, 2, 3, 4, 5, 7}, true},
		{"two end, and one more later", map[int][]uint64{0: {1, 2, 3, 4, 5, 7, 8}, 1: {3, 4, 5, 7, 8}, 3: {4, 5, 7, 8}}, []uint64{1, 2, 3, 4, 5, 7, 8}, true},
		{"all of the first page end", map[int][]uint64{0: {1, 2, 3, 4, 5}, 1: {4, 5}}, []uint64{1, 2, 3, 4, 5}, true},
		{"one is left", map[int][]uint64{0: {1, 2, 3, 4, 5, 7, 8}, 1: {8}}, []uint64{1, 2, 3, 8}, true},
		{"one ends before each page", map[int][]uint64{0: {1, 2, 3, 4, 5, 6, 7, 8}, 1: {2, 3, 4, 5, 6, 7, 8}, 3: {3, 4, 5, 6, 7, 8}, 5: {4, 5, 6, 7, 8}, 7: {5, 6, 7, 8, 9}, 9: {6, 7, 8, 9, 10}, 11: {7, 8, 9, 10, 11}}, []uint64{1, 2, 3, 4, 5, 6, 7, 8}, false},
	} {
		p := play(t)
		p.x.page = 3
		p.enter(1, 2, 3, 4, 5, 6, 7, 8)
		p.connz(func(n int) []uint64 {
			for test.from[n] == nil {
				n--
			}
			return test.from[n]
		})
		err := p.x.compare(t.Context(), playedID)
		if got := p.known(); !slices.Equal(got, test.want) || (err == nil) != test.fits {
			t.Errorf("%s: %v are known, want %v; %v", test.what, got, test.want, err)
		}
	}
}

// TestAMasterThatSeesNothingTakesNoServerForGone: where nobody answers questions about servers at all, that
// says nothing about a server with minions. But none is admitted, since its end would not be heard of.
func TestAMasterThatSeesNothingTakesNoServerForGone(t *testing.T) {
	said := new(capture.Buffer)
	p := play(t)
	p.x.log, p.x.serving, p.x.traffic = slog.New(slog.NewTextHandler(said, nil)), true, p.x.store
	at := place{playedID, 1}
	if err := p.x.enter(at, bus.Identity{Role: bus.RoleMinion, Name: "a", Nonce: bus.NewNonce()}); err != nil {
		t.Fatal(err)
	}
	p.x.checkServers(t.Context())
	if strings.Contains(said.String(), "gone") {
		t.Errorf("a server is taken for gone:\n%s", said)
	}
	if err := p.x.enter(place{playedID, 2}, bus.Identity{Role: bus.RoleMinion, Name: "b", Nonce: bus.NewNonce()}); err == nil {
		t.Error("a connection is admitted whose end nobody would hear of")
	}
	p.answer("$SYS.REQ.SERVER."+p.nc.ConnectedServerId()+".IDZ", func([]byte) any { return server.ServerID{} })
	examineSystem(t.Context(), p.x)
	if err := p.x.enter(at, bus.Identity{Role: bus.RoleMinion, Name: "a", Nonce: bus.NewNonce()}); err != nil {
		t.Errorf("after it was answered: %v", err)
	}
	p.x.checkServers(t.Context())
	if !strings.Contains(said.String(), "a NATS server is gone") {
		t.Errorf("the server is gone, and the others answer:\n%s", said)
	}
}

// TestOthersOfAJournalThatDoNotEnd: a master takes a journal over only if a server has shown, within the
// time for it, that no other master is connected.
func TestOthersOfAJournalThatDoNotEnd(t *testing.T) {
	t.Parallel()
	some := func(int) []uint64 { return []uint64{1 << 40} }
	none := func(int) []uint64 { return nil }
	for _, test := range []struct {
		what  string
		begin func(p *played)
		time  time.Duration
		ended bool
	}{
		{"one comes back each time", func(p *played) { p.connz(some) }, gather + 2*remotePause, false},
		{"the time is up before there is an answer", func(p *played) { p.connz(none) }, gather / 2, false},
		{"no server answers", func(*played) {}, 3 * gather, false},
		{"one ends", func(p *played) {
			p.connz(func(n int) []uint64 {
				if n == 0 {
					return some(n)
				}
				return nil
			})
		}, endTime, true},
		{"one server does not answer", func(p *played) {
			p.connz(none)
			p.answer("$SYS.REQ.SERVER.PING.IDZ", func([]byte) any { return server.ServerID{ID: "SILENT"} })
			if _, err := p.nc.Subscribe("$SYS.REQ.SERVER.SILENT.CONNZ", func(*nats.Msg) {}); err != nil {
				p.t.Fatal(err)
			}
		}, endTime, true},
	} {
		p := play(t)
		test.begin(p)
		p.x.remote.endTime = test.time
		if err := p.x.remote.EndOthers(t.Context()); (err == nil) != test.ended {
			t.Errorf("%s: %v", test.what, err)
		}
	}
}
