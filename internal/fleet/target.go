package fleet

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/semaphore"
	"github.com/brinebus/brine/internal/target"
)

// Limits of resolving a target.
const (
	// cheapCost is evaluated at once, in units of target.Cost: some milliseconds.
	cheapCost = 100_000
	// longTarget is the length, in bytes, from which parsing an expression takes noticeable
	// time; longPattern is that for expressions that may be regular expressions, which take ten
	// times as long: compiling one of 4 KB takes ten milliseconds.
	longTarget  = 4 << 10
	longPattern = 256
	// maxEvaluation is how long one target may take. It is checked before each minion.
	maxEvaluation = 5 * time.Second
	// evaluationTurn is how long an evaluation runs before it yields the processor to others.
	// The runtime does that only after ten milliseconds, and an answer to others needs several
	// such turns.
	evaluationTurn = 500 * time.Microsecond
)

// NewEvaluations returns a semaphore that shares half of the processors between principals with
// expensive requests: each principal has one at a time.
func NewEvaluations() *semaphore.Keyed { return semaphore.New(max(1, runtime.GOMAXPROCS(0)/2)) }

// ParseTarget parses the target of a request; a long one when it is the principal's turn.
func (f *Fleet) ParseTarget(ctx context.Context, principal string, q protocol.Publish) (*target.Target, error) {
	kind, err := target.ParseKind(q.TargetType)
	if err != nil {
		return nil, rpc.Errorf(rpc.Usage, "%v", err)
	}
	if takesLong(q.Target, kind) {
		end, err := f.evaluations.Acquire(ctx, principal)
		if err != nil {
			return nil, err
		}
		defer end()
	}
	return f.readTarget(q, kind)
}

// takesLong reports whether parsing this repeatedly would keep the processors from others.
func takesLong(expr string, kind target.Kind) bool {
	switch kind {
	case target.List:
		return false
	case target.PCRE, target.GrainPCRE, target.PillarPCRE:
		return len(expr) > longPattern
	case target.Compound:
		patterns := strings.Contains(expr, "E@") || strings.Contains(expr, "P@") || strings.Contains(expr, "J@")
		return len(expr) > longTarget || patterns && len(expr) > longPattern
	}
	return len(expr) > longTarget
}

// readTarget parses a target without waiting for a turn.
func (f *Fleet) readTarget(q protocol.Publish, kind target.Kind) (*target.Target, error) {
	t, err := target.Parse(q.Target, kind, target.Options{Delimiter: q.Delimiter, Nodegroups: f.Nodegroups()})
	if err != nil {
		return nil, rpc.Errorf(rpc.Usage, "target: %v", err)
	}
	if bad := t.Impossible(); len(bad) > 0 {
		err := rpc.Errorf(rpc.Usage, "target: %q is not a valid minion id", bad[0])
		if strings.Contains(bad[0], ",") {
			return nil, err.WithHint("-L '%s' means a list of minions", bad[0])
		}
		if strings.TrimSpace(bad[0]) == "" {
			return nil, err.WithHint("'*' means all minions; a variable of a script may be empty")
		}
		return nil, err
	}
	return t, nil
}

// ReadInner parses a target inside a command, without waiting for a turn.
func (f *Fleet) ReadInner(expr, kind string) (*target.Target, error) {
	k, err := target.ParseKind(kind)
	if err == nil && len(expr) > longTarget && k != target.List {
		err = rpc.Errorf(rpc.Usage, "a target inside a command has at most %d bytes", longTarget)
	}
	if err != nil {
		return nil, err
	}
	return f.readTarget(protocol.Publish{Target: expr, TargetType: kind}, k)
}

// TakeTurn waits until a principal may evaluate a target, if that takes long; t is nil if it
// cannot be parsed.
func (f *Fleet) TakeTurn(ctx context.Context, principal string, t *target.Target) (end func(), err error) {
	if !f.takesTurn(t) {
		return func() {}, nil
	}
	return f.evaluations.Acquire(ctx, principal)
}

func (f *Fleet) takesTurn(t *target.Target) bool {
	return t != nil && (t.Backtracks() || t.Cost()*len(f.Keys.IDs()) > cheapCost)
}

// evaluation is the evaluation of one target for many minions; next is called before each.
type evaluation struct{ end, turn time.Time }

func newEvaluation() *evaluation {
	now := time.Now()
	return &evaluation{end: now.Add(maxEvaluation), turn: now.Add(evaluationTurn)}
}

// next returns an error if the target takes too long, and yields the processor to others.
func (e *evaluation) next() error {
	now := time.Now()
	if now.After(e.end) {
		return rpc.Errorf(rpc.Usage, "target: %v: %s are not enough", target.ErrTooExpensive, maxEvaluation)
	}
	if now.After(e.turn) {
		runtime.Gosched()
		e.turn = time.Now().Add(evaluationTurn)
	}
	return nil
}

// Resolve finds the minions that a target matches, by what the master knows. It considers only
// minions that all targets of within match, so that others take no time and cause no errors.
func (f *Fleet) Resolve(t *target.Target, within []*target.Target) (job.Start, error) {
	var start job.Start
	known := f.Keys.IDs()
	if named, ok := t.IDs(); ok { // the decision has checked each of them
		for _, id := range named {
			if _, found := slices.BinarySearch(known, id); found {
				start.Minions = append(start.Minions, id)
			} else {
				start.Missing = append(start.Missing, id)
			}
		}
		return start, nil
	}
	work := newEvaluation()
	for _, id := range known {
		if err := work.next(); err != nil {
			return job.Start{}, err
		}
		ok, err := f.means(id, t, within)
		if err != nil {
			return job.Start{}, rpc.Errorf(rpc.Usage, "target: %v", err)
		}
		if ok {
			start.Minions = append(start.Minions, id)
		}
	}
	return start, nil
}

// factsFor returns Facts, with grains only if a target needs them: decoding large ones takes
// time.
func (f *Fleet) factsFor(id salt.MinionID, list []*target.Target) target.Facts {
	facts := target.Facts{ID: id, Pillar: f.pillars.of(id)}
	if slices.ContainsFunc(list, (*target.Target).NeedsGrains) {
		facts.Grains = f.grains.of(id)
	}
	return facts
}

// means reports whether all targets of within match a minion, and then whether t does.
func (f *Fleet) means(id salt.MinionID, t *target.Target, within []*target.Target) (bool, error) {
	facts := f.factsFor(id, append(within[:len(within):len(within)], t))
	for _, w := range within {
		if ok, err := w.Match(facts); !ok || err != nil {
			return false, nil
		}
	}
	return t.Match(facts)
}

// named returns the accepted minions that a target can match: all, unless it names ids.
func (f *Fleet) named(t *target.Target) []salt.MinionID {
	known := f.Keys.IDs()
	ids, ok := t.IDs()
	if !ok {
		return known
	}
	return slices.DeleteFunc(ids, func(id salt.MinionID) bool {
		_, found := slices.BinarySearch(known, id)
		return !found
	})
}
