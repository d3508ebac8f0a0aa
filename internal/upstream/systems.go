package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/bus"
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
// A master that was of a system and is not named by the others any more has left it: it was removed, for example. Nothing is
// delivered to it, but its uplink stays with the others, so that they get what was put for the system and the
// returns of its jobs. That ends when the minion connects to a master there that is not of the system, be it the same one. Then the
// uplink is of another generation: what was put before that is still for the others, and for nobody else.
//
// What is known is kept in the key directory, so that after a restart what waits for a master can go
// to another one of its system.
type systems struct {
	file string
	log  *slog.Logger

	mu  sync.Mutex
	met []met    // by uplink
	of  []*group // the system of each
}

// met is the master that an uplink was connected to last, and the members that it has named.
type met struct {
	Address    string   `json:"address"`       // of the uplink
	Key        string   `json:"key,omitempty"` // the fingerprint; "" for one of no cluster
	Members    members  `json:"members,omitempty"`
	Generation string   `json:"generation,omitempty"`
	Fellows    []fellow `json:"fellows,omitempty"` // the other uplinks of its system, or those that are left of it
	Left       bool     `json:"left,omitempty"`    // it has left that system
	Before     []before `json:"before,omitempty"`  // the latest last
}

// fellow is an uplink in one of its generations: another one has nothing to do with the system of that one.
type fellow struct {
	Address    string `json:"address"`
	Generation string `json:"generation,omitempty"`
}

// before is an earlier generation of an uplink, in which it was of one system with others.
type before struct {
	Generation string   `json:"generation,omitempty"`
	Key        string   `json:"key,omitempty"`
	Left       bool     `json:"left,omitempty"` // it had left that system at the end
	Fellows    []fellow `json:"fellows,omitempty"`
}

const (
	systemsFile = "cluster_masters"
	maxBefore   = 32 // earlier generations of an uplink: each takes that a cluster has named a new key there
)

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
	y.assign()
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
// master that is of no cluster, or whose key is not signed. first means that it is the first one of a connection.
func (y *systems) learn(uplink int, key string, cluster *protocol.Cluster, first bool) {
	if y == nil {
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	before, of := slices.Clone(y.met), y.of
	m := &y.met[uplink]
	was := *m
	m.Key, m.Members = "", nil
	if cluster != nil {
		m.Key, m.Members = key, members(cluster.Members).checked(y.log).lasting()
		m.Members.inherit(was.Members)
	}
	if len(was.Fellows) > 0 && (first || was.Left && y.contradicts(uplink)) && !y.isStill(uplink) {
		y.begin(uplink, was.Key)
	}
	y.assign()
	if reflect.DeepEqual(before, y.met) {
		return
	}
	if !reflect.DeepEqual(of, y.of) {
		y.log.Info("which masters are of one cluster", "clusters", y.words())
	}
	for i, g := range y.of {
		if g.isLeft(i) && !of[i].isLeft(i) {
			y.log.Warn("a master has left its cluster, or was removed: the others get what waits for it", "master", y.met[i].Address)
		}
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

// contradicts reports whether a master that has left its system does not name all that are left of it.
func (y *systems) contradicts(uplink int) bool {
	return slices.ContainsFunc(y.of[uplink].core, func(i int) bool { return y.drops(uplink, i) })
}

// isStill reports whether the master that an uplink is connected to now is of the system that the uplink was of: it and
// those that are left of that name each other.
func (y *systems) isStill(uplink int) bool {
	for _, g := range y.groups(uplink) {
		if slices.Contains(g.core, uplink) {
			return slices.ContainsFunc(y.met[uplink].Fellows, func(f fellow) bool { return slices.Contains(g.core, y.at(f)) })
		}
	}
	return false
}

// begin begins a generation of an uplink, after one in which its master had this key.
func (y *systems) begin(uplink int, key string) {
	m := &y.met[uplink]
	m.Before = append(slices.Clone(m.Before), before{m.Generation, key, m.Left, m.Fellows})
	m.Before = m.Before[max(0, len(m.Before)-maxBefore):]
	m.Generation, m.Fellows, m.Left = bus.NewNonce(), nil, false
}

// assign finds the systems, and records who is of one with whom.
func (y *systems) assign() {
	y.of = make([]*group, len(y.met))
	for _, g := range y.groups(none) {
		for _, i := range g.all() {
			y.of[i] = g
		}
	}
	for i := range y.met {
		m := &y.met[i]
		m.Left = y.of[i].isLeft(i)
		if !y.of[i].disputed {
			m.Fellows = y.fellows(y.of[i], i)
		}
		m.Before = slices.Clone(m.Before)
		for k := range m.Before {
			b := &m.Before[k]
			if j := y.first(b.Fellows); j >= 0 { // it may be one of them again
				b.Fellows = y.fellows(y.of[j], none)
			}
		}
	}
}

// fellows are those that a group consists of, without one of them.
func (y *systems) fellows(g *group, without int) (list []fellow) {
	for _, i := range g.core {
		if i != without {
			list = append(list, fellow{y.met[i].Address, y.met[i].Generation})
		}
	}
	return list
}

// at is the number of the uplink that is in that generation, -1 for none.
func (y *systems) at(f fellow) int {
	return slices.IndexFunc(y.met, func(m met) bool { return m.Address == f.Address && m.Generation == f.Generation })
}

// first is the number of the first uplink that still is in its generation, -1 for none.
func (y *systems) first(list []fellow) int {
	for _, f := range list {
		if i := y.at(f); i >= 0 {
			return i
		}
	}
	return -1
}

// words are the addresses of the masters of each cluster, for the log.
func (y *systems) words() (list [][]string) {
	for i, g := range y.of {
		var of []string
		for _, k := range g.core {
			of = append(of, y.met[k].Address)
		}
		if g.core[0] == i && len(of) > 1 {
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
	return y.of[uplink].lead()
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

// hasLeft reports whether the master of an uplink has left the system that the uplink is of.
func (y *systems) hasLeft(uplink int) bool {
	if y == nil {
		return false
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.met[uplink].Left
}

// generation is the present one of an uplink.
func (y *systems) generation(uplink int) string {
	if y == nil {
		return ""
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.met[uplink].Generation
}

// heirs are who gets what an uplink was to deliver in a generation.
type heirs struct {
	lead       int      // the first uplink of their system
	generation string   // of that one
	uplinks    []int    // they
	not        []string // keys to which nothing is delivered, wherever they are shown
	or         string   // while none of them is connected: the uplink itself, if its master has this key; "" for nobody
}

// heirs returns who gets what an uplink was to deliver in a generation.
func (y *systems) heirs(uplink int, generation string) heirs {
	if y == nil {
		return heirs{lead: uplink, uplinks: []int{uplink}}
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	m := y.met[uplink]
	if generation == m.Generation {
		return y.heirsOf(y.of[uplink])
	}
	k := slices.IndexFunc(m.Before, func(b before) bool { return b.Generation == generation })
	if k < 0 { // of a file that is lost: what is for an address is for whichever master is trusted there
		return heirs{lead: uplink, generation: m.Generation, uplinks: []int{uplink}}
	}
	b := m.Before[k]
	i := y.first(b.Fellows)
	if i < 0 { // the configuration does not name them any more
		h := heirs{lead: uplink, generation: m.Generation}
		if !b.Left {
			h.or = b.Key
		}
		return h
	}
	h := y.heirsOf(y.of[i])
	if !b.Left && !slices.ContainsFunc(y.of[i].core, func(k int) bool { return !y.met[k].Members.has(b.Key) }) {
		h.or = b.Key
	}
	return h
}

func (y *systems) heirsOf(g *group) heirs {
	lead := g.lead()
	h := heirs{lead: lead, generation: y.met[lead].Generation, uplinks: g.core}
	for _, i := range g.left {
		h.not = append(h.not, y.met[i].Key)
	}
	return h
}

// Lead returns the number of the first uplink whose master is of the same system as that of this one:
// of the same cluster, or the same master.
func (all *Uplinks) Lead(uplink int) int { return all.systems.lead(uplink) }

// Generation returns the present generation of an uplink: another one begins when its master shows that it is not of the
// cluster whose member it was before.
func (all *Uplinks) Generation(uplink int) string { return all.systems.generation(uplink) }

// Heirs returns the sessions with the masters that get what was for an uplink in a generation, in the order of the
// configuration, and the first uplink of their system, with its present generation. They are the masters of the system that
// the uplink was of in that generation, as long as that has any.
func (all *Uplinks) Heirs(uplink int, generation string) (lead int, now string, list []*Session) {
	h := all.systems.heirs(uplink, generation)
	for _, i := range h.uplinks {
		if s := all.list[i].Session(); s != nil && !slices.Contains(h.not, s.Master.SHA256()) {
			list = append(list, s)
		}
	}
	if s := all.list[uplink].Session(); len(list) == 0 && h.or != "" && s != nil && s.Master.SHA256() == h.or {
		return uplink, all.Generation(uplink), []*Session{s}
	}
	return h.lead, h.generation, list
}

// System returns the sessions with masters of the system of an uplink, in the order of the
// configuration.
func (all *Uplinks) System(uplink int) []*Session {
	_, _, list := all.Heirs(uplink, all.Generation(uplink))
	return list
}

// Instead returns the session of an uplink, or while it has none, or its master has left its system, that with another
// master of the same system; nil for none.
func (all *Uplinks) Instead(u *Uplink) *Session {
	list := all.System(u.Number)
	if own := slices.IndexFunc(list, func(s *Session) bool { return s.Up == u }); own >= 0 {
		return list[own]
	}
	return first(list)
}

func first(list []*Session) *Session {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// hearsMembers reports whether masters are to say which members their cluster has.
func (all *Uplinks) hearsMembers() bool { return all.cluster != nil || all.systems != nil }
