package runner

import (
	"context"
	"time"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
)

// Access answers what the rules allow the user of the runner.
type Access interface {
	Explain(ctx context.Context, e acl.Explain) (acl.Explained, error) // whether a user may do something
	Rights(ctx context.Context) (acl.Rights, error)                    // what the user of the runner may do
}

// Accepted are the minions with an accepted key.
type Accepted interface {
	IDs() []salt.MinionID // sorted
}

// Cache deletes what is known of a minion: of the mine one entry, or all for "".
type Cache interface {
	DropGrains(ctx context.Context, id salt.MinionID) error
	DropMine(ctx context.Context, id salt.MinionID, entry string) error
	DropPillar(ctx context.Context, id salt.MinionID) error
}

// Cluster is about the masters that are one system; the error for a single master is ErrAlone.
type Cluster interface {
	ClusterStatus(ctx context.Context) (ClusterStatus, error)
	// RemoveMember puts a member out of the cluster for good, by its name or the fingerprint of
	// its key. It returns the fingerprint, and the members that do not know of it.
	RemoveMember(ctx context.Context, member string) (removed string, unaware []string, err error)
	// StepDown gives away what the asked member leads, which takes nothing back until it is restarted, and returns how
	// many streams that were.
	StepDown(ctx context.Context) (streams int, err error)
}

// Transition is how a master becomes a member of a cluster, and stops being one.
type Transition interface {
	// CheckJoin says what is missing before this single master can start as a member, by the
	// configuration files as they are now. It changes nothing.
	CheckJoin(ctx context.Context) (JoinReport, error)
	// Leave makes the asked member leave its cluster in good order. It ends soon afterwards.
	Leave(ctx context.Context) (LeaveReport, error)
}

// EventReader reads the journal.
type EventReader interface {
	Events(ctx context.Context, subject string, since time.Time, f func(event.Event) error) error
}

// EventSender fires events in the name of the user of the runner.
type EventSender interface {
	SendEvent(ctx context.Context, tag string, data any) error
}

// Facts has what the master knows of a minion.
type Facts interface {
	Grains(id salt.MinionID) map[string]any        // the last reported grains, nil for none
	Mine(id salt.MinionID) (map[string]any, error) // its mine data, nil for none
	// CompilePillar compiles the pillar of a minion with its stored grains; supposed overrides
	// them. env is one environment, "" all.
	CompilePillar(id salt.MinionID, env string, supposed map[string]any) (map[string]any, error)
}

// Journal is the journal's store.
type Journal interface {
	StoreErr() error                                   // why it cannot be written, nil if it can
	Verify(ctx context.Context) (JournalReport, error) // checks its files
	// Backup writes all of it into a directory that does not exist yet.
	Backup(ctx context.Context, dir string) (JournalBackup, error)
	// CheckBackup reads all of a backup, and compares it with its sums.
	CheckBackup(ctx context.Context, dir string) (BackupReport, error)
	// StoreDir is the directory of the store, "" if it is at NATS servers that others run.
	StoreDir() string
}

// NATS is what NATS servers that others run need to know.
type NATS interface {
	ServerConfig() (string, error) // for their configuration; public keys only
}

// Presence reports which minions are connected.
type Presence interface {
	Connected(id salt.MinionID) (connected bool, lastSeen time.Time) // a zero time means never
}

// Publisher publishes jobs in the name of the user of the runner.
type Publisher interface {
	Execute(ctx context.Context, e Execute) ([]job.Update, error) // runs a job and waits for it
	// Ping runs test.ping and waits for it. Permission for the runner is enough for that.
	Ping(ctx context.Context, tgt, kind string, timeout time.Duration) ([]job.Update, error)
	Resolve(expression, kind string) ([]salt.MinionID, error) // the accepted minions that match a target
}

// Reactor has the handlers of events, by name.
type Reactor interface {
	Reactions() []Reaction
	Retry(ctx context.Context, name string, seq uint64) ([]uint64, error) // passes dead letters to a handler again; 0 is all
}

// Reloader reads the configuration of the other members of the cluster again.
type Reloader interface {
	// ReloadOthers returns the name of the asked member, and the results of all others. The error for a single
	// master is ErrAlone.
	ReloadOthers(ctx context.Context) (self string, others []MemberReload, err error)
}

// Running has the jobs that are not finished.
type Running interface {
	Await(ctx context.Context, jid salt.JID) error                     // returns when nothing more is expected of a job for now
	Cancel(ctx context.Context, jid salt.JID) ([]salt.MinionID, error) // withdraws a job from minions that have not got it yet, and returns those
	Runs(ctx context.Context, jid salt.JID) []job.Summary              // all, oldest first, or the one with this id
}

// Settings is the configuration in force.
type Settings interface {
	Lint(ctx context.Context) []acl.Warning // suspicious access rules
	// Reload reads the configuration again. If it has an error, nothing changes and the error is
	// returned.
	Reload() (Reloaded, error)
	// Unreloaded returns why the last read configuration is not in force, "" if it is.
	Unreloaded() string
}

// Uploads has the files that minions have uploaded.
type Uploads interface {
	// RemoveUpload removes a file of a minion at all masters that share them.
	RemoveUpload(ctx context.Context, id salt.MinionID, path string) error
}
