package runnerjob

import (
	"context"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/runner"
)

// audit lets runners read the audit log, and repair it in the name of who.
func (s *Server) audit(who authz.Principal) runner.Audit {
	return runner.Audit{
		Each: func(ctx context.Context, q runner.AuditQuery, f func(line []byte) error) error {
			return s.AuditLog.Each(ctx, audit.Query(q), f)
		},
		Verify: func(ctx context.Context, kept ...string) (runner.AuditReport, error) {
			r, err := s.AuditLog.Verify(ctx, kept...)
			return runner.AuditReport(r), err
		},
		Repair: func(ctx context.Context) (runner.AuditRepaired, error) {
			r, err := s.AuditLog.Repair(ctx, who.Who())
			out := runner.AuditRepaired{Good: r.Good, Entry: r.Entry, Problems: r.Problems}
			for _, k := range r.Files {
				out.Files = append(out.Files, runner.AuditFile(k))
			}
			return out, err
		},
		Digest: s.AuditLog.Digest,
		Hash:   audit.Hash,
	}
}
