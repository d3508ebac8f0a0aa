package runner

import (
	"context"
	"time"

	"github.com/brinebus/brine/internal/function"
)

// JournalReport is the result of checking the journal's files.
type JournalReport struct {
	Blocks  int
	Bytes   int64
	Records uint64
	Lost    []any // now and earlier, as far as remembered
}

// JournalBackup is what a backup holds.
type JournalBackup struct {
	Streams  int
	Messages uint64
	Bytes    int64 // of the files
}

// data is what has become of a backup, as a value.
func (b JournalBackup) data(dir string) map[string]any {
	return map[string]any{"dir": dir, "streams": b.Streams, "messages": int64(b.Messages), "bytes": b.Bytes}
}

// BackupReport is what a backup that was read whole holds.
type BackupReport struct {
	JournalBackup
	Time    time.Time
	Version string   // of the program that wrote it
	Members []string // whose journals are in it; none if it is of a single master
}

// journalModule checks and backs up the journal. It is for operators, and for users with a rule that names it.
func journalModule(h *Host) *function.Module {
	return &function.Module{Name: "journal", Doc: "The journal of events, jobs and returns.", Functions: []function.Function{
		{Name: "backup", Class: function.AsDaemon, Doc: "Write the whole store, events, jobs, tables and the audit log, into a new directory on the machine of the master, while it serves. The directory appears when everything in it has been read back. It contains returns, pillar data and tokens: keep it as safe as the master. Keys and configuration are not in it. 'salt-master --restore DIR' restores it.",
			Example: "salt-run journal.backup /var/backups/salt/2026-11-26", Params: []function.Param{{Name: "dir", Kind: function.String, Required: true}}, Run: func(ctx context.Context, c *function.Call) (any, error) {
				b, err := h.Backup(ctx, c.String("dir"))
				if err != nil {
					return nil, err
				}
				return b.data(c.String("dir")), nil
			}},
		{Name: "verify", Class: function.Shared, Doc: "Read all files of the journal and check each record. Return what cannot be read, now or in an earlier check, with its sequences and the times before and after. Readable records after it are kept.",
			Example: "salt-run journal.verify", Run: func(ctx context.Context, c *function.Call) (any, error) {
				r, err := h.Verify(ctx)
				if err != nil {
					return nil, err
				}
				if len(r.Lost) > 0 {
					c.SetRetcode(1)
				}
				return map[string]any{"ok": len(r.Lost) == 0, "blocks": r.Blocks, "bytes": r.Bytes, "records": int64(r.Records), "lost": r.Lost}, nil
			}},
	}}
}
