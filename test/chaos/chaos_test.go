package chaos

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/brinebus/brine/test/programs"
)

var (
	rounds  = flag.Int("rounds", 0, "how many `rounds`; 0 for the short form")
	seed    = flag.Uint64("seed", 0, "the `number` from which the kinds of rounds and their times follow; 0 for that of the day")
	members = flag.Int("members", 3, "the `number` of masters that are one system")
	only    = flag.String("only", "", "only kinds whose names begin with `TEXT`")
	within  = flag.Duration("within", 0, "no round begins after this `time`; 0 for none but the short form with a cluster, which is bounded")
	syncs   = flag.String("journal-sync", "always", "journal_sync of all daemons; with default a power cut may lose what was stored in the last second")
)

// shortKinds are those of the short form with one master, one round each.
var shortKinds = []string{"kill master", "cut", "power master", "kill listener", "restart master", "damage master"}

// With a cluster there is time for some rounds only. The first are of the kinds that have found most, beginning with
// another one each day, and the others are for a fast machine.
var (
	firstMemberKinds = []string{"kill all", "cut member", "clock member", "cut member one way", "full member"}
	otherMemberKinds = []string{"kill member", "power all", "move listener", "slow link", "restart member"}
)

// shortMemberKinds are those of the short form with a cluster, of one seed.
func shortMemberKinds(seed uint64) []string {
	first := int(seed % uint64(len(firstMemberKinds)))
	return slices.Concat(firstMemberKinds[first:], firstMemberKinds[:first], otherMemberKinds)
}

// ofDay is the seed of a day.
func ofDay(t time.Time) uint64 { return uint64(t.Unix() / (24 * 60 * 60)) }

// shortTime is how long the short form with a cluster goes on to begin rounds.
const shortTime = 70 * time.Second

// bin has the programs.
var bin string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	flag.Parse()
	if *seed == 0 {
		*seed = ofDay(time.Now())
	}
	if testing.Short() {
		fmt.Println("chaos: skipped with -short: it builds and runs the programs")
		return 0
	}
	syscall.Umask(0o022)
	var err error
	if bin, err = os.MkdirTemp("", "brine-chaos"); err == nil {
		defer os.RemoveAll(bin)
		err = programs.Put(bin, "salt", "salt-call", "salt-event", "salt-key", "salt-master", "salt-minion", "salt-run")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if code == 0 && *rounds > 0 && !ran {
		fmt.Fprintln(os.Stderr, "chaos: no round was run")
		return 1
	}
	return code
}

// ran says that there was a round.
var ran bool

// counts are what the rounds of a kind came to.
type counts struct {
	rounds, acknowledged, unconfirmed      int // what was done
	jobs, done                             int // and of these what the caller was told
	lost, twice, disorder, reused, unheard int // events
	heardWrong, differ                     int // what listeners heard, and what members show
	ranTwice, wrongWords, unknown          int // jobs
	decisions, wrongKeys                   int // about keys
	logins, revoked, wrongTokens           int // of users
	hung, broken, deaths, stalled          int // commands and daemons
}

func (c *counts) add(d counts) {
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(d)
	for i := range to.NumField() {
		*(*int)(to.Field(i).Addr().UnsafePointer()) += int(from.Field(i).Int())
	}
}

// TestChaos works with one master and disturbs, round by round.
func TestChaos(t *testing.T) { chaos(newWorld(t, 1)) }

// TestCluster does the same with three or more masters that are one system.
func TestCluster(t *testing.T) { chaos(newWorld(t, *members)) }

func chaos(w *world) {
	t, start := w.t, time.Now()
	t.Logf("the seed is %d: -seed %d has the same kinds and times again", *seed, *seed)
	plan := w.plan()
	total := map[string]*counts{}
	var past []*round
	broken := false
	for i, k := range plan {
		if limit := w.limit(); limit > 0 && time.Since(start) > limit {
			t.Logf("left out after %s: %d of %d rounds", limit, len(plan)-i, len(plan))
			break
		}
		begun := time.Now()
		r, rnd := newRound(w, i+1, k), rand.New(rand.NewPCG(*seed, uint64(i)))
		r.long = len(w.masters) > 1 && isLong(plan, i, rnd)
		past, ran = append(past, r), true
		r.run(rnd)
		r.counts.rounds = 1
		r.report(total, begun)
		if broken = r.counts.broken > 0; broken {
			break // nothing behind it would say anything
		}
	}
	if !broken {
		last := newRound(w, 0, &kind{name: "at the end"})
		begun := time.Now()
		last.judgeHistory(past)
		last.report(total, begun)
	}
	t.Log("\n" + table(total))
	for _, m := range w.all() {
		if m.deaths > 0 {
			t.Logf("%s ended by itself %d times, and was started again", m.name, m.deaths)
		}
	}
	if sum := total["all"]; len(past) > 0 {
		for what, n := range map[string]int{"event": sum.acknowledged, "job": sum.done, "login": sum.logins, "decision": sum.decisions} {
			if n == 0 && (what != "decision" || w.guest != nil) {
				t.Errorf("no %s was acknowledged in any round: nothing was checked", what)
			}
		}
	}
}

// isLong says whether the member of a round is away until others have taken over what it had. In the short form, which
// has no time for more, it is the first that is cut off.
func isLong(plan []*kind, i int, rnd *rand.Rand) bool {
	quarter := rnd.IntN(4) == 0
	if *rounds > 0 {
		return quarter
	}
	return i == slices.IndexFunc(plan, func(k *kind) bool { return strings.HasPrefix(k.name, "cut member") })
}

// report adds what a round came to to the total of its kind, and prints it.
func (r *round) report(total map[string]*counts, begun time.Time) {
	name, t := r.kind.name, r.w.t
	if total[name] == nil {
		total[name] = &counts{}
	}
	total[name].add(r.counts)
	c := r.counts
	t.Logf("round %d, %s: %d acknowledged, %d jobs, %d of them done, %d logins, %d decisions, %.1f s", r.number, name, c.acknowledged, c.jobs, c.done, c.logins, c.decisions, time.Since(begun).Seconds())
	for _, s := range alike(r.said) {
		t.Errorf("round %d, %s: %s", r.number, name, s)
	}
}

var number = regexp.MustCompile(`\d+`)

// alike leaves only the first of sentences that differ in their numbers.
func alike(said []string) []string {
	var out []string
	count := map[string]int{}
	for _, s := range said {
		shape := number.ReplaceAllString(s, "#")
		if count[shape]++; count[shape] == 1 {
			out = append(out, s)
		}
	}
	for i, s := range out {
		if n := count[number.ReplaceAllString(s, "#")]; n > 1 {
			out[i] = fmt.Sprintf("%s (and %d more like it)", s, n-1)
		}
	}
	return out
}

// limit is how long rounds begin; 0 for ever.
func (w *world) limit() time.Duration {
	if *within == 0 && *rounds == 0 && len(w.masters) > 1 {
		return shortTime
	}
	return *within
}

// plan says which kind each round is.
func (w *world) plan() []*kind {
	var out []*kind
	if *rounds == 0 {
		short := shortKinds
		if len(w.masters) > 1 {
			short = shortMemberKinds(*seed)
		}
		for _, name := range short {
			k, err := w.possible(name)
			if err != nil {
				w.t.Logf("left out: %v", err)
				continue
			}
			out = append(out, k[0])
		}
		return out
	}
	for _, s := range w.without() {
		w.t.Logf("left out: %s", s)
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
	columns := []string{"kind", "rounds", "acknowledged", "unconfirmed", "jobs", "done", "lost", "twice", "out of order", "sequence reused", "not heard", "heard out of order or twice", "members differ", "ran twice", "wrong last words", "unknown jobs", "decisions about keys", "wrong keys", "logins", "tokens deleted", "wrong tokens", "hung", "broken", "ended by itself", "stood still"}
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
