package eventbus

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/lease"
	"github.com/brinebus/brine/test/clustertest"
)

// severed is a table as a member has it that may be cut off.
type severed struct {
	lease.Table
	cut atomic.Bool
}

func (s *severed) Entry(ctx context.Context, key string) (journal.TableEntry, error) {
	if s.cut.Load() {
		return journal.TableEntry{}, context.DeadlineExceeded
	}
	return s.Table.Entry(ctx, key)
}

func (s *severed) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if s.cut.Load() {
		return 0, context.DeadlineExceeded
	}
	return s.Table.Update(ctx, key, value, revision)
}

// TestOneMemberIsFirst: members that do not hear each other would each be the first. One of them is, while it can
// store that; another one only when nothing of the former can be under way.
func TestOneMemberIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := new(clustertest.Table)
		hear := true
		start := func(name, other string) (*Member, *severed) {
			own := &severed{Table: table}
			m := &Member{lease: lease.New(name, own, slog.New(slog.DiscardHandler)), opts: MemberOptions{Name: name, Others: func() []string {
				if !hear {
					return nil
				}
				return []string{other}
			}}}
			go m.lease.Run(t.Context())
			return m, own
		}
		a, ofA := start("a", "b")
		b, _ := start("b", "a")
		synctest.Wait()
		check := func(what string, wantA, wantB bool) {
			t.Helper()
			isA, unknownA := a.First(t.Context())
			isB, unknownB := b.First(t.Context())
			if isA != wantA || isB != wantB {
				t.Errorf("%s: a %t, b %t", what, isA, isB)
			}
			if (unknownA != nil) != (ofA.cut.Load() && a.lease.Has()) || unknownB != nil {
				t.Errorf("%s: a says %v, b %v", what, unknownA, unknownB)
			}
		}
		check("they hear each other", true, false)
		hear = false
		check("they do not", true, false)
		ofA.cut.Store(true)
		check("a is cut off", false, false)
		time.Sleep(10 * time.Second)
		if !a.lease.Has() {
			t.Error("the lease of a has ended too early for this test")
		}
		check("and has its lease", false, false)
		time.Sleep(10 * time.Second)
		check("its lease has ended", false, true)
		ofA.cut.Store(false)
		time.Sleep(10 * time.Second)
		check("it is back", false, true)
		hear = true
		check("b hears it, too", false, false)
		check("b has given the lock back", true, false)
	})
}
