package master

import (
	"context"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/membership"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/runner"
)

// openTokens opens the tokens: with journal_mirror those of both masters, in a cluster those of
// all members.
func (m *Master) openTokens(ctx context.Context) error {
	tokens, err := m.journal.Table(ctx, "tokens")
	if err != nil {
		return err
	}
	m.marks = journal.Marks{Table: tokens, Dated: true, Log: m.log}
	if m.member != nil {
		m.admission.Changed, m.admission.Current = m.member.Changed, m.member.Current
	}
	if m.hosted != nil {
		m.admission.Changed, m.admission.Current = m.hosted.Changed, m.hosted.Current
	}
	if m.mirror == nil {
		return m.authz.Logins.Open(ctx, tokens.Confirmed(), m.member.Name(), m.start.Backends)
	}
	if err := m.mirror.OpenAccord(ctx, m.journal, m.keys); err != nil {
		return err
	}
	m.admission.Changed = m.mirror.Changed
	shared := m.mirror.Tokens(tokens)
	if err := m.authz.Logins.Open(ctx, shared, "", m.start.Backends); err != nil {
		return err
	}
	shared.Foreign = m.authz.Logins.Authenticator.Foreign
	return nil
}

// openOthers opens what shows this master the journals of others.
func (m *Master) openOthers(ctx context.Context) error {
	if m.hosted != nil {
		return m.hosted.ShowLeft(ctx, m.events)
	}
	if m.member == nil && m.mirror == nil {
		return membership.ShowLeft(ctx, m.broker, m.events, m.storeDir())
	}
	closing, err := m.mirror.Open(ctx, m.broker, m.journal, m.events, journal.Options{MaxAge: m.retention(), MaxBytes: m.cfg.EventMaxBytes})
	m.undo = append(m.undo, closing...)
	if err != nil {
		return err
	}
	return m.member.Attach(ctx, membership.Parts{Fleet: m.services.Fleet, Jobs: m.services.Jobs, Events: m.events, Outboxes: m.services.Outboxes, Audit: audit.Server{Log: m.auditLog}, Own: standing{m}, Cut: m.admission.Cut})
}

// runOthers follows the other masters until this one stops.
func (m *Master) runOthers() {
	if m.mirror != nil {
		m.wg.Go(func() { m.mirror.Run(m.ctx) })
	}
	if m.member != nil {
		m.wg.Go(func() { m.member.Run(m.ctx) })
	}
	if m.hosted != nil {
		m.wg.Go(func() { m.hosted.Run(m.ctx, m.journal) })
	}
	if m.admission.Current != nil {
		m.wg.Go(func() { m.admission.WatchCurrent(m.ctx) })
	}
}

// standing implements membership.Own.
type standing struct{ *Master }

// Rules implements membership.Own.
func (m standing) Rules() string { return m.settings.Digest() }

// Reload implements membership.Own. A start puts into force what it has read, so nothing newer may be in force
// before.
func (m standing) Reload() (runner.Reloaded, error) {
	select {
	case <-m.serving:
		return m.settings.Reload()
	default:
		return runner.Reloaded{}, rpc.Errorf(rpc.Busy, "it is starting, and may have read its configuration before: ask again")
	}
}

// Forget implements membership.Own.
func (m standing) Forget(ctx context.Context, member string) error {
	return m.authz.Logins.Authenticator.Forget(ctx, member)
}

// Minions implements membership.Own.
func (m standing) Minions() int { return m.services.Fleet.Presence.CountHere() }
