package dispatch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/lease"
	"github.com/brinebus/brine/internal/salt"
)

// planFor returns the plan of a batch for so many minions, with keys.
func planFor(t *testing.T, count int, name func(i int) string) (plan, *job.Batch) {
	t.Helper()
	p := plan{
		Start: job.Start{JID: someJID(1), Batch: true}, Batch: job.BatchOptions{Size: "10"}, Began: time.Now().UTC().Truncate(0), Keys: map[salt.MinionID]string{},
		Envelope: job.Envelope{JID: someJID(1), User: "root", Target: "*", TargetType: "glob", Commands: []job.Command{{Function: "test.echo", Args: []any{"a"}, Kwargs: map[string]any{}}}},
	}
	for i := range count {
		id := salt.MinionID(name(i))
		sum := sha256.Sum256([]byte(id))
		p.Start.Minions, p.Keys[id] = append(p.Start.Minions, id), hex.EncodeToString(sum[:])
	}
	batch, err := job.NewBatch(p.Batch, p.Start.Minions)
	if err != nil {
		t.Fatal(err)
	}
	return p, batch
}

func numbered(i int) string { return fmt.Sprintf("web%05d.prod.example.com", i) }

// scattered is a long id without a pattern.
func scattered(int) string {
	return fmt.Sprintf("%016x%016x-%016x.example.com", rand.Uint64(), rand.Uint64(), rand.Uint64())
}

// TestPlansForManyMinions: what is stored is read again, with its holder, for 20,000 minions and for one.
func TestPlansForManyMinions(t *testing.T) {
	t.Parallel()
	for _, count := range []int{1, 5000, 20_000} {
		p, batch := planFor(t, count, numbered)
		p.Holder = lease.Holder{Member: "m1"}
		delete(p.Keys, p.Start.Minions[count/2])
		if count > 1 {
			p.Keys[p.Start.Minions[0]] = "a key" // of another form
			p.Keys[p.Start.Minions[count-1]] = strings.ToUpper(p.Keys[p.Start.Minions[count-1]])
		}
		b, err := p.encode(batch)
		if err != nil || len(b) > maxPlan || isPacked(b) != (count == 20_000) {
			t.Fatalf("%d minions: %d bytes, %v", count, len(b), err)
		}
		got, err := readPlan(b)
		if err != nil || !slices.Equal(got.Start.Minions, p.Start.Minions) || !maps.Equal(got.Keys, p.Keys) || got.Tokens != nil || got.Holder != p.Holder {
			t.Errorf("%d minions: %d of them are read, with %d keys, of %v, %v", count, len(got.Start.Minions), len(got.Keys), got.Holder, err)
		}
		if !reflect.DeepEqual(got.Envelope, p.Envelope) || !got.Began.Equal(p.Began) || got.Batch != p.Batch {
			t.Errorf("%d minions: read is %+v", count, got.Envelope)
		}
		if h, err := holderOf(b); err != nil || h != p.Holder {
			t.Errorf("%d minions: the holder is %v, %v", count, h, err)
		}
		for cut := range 20 { // nothing that is damaged is taken for a plan
			if _, err := readPlan(b[:len(b)*cut/20]); err == nil {
				t.Errorf("%d minions: a part of the plan is read", count)
			}
		}
	}
}

// TestABatchOfManyMinionsIsResumed, from the store of a master.
func TestABatchOfManyMinionsIsResumed(t *testing.T) {
	t.Parallel()
	d, _ := stored(t)
	p, batch := planFor(t, 20_000, numbered)
	if err := d.storePlan(t.Context(), &p, batch); err != nil {
		t.Fatal(err)
	}
	d.store(t, startTag(p.Start.JID), p.load())
	if err := d.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := d.jobs.running(p.Start.JID)
	if r == nil || !maps.Equal(r.plan.Keys, p.Keys) || r.batch == nil {
		t.Fatal("it is not carried on")
	}
}

// TestArgumentsThatNoPlanHas: a job whose arguments are too long for its plan has them when it is carried on,
// so that its returns have them.
func TestArgumentsThatNoPlanHas(t *testing.T) {
	t.Parallel()
	d, _ := stored(t)
	long := strings.Repeat("x", maxUnpacked)
	for i, args := range [][]any{{long, "k=v"}, {"short"}, {}} {
		p := plan{
			Start:    job.Start{JID: someJID(i), Minions: []salt.MinionID{"web1"}},
			Envelope: job.Envelope{JID: someJID(i), User: "root", Target: "web1", TargetType: "glob", Commands: []job.Command{{Function: "test.echo", Args: args}}},
		}
		if err := d.storePlan(t.Context(), &p, nil); err != nil {
			t.Fatal(err)
		}
		d.store(t, startTag(p.Start.JID), p.load())
	}
	if err := d.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]any{{long, "k=v"}, {"short"}, {}} {
		r := d.jobs.running(someJID(i))
		if r == nil {
			t.Fatalf("job %d is not carried on", i)
		}
		e, err := returnEvent("web1", someJID(i), r.job, done("one"))
		if err != nil {
			t.Fatal(err)
		}
		var data struct {
			Args []any `json:"fun_args"`
		}
		if err := json.Unmarshal(e.Data, &data); err != nil || !reflect.DeepEqual(data.Args, want) {
			t.Errorf("the return of job %d has arguments of %d words, want %d, %v", i, len(data.Args), len(want), err)
		}
	}
}
