package chaos

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"
)

var (
	rounds = flag.Int("rounds", 0, "how many `rounds`; 0 for the short form")
	seed   = flag.Uint64("seed", 1, "the `number` from which the kinds of rounds and their times follow")
	only   = flag.String("only", "", "only kinds whose names begin with `TEXT`")
	syncs  = flag.String("journal-sync", "always", "journal_sync of all daemons; with default a power cut may lose what was stored in the last second")
)

// shortKinds are those of the short form, one round each.
var shortKinds = []string{"kill master", "cut", "power master", "kill listener", "restart master", "damage master"}

// bin has the programs.
var bin string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	flag.Parse()
	if testing.Short() {
		fmt.Println("chaos: skipped with -short: it builds and runs the programs")
		return 0
	}
	syscall.Umask(0o022)
	var err error
	if bin, err = os.MkdirTemp("", "brine-chaos"); err == nil {
		defer os.RemoveAll(bin)
		var out []byte
		if out, err = exec.Command("go", "build", "-o", bin+"/", "github.com/brinebus/brine/cmd/...").CombinedOutput(); err != nil {
			err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// counts are what the rounds of a kind came to.
type counts struct {
	rounds, acknowledged, unconfirmed, jobs int // what was done
	lost, twice, disorder, reused, unheard  int // events
	ranTwice, wrongWords, unknown           int // jobs
	hung, broken                            int // commands and daemons
}

func (c *counts) add(d counts) {
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(d)
	for i := range to.NumField() {
		*(*int)(to.Field(i).Addr().UnsafePointer()) += int(from.Field(i).Int())
	}
}

// TestChaos works and disturbs, round by round.
func TestChaos(t *testing.T) {
	w := newWorld(t)
	plan := w.plan()
	total := map[string]*counts{}
	for i, k := range plan {
		begun := time.Now()
		r := &round{w: w, number: i + 1, kind: k, sent: map[string][]sent{}}
		r.run(rand.New(rand.NewPCG(*seed, uint64(i))))
		r.counts.rounds = 1
		if total[k.name] == nil {
			total[k.name] = &counts{}
		}
		total[k.name].add(r.counts)
		t.Logf("round %d, %s: %d acknowledged, %d jobs, %.1f s", r.number, k.name, r.counts.acknowledged, r.counts.jobs, time.Since(begun).Seconds())
		for n, s := range r.said {
			if n == 20 {
				t.Errorf("round %d, %s: and %d more", r.number, k.name, len(r.said)-n)
				break
			}
			t.Errorf("round %d, %s: %s", r.number, k.name, s)
		}
		if r.counts.broken > 0 {
			break // nothing behind it would say anything
		}
	}
	t.Log("\n" + table(total))
	for _, m := range w.machines() {
		if m.deaths > 0 {
			t.Logf("%s ended by itself %d times, and was started again", m.name, m.deaths)
		}
	}
}

// plan says which kind each round is.
func (w *world) plan() []*kind {
	var out []*kind
	if *rounds == 0 {
		for _, name := range shortKinds {
			k, err := w.possible(name)
			if err != nil {
				w.t.Logf("left out: %v", err)
				continue
			}
			out = append(out, k[0])
		}
		return out
	}
	all, err := w.possible(*only)
	w.must(err)
	r := rand.New(rand.NewPCG(*seed, 1<<32))
	for len(out) < *rounds { // each kind as often as the others
		for _, i := range r.Perm(len(all)) {
			out = append(out, all[i])
		}
	}
	return out[:*rounds]
}

// table shows the counts, in the form of the documents.
func table(total map[string]*counts) string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	columns := []string{"kind", "rounds", "acknowledged", "unconfirmed", "jobs", "lost", "twice", "out of order", "sequence reused", "not heard", "ran twice", "wrong last words", "unknown jobs", "hung", "broken"}
	fmt.Fprintln(w, "| "+strings.Join(columns, "\t| ")+"\t|")
	fmt.Fprintln(w, strings.Repeat("|---\t", len(columns))+"|")
	var sum counts
	names := make([]string, 0, len(total))
	for name, c := range total {
		names = append(names, name)
		sum.add(*c)
	}
	slices.Sort(names)
	total["all"] = &sum
	for _, name := range append(names, "all") {
		fmt.Fprint(w, "| "+name)
		v := reflect.ValueOf(*total[name])
		for i := range v.NumField() {
			fmt.Fprintf(w, "\t| %d", v.Field(i).Int())
		}
		fmt.Fprintln(w, "\t|")
	}
	_ = w.Flush() // into memory
	return b.String()
}
