package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// When a minion was seen last is known after a kill, too: of one that was connected it is
// when that was last recorded, of one that had gone the time at which it went.
func TestLastSeenOverAKill(t *testing.T) {
	t.Parallel()
	j, err := journal.Open(t.Context(), bustest.StartStore(t).Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	p, err := openPresence(t.Context(), j, "")
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now().Truncate(time.Second)
	at := func(n int) time.Time { return begin.Add(time.Duration(n) * seenEvery) }
	keep := func(n int) {
		if err := p.store(t.Context(), at(n)); err != nil {
			t.Fatal(err)
		}
	}
	p.Join("web1", "a", false)
	p.Join("web2", "b", false)
	keep(1)
	keep(2)
	p.Leave("web2", "b", at(2).Add(time.Second))
	keep(3)
	keep(4)
	keep(5)
	p, err = openPresence(t.Context(), j, "") // as after a kill
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]time.Time{"web1": at(5), "web2": at(2).Add(time.Second)} {
		if _, got := p.Connected(salt.MinionID(id)); !got.Equal(want) {
			t.Errorf("%s was seen %s, want %s after the beginning", id, got.Sub(begin), want.Sub(begin))
		}
	}
}

// fired keeps the events about presence.
type fired []string

func (a *fired) Announce(tag string, data any) { *a = append(*a, fmt.Sprint(tag, " ", data)) }

// TestAnElectionLosesNoPresenceChange: while it is not known which member fires the events, nobody does. When it is this
// one as before, it fires what has changed meanwhile, without waiting for the next time.
func TestAnElectionLosesNoPresenceChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard fired
		var unknown, asked atomic.Int32
		p := newPresence()
		p.Join("web1", "m2", false)
		go p.Announce(t.Context(), time.Minute, &heard, func(context.Context) (bool, error) {
			asked.Add(1)
			if unknown.Add(-1) >= 0 {
				return false, context.DeadlineExceeded
			}
			return true, nil
		})
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		p.Leave("web1", "m2", time.Now())
		p.Join("web2", "m3", false)
		heard = nil
		unknown.Store(3)
		asked.Store(0)
		time.Sleep(time.Minute + 5*time.Second)
		synctest.Wait()
		if want := []string{"salt/presence/change map[lost:[web1] new:[web2]]", "salt/presence/present map[present:[web2]]"}; !slices.Equal(heard, want) {
			t.Errorf("after an election: %q, want %q", heard, want)
		}
		if n := asked.Load(); n != 4 {
			t.Errorf("it was asked %d times, want 4", n)
		}
		unknown.Store(1 << 30)
		time.Sleep(2 * time.Minute) // it ends with the test, also while nobody knows
	})
}

// TestOneMemberAnnouncesPresence: the members of a cluster know the same minions, and one of them
// fires the events. One that takes over does not take all minions for new.
func TestOneMemberAnnouncesPresence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard fired
		var first atomic.Bool
		p := newPresence()
		p.Join("web1", "m2", false)
		ctx, cancel := context.WithCancel(t.Context())
		go p.Announce(ctx, time.Minute, &heard, func(context.Context) (bool, error) { return first.Load(), nil })
		check := func(what string, want ...string) {
			t.Helper()
			time.Sleep(time.Minute) // of the time in this test
			synctest.Wait()
			if !slices.Equal(heard, want) {
				t.Errorf("%s: %q, want %q", what, heard, want)
			}
			heard = nil
		}
		time.Sleep(time.Second) // between two ticks
		check("another member is first")
		first.Store(true)
		check("it takes over", "salt/presence/present map[present:[web1]]")
		p.Join("web2", "m3", false)
		check("a minion has come", "salt/presence/change map[lost:[] new:[web2]]", "salt/presence/present map[present:[web1 web2]]")
		first.Store(false)
		p.Leave("web2", "m3", time.Now())
		check("another one is first again")
		first.Store(true)
		p.Join("web3", "m3", false) // perhaps the other one has fired that
		check("it takes over again", "salt/presence/present map[present:[web1 web3]]")
		cancel()
		synctest.Wait()
	})
}

// TestNobodyIsNotedForNobody: who has joined and left is noted only while somebody announces it; otherwise each id that was ever
// connected would stay in memory.
func TestNobodyIsNotedForNobody(t *testing.T) {
	p := newPresence()
	visit := func(id salt.MinionID) {
		p.Join(id, "_INBOX."+string(id), false)
		p.Leave(id, "_INBOX."+string(id), time.Now())
		p.forget(id)
	}
	for n := range 100 {
		visit(salt.MinionID(fmt.Sprint("web", n)))
	}
	if len(p.joined)+len(p.left)+len(p.seen) > 0 {
		t.Errorf("%d have joined, %d have left", len(p.joined), len(p.left))
	}
	p.Join("stays", "_INBOX.stays", false)
	end := p.announces()
	visit("web1")
	if joined, left := p.changes(); !slices.Equal(joined, []salt.MinionID{"stays", "web1"}) || !slices.Equal(left, []salt.MinionID{"web1"}) {
		t.Errorf("announced are %q and %q", joined, left)
	}
	end()
	if visit("web2"); len(p.joined)+len(p.left) > 0 {
		t.Errorf("%d have joined, %d have left, at the end", len(p.joined), len(p.left))
	}
}
