package master

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/membership"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/service"
)

// Stores moves stores as a whole.
type Stores interface {
	// Check refuses a start whose data is in the store of the other mode.
	Check(cacheDir string, p membership.Place) error
	// CarryOut restores what the start of a member was told to restore.
	CarryOut(ctx context.Context, nc *nats.Conn, cacheDir string, p membership.Place) error
	// Backup writes the store into a new directory.
	Backup(ctx context.Context, nc *nats.Conn, dir string, p membership.Place) (runner.JournalBackup, error)
	// CheckBackup reads all of a backup.
	CheckBackup(ctx context.Context, dir string) (runner.BackupReport, error)
	// CheckJoin checks what a single master needs to take its store into a cluster.
	CheckJoin(cacheDir string) error
}

// UnconfirmedEntry returns what an entry of a table becomes that comes from a store in which removed entries may be there again,
// see dispatch.UnconfirmedEntry.
func UnconfirmedEntry(table string, value []byte) []byte {
	return service.UnconfirmedEntry(table, value)
}

// storeDir is the directory of the journal. Each mode of the journal has its own directory: a
// cluster must never open one that was written by a single server.
func (m *Master) storeDir() string { return filepath.Join(m.cfg.CacheDir, m.member.StoreDir()) }

// durable returns when stored messages are on the disk: only then a minion gets an answer,
// after which it removes its copy. For an event or job of a user this is waited for only with
// journal_sync: always.
func (m *Master) durable() error { return m.storage().Flush(journal.Stream) }

// retention returns how long the journal keeps events and jobs; 0 is forever.
func (m *Master) retention() time.Duration {
	if m.cfg.KeepJobs == 0 {
		return 0
	}
	return max(m.cfg.EventRetention, m.cfg.KeepJobs)
}

// checkStore is called before the store is opened.
func (m *Master) checkStore() error {
	if m.stores == nil {
		return nil
	}
	return m.stores.Check(m.cfg.CacheDir, m.place())
}

// restoreStore is called before anything of the store is used.
func (m *Master) restoreStore(ctx context.Context) error {
	if m.stores == nil || m.member == nil && m.hosted == nil {
		return nil
	}
	return m.stores.CarryOut(ctx, m.storeConn(), m.cfg.CacheDir, m.place())
}

// store implements runner.Journal.
type store struct{ *Master }

// StoreErr implements runner.Journal.
func (m store) StoreErr() error { return cmp.Or(m.storage().Err(), m.journal.Err()) }

// Verify implements runner.Journal: it checks all of the store.
func (m store) Verify(ctx context.Context) (runner.JournalReport, error) {
	if m.hosted != nil {
		return runner.JournalReport{}, membership.ErrElsewhere
	}
	r, err := m.broker.Verify(ctx)
	if r != nil && len(r.Lost) > 0 {
		m.tellLost(r.Lost)
	}
	if err != nil {
		return runner.JournalReport{}, err
	}
	report := runner.JournalReport{Blocks: r.Blocks, Bytes: r.Bytes, Records: r.Records}
	_, all := m.broker.Lost()
	for _, l := range all {
		report.Lost = append(report.Lost, l.Map())
	}
	return report, nil
}

// errNoStores is the error of a master that was started without Stores.
var errNoStores = errors.New("this master cannot move its store")

// Backup implements runner.Journal.
func (m store) Backup(ctx context.Context, dir string) (runner.JournalBackup, error) {
	if m.stores == nil {
		return runner.JournalBackup{}, errNoStores
	}
	return m.stores.Backup(ctx, m.storeConn(), dir, m.place())
}

// CheckBackup implements runner.Journal.
func (m store) CheckBackup(ctx context.Context, dir string) (runner.BackupReport, error) {
	if m.stores == nil {
		return runner.BackupReport{}, errNoStores
	}
	return m.stores.CheckBackup(ctx, dir)
}

// StoreDir implements runner.Journal.
func (m store) StoreDir() string {
	if m.hosted != nil {
		return ""
	}
	return m.storeDir()
}

// transition implements runner.Transition.
type transition struct{ *Master }

// CheckJoin implements runner.Transition.
func (m transition) CheckJoin(ctx context.Context) (runner.JoinReport, error) {
	if m.stores == nil || m.settings.Read == nil {
		return runner.JoinReport{}, errNoStores
	}
	cfg, err := m.settings.Read()
	if err != nil {
		return runner.JoinReport{Missing: []error{err}}, nil
	}
	j := membership.CheckJoin(ctx, cfg, m.version, m.log)
	r := runner.JoinReport{Member: j.Member, Fits: j.Fits, Missing: j.Missing}
	if err := m.key.SigningChange(cfg, len(m.keys.IDs())); err != nil {
		r.Warnings = append(r.Warnings, err)
	}
	fits, next := joinSteps(store(m).StoreDir(), m.place().Name)
	if err := m.stores.CheckJoin(m.cfg.CacheDir); err != nil {
		r.Missing = append(r.Missing, err)
	} else {
		r.Fits = append(r.Fits, fits)
	}
	r.Next = next
	return r, nil
}

// joinSteps says how a store gets into a cluster: it is in dir, or with "" at NATS servers, as the store of name.
func joinSteps(dir, name string) (fits string, next []string) {
	const stop, start = "systemctl stop salt-master", "systemctl start salt-master"
	if dir == "" {
		return "the journal at the NATS servers can be taken along, by a backup", []string{
			"salt-run journal.backup DIR, while this master still runs: what is stored after that is not taken along", stop, "salt-master --restore DIR --restore-as " + name, start,
		}
	}
	return "the store " + dir + " can be taken along", []string{stop, "salt-master --restore " + dir, start}
}

// errLeft is why a member stops that has left its cluster.
var errLeft = errors.New("it has left its cluster")

// answerTime is how long a member that has left waits at most until whoever asked has the answer.
const answerTime = 10 * time.Second

// Leave implements runner.Transition.
func (m transition) Leave(ctx context.Context) (runner.LeaveReport, error) {
	if m.member == nil {
		return runner.LeaveReport{}, runner.ErrAlone
	}
	r, err := m.member.Leave(ctx)
	if err == nil {
		m.wg.Go(func() { m.endAfter(ctx) })
	}
	return r, err
}

// endAfter ends the master when the request with this context is answered.
func (m transition) endAfter(request context.Context) {
	select {
	case <-request.Done():
	case <-time.After(answerTime): // nobody waits for it
	case <-m.ctx.Done():
	}
	m.end(errLeft)
}
