// Package membership makes a master a member of a cluster: it says which member it is, waits for
// the others, and connects the parts of the master with them. What members tell each other is
// carried by package cluster, what they store by package journal.
package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/salt"
)

// fewest is how many members a cluster has at least: with two, the loss of either stops both.
const fewest = 3

// identity is which member a master is.
type identity struct {
	name   string
	number int      // of this member in the sorted list
	peers  []string // host:port of all members, sorted
	self   string   // the one of this member
	copies int
}

// Check finds mistakes in the settings of a member. It does not look at this machine, see CheckHere.
func Check(cfg *config.Master) error {
	if cfg.ClusterID == "" {
		if len(cfg.ClusterPeers) > 0 {
			return salt.WithHint(errors.New("cluster_peers is set, but cluster_id is not"), "give the cluster a name, the same on all members")
		}
		return nil
	}
	i, err := listed(cfg)
	if err == nil {
		_, err = advertised(cfg, i.peers)
	}
	return errors.Join(err, conflicts(cfg))
}

// conflicts finds settings that a member cannot have.
func conflicts(cfg *config.Master) error {
	var errs []error
	if cfg.JournalMirror != "" {
		errs = append(errs, salt.WithHint(errors.New("journal_mirror: two masters that mirror each other are not a cluster, but cluster_id is set, too"), "remove one of the two settings"))
	}
	if len(cfg.NATSServers) > 0 {
		errs = append(errs, salt.WithHint(errors.New("nats_servers: the minions of a cluster connect to its members, but cluster_id is set, too"), "remove one of the two settings"))
	}
	if !cfg.MasterSignPubkey {
		errs = append(errs, salt.WithHint(errors.New("cluster_id is set, but master_sign_pubkey is not: members know each other by their signed keys"),
			"set master_sign_pubkey: True, with the master_sign pair that all members share"))
	}
	if cfg.ClusterPort == cfg.RetPort {
		errs = append(errs, salt.WithHint(fmt.Errorf("cluster_port: %d is that of minions (ret_port)", cfg.ClusterPort), "give it another one: 4520 is the usual one"))
	}
	return errors.Join(errs...)
}

// listed returns what the settings say of all members.
func listed(cfg *config.Master) (identity, error) {
	var i identity
	if broker.CheckName(cfg.ClusterID) != nil {
		return i, salt.WithHint(fmt.Errorf("cluster_id: %.80q cannot be the name of a cluster", cfg.ClusterID), nameForm)
	}
	for _, peer := range cfg.ClusterPeers {
		address, err := withPort("cluster_peers", peer, cfg.ClusterPort)
		if err != nil {
			return i, err
		}
		if broker.CheckName(nameOf(address)) != nil {
			return i, salt.WithHint(fmt.Errorf("cluster_peers: %.80q cannot be the address of a member, whose name would be %.80q", peer, nameOf(address)), nameForm+"; the address with its port gives the name")
		}
		if slices.ContainsFunc(i.peers, func(other string) bool { return nameOf(other) == nameOf(address) }) {
			return i, fmt.Errorf("cluster_peers: %q is named twice", peer)
		}
		i.peers = append(i.peers, address)
	}
	if len(i.peers) < fewest {
		return i, salt.WithHint(fmt.Errorf("cluster_peers: a cluster has at least %d members, and %d are named", fewest, len(i.peers)),
			"name all members, this one included; two masters mirror each other with journal_mirror instead")
	}
	if len(i.peers) > broker.MaxMembers {
		return i, salt.WithHint(fmt.Errorf("cluster_peers: a cluster has at most %d members, and %d are named", broker.MaxMembers, len(i.peers)), "take out those that have left or were removed")
	}
	err := checkCopies(cfg.ClusterCopies, len(i.peers))
	if err != nil {
		return i, err
	}
	i.copies = cfg.ClusterCopies
	slices.Sort(i.peers)
	return i, nil
}

// identify returns which of them this one is.
func identify(ctx context.Context, cfg *config.Master, isLocal local) (identity, error) {
	i, err := listed(cfg)
	if err != nil {
		return i, err
	}
	if i.self, err = own(ctx, cfg, i.peers, isLocal); err != nil {
		return i, err
	}
	i.name, i.number = nameOf(i.self), slices.Index(i.peers, i.self)
	return i, nil
}

// checkCopies refuses numbers of copies that make no sense with so many members. A majority of the
// copies must be there to write, so that an even number survives no more losses than one less.
func checkCopies(copies, members int) error {
	switch {
	case copies < fewest:
		return salt.WithHint(fmt.Errorf("cluster_copies: %d: with fewer than %d copies the loss of one member would stop the others", copies, fewest), "leave it out, which means 3 copies")
	case copies%2 == 0:
		return salt.WithHint(fmt.Errorf("cluster_copies: %d copies survive the loss of as many members as %d do", copies, copies-1), "set 3 or 5")
	case copies > members:
		return salt.WithHint(fmt.Errorf("cluster_copies: %d copies need as many members, and cluster_peers names %d", copies, members), "name more members, or leave cluster_copies out, which means 3 copies")
	}
	return nil
}

// withPort returns an address of this setting with a port.
func withPort(setting, peer string, port int) (string, error) {
	host, text, err := net.SplitHostPort(peer)
	if err != nil {
		host, text = strings.Trim(peer, "[]"), strconv.Itoa(port)
	}
	hint := "name each member as in 172.16.0.10:4520"
	if setting == ofSelf {
		hint = "name this master as cluster_peers does"
	} else if strings.Contains(peer, ",") {
		hint = "write a list, as in [172.16.0.10, 172.16.0.11, 172.16.0.12]"
	}
	if host == "" || strings.ContainsAny(host, " \t/@,") {
		return "", salt.WithHint(fmt.Errorf("%s: %q is not a host:port", setting, peer), hint)
	}
	if n, err := strconv.ParseUint(text, 10, 16); err != nil || n == 0 {
		return "", salt.WithHint(fmt.Errorf("%s: %q has no port from 1 to 65535", setting, peer), hint)
	}
	return net.JoinHostPort(host, text), nil
}

// nameForm is what a name is made of that becomes a part of the names of streams.
const nameForm = "use at most 64 letters, digits, - and _, with a letter or a digit first"

// nameOf is the name of the member with this address: it becomes a part of the names of
// streams, which have no dots. None begins with _, as an IPv6 address in its brackets would.
func nameOf(address string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, address)
	if strings.HasPrefix(name, "_") {
		return "ip" + name
	}
	return name
}

// New returns this master as a member of a cluster, nil if it is a single master. It waits until this machine
// has an address of a member, and tells that.
func New(ctx context.Context, cfg *config.Master, own keyring.Own, version string, tell func(string), log *slog.Logger) (*Membership, error) {
	if cfg.ClusterID == "" {
		return nil, nil
	}
	if err := Check(cfg); err != nil {
		return nil, config.Mistake(err)
	}
	i, err := awaitHere(ctx, cfg, ofMachine, tell, log)
	if err != nil {
		return nil, err
	}
	rule, err := member.LoadRule(member.NewCard(cfg.ClusterID, i.name, version).Naming(i.peers), own.Public(), cfg.PKIDir, cfg.MasterSignKeyName)
	if err != nil {
		return nil, err
	}
	certificate, err := rule.Own(own.PrivateKey, own.Signature)
	if err != nil {
		return nil, err
	}
	m := &Membership{identity: i, cfg: cfg, version: version, log: log}
	m.mark = member.LeaveFile(filepath.Join(cfg.CacheDir, m.StoreDir()))
	m.removals = removals{path: member.RemovedFile(cfg.PKIDir), name: i.name, key: own.Public().SHA256(), log: log}
	m.met = met{path: member.KnownFile(cfg.CacheDir), names: i.place().All, log: log}
	m.leaving.departed = departed{path: member.LeftFile(cfg.CacheDir), names: i.place().All, log: log}
	m.cluster = &broker.ClusterOptions{
		Rule: rule, Certificate: certificate, Listen: net.JoinHostPort(cfg.Interface, strconv.Itoa(cfg.ClusterPort)), Peers: i.peers,
	}
	return m, nil
}

// Membership is this master as a member of a cluster. The methods of nil are those of a single
// master.
type Membership struct {
	identity
	cfg     *config.Master
	version string
	cluster *broker.ClusterOptions
	log     *slog.Logger

	throttle logging.Throttle
	mark     string // the file that says that it leaves its cluster, or has left
	removals removals
	links
}

// fingerprint is the one of this member's key.
func (m *Membership) fingerprint() string { return m.cluster.Rule.Key.SHA256() }

// Cluster returns the options of the broker.
func (m *Membership) Cluster() *broker.ClusterOptions {
	if m == nil {
		return nil
	}
	return m.cluster
}

// Journal adds what makes a journal that of a member.
func (m *Membership) Journal(o journal.Options) journal.Options {
	if m != nil {
		o.Copies, o.Name, o.Server, o.Current = m.copies, m.name, m.name, m.broker.Cluster.Current
	}
	return o
}

// StoreDir is the directory of the journal. Each mode of the journal has its own: a member must
// never open one that was written by a single master.
func (m *Membership) StoreDir() string {
	if m == nil {
		return "journal"
	}
	return "cluster"
}

// Number is this member's among at most dispatch.MaxMembers, from 0; no two have the same.
func (m *Membership) Number() int {
	if m == nil {
		return 0
	}
	return m.number % dispatch.MaxMembers
}
