package lease

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/uptime"
	"github.com/brinebus/brine/test/clustertest"
)

// inMemory starts members with leases in a table in memory, which end with the test.
func inMemory(t *testing.T, names ...string) (table *clustertest.Table, list []*Member) {
	table = new(clustertest.Table)
	for _, name := range names {
		m := New(name, table, slog.New(slog.DiscardHandler))
		list = append(list, m)
		go m.Run(t.Context())
	}
	synctest.Wait()
	return table, list
}

// noLocks lets leases be renewed, but no lock be written.
func noLocks(key string) (bool, error) {
	if strings.HasPrefix(key, "lock/") {
		return false, context.DeadlineExceeded
	}
	return true, nil
}

// TestALockIsGivenBackWhenTheTableAnswersAgain: the table may take longer to answer than any attempt, while the
// lease of the holder goes on.
func TestALockIsGivenBackWhenTheTableAnswersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, list := inMemory(t, "a", "b")
		lock, err := list[0].Acquire(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		table.Answer(noLocks)
		time.AfterFunc(time.Minute, func() { table.Answer(nil) })
		lock.Release(t.Context())
		if _, err := list[1].Acquire(t.Context(), "x"); err != nil {
			t.Errorf("a lock that was given back: %v", err)
		}
		if lock.Context().Err() != nil {
			t.Error("the lease has ended")
		}
	})
}

// TestALockIsNotGivenBackForEver: Release ends with the lease, and when the member stops.
func TestALockIsNotGivenBackForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, list := inMemory(t, "a")
		lock, err := list[0].Acquire(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		table.Answer(noLocks)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		lock.Release(ctx)
		table.Answer(func(string) (bool, error) { return false, context.DeadlineExceeded })
		begun := time.Now()
		lock.Release(t.Context())
		if lock.Context().Err() == nil || time.Since(begun) > stopAfter+renewAgain {
			t.Errorf("it has tried for %v", time.Since(begun))
		}
	})
}

// unread is a table of which one entry cannot be read once.
type unread struct {
	Table
	fails atomic.Bool
}

func (u *unread) Entry(ctx context.Context, key string) (journal.TableEntry, error) {
	if u.fails.CompareAndSwap(true, false) {
		return journal.TableEntry{}, context.DeadlineExceeded
	}
	return u.Table.Entry(ctx, key)
}

// TestALeaseOutlivesALostAnswer: a renewal is stored without an answer, and so the next one refused. That the table
// then does not answer a question in time does not end the lease.
func TestALeaseOutlivesALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := new(clustertest.Table)
		table := &unread{Table: shared}
		m := New("a", table, slog.New(slog.DiscardHandler))
		go m.Run(t.Context())
		was, term, err := m.Holder(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var lost atomic.Int32
		shared.Answer(func(string) (bool, error) {
			if lost.Add(1) == 1 {
				table.fails.Store(true)
				return true, context.DeadlineExceeded
			}
			return true, nil
		})
		time.Sleep(2 * takeAfter)
		if now, _, err := m.Holder(t.Context()); now != was || err != nil || term.Err() != nil || lost.Load() < 2 || table.fails.Load() {
			t.Errorf("the lease is now %v, %v; it was %v", now, err, was)
		}
	})
}

// TestALeaseEndsOnASuspendedMachine: package time's clock stands still while the machine is suspended, and others take its
// locks. When it goes on it has none.
func TestALeaseEndsOnASuspendedMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := new(atomic.Int64)
		up.Store(int64(time.Hour))
		table := new(clustertest.Table)
		m := New("a", table, slog.New(slog.DiscardHandler))
		m.up = func() uptime.Moment { return uptime.Moment(up.Load()) }
		go m.Run(t.Context())
		lock, err := m.Acquire(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		table.Answer(func(string) (bool, error) { return false, context.DeadlineExceeded })
		up.Add(int64(stopAfter))
		if !m.Has() || lock.Context().Err() != nil {
			t.Error("the lease has ended too early")
		}
		up.Add(1)
		time.Sleep(renewEvery) // the lock is asked for nothing: it ends by itself
		synctest.Wait()
		if lock.Context().Err() == nil {
			t.Error("the lock is held by a member that was suspended")
		}
		up.Add(int64(-time.Minute))
		if m.Has() {
			t.Error("the lease came back")
		}
		table.Answer(nil)
		if _, _, err := m.Holder(t.Context()); err != nil {
			t.Error("it gets no new one:", err)
		}
		up.Add(int64(time.Hour))
		if m.Has() {
			t.Error("it has a lease directly after it was suspended")
		}
	})
}
