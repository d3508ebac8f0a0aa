package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/auth"
	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/authz/command"
	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/fleet"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/lease"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/bustest"
)

// node is the part of a master that handles jobs, on a real broker that is a member of a
// cluster. Its journal is on a separate broker, or that of the member itself.
type node struct {
	*Dispatcher
	bus      *bustest.Member
	fleet    *fleet.Fleet
	exchange *cluster.Exchange
	stop     context.CancelFunc
	takeNone context.CancelFunc // it takes over no jobs from then on
	log      *audit.Log         // of spooling
	refused  refusals
	tokens   map[salt.MinionID]string // of keys, for begin; "a key" for others
	args     []any                    // of the function, for begin; "a" if there are none
}

// refusals implements Audit.
type refusals struct {
	mu   sync.Mutex
	list []string
}

func (*refusals) Note(authz.Permission) {}
func (*refusals) Book(_ context.Context, _ authz.Permission, _ salt.JID, store func() error) error {
	return store()
}

func (*refusals) BookSpooled(authz.Permission, salt.JID, []event.Event, bool) error { return nil }

func (r *refusals) NoteReturn(id salt.MinionID, _ salt.JID, _ string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, string(id))
	return true
}

// anyKeys implements Keys and fleet.Keys: the key of every connected minion is accepted.
type anyKeys struct{}

func (anyKeys) Tokens(ids []salt.MinionID) map[salt.MinionID]string {
	all := map[salt.MinionID]string{}
	for _, id := range ids {
		all[id] = "a key"
	}
	return all
}
func (anyKeys) Accepts(salt.MinionID, string) bool                        { return true }
func (anyKeys) IDs() []salt.MinionID                                      { return nil }
func (anyKeys) Token(id salt.MinionID) (string, error)                    { return "a key", nil }
func (anyKeys) Announce(string, any)                                      {}
func (anyKeys) MinionFire(salt.MinionID, ...string) (d decision.Decision) { return d }

func startNode(t *testing.T, m *bustest.Member, number int) *node {
	t.Helper()
	j, err := journal.Open(t.Context(), bustest.StartStore(t).Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return startNodeOver(t, m, number, j, nil)
}

// startNodeOver starts a node with these journals.
func startNodeOver(t *testing.T, m *bustest.Member, number int, j *journal.Journal, all Journals) *node {
	t.Helper()
	var err error
	n := &node{bus: m}
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	elsewhere := &fleet.Elsewhere{Log: m.Log}
	n.exchange = cluster.New(cluster.Options{Name: m.Name, Conn: m.Conn(), Minions: elsewhere, Heartbeat: 400 * time.Millisecond, Log: m.Log})
	if n.fleet, err = fleet.Open(ctx, fleet.Options{Journal: j, Keys: anyKeys{}, Events: anyKeys{}, Log: m.Log, Members: n.exchange}); err != nil {
		t.Fatal(err)
	}
	var leases *lease.Member
	if all != nil {
		table, err := j.Table(journal.Starting(ctx), "leases")
		if err != nil {
			t.Fatal(err)
		}
		leases = lease.New(m.Name, table, m.Log)
	}
	n.Dispatcher, err = Open(ctx, Options{
		Journal: j, Journals: all, Name: m.Name, Fleet: n.fleet, Keys: anyKeys{}, Events: written{j}, Audit: &n.refused, Conn: m.Conn(), Key: m.Key, Durable: func() error { return nil }, Log: m.Log, Members: n.exchange,
		Number: number,
	})
	if err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	if leases != nil {
		n.Leases, n.grace = leases, 2*time.Second
		ended.Go(func() { leases.Run(ctx) })
	}
	elsewhere.Fleet, elsewhere.Jobs, elsewhere.Ask = n.fleet, n.Dispatcher, n.exchange.Ask
	elsewhere.Serve(n.exchange.Handle)
	ServeMembers(n.Dispatcher, n.exchange.Handle)
	arrivals := &fleet.Arrivals{Fleet: n.fleet, Connections: m.Bus, CutOlder: func(salt.MinionID, string) {}, Jobs: n.Dispatcher, Now: n.Now, Version: "1", Log: m.Log}
	boxes, err := outbox.NewReceiver(ctx, outbox.ReceiverOptions{Journal: j, Returns: n.Dispatcher, TagSpaces: anyKeys{}, Durable: func() error { return nil }, Log: m.Log})
	if err != nil {
		t.Fatal(err)
	}
	var table bus.Endpoints
	for _, e := range bus.MasterEndpoints {
		if slices.Contains([]string{"hello", "returned", "deliver", "publish"}, e.Handler) {
			table = append(table, e)
		}
	}
	s := rpc.NewServer(m.Conn(), m.Owner, table, m.Log)
	s.Handle("hello", arrivals.Hello)
	s.Handle("returned", n.Returned)
	s.Handle("deliver", boxes.Deliver)
	s.Handle("publish", NewRequests(n.Dispatcher, authorizer(t, n.fleet, m)).Publish)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if err := n.exchange.Start(); err != nil {
		t.Fatal(err)
	}
	left := m.Gone
	takeOver, takeNone := context.WithCancel(ctx)
	n.takeNone = takeNone
	ended.Go(func() { All{n.Dispatcher}.TakeOver(takeOver) })
	ended.Go(func() { elsewhere.Run(ctx) })
	ended.Go(func() {
		for {
			select {
			case i := <-left:
				s.Gone(i.Inbox())
				arrivals.Gone(i)
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() { n.stop(); s.Stop(); n.exchange.Stop(); n.Wait(); ended.Wait() })
	return n
}

// onlyWeb1 resolves each target to web1: anyKeys names nobody.
type onlyWeb1 struct{ *fleet.Fleet }

func (onlyWeb1) ParseTarget(context.Context, string, protocol.Publish) (*target.Target, error) {
	return target.Parse("web1", target.Glob, target.Options{})
}

func (onlyWeb1) Resolve(*target.Target, []*target.Target) (job.Start, error) {
	return job.Start{Minions: []salt.MinionID{"web1"}}, nil
}

// authorizer lets operators do everything.
func authorizer(t *testing.T, f *fleet.Fleet, m *bustest.Member) *authz.Authorizer {
	t.Helper()
	o := authz.Options{Users: new(auth.Users), Tables: command.New(nil), Log: m.Log}
	rules, err := authz.ParseRules(acl.Config{Runners: o.Tables.Runners(), Wheel: o.Tables.Wheel()}, true)
	if err != nil {
		t.Fatal(err)
	}
	a := authz.New(o, rules)
	a.Fleet = onlyWeb1{f}
	return a
}

// startNodes starts members of one cluster.
func startNodes(t *testing.T, count int) []*node {
	t.Helper()
	var all []*node
	for i, m := range bustest.StartSystem(t, count).Members {
		all = append(all, startNode(t, m, i))
	}
	for _, n := range all {
		bustest.Until(t, n.bus.Name+" knows the others", func() bool { return len(n.exchange.Others()) == count-1 })
	}
	return all
}

// minion is a connected minion that receives jobs.
type minion struct {
	*bustest.Client
	conn *rpc.Conn
	jobs chan *job.Envelope
	asks []salt.JID // jobs that it was asked about
}

// arrive connects a minion to a member, with its grains.
func (n *node) arrive(t *testing.T, id string) *minion {
	t.Helper()
	return n.arriveWith(t, id, bustest.Key(t))
}

func (n *node) arriveWith(t *testing.T, id string, key *pki.PrivateKey) *minion {
	t.Helper()
	n.bus.Accept(salt.MinionID(id), key)
	c, err := n.bus.Dial(bustest.Claim{ID: id, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	m := &minion{Client: c, conn: rpc.NewConn(c.Conn, c.Self), jobs: make(chan *job.Envelope, 100)}
	var pieces rpc.Assembler
	sub, err := c.SubscribeSync(bus.JobSubject(salt.MinionID(id)))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			msg, err := sub.NextMsg(time.Hour)
			if err != nil {
				return
			}
			b, done, err := pieces.Add(msg)
			if !done || err != nil {
				continue
			}
			e, err := job.Open(b, n.bus.Key.Public(), time.Now()) // as every minion does: its own master has signed it
			if err != nil {
				t.Error(err)
				continue
			}
			m.jobs <- e
		}
	}()
	var w protocol.Welcome
	bustest.Until(t, id+" is let in", func() bool { // during an election its grains cannot be stored
		return m.conn.Ask(t.Context(), protocol.OpHello, protocol.Hello{Grains: value.Value{V: map[string]any{"id": id, "os": "Debian"}}, Version: "1"}, &w) == nil
	})
	m.asks = w.Jobs
	return m
}

// unheard are members that do not get the next jobs, or say that the minions are not there yet.
type unheard struct {
	Members
	absent bool
	jobs   atomic.Int64
}

func (u *unheard) Ask(ctx context.Context, member, kind string, body, answer any) error {
	if kind != kindJob || u.jobs.Add(-1) < 0 {
		return u.Members.Ask(ctx, member, kind, body, answer)
	}
	if u.absent {
		*answer.(*absent) = absent{body.(handed).Minions}
		return nil
	}
	return context.DeadlineExceeded
}

// arrivesElsewhere connects web1 to the second node, and waits until the first one knows that. It returns the token of
// its key.
func arrivesElsewhere(t *testing.T, all []*node) (m *minion, token string) {
	t.Helper()
	key := bustest.Key(t)
	m = all[1].arriveWith(t, "web1", key)
	bustest.Until(t, "web1 is known", func() bool {
		there, _ := all[0].fleet.Connected("web1")
		return there
	})
	return m, bus.KeyToken(key.Public().Key())
}

// TestAJobThatWaitsIsHandedOnAgain: the member to which a minion is connected does not get a job, or has not heard of the
// minion yet, twice. The minion stays connected all the time, and gets the job after that.
func TestAJobThatWaitsIsHandedOnAgain(t *testing.T) {
	t.Parallel()
	for name, absent := range map[string]bool{"not heard": false, "not there yet": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := startNodes(t, 2)
			m, token := arrivesElsewhere(t, all)
			all[0].tokens = map[salt.MinionID]string{"web1": token}
			lossy := &unheard{Members: all[0].Members, absent: absent}
			lossy.jobs.Store(2)
			all[0].Members = lossy
			r, _ := all[0].begin(t, protocol.Publish{Queue: 3600}, "web1")
			if e := m.got(t); e.JID != r.plan.Start.JID || lossy.jobs.Load() >= 0 {
				t.Errorf("it gets job %s, want %s; %d", e.JID, r.plan.Start.JID, lossy.jobs.Load())
			}
		})
	}
}

// TestAJobIsLeftForOneKey: a job that waits for minions does not go to another member for one that has another key
// there, also if its own member has not heard of that yet.
func TestAJobIsLeftForOneKey(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 2)
	m, token := arrivesElsewhere(t, all)
	all[0].tokens = map[salt.MinionID]string{"web1": "an earlier key"}
	left, _ := all[0].begin(t, protocol.Publish{Queue: 3600}, "web1")
	bustest.Until(t, "the other member has not taken it", func() bool {
		left.mu.Lock()
		defer left.mu.Unlock()
		return left.tracker.Parked("web1")
	})
	all[0].tokens["web1"] = token
	next, _ := all[0].begin(t, protocol.Publish{Queue: 3600}, "web1")
	if e := m.got(t); e.JID != next.plan.Start.JID {
		t.Errorf("it gets job %s, which was left for another key", e.JID)
	}
}

// TestACancelledJobIsNotSent: also if it was about to be sent when it was cancelled.
func TestACancelledJobIsNotSent(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 2)[0]
	cancelled, _ := n.begin(t, protocol.Publish{Queue: 3600}, "web1")
	if ids := cancelled.cancel("root"); len(ids) != 1 {
		t.Fatalf("it is cancelled for %q", ids)
	}
	m := n.arrive(t, "web1")
	cancelled.send([]salt.MinionID{"web1"})
	next, _ := n.begin(t, protocol.Publish{}, "web1")
	if e := m.got(t); e.JID != next.plan.Start.JID {
		t.Errorf("it gets job %s, which was cancelled", e.JID)
	}
}

// got waits for a job.
func (m *minion) got(t *testing.T) *job.Envelope {
	t.Helper()
	select {
	case e := <-m.jobs:
		return e
	case <-time.After(time.Minute):
		t.Fatalf("%s gets no job", m.Self.Name)
		return nil
	}
}

func (m *minion) says(t *testing.T, jid salt.JID, r job.Report) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return m.conn.Ask(ctx, "ret."+string(jid), r, nil)
}

func done(text string) job.Report {
	return job.Report{State: job.Done, Return: value.Value{V: text}, Retcode: value.Value{V: int64(0)}, Success: value.Value{V: true}}
}

// begin starts a job, as if it were permitted.
func (n *node) begin(t *testing.T, q protocol.Publish, ids ...salt.MinionID) (*Run, *watcher) {
	t.Helper()
	now := time.Now()
	batch, err := job.NewBatch(q.Batch, ids)
	if err != nil {
		t.Fatal(err)
	}
	start := job.Start{JID: n.NextJID(), Minions: ids, Batch: batch != nil}
	p := plan{
		Batch: q.Batch, Start: start, Began: now, Keys: n.Keys.Tokens(ids), Timeout: job.Seconds(20), Envelope: job.Envelope{
			JID: start.JID, Commands: []job.Command{{Function: "test.echo", Args: []any{"a"}, Kwargs: map[string]any{}}}, Target: "*", TargetType: "glob", User: "root", Follow: true, Heartbeat: 8,
		},
	}
	maps.Copy(p.Keys, n.tokens)
	if q.Timeout > 0 {
		p.Timeout = q.Timeout
	}
	if n.args != nil {
		p.Envelope.Commands[0].Args = n.args
	}
	if q.Queue > 0 {
		p.Until = now.Add(q.Queue.Duration())
	}
	if err := n.storePlan(t.Context(), &p, batch); err != nil {
		t.Fatal(err)
	}
	if err := n.record(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	r := newRun(n.Dispatcher, p, batch, now)
	n.Dispatcher.jobs.add(r)
	w := r.watch()
	t.Cleanup(w.close)
	r.Begin()
	return r, w
}

// states reads a watcher until no more is expected, and returns the last state of each minion.
func states(t *testing.T, w *watcher) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	last := map[salt.MinionID]string{}
	err := w.each(ctx, func(u update) error {
		last[u.ID] = fmt.Sprintf("%s=%s(%v)", u.ID, u.State, u.Return.V)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, s := range last {
		list = append(list, s)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// returns counts the stored returns of a job, by minion.
func (n *node) returns(t *testing.T, jid salt.JID) map[string]int {
	t.Helper()
	all := map[string]int{}
	err := n.Journal.Read(t.Context(), journal.Query{Subjects: []string{event.JobSubject(jid, "ret")}}, func(e event.Event) error {
		all[strings.TrimPrefix(e.Tag, "salt/job/"+string(jid)+"/ret/")]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// know waits until a member knows where minions are.
func (n *node) know(t *testing.T, ids ...salt.MinionID) {
	t.Helper()
	for _, id := range ids {
		bustest.Until(t, n.bus.Name+" knows "+string(id), func() bool { there, _ := n.fleet.Connected(id); return there })
	}
}

// TestAJobReachesMinionsOfAllMembers: a job that any member starts reaches the minions of all,
// with receipts, live output and returns, which only its owner stores.
func TestAJobReachesMinionsOfAllMembers(t *testing.T) {
	all := startNodes(t, 3)
	ids := []salt.MinionID{"web1", "web2", "web3"}
	var minions []*minion
	for i, n := range all {
		minions = append(minions, n.arrive(t, string(ids[i])))
	}
	for _, n := range all {
		n.know(t, ids...)
		for _, id := range ids {
			bustest.Until(t, n.bus.Name+" knows the grains of "+string(id), func() bool { return n.fleet.Grains(id)["id"] == string(id) })
		}
	}
	for i, n := range all {
		run, w := n.begin(t, protocol.Publish{}, ids...)
		output := make(chan string, 10)
		w.output = func(_ context.Context, u job.Update) error {
			output <- fmt.Sprint(u.ID, " ", u.Output[0].Text.V)
			return nil
		}
		jid := run.plan.Start.JID
		for k, m := range minions {
			e := m.got(t)
			if e.JID != jid || e.User != "root" || e.Commands[0].Args[0] != "a" {
				t.Errorf("%s gets %+v", ids[k], e)
			}
			if err := m.says(t, jid, job.Report{State: job.Running}); err != nil {
				t.Error(err)
			}
			if err := m.says(t, jid, job.Report{State: job.Running, Output: []job.Output{{Text: value.Value{V: "line"}}}}); err != nil {
				t.Error(err)
			}
			if got := <-output; got != string(ids[k])+" line" {
				t.Errorf("output %q", got)
			}
			if err := m.says(t, jid, done("by "+string(ids[k]))); err != nil {
				t.Error(err)
			}
			if err := m.says(t, jid, done("again")); err != nil { // as if the answer was lost
				t.Error(err)
			}
		}
		if got, want := states(t, w), "web1=done(by web1) web2=done(by web2) web3=done(by web3)"; got != want {
			t.Errorf("at %s: %s, want %s", n.bus.Name, got, want)
		}
		for k, other := range all {
			stored := other.returns(t, jid)
			if k == i && (len(stored) != 3 || stored["web1"]+stored["web2"]+stored["web3"] != 3) || k != i && len(stored) > 0 {
				t.Errorf("a job of %s: %s has stored %v", n.bus.Name, other.bus.Name, stored)
			}
		}
	}
}

// TestReturnsOfAMemberThatIsGone: minions continue, and the member that they are connected to
// stores their returns, once, whether they come directly or from an outbox.
func TestReturnsOfAMemberThatIsGone(t *testing.T) {
	all := startNodes(t, 3)
	web1, web2 := all[1].arrive(t, "web1"), all[2].arrive(t, "web2")
	all[0].know(t, "web1", "web2")
	run, _ := all[0].begin(t, protocol.Publish{}, "web1", "web2")
	jid := run.plan.Start.JID
	web1.got(t)
	web2.got(t)
	all[0].stop()
	all[0].bus.Stop() // without informing the others
	for _, n := range all[1:] {
		bustest.Until(t, "m1 is gone", func() bool { return len(n.exchange.Others()) == 1 })
	}
	for range 2 {
		if err := web1.says(t, jid, done("one")); err != nil {
			t.Error(err)
		}
	}
	report, err := json.Marshal(done("two"))
	if err != nil {
		t.Fatal(err)
	}
	letter := outbox.Batch{Messages: []outbox.Message{{Epoch: "e", N: 1, Op: "ret." + string(jid), Body: report}}}
	for range 2 {
		var answer outbox.Delivered
		if err := web2.conn.Ask(t.Context(), "messages", letter, &answer); err != nil || len(answer.Messages) != 1 || answer.Messages[0].Refused != nil {
			t.Errorf("%+v, %v", answer, err)
		}
	}
	if a, b := all[1].returns(t, jid), all[2].returns(t, jid); a["web1"] != 1 || len(a) != 1 || b["web2"] != 1 || len(b) != 1 {
		t.Errorf("stored at m2: %v, at m3: %v", a, b)
	}
	// There is an error for output if the caller is gone, so that the minion sends no more.
	if err := web1.says(t, jid, job.Report{State: job.Running, Output: []job.Output{{Text: value.Value{V: "x"}}}}); rpc.CodeOf(err) != rpc.NotFound {
		t.Errorf("output for nobody: %v", err)
	}
}

// TestReturnsFromAnOutboxReachTheOwner, even from a member that has not sent the job to the
// minion, which has moved there since.
func TestReturnsFromAnOutboxReachTheOwner(t *testing.T) {
	all := startNodes(t, 3)
	web1 := all[1].arrive(t, "web1")
	all[0].know(t, "web1")
	run, w := all[0].begin(t, protocol.Publish{}, "web1")
	jid := run.plan.Start.JID
	web1.got(t)
	web1.Close()
	bustest.Until(t, "m1 knows that it is gone", func() bool { there, _ := all[0].fleet.Connected("web1"); return !there })
	moved := all[2].arrive(t, "web1")
	if !slices.Equal(moved.asks, []salt.JID{jid}) {
		t.Errorf("it is asked about %v, want %s", moved.asks, jid)
	}
	report, err := json.Marshal(done("late"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		letter := outbox.Batch{Messages: []outbox.Message{{Epoch: "e", N: 1, Op: "ret." + string(jid), Body: report}}}
		if err := moved.conn.Ask(t.Context(), "messages", letter, nil); err != nil {
			t.Error(err)
		}
	}
	if got := states(t, w); got != "web1=done(late)" {
		t.Errorf("%s", got)
	}
	for i, n := range all {
		if got := n.returns(t, jid)["web1"]; got != []int{1, 0, 0}[i] {
			t.Errorf("%s has stored %d", n.bus.Name, got)
		}
	}
}

// TestALongJobIsFoundAtEveryMember: a minion has got a job with arguments that are too long for an answer,
// and one with short ones, and moves to a member that knows neither. It is asked about both, its returns
// reach the owner, and the other member finds the arguments when it needs them.
func TestALongJobIsFoundAtEveryMember(t *testing.T) {
	t.Parallel()
	_, all := startCluster(t)
	owner, other := all[0], relay{all[2].Dispatcher}
	web1 := all[1].arrive(t, "web1")
	owner.know(t, "web1")
	long := strings.Repeat("\x01", 200<<10) // encoded it has six times as much
	var jids []salt.JID
	for _, args := range [][]any{{strings.Repeat("x", 4<<20)}, {long}, {"short"}} {
		owner.args = args
		run, _ := owner.begin(t, protocol.Publish{Timeout: 3600}, "web1")
		jids = append(jids, run.plan.Start.JID)
		web1.got(t)
	}
	web1.Close()
	bustest.Until(t, "m1 knows that it is gone", func() bool { there, _ := owner.fleet.Connected("web1"); return !there })
	moved := all[2].arrive(t, "web1")
	if !slices.Equal(moved.asks, jids) {
		t.Errorf("it is asked about %v, want %v", moved.asks, jids)
	}
	other.jobs.mu.Lock()
	clear(other.jobs.known) // as if nobody had asked
	other.jobs.mu.Unlock()
	for i, jid := range jids {
		if err := moved.delivers(t, uint64(i+1), jid, done("late")); err != nil {
			t.Errorf("its return of job %d: %v", i, err)
		}
		if got := owner.returns(t, jid)["web1"]; got != 1 {
			t.Errorf("m1 has stored %d", got)
		}
		k := other.jobs.find(jid)
		if k == nil || k.recorded != (i < 2) {
			t.Fatalf("m3 knows %+v", k)
		}
		whole, err := k.described(within(t), other, jid)
		if err != nil {
			t.Fatal(err)
		}
		if args, err := json.Marshal(value.Value{V: whole.args}); err != nil || len(args) < []int{4 << 20, 200 << 10, 5}[i] || whole.fun != "test.echo" || whole.owner != "m1" {
			t.Errorf("m3 finds %v of %s with %d bytes of arguments, %v", whole.fun, whole.owner, len(args), err)
		}
	}
}

// TestAReturnIsStoredOnceUnderEachName: a return comes from the outbox, early, and by another member to
// which the minion has sent it again, in any order and at once, while the job runs on another minion. It is
// stored once, and the job hears of it.
func TestAReturnIsStoredOnceUnderEachName(t *testing.T) {
	all := startNodes(t, 2)
	owner := all[0]
	web1, _ := owner.arrive(t, "web1"), owner.arrive(t, "web2")
	report, err := json.Marshal(done("one"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(8) {
		run, _ := owner.begin(t, protocol.Publish{}, "web1", "web2")
		jid := run.plan.Start.JID
		web1.got(t)
		m := outbox.Message{Epoch: "e", N: n + 1, Op: "ret." + string(jid), Body: report}
		ways := []func() error{
			func() error {
				return web1.conn.Ask(t.Context(), "messages", outbox.Batch{Messages: []outbox.Message{m}}, nil)
			},
			func() error { return owner.StoreEarly(t.Context(), "web1", jid, m, 0) },
			func() error {
				return all[1].exchange.Ask(t.Context(), "m1", kindSaid, said{Minion: "web1", JID: jid, Report: report}, nil)
			},
		}
		if n%2 == 0 { // one after the other, each of them first
			for i := range ways {
				if err := ways[(i+int(n))%len(ways)](); err != nil {
					t.Error(err)
				}
			}
		} else {
			var together sync.WaitGroup
			for _, way := range ways {
				together.Go(func() {
					if err := way(); err != nil {
						t.Error(err)
					}
				})
			}
			together.Wait()
		}
		if got := owner.returns(t, jid)["web1"]; got != 1 {
			t.Errorf("job %d: stored %d times", n, got)
		}
		if run.open("web1") {
			t.Errorf("job %d has not heard of it", n)
		}
	}
}

// TestAMinionThatMovesNamesManyJobs: a minion that is connected to two members for a moment gets
// jobs from one of them and returns them to the other, which does not know them: that is not
// limited as invented jobs are.
func TestAMinionThatMovesNamesManyJobs(t *testing.T) {
	all := startNodes(t, 3)
	comes := all[2].arrive(t, "web1")
	all[0].know(t, "web1")
	leaves := all[1].arrive(t, "web1")
	bustest.Until(t, "m1 knows that it has come to m2", func() bool { at, _ := all[0].exchange.Where("web1"); return at == "m2" })
	for i := range 2 * maxUnknown {
		run, _ := all[0].begin(t, protocol.Publish{}, "web1")
		leaves.got(t)
		if err := comes.says(t, run.plan.Start.JID, done("moved")); err != nil {
			t.Fatalf("return %d: %v", i, err)
		}
	}
}

// TestAReturnThatComesMuchLaterIsNotStoredAgain, even if the journal has forgotten its name.
func TestAReturnThatComesMuchLaterIsNotStoredAgain(t *testing.T) {
	all := startNodes(t, 2)
	p := plan{Start: job.Start{JID: all[0].NextJID(), Minions: []salt.MinionID{"web1", "web2"}}, Envelope: job.Envelope{Commands: []job.Command{{Function: "test.ping"}}, User: "root"}}
	p.Envelope.JID = p.Start.JID
	if err := all[0].record(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	e, err := returnEvent("web1", p.Start.JID, jobOf(&p), done("one"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all[0].Journal.Append(t.Context(), e, ""); err != nil {
		t.Fatal(err)
	}
	for _, id := range []salt.MinionID{"web1", "web2"} {
		report, err := json.Marshal(done("one"))
		if err != nil {
			t.Fatal(err)
		}
		if err := all[1].exchange.Ask(t.Context(), "m1", kindSaid, said{Minion: id, JID: p.Start.JID, Report: report}, nil); err != nil {
			t.Error(err)
		}
	}
	if got := all[0].returns(t, p.Start.JID); got["web1"] != 1 || got["web2"] != 1 {
		t.Errorf("stored: %v", got)
	}
}

// TestAJobThatDidNotArriveIsSentAgain, to the member that the minion is connected to now.
func TestAJobThatDidNotArriveIsSentAgain(t *testing.T) {
	all := startNodes(t, 3)
	web1 := all[1].arrive(t, "web1")
	all[0].know(t, "web1")
	run, w := all[0].begin(t, protocol.Publish{}, "web1")
	jid := run.plan.Start.JID
	web1.got(t) // the job is lost with this machine
	web1.Close()
	bustest.Until(t, "m1 knows that it is gone", func() bool { there, _ := all[0].fleet.Connected("web1"); return !there })
	moved := all[2].arrive(t, "web1")
	all[0].know(t, "web1")
	run.mu.Lock()
	run.plan.Keys["web1"] = moved.Self.Key
	run.mu.Unlock()
	if err := moved.says(t, jid, job.Report{State: job.Unknown}); err != nil {
		t.Fatal(err)
	}
	if e := moved.got(t); e.JID != jid {
		t.Errorf("it gets %s", e.JID)
	}
	if err := moved.says(t, jid, done("ok")); err != nil {
		t.Fatal(err)
	}
	if got := states(t, w); got != "web1=done(ok)" {
		t.Errorf("%s", got)
	}
}

// TestMinionsOfAMemberThatIsGoneAreDisconnected: they are waited for no longer than those of
// this master.
func TestMinionsOfAMemberThatIsGoneAreDisconnected(t *testing.T) {
	all := startNodes(t, 2)
	web1 := all[1].arrive(t, "web1")
	all[0].know(t, "web1")
	run, w := all[0].begin(t, protocol.Publish{}, "web1")
	web1.got(t)
	all[1].bus.Stop()
	bustest.Until(t, "the job knows", func() bool { return run.standings()["web1"].State == job.Disconnected })
	_, later := all[0].begin(t, protocol.Publish{}, "web1")
	if got := states(t, later); !strings.HasPrefix(got, "web1=not-connected") && !strings.Contains(got, string(job.NotConnected)) {
		t.Errorf("a later job: %s", got)
	}
	_ = w
}

// TestHostileMinionsAndMembers: a minion of one member cannot return anything for a job of
// another member that it was not sent, and a member cannot take over a job of another one.
func TestHostileMinionsAndMembers(t *testing.T) {
	all := startNodes(t, 3)
	web1, evil := all[1].arrive(t, "web1"), all[2].arrive(t, "evil")
	all[0].know(t, "web1", "evil")
	run, w := all[0].begin(t, protocol.Publish{}, "web1")
	jid := run.plan.Start.JID
	web1.got(t)
	if err := evil.says(t, jid, done("forged")); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("a return of a minion that was not sent the job: %v", err)
	}
	// Even if its member passes it on, the owner refuses it.
	forged, _ := json.Marshal(done("forged"))
	for _, id := range []salt.MinionID{"evil", "../evil", ""} {
		err := all[2].exchange.Ask(t.Context(), "m1", kindSaid, said{Minion: id, JID: jid, Report: forged}, nil)
		if code := rpc.CodeOf(err); code != rpc.Denied && code != rpc.Usage {
			t.Errorf("m3 passes on a return of %q: %v", id, err)
		}
	}
	// A third member claims the job as its own: its returns go to the owner nevertheless.
	thief := handed{Envelope: run.plan.Envelope, Minions: []salt.MinionID{"web1"}}
	if err := all[2].exchange.Ask(t.Context(), "m2", kindJob, thief, nil); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("m3 takes a job of m1: %v", err)
	}
	if err := all[2].exchange.Ask(t.Context(), "m1", kindJob, handed{Envelope: run.plan.Envelope, Minions: []salt.MinionID{"web1"}}, nil); err != nil {
		t.Errorf("a job for a minion that is not there: %v", err) // the answer lists the absent ones
	}
	for _, body := range []any{nil, 1, "x", []int{}, map[string]any{"envelope": map[string]any{"jid": "x"}, "minions": []string{"web1"}}, map[string]any{"minions": []string{"web1"}}} {
		for _, kind := range []string{kindJob, kindSaid, kindJobOf} {
			if err := all[2].exchange.Ask(t.Context(), "m2", kind, body, nil); err == nil {
				t.Errorf("%s with %v is taken", kind, body)
			}
		}
	}
	if err := web1.says(t, jid, done("true")); err != nil {
		t.Fatal(err)
	}
	if got := states(t, w); got != "web1=done(true)" {
		t.Errorf("%s", got)
	}
	// Invented job ids of a minion cause only a limited load on the others.
	busy := 0
	for i := range 3 * maxUnknown {
		err := evil.says(t, salt.JID(fmt.Sprintf("202001010000000%05d", i)), done("made up"))
		if rpc.CodeOf(err) == rpc.Busy {
			busy++
		} else if rpc.CodeOf(err) != rpc.Denied {
			t.Errorf("a job that is made up: %v", err)
		}
	}
	if busy < maxUnknown {
		t.Errorf("%d of %d questions were refused", busy, 3*maxUnknown)
	}
}
