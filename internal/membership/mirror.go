package membership

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/brinebus/brine/internal/accord"
	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/mirror"
)

// Mirror is the other one of two masters that mirror each other's journal. The methods of nil
// are those of a master that mirrors nobody.
type Mirror struct {
	cfg    *config.Master
	member *mirror.Member
	keeper *mirror.Keeper
	accord *mirror.Accord
	events *eventbus.Bus
	log    *slog.Logger
}

// NewMirror returns what a master with journal_mirror has beside others, nil for one without it.
// dir is the directory of the journal.
func NewMirror(cfg *config.Master, own keyring.Own, dir, version string, log *slog.Logger) (*Mirror, error) {
	as, err := mirror.NewMember(cfg, own, dir, version, log)
	if as == nil || err != nil {
		return nil, err
	}
	return &Mirror{cfg: cfg, member: as, log: log}, nil
}

// CheckMirror finds mistakes in the settings of a mirror.
func CheckMirror(cfg *config.Master) error { return mirror.Check(cfg) }

// Links returns the options for links of the other master; nil for none.
func (m *Mirror) Links() *broker.LinkOptions {
	if m == nil {
		return nil
	}
	return m.member.Links(m.cfg)
}

// OpenAccord opens what both masters have decided about keys and tokens.
func (m *Mirror) OpenAccord(ctx context.Context, j *journal.Journal, keys *keyring.Keyring) (err error) {
	m.accord, err = m.member.OpenAccord(ctx, j, keys, m.cfg.JournalMirrorAccept, m.log)
	return err
}

// Changed is called when keys of minions have changed.
func (m *Mirror) Changed(changes []keyring.Change) { m.accord.Changed(changes) }

// Tokens wraps the store of tokens, so that both masters agree on them.
func (m *Mirror) Tokens(t accord.TokenStore) *accord.Tokens { return m.accord.Tokens(t) }

// Open opens the mirror of the other master's journal, and the link for its mirror of ours.
// closing are the functions that close what was opened, also after an error, the last one first.
func (m *Mirror) Open(ctx context.Context, b *broker.Broker, j *journal.Journal, events *eventbus.Bus, bounds journal.Options) (closing []func(), err error) {
	if m == nil {
		return nil, nil
	}
	m.events = events
	events.SetMirrors(m.member.Journal, func(name string) bool { return m.keeper != nil && m.keeper.Linked(name) })
	nc, err := b.Links.Conn()
	if err != nil {
		return nil, err
	}
	links, err := j.NewLink(m.member.Journal, m.member.Dir, nc, m.log)
	if err != nil {
		nc.Close()
		return nil, err
	}
	closing = append(closing, links.Close)
	m.keeper, err = mirror.Open(ctx, mirror.Options{
		Peer: m.cfg.JournalMirror, Member: m.member, Dir: filepath.Join(m.cfg.CacheDir, "mirror"),
		Bounds: bounds, Found: events.AddMirror, Tell: m.tell, Accord: m.accord, Cut: b.Links.Cut, Log: m.log,
	})
	if err == nil {
		closing = append(closing, m.keeper.Close)
	}
	return closing, err
}

// tell informs listeners that the other master has connected or disconnected.
func (m *Mirror) tell(c mirror.Change) {
	word := "away"
	if c.Linked {
		word = "linked"
	}
	m.events.Announce("salt/journal/mirror/"+word, map[string]any{"master": c.Master, "address": m.cfg.JournalMirror})
}

// Run follows the other master until ctx ends.
func (m *Mirror) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { m.keeper.Run(ctx) })
	wg.Go(func() { m.accord.Run(ctx) })
	wg.Wait()
}
