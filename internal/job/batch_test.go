package job

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

func many(n int) []salt.MinionID {
	list := make([]salt.MinionID, n)
	for i := range list {
		list[i] = salt.MinionID(fmt.Sprintf("m%02d", i))
	}
	return list
}

func TestBatchSize(t *testing.T) {
	for _, c := range []struct {
		name string
		o    BatchOptions
		all  int
		want int // how many begin; 0 for no batch at all
	}{
		{"none asked for", BatchOptions{}, 10, 0},
		{"a number", BatchOptions{Size: "3"}, 10, 3},
		{"more than there are", BatchOptions{Size: "30"}, 10, 10},
		{"a part", BatchOptions{Size: "50%"}, 10, 5},
		{"a part the other way round", BatchOptions{Size: "%50"}, 10, 5},
		{"a part is rounded down", BatchOptions{Size: "25%"}, 10, 2},
		{"but is one at least", BatchOptions{Size: "1%"}, 10, 1},
		{"all", BatchOptions{Size: "100%"}, 10, 10},
		{"below the safe limit", BatchOptions{SafeLimit: 10, SafeSize: 2}, 10, 0},
		{"above the safe limit", BatchOptions{SafeLimit: 9, SafeSize: 2}, 10, 2},
		{"a size goes before the safe one", BatchOptions{Size: "4", SafeLimit: 9, SafeSize: 2}, 10, 4},
	} {
		b, err := NewBatch(c.o, many(c.all))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := 0
		if b != nil {
			ids, _ := b.Next(noon)
			got = len(ids)
		}
		if got != c.want {
			t.Errorf("%s: %d begin, want %d", c.name, got, c.want)
		}
	}
}

func TestBatchRefuses(t *testing.T) {
	for _, size := range []string{"x", "0", "-1", "0%", "101%", "-5%", "%", "3.5", "NaN%", "1 0"} {
		if b, err := NewBatch(BatchOptions{Size: size}, many(5)); err == nil || b != nil || !strings.Contains(err.Error(), "Data must be in the form of %10, 10% or 3") {
			t.Errorf("size %q: %v", size, err)
		}
	}
	for _, budget := range []string{"x", "-1", "200%", "1.5"} {
		if _, err := NewBatch(BatchOptions{Size: "1", MaxFail: budget}, many(5)); err == nil {
			t.Errorf("budget %q is taken", budget)
		}
	}
}

// A place is taken again as soon as it is free, or after the wait.
func TestBatchSlides(t *testing.T) {
	for _, c := range []struct {
		name  string
		wait  Seconds
		state State
		after time.Duration
		want  int
	}{
		{"at once", 0, Done, 0, 1},
		{"not before the wait is over", 10, Done, 9 * time.Second, 0},
		{"when it is over", 10, Done, 10 * time.Second, 1},
		{"after a failure too", 10, Failed, 9 * time.Second, 0},
		{"one that was away leaves no pause", 10, NotConnected, 0, 1},
		{"nor one that was not meant", 10, NotTargeted, 0, 1},
	} {
		b, err := NewBatch(BatchOptions{Size: "2", Wait: c.wait}, many(5))
		if err != nil {
			t.Fatal(err)
		}
		if ids, again := b.Next(noon); !slices.Equal(ids, many(2)) || !again.IsZero() {
			t.Fatalf("%s: begins with %v, again %v", c.name, ids, again)
		}
		b.Ended("m00", c.state, noon)
		ids, again := b.Next(noon.Add(c.after))
		if len(ids) != c.want {
			t.Errorf("%s: then %v, want %d", c.name, ids, c.want)
		}
		if c.want == 0 && !again.Equal(noon.Add(10*time.Second)) {
			t.Errorf("%s: ask again at %v", c.name, again)
		}
	}
}

func TestBatchBudget(t *testing.T) {
	for _, c := range []struct {
		name   string
		budget string
		ends   []State
		spent  bool
	}{
		{"none", "", []State{Failed, Failed, Failed}, false},
		{"no failure allowed and none there", "0", []State{Done, Done}, false},
		{"no failure allowed", "0", []State{Done, Failed}, true},
		{"as many as allowed", "2", []State{Failed, Killed}, false},
		{"one more", "2", []State{Failed, Silent, Refused}, true},
		{"a part", "20%", []State{Failed, Failed}, false},
		{"more than that part", "20%", []State{Failed, Failed, Expired}, true},
		{"who was away has not failed", "0", []State{NotConnected, NotTargeted, Queued}, false},
	} {
		b, err := NewBatch(BatchOptions{Size: "3", MaxFail: c.budget}, many(10))
		if err != nil {
			t.Fatal(err)
		}
		ids, _ := b.Next(noon)
		for i, s := range c.ends {
			b.Ended(ids[i], s, noon)
			b.Ended(ids[i], s, noon) // once is enough
		}
		if b.Spent() != c.spent {
			t.Errorf("%s: spent is %v after %d failures", c.name, b.Spent(), b.Failed())
		}
		if rest := b.Clear(); len(rest) != 7 {
			t.Errorf("%s: the rest is %v", c.name, rest)
		}
		if ids, _ := b.Next(noon); len(ids) > 0 {
			t.Errorf("%s: %v begin after the rest was taken out", c.name, ids)
		}
	}
}

// However the minions end, never more than the size are active, and each has its
// turn once.
func FuzzBatch(f *testing.F) {
	f.Add(uint8(3), uint8(2), []byte{0, 1, 2, 3, 4, 5})
	f.Fuzz(func(t *testing.T, size, wait uint8, script []byte) {
		size = size%20 + 1
		b, err := NewBatch(BatchOptions{Size: fmt.Sprint(size), Wait: Seconds(wait % 5)}, many(20))
		if err != nil {
			t.Fatal(err)
		}
		states := []State{Done, Failed, NotConnected, Silent, Queued}
		now := noon
		active, turns := []salt.MinionID{}, map[salt.MinionID]int{}
		for _, c := range script {
			ids, again := b.Next(now)
			for _, id := range ids {
				if turns[id]++; turns[id] > 1 {
					t.Fatalf("%s has its turn twice", id)
				}
			}
			if active = append(active, ids...); len(active) > int(size) {
				t.Fatalf("%d are active, the size is %d", len(active), size)
			}
			if !again.IsZero() && !again.After(now) {
				t.Fatalf("ask again at %v, now is %v", again, now)
			}
			if len(active) > 0 && c&1 == 0 {
				i := int(c>>1) % len(active)
				b.Ended(active[i], states[int(c)%len(states)], now)
				active = slices.Delete(active, i, i+1)
			}
			now = now.Add(time.Duration(c%4) * time.Second)
		}
	})
}
