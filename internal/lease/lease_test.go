package lease

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/clustertest"
)

// leasing is a member of a cluster that keeps a lease.
type leasing struct {
	*Member
	bus  *bustest.Member
	stop func()
}

func start(t *testing.T, s *bustest.System) (list []*leasing) {
	t.Helper()
	s.Leader(t)
	for _, m := range s.Members {
		list = append(list, begin(t, m))
	}
	return list
}

func begin(t *testing.T, m *bustest.Member) *leasing {
	t.Helper()
	table, err := clustertest.Journal(t, m).Table(clustertest.Starting(t), "leases")
	if err != nil {
		t.Fatal(m.Name, err)
	}
	l := &leasing{Member: New(m.Name, table, m.Log), bus: m}
	run, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); l.Run(run) }()
	l.stop = func() { stop(); <-done }
	t.Cleanup(l.stop)
	return l
}

func inTime(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// take takes a lock, as soon as it is free.
func (l *leasing) take(t *testing.T, name string) *Lock {
	t.Helper()
	var lock *Lock
	bustest.Until(t, l.bus.Name+" takes "+name, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var err error
		lock, err = l.Acquire(ctx, name)
		return err == nil
	})
	return lock
}

func (l *leasing) refused(t *testing.T, name, by string) {
	t.Helper()
	var held *HeldError
	var err error
	bustest.Until(t, l.bus.Name+" learns who has "+name, func() bool { // others answer only after an election
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = l.Acquire(ctx, name)
		return err == nil || errors.As(err, &held)
	})
	if err == nil || held.Holder.Member != by {
		t.Errorf("%s takes %s, which %s holds: %v", l.bus.Name, name, by, err)
	}
}

// TestALockHasOneHolder: nobody else gets a lock while its holder renews; a holder that is cut
// off stops before another one gets it, and does not have it when it returns.
func TestALockHasOneHolder(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	list := start(t, s)
	m1, m2, m3 := list[0], list[1], list[2]
	lock := m1.take(t, "m1")
	m2.refused(t, "m1", "m1")
	m3.refused(t, "m1", "m1")
	if by, err := m3.HolderOf(inTime(t), "m1"); by != "m1" || err != nil {
		t.Errorf("m3 takes %q for the holder, %v", by, err)
	}
	begun := time.Now()
	ended := make(chan time.Time, 1)
	context.AfterFunc(lock.Context(), func() { ended <- time.Now() })
	s.Isolate(t, m1.bus)
	theirs := m2.take(t, "m1")
	taken := time.Now()
	select {
	case at := <-ended:
		t.Logf("after it was cut off, m1 stopped after %s, and m2 took over after %s", at.Sub(begun), taken.Sub(begun))
	default:
		t.Error("m2 has the lock, and m1 works on")
	}
	if took := taken.Sub(begun); took < takeAfter-renewEvery {
		t.Errorf("m2 took over after %s", took)
	}
	s.Rejoin(m1.bus)
	s.Linked(t)
	if _, _, err := m1.Holder(inTime(t)); err != nil {
		t.Fatal("m1 gets no lease when it is back:", err)
	}
	m1.refused(t, "m1", "m2")
	lock.Release(t.Context()) // changes nothing
	m3.refused(t, "m1", "m2")
	theirs.Release(t.Context())
	m1.take(t, "m1")
	m2.refused(t, "m1", "m1")
}

// TestALeaseOutlivesAnElection: when the member that leads the table is killed, the locks of the
// others stay theirs, and those of the killed one become free. One that stops in good order
// leaves its locks at once.
func TestALeaseOutlivesAnElection(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	list := start(t, s)
	var locks []*Lock
	for _, l := range list {
		locks = append(locks, l.take(t, l.bus.Name))
	}
	leads := leader(t, list[0].bus)
	var others []int
	for i, l := range list {
		if l.bus.Name != leads {
			others = append(others, i)
		}
	}
	a, b := list[others[0]], list[others[1]]
	for _, l := range list {
		if l.bus.Name == leads {
			l.stop = func() {}
			l.bus.Kill(t)
		}
	}
	a.take(t, leads)
	for _, i := range others {
		if locks[i].Context().Err() != nil {
			t.Errorf("%s has lost its lease over an election", list[i].bus.Name)
		}
	}
	a.refused(t, b.bus.Name, b.bus.Name)
	begun := time.Now()
	b.stop()
	a.take(t, b.bus.Name)
	if took := time.Since(begun); took > takeAfter/2 {
		t.Errorf("a lock of a member that has stopped was free after %s", took)
	}
}

// leader returns the member that leads the table.
func leader(t *testing.T, m *bustest.Member) (name string) {
	t.Helper()
	bustest.Until(t, "the table has a leader", func() bool {
		var info struct {
			Cluster struct {
				Leader string `json:"leader"`
			} `json:"cluster"`
		}
		name = ""
		if got, err := m.Conn().Request("$JS.API.STREAM.INFO.KV_leases", nil, time.Second); err == nil && json.Unmarshal(got.Data, &info) == nil {
			name = info.Cluster.Leader
		}
		return name != ""
	})
	return name
}

// before is a table that shows an older entry, as a server does that led it before.
type before struct {
	Table
	entry journal.TableEntry
}

func (b before) Entry(ctx context.Context, key string) (journal.TableEntry, error) {
	if key == b.entry.Key {
		return b.entry, nil
	}
	return b.Table.Entry(ctx, key)
}

// TestALeaseIsNotJudgedByAnOlderRecord: a server that led the table before shows the record of an earlier lease
// of a member, which has another one now.
func TestALeaseIsNotJudgedByAnOlderRecord(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	m1 := begin(t, s.Members[0])
	earlier, _, err := m1.Holder(inTime(t))
	if err != nil {
		t.Fatal(err)
	}
	old, err := m1.table.Entry(inTime(t), memberKey("m1"))
	if err != nil {
		t.Fatal(err)
	}
	m1.stop()
	m1 = begin(t, s.Members[0])
	now, _, err := m1.Holder(inTime(t))
	if err != nil {
		t.Fatal(err)
	}
	m2 := begin(t, s.Members[1])
	table := m2.table
	other := New("m3", before{table, old}, m2.bus.Log)
	if live, err := other.Live(inTime(t), now); !live {
		t.Errorf("a member with a lease is taken for one without, by the record of an earlier one; %v", err)
	}
	other.table = table
	for _, c := range []struct {
		holder Holder
		want   bool
	}{{earlier, false}, {now, true}, {earlier, false}} {
		if live, err := other.Live(inTime(t), c.holder); live != c.want || err != nil {
			t.Errorf("%v: live is %t, %v; want %t", c.holder, live, err, c.want)
		}
	}
	if again, _, err := m1.Holder(inTime(t)); again != now || err != nil {
		t.Errorf("the lease has ended since others have looked at it: %v, %v", again, err)
	}
}

// TestALapsedLeaseIsNotTakenAtOnce: what a member does under its lease ends before another one may take that, with
// time for clocks that differ and a message on its way. doc/guarantees.md names the distance.
func TestALapsedLeaseIsNotTakenAtOnce(t *testing.T) {
	if got := takeAfter - stopAfter; got != 2500*time.Millisecond {
		t.Errorf("there are %s between the end of a lease and its earliest takeover", got)
	}
}
