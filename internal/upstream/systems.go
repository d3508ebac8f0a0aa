package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
)

// systems knows which masters of a minion that is connected to all of them are members of one cluster:
// for such a system it is one sender, not one for each master. A nil systems takes each master for
// a system of its own.
//
// Masters are of one system if each of them has shown a key that is signed with the masters' signing pair,
// and names the keys of the others as those of members. That one of them says so is not enough: it could have
// messages delivered to it that are for another master.
//
// What is known is kept in the key directory, so that after a restart what waits for a master can go
// to another one of its system.
type systems struct {
	file string
	log  *slog.Logger

	mu    sync.Mutex
	met   []met // by uplink
	leads []int // the first uplink of the system of each
}

// met is the master that an uplink was connected to last, and the members that it has named.
type met struct {
	Address string  `json:"address"`       // of the uplink
	Key     string  `json:"key,omitempty"` // the fingerprint; "" for one of no cluster
	Members members `json:"members,omitempty"`
}

const systemsFile = "cluster_masters"

// openSystems reads what is known about the masters at these addresses, one for each uplink.
func openSystems(cfg *config.Minion, addresses []string, log *slog.Logger) *systems {
	if !cfg.MasterCluster || len(addresses) < 2 || !cfg.VerifyMasterPubkeySign {
		return nil
	}
	y := &systems{file: filepath.Join(cfg.PKIDir, systemsFile), log: log, met: make([]met, len(addresses))}
	known, err := y.read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("which masters are of one cluster is not known until they say so again", "err", err)
	}
	for i, address := range addresses {
		y.met[i].Address = address
		if k := slices.IndexFunc(known, func(m met) bool { return m.Address == address }); k >= 0 {
			y.met[i] = known[k]
		}
	}
	y.leads = y.findLeads()
	return y
}

func (y *systems) read() (known []met, err error) {
	b, err := os.ReadFile(y.file)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &known); err != nil {
		return nil, fmt.Errorf("read %s: %w", y.file, err)
	}
	for i := range known {
		known[i].Members = known[i].Members.checked(y.log)
	}
	return known, nil
}

// learn takes the list of the master with this key that an uplink is connected to; nil is that of a
// master that is of no cluster, or whose key is not signed.
func (y *systems) learn(uplink int, key string, cluster *protocol.Cluster) {
	if y == nil {
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	before := y.met[uplink]
	now := met{Address: before.Address}
	if cluster != nil {
		now.Key, now.Members = key, members(cluster.Members).checked(y.log).lasting()
		now.Members.inherit(before.Members)
	}
	if now.Key == before.Key && slices.Equal(now.Members, before.Members) {
		return
	}
	y.met[uplink] = now
	if leads := y.findLeads(); !slices.Equal(leads, y.leads) {
		y.leads = leads
		y.log.Info("which masters are of one cluster", "clusters", y.words())
	}
	if err := y.keep(); err != nil {
		y.log.Error("which masters are of one cluster is not kept", "err", err)
	}
}

func (y *systems) keep() error {
	b, err := json.MarshalIndent(y.met, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(y.file, append(b, '\n'), 0o644)
}

// findLeads puts each uplink into the system of the first one with whose members all name each other. A list
// may be out of date, of a master that is away, so one of them is not enough.
func (y *systems) findLeads() []int {
	leads := make([]int, len(y.met))
	for i := range leads {
		leads[i] = i
		for lead := range i {
			if leads[lead] == lead && y.fits(i, lead, leads[:i]) {
				leads[i] = lead
				break
			}
		}
	}
	return leads
}

// fits reports whether the master of an uplink and all of a system name each other.
func (y *systems) fits(uplink, lead int, leads []int) bool {
	one := y.met[uplink]
	for i, its := range leads {
		if other := y.met[i]; its == lead && !(one.Members.has(other.Key) && other.Members.has(one.Key)) {
			return false
		}
	}
	return true
}

// words are the addresses of the masters of each cluster, for the log.
func (y *systems) words() (list [][]string) {
	for lead := range y.leads {
		var of []string
		for i, its := range y.leads {
			if its == lead {
				of = append(of, y.met[i].Address)
			}
		}
		if len(of) > 1 {
			list = append(list, of)
		}
	}
	return list
}

// lead is the number of the first uplink of the system of this one.
func (y *systems) lead(uplink int) int {
	if y == nil {
		return uplink
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.leads[uplink]
}

// isWith reports whether the master that an uplink was connected to last has this key, and is one of
// a cluster.
func (y *systems) isWith(uplink int, key pki.PublicKey) bool {
	if y == nil {
		return false
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.met[uplink].Key == key.SHA256()
}

// Lead returns the number of the first uplink whose master is of the same system as that of this one:
// of the same cluster, or the same master.
func (all *Uplinks) Lead(uplink int) int { return all.systems.lead(uplink) }

// System returns the sessions with masters of the system of an uplink, in the order of the
// configuration.
func (all *Uplinks) System(uplink int) (list []*Session) {
	lead := all.Lead(uplink)
	for _, u := range all.list {
		if s := u.Session(); s != nil && all.Lead(u.Number) == lead {
			list = append(list, s)
		}
	}
	return list
}

// Instead returns the session of an uplink, or while it has none that with another master of the same system; nil
// for none.
func (all *Uplinks) Instead(u *Uplink) *Session {
	if s := u.Session(); s != nil {
		return s
	}
	for _, s := range all.System(u.Number) {
		return s
	}
	return nil
}

// hearsMembers reports whether masters are to say which members their cluster has.
func (all *Uplinks) hearsMembers() bool { return all.cluster != nil || all.systems != nil }
