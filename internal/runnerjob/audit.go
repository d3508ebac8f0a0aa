package runnerjob

import (
	"context"

	"github.com/brinebus/brine/internal/audit"
)

// auditLog is the audit log for who: repairs are attributed to them.
type auditLog struct {
	*audit.Log
	who audit.Who
}

func (a auditLog) Chains(ctx context.Context) ([]*audit.Chain, error) {
	return audit.Chains(ctx, a.Log)
}

func (a auditLog) Repair(ctx context.Context) (audit.Repaired, error) {
	return a.Log.Repair(ctx, a.who)
}
