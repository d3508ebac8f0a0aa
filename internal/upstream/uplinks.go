package upstream

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/rpc"
)

// Daemon is the minion that uses the sessions.
type Daemon interface {
	// Facts are the grains for the master, with an error about missing ones. The map must not
	// be changed.
	Facts(ctx context.Context) (map[string]any, error)
	// Job handles a message on the job subject. It must not block, since the next job waits for
	// it.
	Job(s *Session, body []byte)
	// Attend is called when a session is in use. It returns soon after ctx has ended, which
	// ends with the session.
	Attend(ctx context.Context, s *Session)
}

// Setup are the settings of uplinks. All but Service and Busy are required.
type Setup struct {
	Config  *config.Minion
	Key     *pki.PrivateKey
	Version string
	Service bool // refusals never end it
	Daemon  Daemon
	// Announce fires an event of the minion itself on its own bus.
	Announce func(tag string, data map[string]any)
	// Busy reports whether jobs run: then the minion does not move to another member of a cluster
	// without need.
	Busy func() bool
	Log  *slog.Logger
}

// Uplinks are the uplinks of a minion: one, or one for each master used at the same time; none
// with master_type disable. Without Setup they are empty.
type Uplinks struct {
	Setup
	list     []*Uplink
	verdicts verdicts
	process  string      // see protocol.Hello
	cluster  *Cluster    // of its masters; nil if only those of the configuration are used
	refused  pki.Refused // certificates of NATS servers
	systems  *systems    // that several uplinks are connected to; nil if each has one of its own
}

// New makes the configured uplinks. Keep connects each.
func New(s Setup) *Uplinks {
	all := &Uplinks{Setup: s, process: bus.NewNonce()}
	rosters := newRosters(s.Config)
	all.cluster = OpenCluster(s.Config, s.Log)
	for _, r := range rosters {
		r.join(all.cluster, s.Config)
		all.add(r)
	}
	all.systems = openSystems(s.Config, all.Addresses(), s.Log)
	return all
}

func (all *Uplinks) add(r *roster) *Uplink {
	u := &Uplink{Number: len(all.list), all: all, log: all.Log, roster: r, pauses: pauses{cfg: all.Config}, nudge: make(chan struct{})}
	u.dial, u.greet = u.dialMaster, u.greetMaster
	all.list = append(all.list, u)
	all.verdicts.uplinks = len(all.list)
	return u
}

// All returns the uplinks in the order of the configuration. The slice is shared and
// must not be changed.
func (all *Uplinks) All() []*Uplink { return all.list }

// Addresses returns host and port of the only or first master of each.
func (all *Uplinks) Addresses() []string {
	addresses := make([]string, len(all.list))
	for i, u := range all.list {
		addresses[i] = WithPort(u.roster.masters[0], all.Config.MasterPort)
	}
	return addresses
}

// Session returns that of the first connected master of the list, nil for none.
func (all *Uplinks) Session() *Session {
	for _, u := range all.list {
		if s := u.Session(); s != nil {
			return s
		}
	}
	return nil
}

// First is the uplink for requests that any master may handle: the first connected one,
// otherwise the first; nil with master_type disable.
func (all *Uplinks) First() *Uplink {
	if s := all.Session(); s != nil {
		return s.Up
	}
	if len(all.list) == 0 {
		return nil
	}
	return all.list[0]
}

// With returns the session with the named master, or for "" the first one; nil for none.
func (all *Uplinks) With(master string) *Session {
	if master == "" {
		return all.Session()
	}
	for _, u := range all.list {
		if s := u.Session(); s != nil && s.Name == master {
			return s
		}
	}
	return nil
}

// Conn returns the connection to the named master; for "" that of preferred if it is connected,
// otherwise the first one. It is nil if there is none; preferred may be nil.
func (all *Uplinks) Conn(preferred *Uplink, master string) *rpc.Conn {
	if master == "" && preferred != nil {
		if s := preferred.Session(); s != nil {
			return s.Conn
		}
	}
	if s := all.With(master); s != nil {
		return s.Conn
	}
	return nil
}

// ErrNoMaster means that no master is connected.
var ErrNoMaster = errors.New("no master is connected")

// Each calls f for all sessions in parallel and waits. Without a session it returns
// ErrNoMaster.
func (all *Uplinks) Each(f func(*Session) error) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	err := ErrNoMaster
	var failed error
	for _, u := range all.list {
		s := u.Session()
		if s == nil {
			continue
		}
		err = nil
		wg.Go(func() {
			if e := f(s); e != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, e)
			}
		})
	}
	wg.Wait()
	return errors.Join(err, failed)
}

// Close ends all sessions.
func (all *Uplinks) Close() {
	_ = all.Each(func(s *Session) error { s.Close(); return nil })
}

// Pillar returns the latest pillar of a master, an empty map if there is none. It must not be
// changed. With several masters it is that of the first connected one, otherwise of the first
// that ever was connected.
func (all *Uplinks) Pillar() map[string]any {
	if u := all.withPillar(); u != nil {
		return u.Pillar()
	}
	return map[string]any{}
}

// PillarErrors are the errors because of which Pillar does not return the newest pillar.
func (all *Uplinks) PillarErrors() []string {
	if u := all.withPillar(); u != nil {
		return u.PillarErrors()
	}
	return nil
}

func (all *Uplinks) withPillar() *Uplink {
	if s := all.Session(); s != nil {
		return s.Up
	}
	for _, u := range all.list {
		if u.pillar.Load() != nil {
			return u
		}
	}
	return nil
}

// RefreshPillar requests the pillar from all masters again.
func (all *Uplinks) RefreshPillar(ctx context.Context) error {
	return all.Each(func(s *Session) error { return s.fetchPillar(ctx) })
}
