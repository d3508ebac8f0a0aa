package config

import (
	"fmt"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/yamlfile"
)

// Minion is the configuration of a minion. NewMinion makes one with the
// defaults and no id, LoadMinion one from files; after the latter every path is
// absolute and ID is a checked name.
type Minion struct {
	Common

	// The id of this minion. Without it: the cached one of the file minion_id
	// beside the configuration, or the full name of the host as the resolver,
	// the kernel, /etc/hostname and /etc/hosts know it, whichever is the first
	// that is not a name of localhost; or else an address, or localhost.
	ID salt.MinionID `yaml:"id"`
	// IDFrom says where ID comes from: "id", the name of the cache file, or
	// "host".
	IDFrom string `yaml:"-"`
	// MasterIsList tells whether master is a list in the configuration. With
	// master_type str, one name is one master and a list of one is a list.
	MasterIsList bool `yaml:"-"`

	// The pause after a master that does not take this minion now: too many keys
	// wait there, or rejected_retry or auth_safemode has it tried again. That a key
	// is accepted is told at once. A minion that is a service makes the first pause
	// so long after a master that is refused or refuses it; each that follows is
	// twice as long, with a random part.
	AcceptanceWaitTime time.Duration `yaml:"acceptance_wait_time" is:"s 0..1d" default:"10s"`
	// The longest such pause: each is longer by acceptance_wait_time until then. 0
	// keeps all at acceptance_wait_time, and those of a service at five minutes and
	// a random part.
	AcceptanceWaitTimeMax time.Duration `yaml:"acceptance_wait_time_max" is:"s 0..30d"`
	// With verify_master_pubkey_sign: a master that sends no signature of its public
	// key is judged as without that setting, with a warning. It is for the time in
	// which the masters of a system begin to sign.
	AllowUnsignedMaster bool `yaml:"allow_unsigned_master"`
	// The signature of the master's public key is checked on each connection. It
	// is without this setting, too.
	AlwaysVerifySignature bool `yaml:"always_verify_signature"`
	// A domain that is put behind an id that does not end with it.
	AppendDomain string `yaml:"append_domain"`
	// A minion that is refused, or refuses its masters, waits for
	// acceptance_wait_time and tries again. Without it a minion in the foreground
	// ends, and a service waits longer.
	AuthSafemode bool `yaml:"auth_safemode"`
	// How long each address of a master, and each answer on the way to a
	// connection, is waited for.
	AuthTimeout time.Duration `yaml:"auth_timeout" is:"s 100ms..1d" default:"5s"`
	// Without effect: masters that cannot be reached are tried for ever.
	AuthTries int `yaml:"auth_tries" is:"1..10000000" default:"7"`
	// Grains that are sent with a new key, for the master's
	// autosign_grains_dir.
	AutosignGrains []string `yaml:"autosign_grains"`
	// What the minion watches of its machine, and tells by events: the names of
	// beacons, each with its settings. See doc/beacons.md.
	Beacons Located `yaml:"beacons"`
	// Commands run without a shell unless a caller asks for one.
	CmdSafe bool `yaml:"cmd_safe" default:"true"`
	// Modules that are not loaded, by their names, as cmd, or those of their
	// files in Salt, as cmdmod.
	DisableModules []string `yaml:"disable_modules" is:"modules"`
	// Returners that are not loaded.
	DisableReturners []string `yaml:"disable_returners"`
	// The grain fqdns is collected, which asks the resolver for every address.
	EnableFqdnsGrains bool `yaml:"enable_fqdns_grains"`
	// The event minion_start is fired beside salt/minion/ID/start.
	EnableLegacyStartupEvents bool `yaml:"enable_legacy_startup_events" default:"true"`
	// Where files come from: remote, the master, or local, this machine.
	FileClient string `yaml:"file_client" is:"one of remote local" default:"remote"`
	// Static grains of this minion.
	Grains map[string]any `yaml:"grains"`
	// Patterns of grains that are left out.
	GrainsBlacklist []string `yaml:"grains_blacklist"`
	// The pause, in minutes, between two collections of grains; 0 collects at
	// the start only.
	GrainsRefreshEvery time.Duration `yaml:"grains_refresh_every" is:"m 0..365d"`
	// The masters: one name, or a list. A name may carry a port, as host:port.
	Master []string `yaml:"master" is:"masters" default:"salt"`
	// How soon a master that is silent is noticed: another one is in use within two
	// of these. 0 takes 10 s for a connection that is silent.
	MasterAliveInterval time.Duration `yaml:"master_alive_interval" is:"s 0..1d"`
	// The tag that the returner master_bus gives its events.
	MasterBusTag string `yaml:"master_bus.tag"`
	// With failover: go back to the first master when it is there again.
	MasterFailback bool `yaml:"master_failback"`
	// The pause between two looks for the first master; 0 takes that of
	// master_alive_interval.
	MasterFailbackInterval time.Duration `yaml:"master_failback_interval" is:"s 0..1d"`
	// The fingerprint that the master's public key must have, or a list of them for
	// several masters. A key that is pinned must have it, too.
	MasterFinger []string `yaml:"master_finger" is:"texts"`
	// The port of the master.
	MasterPort int `yaml:"master_port" is:"1..65535" default:"4506"`
	// After so many rounds without a master the log has an error; the minion goes
	// on for ever. -1 has none.
	MasterTries int `yaml:"master_tries" is:"-1..10000000" default:"-1"`
	// Which keys of masters are trusted that are new, and that no signature and no
	// master_finger vouches for: first, the one of the first contact, as long as no
	// key is pinned; each, the first one at each address of a list; never, none.
	MasterTrustOnFirstUse string `yaml:"master_trust_on_first_use" is:"one of first each never" default:"first"`
	// What several masters are for: str, one, or all of a list at once;
	// failover, one of a list after the other; distributed, one of a list that
	// follows from the id; disable, none.
	MasterType string `yaml:"master_type" is:"master type" default:"str"`
	// How master is written: default, with an optional port, or ip_only.
	MasterURIFormat string `yaml:"master_uri_format" is:"one of default ip_only" default:"default"`
	// Mine functions run by the clock.
	MineEnabled bool `yaml:"mine_enabled" default:"true"`
	// The functions whose returns the mine keeps.
	MineFunctions Located `yaml:"mine_functions"`
	// The pause, in minutes, between two updates of the mine.
	MineInterval time.Duration `yaml:"mine_interval" is:"m 1s..365d" default:"1h"`
	// Updates of the mine are kept as jobs.
	MineReturnJob bool `yaml:"mine_return_job"`
	// An id that was found out is kept in the file minion_id.
	MinionIDCaching bool `yaml:"minion_id_caching" default:"true"`
	// An id that was found out is put in lower case.
	MinionIDLowercase bool `yaml:"minion_id_lowercase"`
	// The domain that is cut from an id that was found out; true cuts any.
	MinionIDRemoveDomain string `yaml:"minion_id_remove_domain" is:"domain"`
	// The program that minion.restart runs, with its arguments, once the minion has
	// ended. Empty: systemd, where the minion is its service, or else the command line
	// of the minion itself.
	MinionRestartCommand []string `yaml:"minion_restart_command"`
	// How long the outbox keeps what could not be delivered.
	OutboxMaxAge time.Duration `yaml:"outbox_max_age" is:"s 1m.." default:"7d"`
	// The most that the outbox may hold, and as much again the journal of the minion's own bus; the oldest go first.
	OutboxMaxBytes int64 `yaml:"outbox_max_bytes" is:"1MiB..1024TiB" default:"256MiB"`
	// When what is stored here is on the disk, the outbox and which jobs were begun among
	// it: always, before anybody is told that it is stored, or default, within about a
	// second: what was stored in the last second may then go with the power. The death of
	// the daemon loses nothing either way.
	JournalSync string `yaml:"journal_sync" is:"one of default always" default:"default"`
	// The pause, in minutes, between two events minion_ping on the master's bus,
	// which end a connection on which they are not answered; 0 sends none.
	PingInterval time.Duration `yaml:"ping_interval" is:"m 0..365d"`
	// The most jobs that run at once; -1 sets no limit.
	ProcessCountMax int `yaml:"process_count_max" is:"-1..10000000" default:"-1"`
	// The masters of a list are tried in random order.
	RandomMaster bool `yaml:"random_master"`
	// The longest random part of a pause before a lost connection is made again.
	RandomReauthDelay time.Duration `yaml:"random_reauth_delay" is:"s 0..1d" default:"10s"`
	// The longest random pause before the first connection.
	RandomStartupDelay time.Duration `yaml:"random_startup_delay" is:"s 0..1d"`
	// The longest first pause before a lost connection is made again, in
	// milliseconds; it is 50 where this is more.
	ReconDefault time.Duration `yaml:"recon_default" is:"ms 1ms..1d" default:"1s"`
	// The longest such pause, to which they double, in milliseconds.
	ReconMax time.Duration `yaml:"recon_max" is:"ms 0..1d" default:"10s"`
	// These pauses have a random part, of up to as much again.
	ReconRandomize bool `yaml:"recon_randomize" default:"true"`
	// A rejected key is tried again instead of ending the minion.
	RejectedRetry bool `yaml:"rejected_retry"`
	// The longest pause before the name of the only master is resolved again while
	// it has no address; 0 takes that of recon_max. Of several masters the next one
	// is tried at once.
	RetryDNS time.Duration `yaml:"retry_dns" is:"s 0..1d" default:"30s"`
	// How often that is done before the minion ends; null means for ever.
	RetryDNSCount *int `yaml:"retry_dns_count" is:"0..10000000"`
	// The returners that get every result too: a list, or names with commas
	// between.
	Return []string `yaml:"return" is:"commas"`
	// The local address of connections to the master.
	SourceAddress string `yaml:"source_address"`
	// Grains that are sent with the start event.
	StartEventGrains []string `yaml:"start_event_grains"`
	// With file_client local: connect to a master all the same.
	UseMasterWhenLocal bool `yaml:"use_master_when_local"`
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

// AllMasters says whether the minion is connected to all masters of its list at the
// same time.
func (m *Minion) AllMasters() bool {
	return m.MasterType == "str" && m.MasterIsList && len(m.Master) > 1
}

// masters is the kind of master: the fields Master and MasterIsList.
type masters struct{ m *Minion }

func (k masters) set(l Located) error {
	names, err := parseList(l.Node)
	if err == nil {
		k.m.Master, k.m.MasterIsList = names, l.Node.Kind == yaml.SequenceNode
	}
	return err
}

func (k masters) get() any {
	if k.m.MasterIsList || len(k.m.Master) != 1 {
		return showList(k.m.Master)
	}
	return k.m.Master[0]
}

// noticeCommas tells about names of masters that look like several. Salt does not
// split them either.
func (m *Minion) noticeCommas() []Notice {
	for _, name := range m.Master {
		if strings.Contains(name, ",") {
			return []Notice{{File: m.ConfigFile, Key: "master", Text: fmt.Sprintf("%q is taken for one name: several masters are a list", name)}}
		}
	}
	return nil
}

// masterType is a oneOf that knows of func, which Brine does not have.
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

// minionID is a checked id; a number is one too, and an empty text is none.
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

// anyDomain in MinionIDRemoveDomain cuts whatever follows the first dot.
const anyDomain = "true"
