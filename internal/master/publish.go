package master

import (
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/reactor"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/runnerjob"
)

func (m *Master) openDispatch() (err error) {
	m.dispatch, err = dispatch.Open(m.ctx, dispatch.Options{
		Journal: m.journal, Fleet: m.fleet, Keys: m.keys, Events: m.events, Audit: m.authz, Conn: m.connections(), Key: m.key.PrivateKey,
		Known: m.authz.Tables.Known, Retention: m.retention(), Durable: m.durable, Log: m.log, Latency: m.latency,
		Members: m.member.Jobs(), Number: m.member.Number(), Name: m.member.Name(), Leases: m.member.Leases(), Journals: m.journals(),
	})
	m.undo = append(m.undo, m.dispatch.Wait)
	m.reactor = reactor.New(m.ctx, reactor.Options{Events: m.events, DeadLetters: m.events.DeadLetters(), Start: dispatch.NewRequests(m.dispatch, m.authz).React, Log: m.log})
	m.undo = append(m.undo, m.reactor.Wait)
	return err
}

// openRunners makes what runs runners, with the parts opened so far.
func (m *Master) openRunners() {
	h := &m.host
	h.Accepted, h.Presence, h.Facts, h.Cache, h.Cluster = m.keys, m.fleet, m.fleet, m.fleet, m.member
	h.Settings, h.Journal, h.Reactor, h.Files, h.NATS = m.settings, store{m}, m.reactor, m.files.Files, servers{m}
	h.MasterKey, h.Version, h.Log = m.key.Public(), m.version, m.log
	m.runners = runnerjob.New(m.ctx, runnerjob.Options{
		Host:  m.host,
		Authz: m.authz, AuditLog: m.auditLog, Jobs: dispatch.All{Dispatcher: m.dispatch}, Active: dispatch.All{Dispatcher: m.dispatch}, Journal: m.journals(), Events: m.events,
		Keys:     func(who audit.Who) runner.KeyStore { return m.keys.By(who) },
		Config:   func() map[string]any { return config.Disclose(m.settings.InForce()) },
		CacheDir: m.cfg.CacheDir, ConfigDir: m.cfg.ConfigDir, NextJID: m.dispatch.NextJID, MaxEventSize: m.cfg.MaxEventSize,
	})
	m.undo = append(m.undo, m.runners.Wait)
}
