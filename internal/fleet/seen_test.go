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
		p, err := openPresence(t.Context(), j, "")
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

// TestTimesOfMembers: a member that was cut off, and knows older times, overwrites none that others have stored since; it
// takes them over, with the members where they were. What was forgotten does not come back by that.
func TestTimesOfMembers(t *testing.T) {
	t.Parallel()
	j, err := journal.Open(t.Context(), bustest.StartStore(t).Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	open := func(name string) *Presence {
		t.Helper()
		p, err := openPresence(t.Context(), j, name)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	begin := time.Now().Truncate(time.Second)
	at := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Minute) }
	store := func(p *Presence, n int) {
		t.Helper()
		if err := p.store(t.Context(), at(n)); err != nil {
			t.Fatal(err)
		}
	}
	a, b := open("a"), open("b")
	ids := []salt.MinionID{"web1", "web2", "web3"}
	for _, id := range ids {
		a.Join(id, placeAt("b"), false)
		b.Join(id, inboxRoot+string(id), false)
	}
	store(a, 0)
	store(b, 0)
	for _, id := range ids {
		a.Leave(id, placeAt("b"), at(1)) // b is not reached any more
	}
	b.Leave("web1", inboxRoot+"web1", at(2))
	b.Leave("web2", inboxRoot+"web2", at(2))
	b.Join("web2", placeAt("c"), false)
	b.Leave("web2", placeAt("c"), at(3))
	b.Leave("web3", inboxRoot+"web3", at(3))
	store(b, 4)
	a.forget("web3")
	store(a, 5)
	wantSeen(t, "the member that was cut off", a, map[salt.MinionID]string{"web1": "b " + at(2).String(), "web2": "c " + at(3).String(), "web3": " " + time.Time{}.String()})
	restarted := open("c")
	wantSeen(t, "a member that starts", restarted, map[salt.MinionID]string{"web1": "b " + at(2).String(), "web2": "c " + at(3).String(), "web3": " " + time.Time{}.String()})
	b.Join("web1", inboxRoot+"web1", false)
	b.Join("web2", placeAt("c"), false)
	store(b, 6)
	wantSeen(t, "after all were killed", open("a"), map[salt.MinionID]string{"web1": "b " + at(6).String(), "web2": "c " + at(6).String()})
	b.due[shardOf("web3")] = true // it has not heard of the deletion yet
	store(b, 7)
	a.due[shardOf("web3")] = true
	store(a, 8)
	b.forget("web3")
	for n, p := range []*Presence{b, a, b} {
		p.due[shardOf("web3")] = true
		store(p, 9+n)
	}
	for what, p := range map[string]*Presence{"the member that forgot it first": a, "the other one": b, "a member that starts": open("c")} {
		wantSeen(t, what, p, map[salt.MinionID]string{"web3": " " + time.Time{}.String()})
	}
	a.erased["web3"] = time.Now().Add(-erasedTime)
	store(a, 12)
	if len(a.erased) > 0 {
		t.Errorf("%d are kept that were forgotten", len(a.erased))
	}
}

// wantSeen checks where and when minions were seen.
func wantSeen(t *testing.T, what string, p *Presence, want map[salt.MinionID]string) {
	t.Helper()
	for id, want := range want {
		_, seen := p.Connected(id)
		if !seen.IsZero() {
			seen = seen.Local()
		}
		if got := p.SeenAt(id) + " " + seen.String(); got != want {
			t.Errorf("%s: %s was seen at %s, want %s", what, id, got, want)
		}
	}
}
