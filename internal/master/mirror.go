package master

import (
	"context"
	"path/filepath"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/mirror"
)

// mirroring is what a master with journal_mirror has beside others.
type mirroring struct {
	member *mirror.Member
	keeper *mirror.Keeper
}

// openMirror opens the mirror of the other master's journal, and the own one to it.
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
		Bounds: journal.Options{MaxAge: m.retention(), MaxBytes: m.cfg.EventMaxBytes}, Found: m.events.AddMirror, Tell: m.tellMirror, Cut: m.broker.Links.Cut, Log: m.log,
	})
	if err != nil {
		return err
	}
	m.undo = append(m.undo, m.mirror.keeper.Close)
	return nil
}

// tellMirror tells listeners that the other master has come or gone.
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
	}
}

// journals is the own journal, with those that are mirrored here.
func (m *Master) journals() journal.All {
	return journal.All{Own: m.journal, Mirrors: m.events.Mirrors, Log: m.log}
}
