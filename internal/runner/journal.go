package runner

import (
	"context"

	"github.com/brinebus/brine/internal/function"
)

// JournalReport is the result of checking the journal's files.
type JournalReport struct {
	Blocks  int
	Bytes   int64
	Records uint64
	Lost    []any // now and earlier, as far as remembered
}

// journalModule checks the journal. It is for operators, and for users with a rule that names it.
func journalModule(h *Host) *function.Module {
	return &function.Module{Name: "journal", Doc: "The journal of events, jobs and returns.", Functions: []function.Function{
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
