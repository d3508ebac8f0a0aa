package master

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/membership"
	"github.com/brinebus/brine/internal/runner"
)

// Stores moves stores as a whole.
type Stores interface {
	// Check refuses a start whose data is in the store of the other mode.
	Check(cacheDir string, p membership.Place) error
	// CarryOut restores what the start of a member was told to restore.
	CarryOut(ctx context.Context, nc *nats.Conn, cacheDir string, p membership.Place) error
	// Backup writes the store into a new directory.
	Backup(ctx context.Context, nc *nats.Conn, dir string, p membership.Place) (runner.JournalBackup, error)
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
func (m store) StoreErr() error { return m.storage().Err() }

// Verify implements runner.Journal: it checks all of the store.
func (m store) Verify(ctx context.Context) (runner.JournalReport, error) {
	if m.hosted != nil {
		return runner.JournalReport{}, membership.ErrElsewhere
	}
	r, err := m.broker.Verify(ctx)
	if err != nil {
		return runner.JournalReport{}, err
	}
	if len(r.Lost) > 0 {
		m.tellLost(r.Lost)
	}
	report := runner.JournalReport{Blocks: r.Blocks, Bytes: r.Bytes, Records: r.Records}
	_, all := m.broker.Lost()
	for _, l := range all {
		report.Lost = append(report.Lost, l.Map())
	}
	return report, nil
}

// Backup implements runner.Journal.
func (m store) Backup(ctx context.Context, dir string) (runner.JournalBackup, error) {
	if m.stores == nil {
		return runner.JournalBackup{}, errors.New("this master cannot back up its store")
	}
	return m.stores.Backup(ctx, m.storeConn(), dir, m.place())
}
