package membership

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// rogue is a NATS server of somebody who has the key of a member. It answers what the leader of all members sends
// in the name of that member, and of as many others as it likes, none of which exists.
type rogue struct {
	server *server.Server
	ghosts atomic.Int64
	id     string // of the member
}

// startRogue starts it in the place of a member that is stopped.
func startRogue(t *testing.T, m *bustest.Member) *rogue {
	t.Helper()
	o, err := m.Options()
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		t.Fatal(err)
	}
	const system = "SYS"
	users := server.NewAccount(system)
	so := &server.Options{
		ServerName: m.Name, DontListen: false, Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true,
		Accounts: []*server.Account{users, server.NewAccount("SALT")}, SystemAccount: system,
		Users: []*server.User{{Username: "system", Password: "x", Account: users}},
		Cluster: server.ClusterOpts{
			Name: m.System.ID, Host: host, PoolSize: -1, NoAdvertise: true,
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{o.Certificate}, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true},
		},
	}
	so.Cluster.Port, _ = strconv.Atoi(port)
	for _, peer := range m.System.Peers {
		if peer != o.Listen {
			so.Routes = append(so.Routes, &url.URL{Scheme: "nats-route", Host: peer})
		}
	}
	r := &rogue{}
	if r.server, err = server.NewServer(so); err != nil {
		t.Fatal(err)
	}
	r.server.Start()
	r.id = r.server.Node()
	t.Cleanup(func() { r.server.Shutdown(); r.server.WaitForShutdown() })
	bustest.Until(t, "it has its routes", func() bool { return r.server.NumRoutes() >= len(so.Routes) })
	nc, err := nats.Connect("nats://self", nats.InProcessServer(r.server), nats.UserInfo("system", "x"), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := nc.Subscribe("$NRG.AE._meta_", func(e *nats.Msg) { r.answer(nc, e) }); err != nil {
		t.Fatal(err)
	}
	return r
}

// answer confirms what the leader sends: leader (8 bytes), term, commit, term and index before, number of entries.
func (r *rogue) answer(nc *nats.Conn, e *nats.Msg) {
	if len(e.Data) < 42 || e.Reply == "" {
		return
	}
	index := binary.LittleEndian.Uint64(e.Data[32:])
	if binary.LittleEndian.Uint16(e.Data[40:]) > 0 {
		index++
	}
	ids := []string{r.id}
	for n := range r.ghosts.Load() {
		ids = append(ids, fmt.Sprintf("ghost%02d", n)+[]string{"x", "\xff"}[n%2]) // every other one is no text
	}
	for _, id := range ids {
		b := slices.Concat(e.Data[8:16], binary.LittleEndian.AppendUint64(nil, index), []byte(id), []byte{1})
		_ = nc.Publish(e.Reply, b)
	}
}

// count waits until so many count for elections at a member.
func count(t *testing.T, m *bustest.Member, n int) {
	t.Helper()
	bustest.Until(t, fmt.Sprintf("%d count", n), func() bool { return m.Cluster.Known() == n })
}

// ghosts starts three members, the last of which somebody else plays who has its key, and lets twenty others count
// that do not exist.
func ghosts(t *testing.T) (s *bustest.System, dirs []string) {
	t.Helper()
	s, dirs = removing(t, 3)
	s.Start(t)
	s.Linked(t)
	s.Leader(t)
	s.Members[2].Stop()
	bustest.Until(t, "the others have a leader", func() bool { return s.Members[0].Cluster.Known() == 3 && s.Members[1].Cluster.Known() == 3 })
	startRogue(t, s.Members[2]).ghosts.Store(20)
	count(t, s.Members[0], 23)
	return s, dirs
}

// watches looks often who counts, until the end of the test.
func watches(t *testing.T, m *bustest.Member, dir string, log *slog.Logger) *Membership {
	t.Helper()
	k := with(t, m, dir)
	k.log, k.voters.every = log, 100*time.Millisecond
	t.Cleanup(during(t.Context(), func(ctx context.Context) { watchVoters(ctx, k) }))
	return k
}

// TestWhoIsNoMemberDoesNotCount: somebody with the key of a member has twenty others counted that do not exist.
// They are forgotten while they still have the majority; the members are not, also one that is away.
func TestWhoIsNoMemberDoesNotCount(t *testing.T) {
	t.Parallel()
	s, dirs := ghosts(t)
	for i, m := range s.Members[:2] {
		watches(t, m, dirs[i], m.Log)
	}
	count(t, s.Members[0], 3)
	count(t, s.Members[1], 3)
}

// TestAStolenKeyDoesNotTakeTheQuorum: the same, and the stolen key is refused before anything is forgotten, so that
// two members of 23 are left. They elect no leader by themselves, but after a removal, or when somebody has touched
// the list.
func TestAStolenKeyDoesNotTakeTheQuorum(t *testing.T) {
	t.Parallel()
	s, dirs := ghosts(t)
	stolen, rest := s.Members[2], s.Members[:2]
	long := time.Now().Add(-2 * rescueTime)
	for i, m := range rest {
		path := member.RemovedFile(dirs[i])
		if err := errors.Join(member.AddRemoved(path, member.Removal{Fingerprint: stolen.Key.Public().SHA256(), Name: stolen.Name}, "by hand"), os.Chtimes(path, long, long)); err != nil {
			t.Fatal(err)
		}
		m.Cluster.Cut()
	}
	logs := &log{}
	members := []*Membership{watches(t, rest[0], dirs[0], slog.New(slog.NewTextHandler(logs, nil))), watches(t, rest[1], dirs[1], rest[1].Log)}
	bustest.Until(t, "the log says why there is no leader", func() bool { return strings.Contains(logs.String(), "most of those that count are of no member") })
	if v := rest[0].Cluster.Voters(nil); v.Leader || len(v.Unknown) < 20 || v.Quorum < 11 { // the last leader may have begun to forget one
		t.Errorf("before the list was touched: %+v", v)
	}
	if err := os.Chtimes(member.RemovedFile(dirs[0]), time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	count(t, rest[0], 3)
	count(t, rest[1], 3)
	others(t, members[0], 1)
	if _, _, err := members[0].RemoveMember(t.Context(), stolen.Name); err != nil {
		t.Error(err)
	}
	count(t, rest[0], 2)
	count(t, rest[1], 2)
}

// TestAStartDoesNotWaitForForeignVoters: the members that are left are restarted before they have forgotten who is no
// member. They do that while they start, since they wait for a leader then.
func TestAStartDoesNotWaitForForeignVoters(t *testing.T) {
	t.Parallel()
	s, dirs := ghosts(t)
	stolen, rest := s.Members[2], s.Members[:2]
	for i, m := range rest {
		if err := member.AddRemoved(member.RemovedFile(dirs[i]), member.Removal{Fingerprint: stolen.Key.Public().SHA256(), Name: stolen.Name}, "by hand"); err != nil {
			t.Fatal(err)
		}
		m.Cluster.Cut()
		m.Stop()
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, m := range rest {
		m.Start(t)
		cluster, err := m.Options()
		if err != nil {
			t.Fatal(err)
		}
		k := &Membership{identity: identity{name: m.Name, peers: s.Peers, self: s.Peers[i]}, cluster: cluster, cfg: &config.Master{}, log: m.Log}
		k.removals = removals{path: member.RemovedFile(dirs[i]), name: m.Name, key: m.Key.Public().SHA256(), log: m.Log}
		k.voters.every = 100 * time.Millisecond
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), deadline.Time)
			defer cancel()
			if err := k.Join(ctx, m.Broker, func(string) {}); err != nil {
				t.Error(err)
			}
		})
	}
}

// log is a log in memory.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestWhoIsForgotten: what is of no known member at enough looks in a row is forgotten, by the leader. A lower quorum
// is set only if that is what is missing, and if it is more than half of all that may be members.
func TestWhoIsForgotten(t *testing.T) {
	ids := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprint("x", i))
		}
		return list
	}
	type look struct {
		v      broker.Voters
		unsure bool
	}
	repeat := func(l look, n int) []look { return slices.Repeat([]look{l}, n) }
	leads := broker.Voters{Leads: true, Leader: true, Quorum: 3, Known: 3, Reached: 3, Unknown: ids(2)}
	lost := broker.Voters{Quorum: 12, Known: 3, Reached: 2, Unknown: ids(20)}
	with := func(v broker.Voters, change func(*broker.Voters)) broker.Voters { change(&v); return v }
	known := with(leads, func(v *broker.Voters) { v.Unknown = nil })
	for name, c := range map[string]struct {
		looks  []look
		forget int
		quorum int
	}{
		"seldom":                            {repeat(look{v: leads}, foreignLooks-1), 0, 0},
		"often":                             {repeat(look{v: leads}, foreignLooks), 2, 0},
		"not in a row":                      {append(append(repeat(look{v: leads}, foreignLooks-1), look{v: known}), look{v: leads}), 0, 0},
		"a member has another list":         {repeat(look{v: leads, unsure: true}, unsureLooks-1), 0, 0},
		"a member has another list, always": {repeat(look{v: leads, unsure: true}, unsureLooks), 2, 0},
		"another one leads":                 {repeat(look{v: with(leads, func(v *broker.Voters) { v.Leads = false })}, unsureLooks), 0, 0},
		"many":                              {repeat(look{v: with(leads, func(v *broker.Voters) { v.Unknown = ids(100) })}, foreignLooks), maxForgotten, 0},
		"an election":                       {repeat(look{v: lost}, leaderlessLooks-1), 0, 0},
		"no leader":                         {repeat(look{v: lost}, leaderlessLooks), 0, 2},
		"no leader, and most are away":      {repeat(look{v: with(lost, func(v *broker.Voters) { v.Reached = 1 })}, 100), 0, 0},
		"no leader, for another reason":     {repeat(look{v: with(lost, func(v *broker.Voters) { v.Quorum, v.Unknown = 2, ids(1) })}, 100), 0, 0},
		"some may be members":               {append(repeat(look{v: with(lost, func(v *broker.Voters) { v.Unknown = ids(18) })}, 10), look{v: lost}), 0, 0},
	} {
		var s voters
		var forget []string
		quorum := 0
		for _, l := range c.looks {
			forget, quorum = s.look(l.v, !l.unsure)
		}
		if len(forget) != c.forget || quorum != c.quorum {
			t.Errorf("%s: %d are forgotten, %d are enough, want %d and %d", name, len(forget), quorum, c.forget, c.quorum)
		}
	}
}
