// Package mirror keeps, beside a master's own journal, a mirror of another master's, and
// lets that one mirror its own: it dials, watches the link, goes on by itself, and tells how
// it stands.
//
// It knows nothing of events, nor who may read them: journal and eventbus do.
package mirror

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/journal"
)

// Options are all required, but for Bounds.
type Options struct {
	Peer   string  // host:port of the other master's links
	Member *Member // of this master
	Dir    string  // of the mirror's store
	Bounds journal.Options
	Found  func(*journal.Mirror) // is told of each mirror, those of the start first
	Tell   func(Change)          // is told when the link comes or goes
	Cut    func()                // ends links to the own journal of masters that are none any more
	Log    *slog.Logger
}

// Change is what became of the link.
type Change struct {
	Linked bool
	Master string // the name of the other journal, "" where it is not known yet
}

// Keeper keeps the mirror.
type Keeper struct {
	opts   Options
	server *broker.Mirror
	peer   atomic.Pointer[string] // the name of the journal that was dialled last
	shown  atomic.Pointer[x509.Certificate]
	linked atomic.Bool

	mu     sync.Mutex
	all    map[string]*journal.Mirror
	rested map[string]bool // they are not mirrored any more
}

// Open opens what is mirrored already. Run goes on with it.
func Open(ctx context.Context, o Options) (*Keeper, error) {
	k := &Keeper{opts: o, all: map[string]*journal.Mirror{}, rested: map[string]bool{}}
	var err error
	if k.server, err = broker.StartMirror(ctx, broker.MirrorOptions{Peer: o.Peer, TLS: k.tls(), StoreDir: o.Dir, Log: o.Log}); err != nil {
		return nil, err
	}
	if err := k.open(ctx); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// tls is what the other master is dialled with: it remembers who that is, whose name must be
// one of a journal, since the mirror is named by it.
func (k *Keeper) tls() *tls.Config {
	own := k.opts.Member
	conf := own.tls.Clone()
	judge := conf.VerifyConnection
	conf.VerifyConnection = func(s tls.ConnectionState) error {
		if err := judge(s); err != nil {
			return err
		}
		m, err := own.rule.Judge(s.PeerCertificates[0])
		if err == nil {
			err = bus.CheckJournalName(m.Name)
		}
		if err == nil {
			k.peer.Store(&m.Name)
			k.shown.Store(s.PeerCertificates[0])
		}
		return err
	}
	return conf
}

func (k *Keeper) open(ctx context.Context) error {
	list, err := journal.Mirrors(ctx, k.server.Conn())
	for _, m := range list {
		k.all[m.Name] = m
		k.opts.Found(m)
	}
	return err
}

// Close ends it.
func (k *Keeper) Close() {
	k.server.Stop()
}

// Linked says whether the master of that journal is there.
func (k *Keeper) Linked(name string) bool {
	peer := k.peer.Load()
	return k.linked.Load() && peer != nil && *peer == name
}

// Pauses of the watch.
const (
	lookEvery = 250 * time.Millisecond
	// silent is how long nothing, not even a sign of life, may come before the mirror is
	// opened anew, which makes it ask again; its server would wait for up to two minutes.
	silent = 5 * time.Second
	// maxMirrors bounds the disk that another master can take by naming its journal anew.
	maxMirrors = 3
	// patience bounds one question to the mirror's server.
	patience = 10 * time.Second
)

// Run watches the link until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var asked time.Time
	for first := true; ; first = false {
		k.judge()
		here := k.server.Linked()
		switch {
		case here && !k.linked.Load():
			if err := k.resume(ctx); err != nil {
				k.opts.Log.Warn("the journal of the other master cannot be mirrored yet", "err", err)
				break
			}
			asked = time.Now()
			k.changed(true)
		case !here && (first || k.linked.Load()):
			k.changed(false)
		case here && time.Since(asked) > silent && k.silent(ctx):
			asked = time.Now()
			if err := k.server.Reopen(); err != nil {
				k.opts.Log.Warn("the mirror cannot be opened anew", "err", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// judge asks again who is a master, so that who was removed is put out at once.
func (k *Keeper) judge() {
	k.opts.Cut()
	cert := k.shown.Load()
	if cert == nil || !k.server.Linked() {
		return
	}
	if _, err := k.opts.Member.rule.Judge(cert); err != nil {
		k.opts.Log.Warn("the link was cut", "err", err)
		k.server.Cut()
	}
}

// changed tells that the link has come or gone.
func (k *Keeper) changed(linked bool) {
	k.linked.Store(linked)
	c := Change{Linked: linked}
	if peer := k.peer.Load(); peer != nil {
		c.Master = *peer
	}
	if linked {
		k.opts.Log.Info("the other master is linked: its journal is mirrored", "master", c.Master, "address", k.opts.Peer)
	} else {
		k.opts.Log.Warn("the other master is away: its journal is mirrored again when it is back", "master", c.Master, "address", k.opts.Peer)
	}
	k.opts.Tell(c)
}

// resume makes the mirror ask for what it lacks.
func (k *Keeper) resume(ctx context.Context) error {
	peer := k.peer.Load()
	if peer == nil {
		return fmt.Errorf("the other master has no name")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all[*peer] == nil && len(k.all) >= maxMirrors {
		return fmt.Errorf("it has begun a journal for the %dth time: remove the folder %s when the mirrors of the old ones are not needed any more", len(k.all), k.opts.Dir)
	}
	if k.all[*peer] != nil {
		if err := k.server.Reopen(); err != nil {
			return err
		}
	}
	m, err := journal.OpenMirror(ctx, k.server.Conn(), bus.Link{Owner: *peer, Reader: k.opts.Member.Journal}, k.opts.Bounds)
	if err != nil {
		return err
	}
	known := k.all[*peer] != nil
	k.all[*peer] = m
	k.rest(ctx, *peer)
	if !known {
		k.opts.Found(m)
	}
	return nil
}

// rest ends the mirroring of other journals: the other master has begun a new one. What is
// there of the old one can be read until it is too old.
func (k *Keeper) rest(ctx context.Context, peer string) {
	for name, m := range k.all {
		if name == peer {
			continue
		}
		if k.rested[name] {
			continue
		}
		k.rested[name] = true
		k.opts.Log.Warn("the other master has begun another journal: the mirror of the old one stays until it is too old", "old", name, "new", peer)
		if err := m.Detach(ctx); err != nil {
			k.opts.Log.Warn("the mirror of the old journal still waits for it", "master", name, "err", err)
		}
	}
}

// silent says that nothing has come for too long.
func (k *Keeper) silent(ctx context.Context) bool {
	peer := k.peer.Load()
	if peer == nil {
		return false
	}
	k.mu.Lock()
	m := k.all[*peer]
	k.mu.Unlock()
	if m == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p, err := m.Progress(ctx)
	return err != nil || p.Active < 0 || p.Active > silent
}
