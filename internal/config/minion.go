package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/yamlfile"
)

// Minion is the configuration of a minion. NewMinion returns the defaults without an id,
// LoadMinion reads files; then every path is absolute and ID is a checked name.
type Minion struct {
	Common

	// The id of this minion. If it is not set, the minion uses the one in the file minion_id beside
	// the configuration. Without that file it uses the full name of the host: of the names that the
	// resolver, the kernel, /etc/hostname and /etc/hosts give, the first that is not a name of
	// localhost. If there is none, it uses an address of the host, or localhost.
	ID salt.MinionID `yaml:"id"`
	// IDFrom says where ID comes from: "id", the name of the cache file, or
	// "host".
	IDFrom string `yaml:"-"`
	// MasterIsList reports whether master is a list in the configuration. With master_type str,
	// one name is one master and a list of one is a list.
	MasterIsList bool `yaml:"-"`

	// The pause before the minion tries a master again that does not accept it now, because too
	// many keys are pending there, or because it was refused and rejected_retry or auth_safemode is
	// set. (While its key is pending it learns at once when it is accepted.) For a minion that runs
	// as a service it is also the first pause after any other refusal; each further one is twice as
	// long, and each has a random part that is at most as long again.
	AcceptanceWaitTime time.Duration `yaml:"acceptance_wait_time" is:"s 0..1d" default:"10s"`
	// The maximum of these pauses, without the random part. Those of a service double until they
	// reach it, the others grow by acceptance_wait_time each time. With 0 those of a service grow
	// to five minutes, and the others do not grow.
	AcceptanceWaitTimeMax time.Duration `yaml:"acceptance_wait_time_max" is:"s 0..30d"`
	// With verify_master_pubkey_sign: if a master sends no signature of its public key, treat it as
	// without that setting, and log a warning. Use it while the masters of a system are being
	// switched to signatures.
	AllowUnsignedMaster bool `yaml:"allow_unsigned_master"`
	// A domain that is appended to an id that does not end with it.
	AppendDomain string `yaml:"append_domain"`
	// A minion that was refused by its masters, or refuses them, tries again after
	// acceptance_wait_time. Without this setting a minion in the foreground exits, and one that
	// runs as a service waits longer each time.
	AuthSafemode bool `yaml:"auth_safemode"`
	// How long the minion waits for each address of a master, and for each answer while it
	// connects.
	AuthTimeout time.Duration `yaml:"auth_timeout" is:"s 100ms..1d" default:"5s"`
	// Grains that are sent with a new key, for the master's
	// autosign_grains_dir.
	AutosignGrains []string `yaml:"autosign_grains"`
	// What the minion watches on its machine and reports by events: the names of beacons, each
	// with its settings. See doc/beacons.md.
	Beacons Located `yaml:"beacons"`
	// Modules that are not loaded, by their names, such as cmd, or by their file names in Salt,
	// such as cmdmod.
	DisableModules []string `yaml:"disable_modules" is:"modules"`
	// Returners that are not loaded.
	DisableReturners []string `yaml:"disable_returners"`
	// Fire the event minion_start as well as salt/minion/ID/start.
	EnableLegacyStartupEvents bool `yaml:"enable_legacy_startup_events" default:"true"`
	// Where files come from: remote, the master, or local, this machine.
	FileClient string `yaml:"file_client" is:"one of remote local" default:"remote"`
	// Static grains of this minion.
	Grains map[string]any `yaml:"grains"`
	// Patterns of grains to leave out.
	GrainsBlacklist []string `yaml:"grains_blacklist"`
	// The masters: one name, or a list. A name may carry a port, as host:port.
	Master []string `yaml:"master" is:"masters" default:"salt"`
	// How soon the minion notices that a master is silent: within twice this time it uses another
	// one. 0 means the default, with which a silent connection is noticed after 10 s.
	MasterAliveInterval time.Duration `yaml:"master_alive_interval" is:"s 0..1d"`
	// The tag of the events of the returner master_bus.
	MasterBusTag string `yaml:"master_bus.tag"`
	// Also use the other members of the cluster that the master belongs to: with a single master,
	// and with failover after the masters of the list. With all masters of a list at once, what waits
	// for one of them goes to another one of its cluster.
	MasterCluster bool `yaml:"master_cluster" default:"true"`
	// With failover: return to the first master when it is available again.
	MasterFailback bool `yaml:"master_failback"`
	// The pause between two checks for the first master; 0 means the value of
	// master_alive_interval.
	MasterFailbackInterval time.Duration `yaml:"master_failback_interval" is:"s 0..1d"`
	// The fingerprint that the master's public key must have, or a list of them for several
	// masters. A pinned key must have it, too.
	MasterFinger []string `yaml:"master_finger" is:"texts"`
	// The port of the master.
	MasterPort int `yaml:"master_port" is:"1..65535" default:"4506"`
	// After this many rounds without a master an error is logged; the minion keeps trying forever.
	// -1 logs none.
	MasterTries int `yaml:"master_tries" is:"-1..10000000" default:"-1"`
	// Which new keys of masters the minion trusts without a signature or master_finger: first, only
	// the key of the first contact, while none is pinned; each, the first key at each address of a
	// list; never, none.
	MasterTrustOnFirstUse string `yaml:"master_trust_on_first_use" is:"one of first each never" default:"first"`
	// How several masters are used: str, one master, or all masters of a list at once; failover,
	// one after the other; distributed, one that is chosen by the minion's id; disable, none.
	MasterType string `yaml:"master_type" is:"master type" default:"str"`
	// How master is written: default, a name with an optional port, or ip_only, an address
	// without one.
	MasterURIFormat string `yaml:"master_uri_format" is:"one of default ip_only" default:"default"`
	// Run the functions of the mine every mine_interval.
	MineEnabled bool `yaml:"mine_enabled" default:"true"`
	// The functions whose returns the mine keeps.
	MineFunctions Located `yaml:"mine_functions"`
	// The time, in minutes, between two updates of the mine.
	MineInterval time.Duration `yaml:"mine_interval" is:"m 1s..365d" default:"1h"`
	// Store updates of the mine as jobs.
	MineReturnJob bool `yaml:"mine_return_job"`
	// Store an id that was determined from the host in the file minion_id.
	MinionIDCaching bool `yaml:"minion_id_caching" default:"true"`
	// Change an id that was determined from the host to lower case.
	MinionIDLowercase bool `yaml:"minion_id_lowercase"`
	// The domain that is cut off an id that was determined from the host; true cuts any.
	MinionIDRemoveDomain string `yaml:"minion_id_remove_domain" is:"domain"`
	// The program that minion.restart runs, with its arguments, after the minion has exited. Empty
	// means systemd if the minion runs as its service, otherwise the command line of the minion
	// itself.
	MinionRestartCommand []string `yaml:"minion_restart_command"`
	// How long the outbox keeps undelivered messages; the time in which the minion does not run
	// does not count.
	OutboxMaxAge time.Duration `yaml:"outbox_max_age" is:"s 1m.." default:"7d"`
	// The maximum size of the outbox, and also of the journal of the minion's own bus; the
	// oldest messages are removed first.
	OutboxMaxBytes int64 `yaml:"outbox_max_bytes" is:"1MiB..1024TiB" default:"256MiB"`
	// When stored messages, including the outbox and the record of started jobs, are synced to
	// the disk: always, before they are acknowledged, or default, within about a second. With
	// default, a power failure can lose what was stored in the last second; a crash of the
	// daemon loses nothing either way.
	JournalSync string `yaml:"journal_sync" is:"one of default always" default:"default"`
	// The time, in minutes, between two minion_ping events on the master's bus. A connection on
	// which one is not answered within 30 seconds (or auth_timeout, if that is longer) is closed; an
	// answer may be that the master cannot store it now. 0 sends none.
	PingInterval time.Duration `yaml:"ping_interval" is:"m 0..365d"`
	// The maximum number of jobs that run at once; -1 sets no limit.
	ProcessCountMax int `yaml:"process_count_max" is:"-1..10000000" default:"-1"`
	// Try the masters of a list in random order.
	RandomMaster bool `yaml:"random_master"`
	// The maximum of the random part that recon_randomize adds to a pause.
	RandomReauthDelay time.Duration `yaml:"random_reauth_delay" is:"s 0..1d" default:"10s"`
	// The maximum of the random pause before the first connection.
	RandomStartupDelay time.Duration `yaml:"random_startup_delay" is:"s 0..1d"`
	// The first pause before the minion reconnects, in milliseconds; values above 50 count as 50.
	ReconDefault time.Duration `yaml:"recon_default" is:"ms 1ms..1d" default:"1s"`
	// The longest pause before the minion reconnects, in milliseconds: each pause is twice as long
	// as the last one, up to this value. Values below 1000 count as 1000.
	ReconMax time.Duration `yaml:"recon_max" is:"ms 0..1d" default:"10s"`
	// Add a random part to each of these pauses, at most as long as the pause itself.
	ReconRandomize bool `yaml:"recon_randomize" default:"true"`
	// A minion whose key is rejected tries again instead of exiting.
	RejectedRetry bool `yaml:"rejected_retry"`
	// The longest pause before the minion resolves the name of its only master again, as long as
	// the name has no address; 0 means the value of recon_max. If there are several masters, the
	// minion tries the next one at once.
	RetryDNS time.Duration `yaml:"retry_dns" is:"s 0..1d" default:"30s"`
	// How often the minion resolves that name again before it exits; null means forever.
	RetryDNSCount *int `yaml:"retry_dns_count" is:"0..10000000"`
	// Returners that also get every result: a list, or names separated by commas.
	Return []string `yaml:"return" is:"commas"`
	// The local address of connections to the master.
	SourceAddress string `yaml:"source_address"`
	// The master's public key must be signed by the key that
	// master_sign_key_name names.
	VerifyMasterPubkeySign bool `yaml:"verify_master_pubkey_sign"`
	// The only modules that are loaded; empty loads all.
	WhitelistModules []string `yaml:"whitelist_modules" is:"modules"`
}

// NewMinion returns the defaults. Paths are Salt's, as with root_dir /.
func NewMinion() *Minion {
	m := new(Minion)
	m.Common.bind("minion", m)
	m.LoopInterval = time.Second
	return m
}

// AllMasters reports whether the minion is connected to all masters of its list at once.
func (m *Minion) AllMasters() bool {
	return m.MasterType == "str" && m.MasterIsList && len(m.Master) > 1
}

// masters is the kind of master: the fields Master and MasterIsList.
type masters struct{ m *Minion }

func (k masters) set(l Located) error {
	names, err := parseList(l.Node)
	if err != nil {
		return err
	}
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	if l.Node.Kind == yaml.ScalarNode {
		if err := checkOnlyMaster(names[0]); err != nil {
			return salt.WithHint(err, "write the host, or host:port, as master.example.com:4506; put an IPv6 address with a port in brackets")
		}
	}
	k.m.Master, k.m.MasterIsList = names, l.Node.Kind == yaml.SequenceNode
	return nil
}

// checkOnlyMaster refuses what cannot be the name of a master, where there is no other one. In
// a list such a name is a master that cannot be reached, and the others are in use. An empty
// name is that of a minion without a master.
func checkOnlyMaster(name string) error {
	host, port, err := net.SplitHostPort(name)
	switch {
	case err == nil && host == "":
		return fmt.Errorf("the name of the master is missing in %q", name)
	case strings.Contains(name, "/"):
		return fmt.Errorf("%q is a URL or a path, and not the name of a master", name)
	case len(strings.Fields(name)) > 1 && !strings.Contains(name, ","):
		return fmt.Errorf("%q has a blank in it, and is not the name of a master", name)
	case err == nil:
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("%q has no port from 1 to 65535 behind its colon", name)
		}
	case strings.HasPrefix(name, "[") && !strings.HasSuffix(name, "]"):
		return fmt.Errorf("%q is not an address in brackets", name)
	}
	return nil
}

func (k masters) get() any {
	if k.m.MasterIsList || len(k.m.Master) != 1 {
		return showList(k.m.Master)
	}
	return k.m.Master[0]
}

// checkMasters holds the masters to master_uri_format.
func (m *Minion) checkMasters() error {
	for _, name := range m.Master {
		if _, err := netip.ParseAddr(name); err != nil && m.MasterURIFormat == "ip_only" && m.Raw["master"] != nil && name != "" {
			return &Error{File: m.ConfigFile, Key: "master", Err: salt.WithHint(fmt.Errorf("%q is not an address, and master_uri_format is ip_only", name),
				"write an address without a port, or leave master_uri_format out")}
		}
	}
	return nil
}

// noticeCommas reports names of masters that look like several names. Salt does not split them
// either.
func (m *Minion) noticeCommas() []Notice {
	for _, name := range m.Master {
		if strings.Contains(name, ",") {
			return []Notice{{File: m.ConfigFile, Key: "master", Text: fmt.Sprintf("%q is taken for one name: several masters are a list", name)}}
		}
	}
	return nil
}

// masterType is a oneOf with a better error for func, which Brine does not have.
func masterType(to *string) kind {
	words := oneOf(to, "str", "failover", "distributed", "disable").(field[string])
	parse := words.parse
	words.parse = func(n *yaml.Node) (string, error) {
		if n.Value == "func" {
			return "", salt.WithHint(fmt.Errorf("func is not supported: no module is asked for the master"), "name the masters in a list, with master_type: failover")
		}
		return parse(n)
	}
	return words
}

// minionID is a checked id. A number is one too; an empty text means no id.
func minionID(to *salt.MinionID) kind {
	return field[salt.MinionID]{to: to, parse: func(n *yaml.Node) (salt.MinionID, error) {
		s, err := parseText(n)
		if err != nil || s == "" {
			return "", err
		}
		return salt.ParseMinionID(s)
	}, show: func(id salt.MinionID) any { return string(id) }}
}

// domain is a domain, or true for any, or false for none.
func domain(to *string) kind {
	return field[string]{to: to, parse: func(n *yaml.Node) (string, error) {
		switch yamlfile.Value(n) {
		case true:
			return anyDomain, nil
		case false:
			return "", nil
		}
		return parseText(n)
	}, show: func(s string) any {
		if s == "" || s == anyDomain {
			return s == anyDomain
		}
		return s
	}}
}

// anyDomain in MinionIDRemoveDomain cuts everything after the first dot.
const anyDomain = "true"
