package master

import (
	"context"
	"path/filepath"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/mirror"
)

// mirroring is the additional state of a master with journal_mirror.
type mirroring struct {
	member *mirror.Member
	keeper *mirror.Keeper
	accord *mirror.Accord
}

// openTokens opens the tokens, with journal_mirror those of both masters.
func (m *Master) openTokens(ctx context.Context) error {
	tokens, err := m.journal.Table(ctx, "tokens")
	if err != nil {
		return err
	}
	if m.mirror.member == nil {
		return m.authz.Logins.Open(ctx, tokens, m.start.Backends)
	}
	if m.mirror.accord, err = m.mirror.member.OpenAccord(ctx, m.journal, m.keys, m.cfg.JournalMirrorAccept, m.log); err != nil {
		return err
	}
	m.admission.Changed = m.mirror.accord.Changed
	shared := m.mirror.accord.Tokens(tokens)
	if err := m.authz.Logins.Open(ctx, shared, m.start.Backends); err != nil {
		return err
	}
	shared.Foreign = m.authz.Logins.Authenticator.Foreign
	return nil
}

// openMirror opens the mirror of the other master's journal, and the link for its mirror of
// ours.
func (m *Master) openMirror(ctx context.Context) error {
	own := m.mirror.member
	if own == nil {
		return nil
	}
	m.events.SetMirrors(own.Journal, func(name string) bool { return m.mirror.keeper != nil && m.mirror.keeper.Linked(name) })
	nc, err := m.broker.Links.Conn()
	if err != nil {
		return err
	}
	links, err := m.journal.NewLink(own.Journal, nc, m.log)
	if err != nil {
		nc.Close()
		return err
	}
	m.undo = append(m.undo, links.Close)
	m.mirror.keeper, err = mirror.Open(ctx, mirror.Options{
		Peer: m.cfg.JournalMirror, Member: own, Dir: filepath.Join(m.cfg.CacheDir, "mirror"),
		Bounds: journal.Options{MaxAge: m.retention(), MaxBytes: m.cfg.EventMaxBytes}, Found: m.events.AddMirror, Tell: m.tellMirror, Accord: m.mirror.accord, Cut: m.broker.Links.Cut, Log: m.log,
	})
	if err != nil {
		return err
	}
	m.undo = append(m.undo, m.mirror.keeper.Close)
	return nil
}

// tellMirror informs listeners that the other master has connected or disconnected.
func (m *Master) tellMirror(c mirror.Change) {
	word := "away"
	if c.Linked {
		word = "linked"
	}
	m.events.Announce("salt/journal/mirror/"+word, map[string]any{"master": c.Master, "address": m.cfg.JournalMirror})
}

func (m *Master) runMirror() {
	if k := m.mirror.keeper; k != nil {
		m.wg.Go(func() { k.Run(m.ctx) })
		m.wg.Go(func() { m.mirror.accord.Run(m.ctx) })
	}
}

// journals returns the own journal together with the mirrors.
func (m *Master) journals() journal.All {
	return journal.All{Own: m.journal, Mirrors: m.events.Mirrors, Log: m.log}
}
