// Package mirror keeps a mirror of another master's journal beside the own one, and lets that
// master mirror the own one: it dials, watches the link, recovers, and reports its state.
//
// It does not know about events or who may read them: journal and eventbus do.
package mirror

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/member"
)

// Options are all required, except Bounds.
type Options struct {
	Peer   string  // host:port for links of the other master
	Member *Member // of this master
	Dir    string  // of the mirror's store
	Bounds journal.Options
	Found  func(*journal.Mirror) // called with each mirror, those of the start first
	Tell   func(Change)          // called when the link is established or lost
	Accord *Accord               // applies the decisions of the other master
	Cut    func()                // ends links of removed masters to the own journal
	Log    *slog.Logger
}

// Change is a change of the link.
type Change struct {
	Linked bool
	Master string // name of the other journal, "" if not known yet
}

// Keeper keeps the mirror.
type Keeper struct {
	opts   Options
	server *broker.Mirror
	shown  atomic.Pointer[peer] // at the latest dial: whoever sent it may not have its key
	peer   atomic.Pointer[peer] // at the latest link
	linked atomic.Bool

	decided *journal.MirroredTable // of the latest link; used by Run
	checked bool                   // it was checked whether it arrives
	unread  member.Unread          // used by judge

	throttle logging.Throttle

	mu     sync.Mutex
	all    map[string]*journal.Mirror
	newest string // the journal that the log names as the new one
}

// peer is a master that this one has dialled.
type peer struct {
	name string // of its journal
	cert *x509.Certificate
}

// Open opens the existing mirrors. Run continues them.
func Open(ctx context.Context, o Options) (*Keeper, error) {
	k := &Keeper{opts: o, all: map[string]*journal.Mirror{}}
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

// tls is the TLS configuration for dialling. It remembers who the other master says that it is:
// in TLS 1.3 the proof comes afterwards. Its name must be valid for a journal, since it becomes the name of the mirror.
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
			k.shown.Store(&peer{m.Name, s.PeerCertificates[0]})
		}
		return err
	}
	return conf
}

func (k *Keeper) open(ctx context.Context) error {
	list, err := journal.Mirrors(ctx, k.server.Conn(), k.server)
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

// Linked reports whether the master of that journal is linked.
func (k *Keeper) Linked(name string) bool {
	p := k.peer.Load()
	return k.linked.Load() && p != nil && p.name == name
}

// Pauses of the watch.
const (
	lookEvery = 250 * time.Millisecond
	// silent is how long nothing, not even a heartbeat, may come before the mirror is reopened,
	// which makes it ask again; its server alone would wait for up to two minutes.
	silent = 5 * time.Second
	// retryEvery is between two attempts to mirror a journal: each opens the store again, which
	// its readers notice.
	retryEvery = 5 * time.Second
	// maxMirrors limits the disk space that another master can take by starting new journals.
	maxMirrors = 3
	// patience limits one request to the mirror's server.
	patience = 10 * time.Second
)

// Run watches the link until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var asked, failed time.Time
	for first := true; ; first = false {
		up := k.prove()
		here := k.judge() && up
		switch {
		case here && !k.linked.Load():
			if time.Since(failed) < retryEvery {
				break
			}
			if err := k.resume(ctx); err != nil {
				failed = time.Now()
				k.throttle.Log(k.opts.Log, slog.LevelWarn, "resume", 1, "the journal of the other master cannot be mirrored yet", "err", err)
				break
			}
			asked = time.Now()
			k.changed(true)
		case !here && (first || k.linked.Load()):
			k.changed(false)
		case here && time.Since(asked) > silent && k.silent(ctx):
			asked = time.Now()
			if err := k.resume(ctx); err != nil {
				k.opts.Log.Warn("the mirror cannot be reopened", "err", err)
			}
		case here && !k.checked && time.Since(asked) > 2*silent:
			k.checked = true
			k.warnUndecided(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// judge checks again who is a master, so that a removed one is cut at once and its decisions no
// longer count, whether or not it is linked. While the list of removed ones cannot be read, the other one is a
// master for member.UnreadTime.
func (k *Keeper) judge() bool {
	k.opts.Cut()
	p := k.peer.Load()
	if p == nil {
		return true // there was no contact yet
	}
	_, err := k.opts.Member.rule.Judge(p.cert)
	if k.unread.Stays(err) {
		if err != nil {
			k.throttle.Log(k.opts.Log, slog.LevelError, "unread", 1, "the other master cannot be judged: its link stays for some seconds, and no new one is accepted", "err", err)
		}
		return true
	}
	k.opts.Accord.Ended()
	if k.server.Linked() {
		k.opts.Log.Warn("the link was cut", "err", err)
		k.server.Cut()
	}
	return false
}

// prove reports whether the link is up, and then takes the master of the latest dial for the
// other one: the handshake has ended, so it has proved that it has its key. There is one dial at
// a time, and none while the link is up.
func (k *Keeper) prove() bool {
	shown := k.shown.Load()
	if shown == nil || !k.server.Linked() || k.shown.Load() != shown {
		return false
	}
	k.peer.Store(shown)
	return true
}

// changed reports that the link was established or lost.
func (k *Keeper) changed(linked bool) {
	k.linked.Store(linked)
	c := Change{Linked: linked}
	if p := k.peer.Load(); p != nil {
		c.Master = p.name
	}
	if linked {
		k.opts.Log.Info("the other master is linked: its journal is mirrored", "master", c.Master, "address", k.opts.Peer)
	} else {
		k.opts.Log.Warn("the other master is away: its journal is mirrored again when it is back", "master", c.Master, "address", k.opts.Peer)
	}
	k.opts.Tell(c)
}

// resume makes the mirror request what it lacks.
func (k *Keeper) resume(ctx context.Context) error {
	p := k.peer.Load()
	if p == nil {
		return errors.New("the other master has no name")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all[p.name] != nil {
		if err := k.server.Reopen(); err != nil {
			return err
		}
	}
	of := bus.Link{Owner: p.name, Reader: k.opts.Member.Journal}
	followed := k.follow(ctx, of) // also when its journal cannot be mirrored: refusals count at once
	return errors.Join(followed, k.mirror(ctx, of))
}

// follow follows the decisions of the journal's owner, and no longer those that came with
// another journal.
func (k *Keeper) follow(ctx context.Context, of bus.Link) error {
	decided, err := journal.OpenDecisions(ctx, k.server.Conn(), of)
	if err != nil {
		return err
	}
	k.decided, k.checked = decided, false
	k.opts.Accord.Follow(of.Owner, decided)
	if err := journal.DropDecisions(ctx, k.server.Conn(), of.Owner); err != nil {
		k.opts.Log.Warn("what was decided with an old journal is still mirrored", "err", err)
	}
	return nil
}

// mirror mirrors the journal. The mirrors of others stay until they are too old, and wait for
// their owner: it may come back with that journal, and the mirror may have what the owner has
// not.
func (k *Keeper) mirror(ctx context.Context, of bus.Link) error {
	_, known := k.all[of.Owner]
	if !known && len(k.all) >= maxMirrors {
		return fmt.Errorf("it has begun one more journal, and %d earlier ones of it are mirrored here, which is the limit: when their mirrors are not needed any more, stop this master, remove the folder %s, and start it", len(k.all), k.opts.Dir)
	}
	m, err := journal.OpenMirror(ctx, k.server.Conn(), of, k.server, k.opts.Bounds)
	if err != nil {
		return err
	}
	k.all[of.Owner] = m
	if !known {
		k.opts.Found(m)
	}
	if k.newest == of.Owner {
		return nil
	}
	k.newest = of.Owner
	for name := range k.all {
		if name != of.Owner {
			k.opts.Log.Warn("the other master has begun another journal: the mirror of the old one stays until it is too old", "old", name, "new", of.Owner)
		}
	}
	return nil
}

// warnUndecided warns if the other master does not send its decisions about keys and tokens: an
// older version does not.
func (k *Keeper) warnUndecided(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if ok, err := k.decided.Answered(ctx); err != nil || !ok {
		k.opts.Log.Warn("the other master does not say what it decides about keys and tokens: they do not follow those there. Is it of an older version?", "address", k.opts.Peer, "err", err)
	}
}

// silent reports whether nothing has come for too long.
func (k *Keeper) silent(ctx context.Context) bool {
	p := k.peer.Load()
	if p == nil {
		return false
	}
	k.mu.Lock()
	m := k.all[p.name]
	k.mu.Unlock()
	if m == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	at, err := m.Progress(ctx)
	return err != nil || at.Active < 0 || at.Active > silent
}
