// Package dispatch carries a job from its acceptance to its end: it writes the job down,
// sends it to the minions that were permitted, takes what they return, tells whoever
// watches, and goes on after a restart. Who may run what is decided by authz, which Requests ask.
package dispatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/salt"
)

// Fleet says which minions are connected, and if not when one was last.
type Fleet interface {
	Connected(id salt.MinionID) (connected bool, lastSeen time.Time)
}

// Keys says whose keys are accepted.
type Keys interface {
	// Tokens names the accepted key of each of these minions that has one.
	Tokens(ids []salt.MinionID) map[salt.MinionID]string
	// Accepts says whether the key of a minion with this token is accepted.
	Accepts(id salt.MinionID, token string) bool
}

// Events stores events of the master itself.
type Events interface {
	Store(ctx context.Context, tag string, data any, id string) (seq uint64, err error)
	// Announce stores an event without waiting, before those that Store is given after it.
	Announce(tag string, data any)
}

// Audit writes down what was decided, and what is refused of returns.
type Audit interface {
	// Note writes down what was allowed and is not done.
	Note(authz.Permission)
	// Book writes down what is about to happen while store stores the rest. Nothing takes
	// effect without both.
	Book(ctx context.Context, p authz.Permission, jid salt.JID, store func() error) error
	// NoteReturn writes down a return that is refused. It is false for what is only counted.
	NoteReturn(id salt.MinionID, jid salt.JID, reason string) bool
}

// Conn sends messages to minions.
type Conn interface {
	Publish(subject string, message []byte) error
}

// Options are what jobs need of their master.
type Options struct {
	Journal   *journal.Journal
	Fleet     Fleet
	Keys      Keys
	Events    Events
	Audit     Audit
	Conn      Conn
	Key       job.Signer
	Known     func(salt.Function) bool // whether minions of this version have a function
	Retention time.Duration            // how long the journal keeps a job; 0 is for ever
	Durable   func() error             // returns when what is stored is on the disk
	Log       *slog.Logger
	Latency   Latency // of returns; nil for nobody who wants to know
}

// Latency takes the seconds from the start of a job to a return, and waits for nothing.
type Latency interface{ Observe(seconds float64) }

// noMatch is where a principal finds what a target means.
func noMatch(who authz.Principal) string {
	if who.Minion() != "" {
		return "publish.check shows which minions a target means"
	}
	return "'salt-key -L' lists the accepted minions; --preview-target shows which of them a target means"
}

// Dispatcher has the jobs of one master.
type Dispatcher struct {
	Options
	plans    *journal.Table
	jobs     *jobs
	jids     job.Clock
	steady   job.Steady      // of the expiry of jobs
	ctx      context.Context // ends with the master
	wg       sync.WaitGroup
	throttle logging.Throttle // of what minions bring
}

// storeTime bounds how long it may take to store where a job stands.
const storeTime = 30 * time.Second

// Open returns the jobs of a master that ends with ctx. None is carried on before Resume.
func Open(ctx context.Context, o Options) (*Dispatcher, error) {
	plans, err := o.Journal.Table(ctx, plansTable)
	return &Dispatcher{Options: o, plans: plans, jobs: newJobs(), steady: job.NewSteady(time.Now()), ctx: ctx}, err
}

// Now is the time by which the expiry of jobs is judged.
func (d *Dispatcher) Now() time.Time { return d.steady.Now() }

// NextJID is a job id that nobody has.
func (d *Dispatcher) NextJID() salt.JID { return d.jids.Next(time.Now()) }

// Wait returns when nothing of the jobs is running any more, after the end of their
// context.
func (d *Dispatcher) Wait() { d.wg.Wait() }

// Lost tells every job of a minion that its connection has ended.
func (d *Dispatcher) Lost(id salt.MinionID) { d.jobs.lost(id) }

// Back tells every job that waits for a minion that it is there, with this key.
func (d *Dispatcher) Back(id salt.MinionID, key string) { d.jobs.back(id, key) }

// Awaited are the jobs that a minion was sent and of which something is expected.
func (d *Dispatcher) Awaited(id salt.MinionID) []salt.JID { return d.jobs.open(id) }

// UnderWay is how many jobs something is expected of, and how many of them may wait for
// minions that are away.
func (d *Dispatcher) UnderWay() (jobs, waiting int) { return len(d.jobs.all()), d.jobs.waiting() }

// Quick implements outbox.Returns: a small return, of a job that need not be looked up in
// the journal.
func (d *Dispatcher) Quick(jid salt.JID, size int) bool {
	return size <= maxInline && d.jobs.find(jid) != nil
}
