package runner

import (
	"context"
	"time"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
)

// Access is what the rules say about whoever asks.
type Access interface {
	Explain(ctx context.Context, e Explain) (Explained, error) // whether somebody may do something
	Rights(ctx context.Context) (Rights, error)                // what whoever asks may do
}

// Accepted are the minions with an accepted key.
type Accepted interface {
	IDs() []salt.MinionID // sorted
}

// Cache forgets what is known of a minion, of the mine one entry or, for "", all.
type Cache interface {
	DropGrains(ctx context.Context, id salt.MinionID) error
	DropMine(ctx context.Context, id salt.MinionID, entry string) error
	DropPillar(id salt.MinionID)
}

// EventReader reads the journal.
type EventReader interface {
	Events(ctx context.Context, subject string, since time.Time, f func(event.Event) error) error
}

// EventSender fires events in the name of whoever asks.
type EventSender interface {
	SendEvent(ctx context.Context, tag string, data any) error
}

// Facts are what the master knows of a minion.
type Facts interface {
	Grains(id salt.MinionID) map[string]any        // what it last said, nil for nothing
	Mine(id salt.MinionID) (map[string]any, error) // what it keeps there, nil for nothing
	// CompilePillar compiles the pillar of a minion, with the grains that it is known
	// to have, and those of supposed over them. env is one environment, "" all.
	CompilePillar(id salt.MinionID, env string, supposed map[string]any) (map[string]any, error)
}

// Journal is the store itself.
type Journal interface {
	StoreErr() error                                   // why it cannot be written, nil when it can
	Verify(ctx context.Context) (JournalReport, error) // looks at its files
}

// Presence says who is there.
type Presence interface {
	Connected(id salt.MinionID) (connected bool, lastSeen time.Time) // a zero time is never
}

// Publisher publishes jobs in the name of whoever asks.
type Publisher interface {
	Execute(ctx context.Context, e Execute) ([]job.Update, error) // runs a job and waits for it
	// Ping runs test.ping and waits for it: who may run the runner may have that done.
	Ping(ctx context.Context, tgt, kind string, timeout time.Duration) ([]job.Update, error)
	Resolve(expression, kind string) ([]salt.MinionID, error) // the accepted minions that a target means
}

// Reactor has the handlers of events, by name.
type Reactor interface {
	Reactions() []Reaction
	Retry(ctx context.Context, name string, seq uint64) ([]uint64, error) // hands dead letters to one again; 0 is all
}

// Running are the jobs of which more is expected.
type Running interface {
	Await(ctx context.Context, jid salt.JID) error                     // returns when nothing more is expected of a job for now
	Cancel(ctx context.Context, jid salt.JID) ([]salt.MinionID, error) // withdraws a job from whom it was not sent to, and returns those
	Runs() []job.Summary                                               // the oldest first
}

// Settings are the configuration in force.
type Settings interface {
	Lint(ctx context.Context) []acl.Warning // what is strange about the access rules
	// Reload reads the configuration anew. What is wrong with it is in the error,
	// and then nothing has changed.
	Reload() (Reloaded, error)
	// Unreloaded is why the configuration that was read last is not in force, "" when
	// it is.
	Unreloaded() string
}
