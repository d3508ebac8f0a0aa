package fleet

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// openSeen returns what opens a presence over the same journal, as after a kill.
func openSeen(t *testing.T) (b *bustest.Bus, open func() *Presence) {
	t.Helper()
	b = bustest.StartStore(t)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return b, func() *Presence {
		t.Helper()
		p, err := openPresence(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

// written returns how many entries were written to the table of the times.
func written(t *testing.T, b *bustest.Bus) uint64 {
	t.Helper()
	var info struct {
		State struct {
			Last uint64 `json:"last_seq"`
		} `json:"state"`
	}
	m, err := b.Conn().Request("$JS.API.STREAM.INFO.KV_presence", nil, time.Minute)
	if err == nil {
		err = json.Unmarshal(m.Data, &info)
	}
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Last
}

// TestTimesOfManyMinions: those of 100,000 minions with long ids are stored and read again, no value
// is near the limit of a message, and a change writes few of them.
func TestTimesOfManyMinions(t *testing.T) {
	t.Parallel()
	b, open := openSeen(t)
	p, begin := open(), time.Now().Truncate(time.Second)
	const minions = 100_000
	id := func(n int) salt.MinionID {
		return salt.MinionID(fmt.Sprintf("%06d.%s", n, strings.Repeat("x", 193)))
	}
	for n := range minions {
		p.Join(id(n), "a", false)
		if n > 0 {
			p.Leave(id(n), "a", begin)
		}
	}
	if err := p.store(t.Context(), begin); err != nil {
		t.Fatal(err)
	}
	largest := 0
	if err := p.table.Each(t.Context(), func(_ string, b []byte) { largest = max(largest, len(b)) }); err != nil {
		t.Fatal(err)
	}
	if largest > 300<<10 {
		t.Errorf("the largest value has %d bytes", largest)
	}
	before := written(t, b)
	p.Join(id(1), "b", false)
	if err := p.store(t.Context(), begin.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n := written(t, b) - before; n > 2 {
		t.Errorf("the change of one minion writes %d entries", n)
	}
	p = open()
	for n, want := range map[int]time.Time{0: begin.Add(time.Minute), 1: begin.Add(time.Minute), 2: begin, minions - 1: begin} {
		if _, got := p.Connected(id(n)); !got.Equal(want) {
			t.Errorf("minion %d was seen %s, want %s after the beginning", n, got.Sub(begin), want.Sub(begin))
		}
	}
}

// TestTimesOfAnEarlierVersion: they are read once more, and written as those of this one.
func TestTimesOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	_, open := openSeen(t)
	p, begin := open(), time.Now().UTC().Truncate(time.Second)
	b, err := json.Marshal(map[salt.MinionID]time.Time{"gone": begin, "there": begin.Add(time.Minute)})
	if err == nil {
		err = p.table.Put(t.Context(), seenKey, b)
	}
	if err == nil {
		err = p.table.Put(t.Context(), aliveKey, []byte(begin.Add(time.Hour).Format(time.RFC3339)))
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p = open()
		for id, want := range map[salt.MinionID]time.Time{"gone": begin, "there": begin.Add(time.Hour)} {
			if _, got := p.Connected(id); !got.Equal(want) {
				t.Errorf("%s was seen %s, want %s", id, got, want)
			}
		}
		if err := p.store(t.Context(), begin.Add(2*time.Hour)); err != nil {
			t.Fatal(err)
		}
		if b, err := p.table.Get(t.Context(), seenKey); err != nil || b != nil {
			t.Errorf("the old entry is %q, %v", b, err)
		}
	}
}

// TestATimeIsForgottenWithItsMinion: also where the connection of a deleted key ends later, and
// where the key was deleted while the master did not run.
func TestATimeIsForgottenWithItsMinion(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	f, err := Open(t.Context(), Options{Journal: j, Keys: noKeys{}, Log: b.Log})
	if err != nil {
		t.Fatal(err)
	}
	f.Join("web1", "a", false)
	f.Presence.Leave("web1", "a", time.Now())
	f.Join("web2", "b", false)
	f.Join("web3", "c", false)
	f.Presence.Leave("web3", "c", time.Now())
	f.Forget("web1")
	f.Forget("web2")
	f.Leave("web2", "b", time.Now())
	if got := f.everSeen(); len(got) != 1 || got[0] != "web3" {
		t.Errorf("times are known of %q", got)
	}
	f.ForgetDeleted()
	if got := f.everSeen(); len(got) != 0 {
		t.Errorf("after a start times are known of %q", got)
	}
}
