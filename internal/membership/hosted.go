package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/brinebus/brine/internal/accord"
	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/fleet"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/salt"
)

// hostedName is the name of a journal at NATS servers that others run: there is one, whichever
// master writes it.
const hostedName = "nats"

// ErrHosted is wrapped by errors of a start that cannot use the journal at the NATS servers.
var ErrHosted = errors.New("the journal in the JetStream of nats_servers cannot be used")

// ErrElsewhere is why the files of a journal at the NATS servers are not checked.
var ErrElsewhere = salt.WithHint(errors.New("the files of the journal are those of the NATS servers, which compare their copies themselves"), "'nats server report jetstream' and 'nats stream report' show their state; salt-run audit.verify checks the audit log")

// Hosted is a master whose journal is in the JetStream of NATS servers that others run. Of the
// masters of such a system one is at work; another one, on a machine that has nothing but keys and
// configuration, goes on with what is stored. The methods of nil are those of a master that has
// its store itself.
type Hosted struct {
	cfg   *config.Master
	log   *slog.Logger
	place Place

	servers *broker.External
	store   *broker.Remote
	keys    *accord.Shared
	self    *journal.Table // in which it is tried whether anything can be stored
	lost    chan error
}

// NewHosted returns nil for a master without nats_jetstream.
func NewHosted(cfg *config.Master, log *slog.Logger) *Hosted {
	if !cfg.NATSJetStream {
		return nil
	}
	return &Hosted{cfg: cfg, log: log, place: hostedPlace(cfg), lost: make(chan error, 1)}
}

func hostedPlace(cfg *config.Master) Place {
	return Place{Name: hostedName, All: []string{hostedName}, Copies: cfg.NATSCopies, Hosted: true}
}

// Place returns where its store stands among others.
func (h *Hosted) Place() Place {
	if h == nil {
		return Place{}
	}
	return h.place
}

// Join returns when no other master is at work and JetStream answers. tell is called with what is
// waited for.
func (h *Hosted) Join(ctx context.Context, x *broker.External, tell func(string)) error {
	conn, store := x.Journal()
	h.servers, h.store = x, store
	err := store.Claim(ctx, tell)
	if err == nil {
		err = journal.Probe(ctx, conn)
	}
	return err
}

// Fault says which store an error of a start is about, unless the start has ended with ctx.
func (h *Hosted) Fault(ctx context.Context, err error) error {
	if h == nil || err == nil || ctx.Err() != nil || errors.Is(err, config.ErrMistake) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrHosted, err)
}

// Store returns what is known of the store there, once Join has returned.
func (h *Hosted) Store() *broker.Remote { return h.store }

// Journal returns the options of the journal there.
func (h *Hosted) Journal(o journal.Options) journal.Options {
	return journal.Options{
		MaxAge: o.MaxAge, MaxBytes: o.MaxBytes, Store: h.store, Copies: h.place.Copies, Name: hostedName,
		Turn: journal.NewTurn(h.store.EndOthers, h.end),
	}
}

// end is called when another master has opened the journal.
func (h *Hosted) end(err error) {
	h.store.End(err)
	select {
	case h.lost <- err:
	default:
	}
}

// Lost receives the reason when another master has taken over: this one must end. It is nil, and
// never receives, for a master that has its store itself.
func (h *Hosted) Lost() <-chan error {
	if h == nil {
		return nil
	}
	return h.lost
}

// Open opens the decisions about keys: the key directory of the master at work follows them, and
// what is decided there is added to them.
func (h *Hosted) Open(ctx context.Context, j *journal.Journal, keys *keyring.Keyring) error {
	if h == nil {
		return nil
	}
	h.store.Watch(j.Held, journal.ErrTaken)
	var err error
	if h.self, err = j.Table(ctx, "self"); err != nil {
		return err
	}
	decisions, err := j.Table(ctx, keysTable)
	if err != nil {
		return err
	}
	agreed, err := h.agreed(ctx, j)
	if err != nil {
		return err
	}
	h.keys, err = accord.OpenShared(ctx, accord.SharedOptions{Name: hostedName, Dir: h.cfg.PKIDir, Table: decisions, Agreed: agreed, Keys: keys, Tell: h.tellCurrent, Log: h.log})
	return err
}

// directories is of how many key directories it is known what was in force there: of the master at work, and
// of those that were at work before it and may be again. What is deleted at one of these while it waits
// is deleted when it is at work.
var directories = []string{"agreed", "agreed2", "agreed3"}

// agreed returns what was in force in the key directory of this master when it was at work last.
func (h *Hosted) agreed(ctx context.Context, j *journal.Journal) (accord.Table, error) {
	var tables []accord.Table
	for _, name := range directories {
		table, err := j.OwnTable(ctx, name)
		if err != nil {
			return nil, err
		}
		tables = append(tables, table)
	}
	return accord.Of(ctx, h.cfg.PKIDir, tables)
}

func (h *Hosted) tellCurrent(current bool) {
	if current {
		h.log.Info("the decisions about keys at the NATS servers are in force here")
		return
	}
	h.log.Warn("the decisions about keys at the NATS servers are not read or written: no minion is admitted until they are")
}

// Current reports whether what was decided about keys is in force here, and what is decided here
// is stored.
func (h *Hosted) Current() bool { return !h.keys.Stale() }

// Decisions returns what all masters that write the same tables have decided about keys; nil for a
// master that is neither a member nor at NATS servers.
func Decisions(m *Membership, h *Hosted) fleet.Decisions {
	switch {
	case h != nil:
		return h.keys
	case m != nil:
		return m.keys
	}
	return nil
}

// Changed is called when keys of minions have changed here.
func (h *Hosted) Changed(changes []keyring.Change) { h.keys.Changed(changes) }

// ShowLeft shows to listeners what was restored of the journals of other masters, since the store
// comes from a cluster.
func (h *Hosted) ShowLeft(ctx context.Context, events *eventbus.Bus) error {
	conn, store := h.servers.Journal()
	list, err := journal.Mirrors(ctx, conn, store)
	if err == nil {
		showMirrors(events, hostedName, list)
	}
	return err
}

const (
	// heldEvery is how often it is looked whether another master has opened the journal, and tried
	// to store something.
	heldEvery = 2 * time.Second
	// awayTime is how long there may be no answer until nothing is stored any more: longer than it
	// takes the servers to elect a leader.
	awayTime = 16 * time.Second
)

// Run applies the decisions about keys, and looks whether another master has taken over, and
// whether anything can be stored, until ctx ends.
func (h *Hosted) Run(ctx context.Context, j *journal.Journal) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.keys.Run(ctx)
	}()
	defer func() { <-done }()
	tick := time.NewTicker(heldEvery)
	defer tick.Stop()
	for answered := time.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		once, cancel := context.WithTimeout(ctx, heldEvery)
		err := j.Held(once) // it tells if it is known that another one has
		if err == nil {
			err = h.self.TryPut(once, "turn")
		}
		cancel()
		switch {
		case err == nil:
			answered = time.Now()
			h.store.Away(nil)
		case time.Since(answered) > awayTime:
			h.store.Away(fmt.Errorf("%w: %w", journal.ErrAway, err))
		}
	}
}
