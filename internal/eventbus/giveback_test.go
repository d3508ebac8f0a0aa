package eventbus

import (
	"context"
	"encoding/json"
	"errors"
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

// positionsInMemory is a table of positions in memory.
type positionsInMemory struct{ clustertest.Table }

func (t *positionsInMemory) Get(ctx context.Context, key string) ([]byte, error) {
	e, err := t.Entry(ctx, key)
	return e.Value, err
}

func (t *positionsInMemory) Put(ctx context.Context, key string, value []byte) error {
	e, err := t.Entry(ctx, key)
	if err == nil {
		_, err = t.Update(ctx, key, value, e.Revision)
	}
	return err
}

func noAnswer(string) (bool, error) { return false, context.DeadlineExceeded }

// TestAPositionIsGivenBackWhenTheTableAnswersAgain: it is stored first, so that the next member begins behind it.
func TestAPositionIsGivenBackWhenTheTableAnswersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases, table := new(clustertest.Table), new(positionsInMemory)
		a := leased(t, leases, "a", func() []string { return []string{"c"} })
		c := leased(t, leases, "c", func() []string { return []string{"a"} })
		p := &Position{journal: &Handled{events: a.events, member: a, name: "c"}, key: "reactor@c/x", table: table, stop: func() {}, release: func() {}}
		var err error
		if _, p.claim, err = a.claim(t.Context(), table, p.key); err != nil {
			t.Fatal(err)
		}
		if err := p.put(t.Context(), 7); err != nil {
			t.Fatal(err)
		}
		p.Passed(9)
		table.Answer(noAnswer)
		time.AfterFunc(time.Minute, func() { table.Answer(nil) })
		p.Close()
		have, _, err := c.claim(t.Context(), table, p.key)
		if err != nil || have.Seq != 9 {
			t.Errorf("the next member begins at %+v, %v", have, err)
		}
	})
}

// TestWhatIsTakenWithoutAnAnswerIsGivenBack: a position or dead letter is stored for a member that gets no answer, at
// once or when it gives it back.
func TestWhatIsTakenWithoutAnAnswerIsGivenBack(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			leases, table := new(clustertest.Table), new(positionsInMemory)
			a := leased(t, leases, "a", func() []string { return []string{"c"} })
			c := leased(t, leases, "c", func() []string { return []string{"a"} })
			free, err := json.Marshal(stored{Seq: 7})
			if err == nil {
				_, err = table.Update(t.Context(), "x", free, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			table.Answer(func(string) (bool, error) { return !late, context.DeadlineExceeded })
			_, mine, err := a.claim(t.Context(), table, "x")
			if err == nil || mine == nil {
				t.Fatalf("it was taken without an answer: %v", err)
			}
			table.Answer(nil)
			a.giveBack(mine.term, "x", func(ctx context.Context) error { return mine.release(ctx, table, "x") })
			if late { // what comes now is not stored
				if err := mine.write(t.Context(), &staleTable{table, mine.unsureAt}, "x", stored{Seq: 7}); !errors.Is(err, journal.ErrChanged) {
					t.Errorf("a write that is late: %v", err)
				}
			}
			if have, _, err := c.claim(t.Context(), table, "x"); err != nil || have.Seq != 7 {
				t.Errorf("late %v: the next member gets %+v, %v", late, have, err)
			}
		})
	}
}

// staleTable stores at the revision that a request had when it was sent.
type staleTable struct {
	lease.Table
	revision uint64
}

func (s *staleTable) Update(ctx context.Context, key string, value []byte, _ uint64) (uint64, error) {
	return s.Table.Update(ctx, key, value, s.revision)
}

// TestADeadLetterTakenWithoutAnAnswerIsGivenBack is the same for a dead letter.
func TestADeadLetterTakenWithoutAnAnswerIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases, table := new(clustertest.Table), new(clustertest.Table)
		a := leased(t, leases, "a", func() []string { return []string{"c"} })
		c := leased(t, leases, "c", func() []string { return []string{"a"} })
		a.events.dead.member, c.events.dead.member = a, c
		b, err := json.Marshal(heldLetter{})
		if err == nil {
			_, err = table.Update(t.Context(), "x", b, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		table.Answer(func(string) (bool, error) { return true, context.DeadlineExceeded })
		k := &Taken{dead: a.events.dead, key: "x"}
		if _, err := k.claim(t.Context(), table); err == nil || k.term == nil {
			t.Fatalf("it was taken without an answer: %v", err)
		}
		table.Answer(nil)
		if err := k.free(t.Context(), table); err != nil {
			t.Fatal(err)
		}
		if there, err := (&Taken{dead: c.events.dead, key: "x"}).claim(t.Context(), table); !there || err != nil {
			t.Errorf("the next member: %v, %v", there, err)
		}
	})
}

// TestGivingBackEnds: nothing is tried any more when others may take it, or the member stops.
func TestGivingBackEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := leased(t, new(clustertest.Table), "a", func() []string { return nil })
		a.stopping = make(chan struct{})
		tried := 0
		fails := func(context.Context) error { tried++; return context.DeadlineExceeded }
		term, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		a.giveBack(term, "x", fails)
		if term.Err() == nil || tried < 2 {
			t.Errorf("it was tried %d times, and given up before the lease had ended", tried)
		}
		tried = 0
		a.giveBack(term, "x", fails)
		time.AfterFunc(time.Second, func() { close(a.stopping) })
		begun := time.Now()
		a.giveBack(t.Context(), "x", func(context.Context) error { return context.DeadlineExceeded })
		if tried != 0 || time.Since(begun) != time.Second {
			t.Errorf("tried %d times after the end of the lease, and for %v when the member stops", tried, time.Since(begun))
		}
	})
}

// TestAPositionThatCannotBeStored: that fills no log, and it is stored soon after the table answers again.
func TestAPositionThatCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, tried, lines := new(positionsInMemory), 0, new(strings.Builder)
		r := New(new(journal.Journal), 1<<20, slog.New(slog.NewTextHandler(lines, nil)))
		p := &Position{journal: &Handled{events: r}, key: "reactor/x", table: table, wake: make(chan struct{}, 1)}
		ctx, stop := context.WithCancel(t.Context())
		p.ended.Go(func() { p.run(ctx) })
		table.Answer(func(string) (bool, error) { tried++; return false, errors.New("the disk is full") })
		p.Done(7)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := strings.Count(lines.String(), "\n"); n < 1 || n > 2 || tried > 20 {
			t.Errorf("in a minute %d lines of %d attempts", n, tried)
		}
		table.Answer(nil)
		time.Sleep(storeAgain + time.Millisecond)
		synctest.Wait()
		stop()
		p.ended.Wait()
		if e, _ := table.Entry(t.Context(), p.key); e.Value == nil {
			t.Error("it was not stored")
		}
	})
}

// TestWhatWasNotTakenIsNotGivenBack: where a position cannot be read, nothing of the member is there. To give it back
// would be tried for as long as the member has its lease, and nobody could listen with that position meanwhile.
func TestWhatWasNotTakenIsNotGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := new(positionsInMemory)
		a := leased(t, new(clustertest.Table), "a", func() []string { return nil })
		if err := table.Put(t.Context(), "0 x", []byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, c, err := a.claim(t.Context(), table, "0 x"); err == nil || c != nil {
			t.Errorf("what is no position gives a claim: %t, %v", c != nil, err)
		}
		if err := table.Put(t.Context(), "0 x", []byte(`{"seq":7}`)); err != nil {
			t.Fatal(err)
		}
		if have, c, err := a.claim(t.Context(), table, "0 x"); err != nil || c == nil || have.Seq != 7 {
			t.Errorf("a position gives %+v, %v", have, err)
		}
	})
}
