package upstream

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
)

// Cluster is what a minion knows about the cluster of its master: the members, as the latest
// trusted master has named them. A nil Cluster knows none.
//
// It is kept in the key directory, since it says whose keys are trusted. Each list replaces the
// one before, and so forgets who is no longer a member. It counts only as long as the
// configuration has the same masters: whoever moves a minion to another master does not want it
// to come back.
type Cluster struct {
	file       string
	id         salt.MinionID
	configured []string // the masters of the configuration
	port       int
	log        *slog.Logger

	mu      sync.Mutex
	known   learned
	changed chan struct{} // closed at the next change
}

// learned is the content of the file.
type learned struct {
	Configured []string      `json:"configured"` // addresses of the masters of the configuration
	Spread     time.Duration `json:"spread"`
	Members    members       `json:"members"`
}

type members []protocol.Member

const (
	clusterFile = "cluster_members"
	maxSpread   = 30 * time.Second // whatever the master says
	maxNameLen  = 128              // of a member
)

// OpenCluster reads what was learned. It returns nil if the configuration does not use other
// masters than those that it names.
func OpenCluster(cfg *config.Minion, log *slog.Logger) *Cluster {
	if !cfg.MasterCluster || cfg.AllMasters() && len(distinct(cfg.Master, cfg.MasterPort)) > 1 || cfg.MasterType == "disable" || len(cfg.Master) == 0 || len(cfg.NATSServers) > 0 {
		return nil
	}
	c := &Cluster{file: filepath.Join(cfg.PKIDir, clusterFile), id: cfg.ID, configured: distinct(cfg.Master, cfg.MasterPort), port: cfg.MasterPort, log: log, changed: make(chan struct{})}
	known, err := c.read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		log.Warn("the members of the masters' cluster are not known until a master names them again", "err", err)
	case slices.Equal(known.Configured, c.addresses()):
		c.known = known
	}
	return c
}

func (c *Cluster) read() (known learned, err error) {
	b, err := os.ReadFile(c.file)
	if err != nil {
		return learned{}, err
	}
	if err := json.Unmarshal(b, &known); err != nil {
		return learned{}, fmt.Errorf("read %s: %w", c.file, err)
	}
	known.Members = c.checked(known.Members)
	return known, nil
}

// addresses are those of the masters of the configuration.
func (c *Cluster) addresses() []string {
	var list []string
	for _, name := range c.configured {
		list = append(list, c.address(name))
	}
	return list
}

func (c *Cluster) address(name string) string { return WithPort(name, c.port) }

// learn takes the list of a master that is trusted; nil is that of a single master.
func (c *Cluster) learn(by pki.PublicKey, cluster *protocol.Cluster) {
	if c == nil {
		return
	}
	now := learned{Configured: c.addresses()}
	if cluster != nil {
		now.Members, now.Spread = c.checked(cluster.Members), max(0, min(cluster.Spread, maxSpread))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.known
	now.Members.inherit(before.Members)
	if now.Spread == before.Spread && slices.Equal(now.Members, before.Members) {
		return
	}
	c.known = now
	close(c.changed)
	c.changed = make(chan struct{})
	if slices.Equal(now.Members.lasting(), before.Members.lasting()) {
		return
	}
	c.log.Info("the members of the masters' cluster", "members", now.Members.String(), "named_by", by.SHA256())
	if err := c.keep(now); err != nil {
		c.log.Error("the members of the masters' cluster are not kept", "err", err)
	}
}

// inherit keeps the keys of members whose key the master that names them does not know: it has
// not met them since its start.
func (list members) inherit(before members) {
	for i := range list {
		for _, m := range before {
			if list[i].Key == "" && m.Name == list[i].Name && m.Address == list[i].Address {
				list[i].Key = m.Key
			}
		}
	}
}

// lasting is what is worth writing a file: who runs changes often, and is known again when a
// master is connected.
func (list members) lasting() members {
	list = slices.Clone(list)
	for i := range list {
		list[i].Running = false
	}
	return list
}

func (list members) String() string {
	var words []string
	for _, m := range list {
		words = append(words, m.Name+" at "+m.Address)
	}
	return strings.Join(words, ", ")
}

func (c *Cluster) keep(now learned) error {
	if len(now.Members) == 0 {
		if err := os.Remove(c.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	b, err := json.MarshalIndent(now, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(c.file, append(b, '\n'), 0o644)
}

func (c *Cluster) checked(list members) members { return list.checked(c.log) }

// checked returns the usable members, MaxMembers at most.
func (list members) checked(log *slog.Logger) (usable members) {
	for i, m := range list {
		if i == protocol.MaxMembers {
			log.Warn("the master names more members of its cluster than this minion remembers", "members", len(list), "limit", protocol.MaxMembers)
			break
		}
		m, err := checkMember(m)
		if err != nil {
			log.Warn("a member of the masters' cluster is left out", "number", i, "err", err)
			continue
		}
		if slices.ContainsFunc(usable, func(o protocol.Member) bool { return o.Name == m.Name || o.Address == m.Address }) {
			log.Warn("a member of the masters' cluster is left out: it is named twice", "number", i)
			continue
		}
		usable = append(usable, m)
	}
	return usable
}

// checkMember checks what a master says about a member, and writes its address in the usual way.
// The errors do not repeat it.
func checkMember(m protocol.Member) (protocol.Member, error) {
	if m.Name == "" || len(m.Name) > maxNameLen || strings.ContainsFunc(m.Name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return m, errors.New("its name is empty, too long, or has characters that no name has")
	}
	host, text, err := net.SplitHostPort(m.Address)
	port, err2 := strconv.ParseUint(text, 10, 16)
	if err != nil || err2 != nil || port == 0 {
		return m, errors.New("its address is not host:port")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.IsUnspecified() || ip.IsMulticast() {
			return m, errors.New("its address is that of no host")
		}
	} else if !isHostName(host) {
		return m, errors.New("its address has no host")
	}
	if sum, err := hex.DecodeString(strings.ReplaceAll(m.Key, ":", "")); m.Key != "" && (err != nil || len(sum) != sha256.Size) {
		return m, errors.New("its key is not a fingerprint")
	}
	m.Address = net.JoinHostPort(canonical(host), strconv.FormatUint(port, 10))
	return m, nil
}

const maxHostLen = 253

func isHostName(host string) bool {
	return host != "" && len(host) <= maxHostLen && !strings.ContainsFunc(host, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_')
	})
}

// now returns what is known, and a channel that is closed when it changes. The members must not
// be changed.
func (c *Cluster) now() (members, <-chan struct{}) {
	if c == nil {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.Members, c.changed
}

// spread is over how long minions distribute their attempts after the loss of a member.
func (c *Cluster) spread() time.Duration {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.Spread
}

// name is the name under which a member is tried: that of the configuration, if it has one.
func (c *Cluster) name(m protocol.Member) string {
	for _, name := range c.configured {
		if c.address(name) == m.Address {
			return name
		}
	}
	return m.Address
}

// Masters returns the names of all masters to try: those of the configuration, then the other
// members.
func (c *Cluster) Masters() []string {
	if c == nil {
		return nil
	}
	list, _ := c.now()
	return c.complete(c.configured, list)
}

// complete returns the names with the members that are missing, and without those of former
// members.
func (c *Cluster) complete(names []string, list members) (all []string) {
	for _, name := range names {
		if slices.Contains(c.configured, name) || list.at(name) >= 0 {
			all = append(all, name)
		}
	}
	for _, m := range list {
		if name := c.name(m); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

func (list members) at(address string) int {
	return slices.IndexFunc(list, func(m protocol.Member) bool { return m.Address == address })
}

// isMember reports whether a session is with this member.
func (c *Cluster) isMember(m protocol.Member, s *Session) bool {
	if m.Key != "" {
		return m.Key == s.Master.SHA256()
	}
	return m.Address == c.address(s.Name)
}

// fellows reports whether both keys are those of members.
func (c *Cluster) fellows(one, other pki.PublicKey) bool {
	list, _ := c.now()
	return list.named(one) && list.named(other)
}

// named reports whether a member has this key.
func (list members) named(key pki.PublicKey) bool {
	if len(list) == 0 {
		return false
	}
	return list.has(key.SHA256())
}

// has reports whether a member has the key with this fingerprint.
func (list members) has(finger string) bool {
	return finger != "" && slices.ContainsFunc(list, func(m protocol.Member) bool { return m.Key == finger })
}

// ranked returns the members in the order in which this minion prefers them, those that run
// first. Each minion has an order of its own, by rendezvous hashing: so they distribute evenly,
// and if a member is lost, only its minions move, to each of the others as many.
func (c *Cluster) ranked(list members) members {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b protocol.Member) int {
		if a.Running != b.Running {
			return map[bool]int{true: -1, false: 1}[a.Running]
		}
		return cmp.Compare(c.weight(b), c.weight(a))
	})
	return list
}

func (c *Cluster) weight(m protocol.Member) uint64 {
	sum := sha256.Sum256([]byte(string(c.id) + "\x00" + m.Name))
	return binary.BigEndian.Uint64(sum[:])
}

// home returns the running member that this minion belongs to.
func (c *Cluster) home() (m protocol.Member, ok bool, changed <-chan struct{}) {
	list, changed := c.now()
	if list = c.ranked(list); len(list) == 0 || !list[0].Running {
		return m, false, changed
	}
	return list[0], true, changed
}

// Trust sets which keys are trusted in an attempt at the master that o names. A name that is not of the
// configuration was learned, also if the list has changed since.
func (c *Cluster) Trust(o *Options) {
	if c == nil {
		return
	}
	list, _ := c.now()
	for _, m := range list {
		if m.Key != "" {
			o.Trust.Members = append(o.Trust.Members, m.Key)
		}
	}
	if slices.Contains(c.addresses(), o.Address) {
		return
	}
	o.Trust.Learned = true
	o.PinFile, o.LatestFile = filepath.Join(filepath.Dir(o.PinFile), "minion_master."+event.Escape(o.Address)+".pub"), ""
	if i := list.at(o.Address); i >= 0 {
		o.Trust.Members = nil
		if m := list[i]; m.Key != "" {
			o.Trust.Members = []string{m.Key}
		}
	}
}
