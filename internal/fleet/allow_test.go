package fleet

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/mine"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/semaphore"
	"github.com/brinebus/brine/internal/target"
)

// allowing is a fleet that has a nodegroup with a lookahead, and the evaluations of which are all held
// by others.
func allowing(t *testing.T) *Fleet {
	t.Helper()
	f := &Fleet{Options: Options{
		Nodegroups: func() map[string]any { return map[string]any{"web": "E@(?=w)web.*"} },
		MayTarget:  func(salt.MinionID, *target.Target) bool { return true },
	}, grains: &grains{byID: map[salt.MinionID]fact{"web1": {grains: map[string]any{"x": "aaa"}}}}, evaluations: NewEvaluations()}
	for n := range max(1, runtime.GOMAXPROCS(0)/2) {
		if _, err := f.evaluations.Acquire(t.Context(), fmt.Sprintf("other %d", n)); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

var asWeb1 = bus.Identity{Role: bus.RoleMinion, Name: "web1"}

// TestDearTargetsOfEntries: nobody can make readers of the mine wait by allow_tgt. What takes long is not
// stored, and if it was stored before, nobody reads the entry. Nodegroups are the master's own.
func TestDearTargetsOfEntries(t *testing.T) {
	f := allowing(t)
	long := strings.Repeat("a?", longPattern/2) + "b"
	for name, c := range map[string]struct {
		kind  target.Kind
		allow string
		dear  bool
	}{
		"a glob":                     {target.Glob, "web*", false},
		"a pattern":                  {target.PCRE, `web\d+`, false},
		"a long list":                {target.List, strings.Repeat("web2,", 2000) + "web1", false},
		"a nodegroup":                {target.Nodegroup, "web", false},
		"a nodegroup in a compound":  {target.Compound, "N@web and E@web.*", false},
		"a lookahead":                {target.PCRE, "(?=w)web1", true},
		"of grains":                  {target.GrainPCRE, "x:(?=a)(a+)+$", true},
		"in a compound with a group": {target.Compound, "N@web and E@(?=w)web1", true},
		"a long pattern":             {target.PCRE, "web1|" + long, true},
		"in a compound":              {target.Compound, "web1 or E@" + long, true},
		"a long compound":            {target.Compound, strings.Repeat("web1 or ", 1000) + "web1", true},
	} {
		if c.kind != target.List { // of many bytes, for which it would wait
			err := f.mayKeep(t.Context(), asWeb1, mine.Change{Put: map[string]mine.Entry{"n": {Allow: c.allow, AllowType: string(c.kind)}}})
			if (rpc.CodeOf(err) == rpc.Usage) != c.dear || !c.dear && err != nil {
				t.Errorf("%s is kept: %v", name, err)
			}
		}
		if a := f.newMineReader(asWeb1).judge(mineEntry{Allow: c.allow, AllowType: c.kind}); a.means == c.dear {
			t.Errorf("%s: web1 may read the entry: %v", name, a.means)
		}
	}
	err := f.mayKeep(t.Context(), asWeb1, mine.Change{Put: map[string]mine.Entry{"n": {Allow: "web1 and ("}, "m": {Allow: "(", AllowType: "pcre"}}})
	if rpc.CodeOf(err) != rpc.Usage {
		t.Errorf("a target that cannot be parsed: %v", err)
	}
}

// TestManyTargetsOfEntriesAreReadInTurn: many different ones wait while others use what there is for that.
func TestManyTargetsOfEntriesAreReadInTurn(t *testing.T) {
	f := allowing(t)
	ended := errors.New("no turn came")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	for _, n := range []int{5, 100} {
		change, entries, names := mine.Change{Put: map[string]mine.Entry{}}, map[string]mineEntry{}, []string{}
		for i := range n {
			name := fmt.Sprintf("n%03d", i)
			names = append(names, name)
			change.Put[name] = mine.Entry{Allow: "web1|" + name, AllowType: string(target.PCRE)}
			entries[name] = mineEntry{Allow: "web1|" + name, AllowType: target.PCRE}
		}
		if n == 100 {
			cancel(ended)
		}
		kept := f.mayKeep(ctx, asWeb1, change)
		reader, turns := f.newMineReader(asWeb1), 0
		reader.acquire = func(context.Context) (func(), error) { turns++; return func() {}, context.Cause(ctx) }
		items, read := reader.items(t.Context(), "db1", entries, names)
		if turns != n/100 {
			t.Errorf("%d entries took %d turns", n, turns)
		}
		if few := n == 5; errors.Is(kept, ended) == few || errors.Is(read, ended) == few || few && (kept != nil || read != nil || len(items) != n) {
			t.Errorf("%d entries: kept: %v, %d read: %v", n, kept, len(items), read)
		}
	}
	large := mine.Change{Put: map[string]mine.Entry{}}
	for i := range maxMine/longPattern + 1 {
		large.Put[fmt.Sprint(i)] = mine.Entry{Allow: strings.Repeat("a", longPattern), AllowType: string(target.PCRE)}
	}
	if err := f.mayKeep(ctx, asWeb1, large); rpc.CodeOf(err) != rpc.Usage {
		t.Errorf("more than there may be: %v", err)
	}
}

// TestWaitingForATurnIsNotEvaluation: who waits for a turn has the same time to evaluate as who does not.
func TestWaitingForATurnIsNotEvaluation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := allowing(t).newMineReader(asWeb1)
		reader.acquire = func(context.Context) (func(), error) { time.Sleep(2 * maxEvaluation); return func() {}, nil }
		time.Sleep(maxEvaluation / 2)
		if err := reader.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := reader.work.next(); err != nil {
			t.Errorf("after a wait: %v", err)
		}
		time.Sleep(maxEvaluation/2 + 1)
		if err := reader.work.next(); rpc.CodeOf(err) != rpc.Usage {
			t.Errorf("after all of the time: %v", err)
		}
	})
}

// accepts implements Keys: these minions are accepted.
type accepts []salt.MinionID

func (a accepts) IDs() []salt.MinionID                { return a }
func (a accepts) Token(salt.MinionID) (string, error) { return "", nil }

// TestAReaderThatDoesNotReadHoldsNoTurn: entries are sent after the turn, however slowly they are read.
func TestAReaderThatDoesNotReadHoldsNoTurn(t *testing.T) {
	f := allowing(t)
	f.evaluations = semaphore.New(1)
	f.Keys = accepts{"db1", "db2"}
	entries, names := map[string]mineEntry{}, []string{"none"}
	for i := range 2 {
		name := fmt.Sprint("n", i)
		names = append(names, name)
		entries[name] = mineEntry{Data: []byte(name), Allow: "web1," + strings.Repeat("x", longPattern) + name, AllowType: target.List}
	}
	f.mine = &mines{byID: map[salt.MinionID]*mined{"db1": {entries: entries}, "db2": {entries: entries}}}
	all, err := target.Parse("*", target.Glob, target.Options{})
	if err != nil {
		t.Fatal(err)
	}
	turns, sent := 0, ""
	reader := f.newMineReader(asWeb1)
	acquire := reader.acquire
	reader.acquire = func(ctx context.Context) (func(), error) { turns++; return acquire(ctx) }
	err = f.sendMine(t.Context(), all, names, reader, func(_ context.Context, v any) error {
		item := v.(mineItem)
		sent += fmt.Sprintf("%s %s %s\n", item.ID, item.Name, item.Data)
		if f.evaluations.Held() != 0 {
			t.Error("the turn goes on while an entry is sent")
		}
		return nil
	})
	if want := "db1 n0 n0\ndb1 n1 n1\ndb2 n0 n0\ndb2 n1 n1\n"; err != nil || sent != want || turns != 1 {
		t.Errorf("%v, %d turns, and sent was\n%swant\n%s", err, turns, sent, want)
	}
}
