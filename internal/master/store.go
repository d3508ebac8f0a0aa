package master

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

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

// checkStore is called before the store is opened.
func (m *Master) checkStore() error {
	if m.stores == nil {
		return nil
	}
	return m.stores.Check(m.cfg.CacheDir, m.member.Place())
}

// restoreStore is called before anything of the store is used.
func (m *Master) restoreStore(ctx context.Context) error {
	if m.stores == nil || m.member == nil {
		return nil
	}
	return m.stores.CarryOut(ctx, m.broker.Conn(), m.cfg.CacheDir, m.member.Place())
}

// Backup implements runner.Journal.
func (m store) Backup(ctx context.Context, dir string) (runner.JournalBackup, error) {
	if m.stores == nil {
		return runner.JournalBackup{}, errors.New("this master cannot back up its store")
	}
	return m.stores.Backup(ctx, m.broker.Conn(), dir, m.member.Place())
}
