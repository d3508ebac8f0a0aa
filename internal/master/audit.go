package master

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/membership"
)

// RenameAuditLogs is called when the audit logs of others have been restored under new names, with the keys of the master in pkiDir:
// what it has noted of them counts under these. Once that is done, doing it again changes nothing.
func RenameAuditLogs(pkiDir string, names map[string]string) error {
	return audit.RenameSeen(filepath.Join(pkiDir, audit.SeenName), names)
}

// openAudit opens the audit log. Its head and the key of its digests are stored with the keys
// of the master: in another place than the journal, and as safe.
func (m *Master) openAudit(ctx context.Context) error {
	queue, err := m.journal.Queue(ctx, audit.QueueName, m.storage())
	if err != nil {
		return err
	}
	position, err := m.journal.OwnTable(ctx, "audit")
	if err != nil {
		return err
	}
	spool, err := audit.OpenSpool(audit.SpoolOptions{
		Path: filepath.Join(m.cfg.CacheDir, "unstored"), Lost: m.member.WithoutQuorum, Durable: m.durable, Log: m.log,
		Stalled: func() error { return cmp.Or(queue.Stalled(), journal.Stalled(m.journal)) },
	})
	if err != nil {
		return err
	}
	o := audit.Options{
		Queue: queue, Position: position,
		HeadFile: filepath.Join(m.cfg.PKIDir, "audit.head"), KeyFile: filepath.Join(m.cfg.PKIDir, "audit.key"),
		File: m.cfg.AuditFile, Values: m.cfg.AuditArgs, MaxAge: m.cfg.AuditRetention, MaxBytes: m.cfg.AuditMaxBytes,
		Announce: func(tag string, data json.RawMessage) { m.events.Announce(tag, data) },
		Flush:    func() error { return m.storage().Flush(audit.QueueName) },
		Spool:    spool, Journal: m.journal, Name: m.member.Name(), SeenFile: filepath.Join(m.cfg.PKIDir, audit.SeenName),
		Log: m.log,
	}
	if others, ok := membership.AuditorsOf(m.member); ok {
		o.Members = others
	}
	if m.auditLog, err = audit.Open(ctx, o); err != nil {
		return err
	}
	decided := audit.NewDecided(m.auditLog, m.events.Announce)
	m.admission.Decided, m.admission.Unwritable = decided, m.journal.Err
	m.undo = append(m.undo, m.auditLog.Close, decided.Close)
	m.authz.Events = m.events.Rules()
	m.authz.SetAudit(m.auditLog)
	m.settings.Audit = m.auditLog
	return nil
}

// tellOldKeys logs Salt's key files of users in cachedir. They have no effect here.
func (m *Master) tellOldKeys() {
	files, err := filepath.Glob(filepath.Join(m.cfg.CacheDir, ".*key"))
	if err != nil || len(files) == 0 {
		return
	}
	m.log.Warn("key files of users, which Salt has left in cachedir, are ignored: the kernel says who a user is. They can be deleted", "files", files)
}
