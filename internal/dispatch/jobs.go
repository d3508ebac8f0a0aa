package dispatch

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Limits of the jobs without a run that are kept in memory, so that their returns need no look-up in the
// journal. Those in the spool, which has its own limit, stay beyond it.
const (
	maxKnown     = 4096
	maxKnownSize = 64 << 20 // estimated bytes
	// The estimate for a job, and for each of its minions and returns, whose ids it shares with nobody.
	jobSize    = 512
	minionSize = 80
	returnSize = 40
	// maxKept is how many jobs of the spool are passed over at a time.
	maxKept = 16
)

// Job is what the master must know of a job to accept a return for it.
type Job struct {
	minions  map[salt.MinionID]bool
	fun      any
	args     any
	User     string
	Backend  string // that authenticated the user; "" for a user of this machine
	metadata any
	owner    string                 // the member of the cluster that has it; "" for this master
	table    string                 // that has its plan, while it is not finished; "" if that is not known
	partial  bool                   // it is known from another member, for some of its minions only
	recorded bool                   // fun, args and metadata are only in the journals: that member has left them out
	size     int                    // of fun, args and metadata, in bytes of memory
	spooled  bool                   // it may be in the spool
	counted  int                    // what it counts in the size of the jobs that are known; guarded by jobs
	returned map[salt.MinionID]bool // guarded by jobs; without returns before a restart, unless read
	read     bool                   // returned has what the journals had; guarded by jobs
	moves    int                    // how often another member has got it; guarded by jobs
	reading  chan struct{}          // holds one element while these are read; nil before
}

func jobOf(p *plan) *Job {
	e := &p.Envelope
	k := &Job{minions: make(map[salt.MinionID]bool, len(p.Start.Minions)), fun: e.Fun(), args: e.Arguments(), User: e.User, Backend: p.Backend, metadata: p.Metadata, table: p.table, spooled: p.spooled}
	for _, id := range p.Start.Minions {
		k.minions[id] = true
	}
	return k.measured()
}

// measured sets the size, once: the arguments may be long.
func (k *Job) measured() *Job {
	k.size = value.Size(k.fun) + value.Size(k.args) + value.Size(k.metadata)
	return k
}

// jobs are the jobs in the master's memory.
type jobs struct {
	adopting sync.Mutex              // one job at a time is rebuilt from the journal
	inSpool  func(jid salt.JID) bool // reports whether the spool has a job, so that the journal has not

	mu    sync.Mutex
	runs  map[salt.JID]*Run
	of    map[salt.MinionID]map[*Run]bool // the runs of each minion
	known map[salt.JID]*Job               // those without a run
	order []salt.JID                      // of known, the oldest first
	size  int                             // of known
	// starting are jobs that this master is storing, and that get their run afterwards.
	starting map[salt.JID]bool
}

func newJobs(inSpool func(salt.JID) bool) *jobs {
	return &jobs{runs: map[salt.JID]*Run{}, of: map[salt.MinionID]map[*Run]bool{}, known: map[salt.JID]*Job{}, starting: map[salt.JID]bool{}, inSpool: inSpool}
}

func (j *jobs) add(r *Run) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.runs[r.plan.Start.JID] = r
	for _, id := range r.plan.Start.Minions {
		if j.of[id] == nil {
			j.of[id] = map[*Run]bool{}
		}
		j.of[id][r] = true
	}
}

// drop removes a run. It is false if the job has another one. The caller holds mu.
func (j *jobs) drop(r *Run) bool {
	jid := r.plan.Start.JID
	other := j.runs[jid] != nil && j.runs[jid] != r
	if !other {
		delete(j.runs, jid)
	}
	for _, id := range r.plan.Start.Minions {
		if delete(j.of[id], r); len(j.of[id]) == 0 {
			delete(j.of, id)
		}
	}
	return !other
}

// remember keeps a job without a run in memory, in place of others. The caller holds mu.
func (j *jobs) remember(jid salt.JID, k *Job) {
	if old := j.known[jid]; old != nil {
		j.size -= old.counted
		old.counted = 0
	} else {
		j.order = append(j.order, jid)
	}
	j.known[jid] = k
	j.count(k, jobSize+k.size+minionSize*len(k.minions)+returnSize*len(k.returned))
	for kept := 0; kept < maxKept && len(j.order) > 1 && (len(j.order) > maxKnown || j.size > maxKnownSize); {
		first := j.order[0]
		j.order = j.order[1:]
		old := j.known[first]
		if first == jid || old.spooled && j.inSpool(first) {
			j.order = append(j.order, first)
			kept++
			continue
		}
		j.size -= old.counted
		old.counted = 0
		delete(j.known, first)
	}
}

// count records that a job that is known takes more memory. The caller holds mu.
func (j *jobs) count(k *Job, size int) {
	k.counted += size
	j.size += size
}

// forget drops the run of a finished job. Returns are still accepted.
func (j *jobs) forget(r *Run) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.drop(r) {
		j.remember(r.plan.Start.JID, r.job)
	}
}

// setStarting records that this master is storing a job, or has its run.
func (j *jobs) setStarting(jid salt.JID, starting bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if starting {
		j.starting[jid] = true
	} else {
		delete(j.starting, jid)
	}
}

// isOurs reports whether a job has a run here, or gets one without being taken over.
func (j *jobs) isOurs(jid salt.JID) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.runs[jid] != nil || j.starting[jid]
}

// running returns the run of a job, nil if it is finished.
func (j *jobs) running(jid salt.JID) *Run {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.runs[jid]
}

// all returns the runs, the oldest first.
func (j *jobs) all() []*Run {
	j.mu.Lock()
	defer j.mu.Unlock()
	return sorted(maps.Values(j.runs))
}

// ofMinion returns the runs of a minion, the oldest first. It is called for each minion that comes or goes,
// so it takes no longer when others have more jobs.
func (j *jobs) ofMinion(id salt.MinionID) []*Run {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.of[id]) == 0 {
		return nil
	}
	return sorted(maps.Keys(j.of[id]))
}

func sorted(runs iter.Seq[*Run]) []*Run {
	return slices.SortedFunc(runs, func(a, b *Run) int { return strings.Compare(string(a.plan.Start.JID), string(b.plan.Start.JID)) })
}

// underWay returns how many jobs are not finished, and how many of them may wait for minions that are away.
func (j *jobs) underWay() (all, waiting int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.runs {
		if !r.plan.Until.IsZero() {
			waiting++
		}
	}
	return len(j.runs), waiting
}

// lost tells every job of a minion that its connection has ended.
func (j *jobs) lost(id salt.MinionID) {
	for _, r := range j.ofMinion(id) {
		r.lost(id)
	}
}

// open returns the jobs that were sent to a minion and are not finished there.
func (j *jobs) open(id salt.MinionID) (list []salt.JID) {
	for _, r := range j.ofMinion(id) {
		if r.open(id) {
			list = append(list, r.plan.Start.JID)
		}
	}
	return list
}

// back tells every job that waits for a minion that it is connected.
func (j *jobs) back(id salt.MinionID, key string) {
	for _, r := range j.ofMinion(id) {
		if !r.plan.Until.IsZero() {
			r.back(id, key)
		}
	}
}

// note records that a minion has returned; again is true if it had before.
func (j *jobs) note(k *Job, id salt.MinionID, returned bool) (again bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if again = k.returned[id]; returned && !again {
		if k.returned == nil {
			k.returned = map[salt.MinionID]bool{}
		}
		k.returned[id] = true
		if k.counted > 0 {
			j.count(k, returnSize)
		}
	}
	return again
}

// hasReturned reports whether the return of a minion was stored here since the start.
func (j *jobs) hasReturned(k *Job, id salt.MinionID) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return k.returned[id]
}

// isRead reports whether the returns in the journals were read.
func (j *jobs) isRead(k *Job) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return k.read
}

// beginRead waits until nobody reads the returns of a job; the caller then does, until end, and says with
// done that it has read them. If another member got the job meanwhile, they are read again.
func (j *jobs) beginRead(ctx context.Context, k *Job) (done, end func(), err error) {
	j.mu.Lock()
	if k.reading == nil {
		k.reading = make(chan struct{}, 1)
	}
	reading := k.reading
	j.mu.Unlock()
	select {
	case reading <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	moves := k.moves
	return func() { j.setRead(k, moves) }, func() { <-reading }, nil
}

func (j *jobs) setRead(k *Job, moves int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	k.read = k.moves == moves
}

func (j *jobs) find(jid salt.JID) *Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.runs[jid]; r != nil {
		return r.job
	}
	return j.known[jid]
}

// ownerOf returns the member that has a job, "" for this one.
func (j *jobs) ownerOf(k *Job) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return k.owner
}

// tableOf returns the table that has the plan of a job, "" if that is not known.
func (j *jobs) tableOf(jid salt.JID) string {
	if k := j.find(jid); k != nil {
		return k.table
	}
	return ""
}

// isFor reports whether a job was sent to a minion. That of another member gets minions later.
func (j *jobs) isFor(k *Job, id salt.MinionID) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return k.minions[id]
}

// Lookup returns what is known of a job, from memory or the journals of all members; nil for an
// unknown job.
func (d *Dispatcher) Lookup(ctx context.Context, jid salt.JID) (*Job, error) {
	if k := d.jobs.find(jid); k != nil && !k.partial {
		return k, nil
	}
	e, of, ok, err := d.Journals.First(ctx, event.JobSubject(jid, "new"))
	if err != nil || !ok {
		return nil, err
	}
	return d.jobs.load(jid, e, of, journal.LedTableName(plansTable, cmp.Or(of, d.Name)))
}

// lookupOwn is Lookup for a job that this master has sent.
func (d relay) lookupOwn(ctx context.Context, jid salt.JID) (*Job, error) {
	if k := d.jobs.find(jid); k != nil {
		return k, nil
	}
	if spooling(d).has(jid) {
		return nil, errSpooled
	}
	e, ok, err := d.Journal.First(ctx, event.JobSubject(jid, "new"))
	if err != nil || !ok {
		return nil, err
	}
	return d.jobs.load(jid, e, "", d.plans.name)
}

// load remembers a job from the event of its start, in the journal of the member that has sent
// it, and so has the plan in its table.
func (j *jobs) load(jid salt.JID, e event.Event, owner, table string) (*Job, error) {
	var load struct {
		Minions []salt.MinionID `json:"minions"`
		Fun     any             `json:"fun"`
		Arg     json.RawMessage `json:"arg"`
		User    string          `json:"user"`
		Backend string          `json:"eauth"`
		Meta    value.Value     `json:"metadata"`
	}
	if err := json.Unmarshal(e.Data, &load); err != nil {
		return nil, err
	}
	k := &Job{minions: make(map[salt.MinionID]bool, len(load.Minions)), fun: load.Fun, args: load.Arg, User: load.User, Backend: load.Backend, metadata: load.Meta.V, owner: owner, table: table}
	for _, id := range load.Minions {
		k.minions[id] = true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if old := j.known[jid]; old != nil {
		if !old.partial {
			return old, nil // it was loaded by others at the same time, who may know more by now
		}
		k.owner, k.returned, k.read, k.moves, k.reading = old.owner, old.returned, old.read, old.moves, old.reading
	}
	j.remember(jid, k.measured())
	return k, nil
}
