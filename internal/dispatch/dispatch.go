// Package dispatch carries a job from its acceptance to its end: it records the job, sends it
// to the permitted minions, receives their returns, informs those who watch it, and continues
// after a restart. Package authz decides who may run what; Requests asks it.
package dispatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/lease"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Fleet knows the connected minions.
type Fleet interface {
	// Connected reports whether a minion is connected, and if not, when it last was.
	Connected(id salt.MinionID) (connected bool, lastSeen time.Time)
	// SeenAt returns the member that a minion was connected to last; "" if that is not known, and for a single master.
	SeenAt(id salt.MinionID) string
	// Here reports whether id is connected to this master itself.
	Here(id salt.MinionID) bool
	// KeyHere returns the key of the connection that a minion has there, "" for none.
	KeyHere(id salt.MinionID) string
	// Framed reports whether a minion speaks protocol 1.
	Framed(id salt.MinionID) bool
}

// Keys reports whose keys are accepted.
type Keys interface {
	// Tokens returns the token of the accepted key of each of these minions that has one.
	Tokens(ids []salt.MinionID) map[salt.MinionID]string
	// Accepts reports whether the key of a minion with this token is accepted.
	Accepts(id salt.MinionID, token string) bool
}

// Events stores events of the master itself.
type Events interface {
	Store(ctx context.Context, tag string, data any, id string) (seq uint64, err error)
	// AnnounceFor stores an event that a user has caused, without waiting. Events given to
	// Store afterwards come after it.
	AnnounceFor(user, tag string, data any)
}

// Audit records decisions, and refused returns.
type Audit interface {
	// Note records what was allowed and is not done.
	Note(authz.Permission)
	// Book records what is about to happen while store stores the rest. Nothing may take effect
	// unless both succeed.
	Book(ctx context.Context, p authz.Permission, jid salt.JID, store func() error) error
	// BookSpooled records, on the disk of this member, what is about to happen while nothing can be
	// stored, with the events about it.
	BookSpooled(p authz.Permission, jid salt.JID, events []event.Event, operator bool) error
	// NoteReturn records a refused return. It is false for one that is only counted.
	NoteReturn(id salt.MinionID, jid salt.JID, reason string) bool
}

// Journals are the own journal and those of the other members of a cluster, as one. It is
// journal.All.
type Journals interface {
	// Read is like that of a journal, merged by time.
	Read(ctx context.Context, q journal.Query, f func(event.Event) error) error
	// First returns the first event on a subject, if there is one, and the name of its journal:
	// "" for the own one.
	First(ctx context.Context, subject string) (e event.Event, of string, ok bool, err error)
	// Fetch reads the event with these sequences in the journal of this name.
	Fetch(ctx context.Context, of string, sequences []uint64) (event.Event, error)
}

// Options are what a Dispatcher needs from its master.
type Options struct {
	Journal *journal.Journal
	// Journals are those of all members of a cluster, also of those that do not run; nil, or without
	// Members, the own one alone. The journal of a member has its name.
	Journals  Journals
	Fleet     Fleet
	Keys      Keys
	Events    Events
	Audit     Audit
	Conn      rpc.Publisher
	Key       job.Signer
	Known     func(salt.Function) bool // reports whether minions of this version have a function
	Retention time.Duration            // how long the journal keeps a job; 0 is forever
	Durable   func() error             // returns when stored messages are on the disk
	Log       *slog.Logger
	Latency   Latency // of returns; may be nil
	Members   Members // the other masters of a cluster; nil for a single master
	// Leases decide which member carries a job on. Without them, only this one does.
	Leases Leases
	Spool  Spool  // for jobs that are started while nothing can be stored; nil if none are
	Name   string // of this member, as the others and its lease have it
	// Standby reports whether no minion is connected since another master is at work; nil is never.
	Standby func() bool
	// Number is this member's among at most MaxMembers, from 0: no two have the same.
	Number int
}

// Leases are the leases of the members. It is lease.Member.
type Leases interface {
	// Holder returns this member under its present lease, and a context that ends with the
	// lease. It waits for a lease until ctx ends.
	Holder(ctx context.Context) (lease.Holder, context.Context, error)
	// Live reports whether a member may still be at work under a lease. It ends that of a member
	// that does not renew it.
	Live(ctx context.Context, h lease.Holder) (bool, error)
	// Look observes the lease of a member, so that a later Live is quicker.
	Look(ctx context.Context, member string)
}

// Latency gets the seconds from the start of a job to a return. It must not block.
type Latency interface{ Observe(seconds float64) }

// noMatch is a hint where to see what a target matches.
func noMatch(who authz.Principal) string {
	if who.Minion() != "" {
		return "publish.check shows which minions a target means"
	}
	return "'salt-key -L' lists the accepted minions; --preview-target shows which of them a target means"
}

// Dispatcher manages the jobs of one master.
type Dispatcher struct {
	Options
	plans    *plans
	jobs     *jobs
	ended    *ended
	jids     job.Clock
	steady   job.Steady      // for the expiry of jobs
	ctx      context.Context // ends with the master
	wg       sync.WaitGroup
	throttle logging.Throttle // of messages of minions
	unknown  logging.Throttle // of questions to other members for what no master has sent
	audience audience         // other members that watch jobs of this one
	passed   passed           // messages of minions at other members
	returns  returnsTo        // returns of minions here for jobs of other members
	grace    time.Duration    // how long minions have to reconnect before a batch continues
}

// storeTime limits how long it may take to store the state of a job.
const storeTime = 30 * time.Second

// Open returns the jobs of a master that ends with ctx. Jobs continue only after Resume.
func Open(ctx context.Context, o Options) (*Dispatcher, error) {
	if o.Journals == nil || o.Members == nil { // what another master alone has sent is no job of this one
		o.Journals = journal.All{Own: o.Journal}
	}
	plans, err := openPlans(journal.Starting(ctx), o.Journal)
	d := &Dispatcher{Options: o, plans: plans, ended: newEnded(), steady: job.NewSteady(time.Now()), ctx: ctx, passed: newPassed(), returns: newReturnsTo(), grace: resumeGrace}
	d.jobs = newJobs(spooling{d}.has)
	if o.Members != nil {
		d.jids.Number, d.jids.Of = o.Number, MaxMembers
	}
	if err == nil {
		err = spooling{d}.recall()
	}
	return d, err
}

// Now is the time for the expiry of jobs.
func (d *Dispatcher) Now() time.Time { return d.steady.Now() }

// NextJID returns a new job id.
func (d *Dispatcher) NextJID() salt.JID { return d.jids.Next(time.Now()) }

// Wait returns when everything about jobs has ended, after the end of the context.
func (d *Dispatcher) Wait() { d.wg.Wait() }

// Lost tells every job of a minion that its connection has ended.
func (d *Dispatcher) Lost(id salt.MinionID) { d.jobs.lost(id) }

// Back tells every job that waits for a minion that it is connected, with this key.
func (d *Dispatcher) Back(id salt.MinionID, key string) { d.jobs.back(id, key) }

// Awaited returns the jobs that were sent to a minion and are not finished there.
func (d *Dispatcher) Awaited(id salt.MinionID) []salt.JID {
	return append(d.jobs.open(id), relay{d}.awaitedElsewhere(id)...)
}

// UnderWay returns how many jobs are not finished, and how many of them may wait for minions
// that are away.
func (d *Dispatcher) UnderWay() (jobs, waiting int) { return d.jobs.underWay() }

// Quick implements outbox.Returns: it is true for a small return of a job that need not be
// looked up in the journal.
func (d *Dispatcher) Quick(jid salt.JID, size int) bool {
	if size > maxInline {
		return false
	}
	if d.Members != nil {
		return d.jobs.running(jid) != nil
	}
	return d.jobs.find(jid) != nil
}
