package eventbus

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/lease"
	"github.com/brinebus/brine/test/clustertest"
)

// leased starts the lease of a member in a table in memory, and returns that member, whose others are running.
func leased(t *testing.T, table lease.Table, name string, others func() []string) *Member {
	log := slog.New(slog.DiscardHandler)
	r := New(new(journal.Journal), 1<<20, log)
	m := &Member{opts: MemberOptions{Name: name, Others: others}, events: r, lease: lease.New(name, table, log)}
	m.duties.changed = make(chan struct{})
	r.member = m
	r.SetMirrors(name, m.runs)
	go m.lease.Run(t.Context())
	synctest.Wait()
	return m
}

// TestALockWithoutAnAnswerIsGivenBack: the answer to a member that takes a lock is lost, and the member whose
// journal it is comes back before the next attempt.
func TestALockWithoutAnAnswerIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := new(clustertest.Table)
		var mu sync.Mutex
		var running []string
		a := leased(t, table, "a", func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(running) })
		c := leased(t, table, "c", func() []string { return []string{"a"} })
		a.events.AddMirror(&journal.Mirror{Name: "c"})
		table.Answer(func(key string) (bool, error) {
			if strings.HasPrefix(key, "lock/") {
				mu.Lock()
				defer mu.Unlock()
				if len(running) == 0 {
					running = []string{"c"}
					return true, context.DeadlineExceeded
				}
			}
			return true, nil
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); a.others(ctx) }()
		time.Sleep(awayTime + 3*dutyEvery)
		stop()
		<-ended
		mu.Lock()
		tried := len(running) > 0
		mu.Unlock()
		if !tried {
			t.Fatal("nobody stands in for the member")
		}
		if lock, _ := c.take(ctx, "c"); lock == nil {
			t.Error("the member does not get the lock of its own journal")
		}
	})
}
