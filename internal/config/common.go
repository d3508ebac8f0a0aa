package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// Common holds the settings that the master and the minion share. The text of
// doc/configuration.md is made from the comments of its fields.
type Common struct {
	// ConfigDir is the directory that the configuration was read from.
	ConfigDir string `yaml:"-"`
	// ConfigFile is the main file in ConfigDir; it may not exist.
	ConfigFile string `yaml:"-"`
	// Files are the files that were read, in the order of reading.
	Files []string `yaml:"-"`
	// Raw is everything that the files and the command line say, merged, as
	// plain data by the present names of the keys: what config.get shows. It
	// holds keys that nobody knows and no defaults.
	Raw map[string]any `yaml:"-"`

	// The output of the command-line tools is coloured where it goes to a
	// terminal.
	Color bool `yaml:"color"`
	// The directory of state: journal, grains, outbox.
	CacheDir string `yaml:"cachedir"`
	// Drop-ins that are read after the main file: a pattern relative to its
	// directory. Empty reads none.
	DefaultInclude string `yaml:"default_include"`
	// Who may fire and hear which tags on the local bus, by user, and on a
	// master by client:NAME for programs with credentials. Nobody but root and
	// the daemon's own user when it is not set.
	EventACL Located `yaml:"event_acl"`
	// The environments and directories of the file server. Relative
	// directories are below root_dir.
	FileRoots map[string][]string `yaml:"file_roots"`
	// The algorithm of fingerprints: md5, sha1, sha224, sha256, sha384, sha512.
	HashType string `yaml:"hash_type"`
	// IPv6 is used beside IPv4; null leaves it to the system.
	IPv6 *bool `yaml:"ipv6"`
	// The type of a key that is made on first start: ed25519 or rsa. Keys that
	// exist are used whatever their type.
	KeyType string `yaml:"key_type"`
	// The bits of an RSA key that is made on first start.
	KeySize int `yaml:"keysize"`
	// Where the daemon logs to: a file, or a URL such as file:///dev/log or
	// udp://host:514.
	LogFile string `yaml:"log_file"`
	// How much is logged to the console: all, garbage, trace, debug, profile,
	// info, warning, error, critical or quiet.
	LogLevel string `yaml:"log_level"`
	// How much is logged to log_file; null means as much as log_level says.
	LogLevelLogfile string `yaml:"log_level_logfile"`
	// The pause between two rounds of housekeeping.
	LoopInterval time.Duration `yaml:"loop_interval"`
	// The name, without suffix, of the key pair in pki_dir that signs the
	// master's public key.
	MasterSignKeyName string `yaml:"master_sign_key_name"`
	// The largest event; a larger one is refused with a message to its sender.
	MaxEventSize int64 `yaml:"max_event_size"`
	// The largest message of the bus. Larger returns travel in pieces. It must
	// exceed max_event_size by 64 KiB for the envelope, and grows with it when
	// it is not set.
	MaxPayload int64 `yaml:"max_payload"`
	// Further directories with modules.
	ModuleDirs []string `yaml:"module_dirs"`
	// Accept every key. On the minion: accept any key of a master, without
	// keeping it in the place of a pinned one. Never outside a laboratory.
	OpenMode bool `yaml:"open_mode"`
	// How the command-line tools show results; empty means the outputter that
	// the function asks for.
	Output string `yaml:"output"`
	// The file with the number of the daemon's process.
	PIDFile string `yaml:"pidfile"`
	// The environments and directories of pillar data. Relative directories
	// are below root_dir.
	PillarRoots map[string][]string `yaml:"pillar_roots"`
	// The directory of keys.
	PKIDir string `yaml:"pki_dir"`
	// The directory that is put before every path that is not below it
	// already, so that a whole system can live in a scratch directory. A
	// relative one counts from the configuration directory.
	RootDir string `yaml:"root_dir"`
	// Jobs that the daemon runs by the clock.
	Schedule Located `yaml:"schedule"`
	// The signature algorithm that is accepted from RSA keys beside Brine's
	// own: PKCS1v15-SHA1, PKCS1v15-SHA224 or PKCS1v15-SHA256. Name the first
	// two only while old signatures have to be read.
	SigningAlgorithm string `yaml:"signing_algorithm"`
	// The directory of the Unix sockets of the command-line tools.
	SockDir string `yaml:"sock_dir"`
	// What the highstate outputter shows of each state: full, terse, mixed,
	// changes, filter, or one of these with _id.
	StateOutput string `yaml:"state_output"`
	// The highstate outputter also shows states that succeeded.
	StateVerbose bool `yaml:"state_verbose"`
	// TCP connections are kept alive.
	TCPKeepalive bool `yaml:"tcp_keepalive"`
	// The probes that may stay unanswered before a connection counts as lost;
	// -1 leaves it to the system.
	TCPKeepaliveCount int `yaml:"tcp_keepalive_cnt"`
	// The silence after which probing begins; -1 leaves it to the system.
	TCPKeepaliveIdle time.Duration `yaml:"tcp_keepalive_idle"`
	// The time between two probes; -1 leaves it to the system.
	TCPKeepaliveInterval time.Duration `yaml:"tcp_keepalive_intvl"`
	// The user that the daemon runs as; empty means the one who starts it.
	User string `yaml:"user"`

	settings []setting // bound to the fields, for Lookup
	daemon   string    // master or minion
}

// newCommon returns the defaults of a daemon, which is master or minion. Its
// paths are relative to root_dir.
func newCommon(daemon string) Common {
	return Common{
		daemon:               daemon,
		ConfigDir:            DefaultDir,
		Color:                true,
		CacheDir:             "/var/cache/salt/" + daemon,
		DefaultInclude:       daemon + ".d/*.conf",
		FileRoots:            map[string][]string{"base": {"/srv/salt"}},
		HashType:             "sha256",
		KeyType:              "ed25519",
		KeySize:              2048,
		LogFile:              "/var/log/salt/" + daemon,
		LogLevel:             "warning",
		MasterSignKeyName:    "master_sign",
		MaxEventSize:         1 << 20,
		MaxPayload:           2 << 20,
		PIDFile:              "/var/run/salt-" + daemon + ".pid",
		PillarRoots:          map[string][]string{"base": {"/srv/pillar"}},
		PKIDir:               "/etc/salt/pki/" + daemon,
		RootDir:              "/",
		SockDir:              "/var/run/salt/" + daemon,
		StateOutput:          "full",
		StateVerbose:         true,
		TCPKeepalive:         true,
		TCPKeepaliveCount:    -1,
		TCPKeepaliveIdle:     300 * time.Second,
		TCPKeepaliveInterval: -time.Second,
	}
}

const (
	// minEvent is the least that max_event_size may be: room for a tag and a
	// few words.
	minEvent = 1 << 10
	// envelope is what a message needs beside the event in it.
	envelope = 64 << 10
	// maxMessage is the most that the NATS server lets a message have.
	maxMessage = 64 << 20
)

// commonSettings binds the keys to the fields of c.
func commonSettings(c *Common) []setting {
	return []setting{
		{"cachedir", path(&c.CacheDir)},
		{"color", boolean(&c.Color)},
		{"default_include", text(&c.DefaultInclude)},
		{"event_acl", elsewhere{&c.EventACL}},
		{"file_roots", roots(&c.FileRoots)},
		{"hash_type", oneOf(&c.HashType, "md5", "sha1", "sha224", "sha256", "sha384", "sha512")},
		{"ipv6", choice(&c.IPv6)},
		{"key_type", oneOf(&c.KeyType, "ed25519", "rsa")},
		{"keysize", integer(&c.KeySize, 2048, 16384)},
		{"log_file", path(&c.LogFile)},
		{"log_level", oneOf(&c.LogLevel, logLevels...)},
		{"log_level_logfile", oneOf(&c.LogLevelLogfile, logLevels...)},
		{"loop_interval", duration(&c.LoopInterval, time.Second, 10*time.Millisecond, day)},
		{"master_sign_key_name", fileName(&c.MasterSignKeyName)},
		{"max_event_size", size(&c.MaxEventSize, minEvent, maxMessage-envelope)},
		{"max_payload", size(&c.MaxPayload, minEvent+envelope, maxMessage)},
		{"module_dirs", list(&c.ModuleDirs)},
		{"open_mode", boolean(&c.OpenMode)},
		{"output", text(&c.Output)},
		{"pidfile", path(&c.PIDFile)},
		{"pillar_roots", roots(&c.PillarRoots)},
		{"pki_dir", path(&c.PKIDir)},
		{"root_dir", path(&c.RootDir)},
		{"schedule", elsewhere{&c.Schedule}},
		{"signing_algorithm", oneOf(&c.SigningAlgorithm, "PKCS1v15-SHA1", "PKCS1v15-SHA224", "PKCS1v15-SHA256")},
		{"sock_dir", path(&c.SockDir)},
		{"state_output", oneOf(&c.StateOutput, stateOutputs...)},
		{"state_verbose", boolean(&c.StateVerbose)},
		{"tcp_keepalive", boolean(&c.TCPKeepalive)},
		{"tcp_keepalive_cnt", integer(&c.TCPKeepaliveCount, -1, 1000)},
		{"tcp_keepalive_idle", duration(&c.TCPKeepaliveIdle, time.Second, -time.Second, day)},
		{"tcp_keepalive_intvl", duration(&c.TCPKeepaliveInterval, time.Second, -time.Second, day)},
		{"user", text(&c.User)},
	}
}

var logLevels = []string{"all", "garbage", "trace", "debug", "profile", "info", "warning", "error", "critical", "quiet"}

var stateOutputs = []string{
	"full", "terse", "mixed", "changes", "filter",
	"full_id", "terse_id", "mixed_id", "changes_id", "filter_id",
}

// Lookup returns the value of a key in force, as data: what the configuration
// says, or else the default. It is false for a key that neither knows.
func (c *Common) Lookup(key string) (any, bool) {
	if v, ok := c.Raw[key]; ok && v != nil {
		return v, true
	}
	for _, s := range c.settings {
		if s.key == key {
			return s.kind.get(), true
		}
	}
	v, ok := c.Raw[key]
	return v, ok
}

// Keys returns the keys of all settings, sorted by name within those that the
// daemons share and those of its own.
func (c *Common) Keys() []string {
	keys := make([]string, len(c.settings))
	for i, s := range c.settings {
		keys[i] = s.key
	}
	return keys
}

// root puts root_dir before the paths that both daemons have.
func (c *Common) root() {
	if !filepath.IsAbs(c.RootDir) {
		c.RootDir = filepath.Join(c.ConfigDir, c.RootDir)
	}
	c.RootDir = filepath.Clean(c.RootDir)
	c.under(&c.PKIDir, &c.CacheDir, &c.SockDir, &c.PIDFile, &c.LogFile)
	c.FileRoots = c.rootsUnder("file_roots", c.FileRoots)
	c.PillarRoots = c.rootsUnder("pillar_roots", c.PillarRoots)
	c.relativeUnder(c.ModuleDirs)
}

// relativeUnder puts root_dir before those of the directories that are relative.
func (c *Common) relativeUnder(dirs []string) {
	for i, dir := range dirs {
		if !filepath.IsAbs(dir) {
			c.under(&dirs[i])
		}
	}
}

// under puts root_dir before paths that are not below it. Empty ones stay so,
// and so do the URLs that a log file may have.
func (c *Common) under(paths ...*string) {
	for _, p := range paths {
		if *p == "" || strings.Contains(*p, "://") {
			continue
		}
		*p = filepath.Clean(*p)
		if !isBelow(*p, c.RootDir) {
			*p = filepath.Join(c.RootDir, *p)
		}
	}
}

// rootsUnder moves the defaults and relative directories below root_dir, and
// leaves the absolute ones that somebody wrote: file roots are often shared by
// several systems.
func (c *Common) rootsUnder(key string, roots map[string][]string) map[string][]string {
	moved := make(map[string][]string, len(roots))
	for env, dirs := range roots {
		moved[env] = make([]string, len(dirs))
		for i, dir := range dirs {
			if c.Raw[key] == nil || !filepath.IsAbs(dir) {
				c.under(&dir)
			}
			moved[env][i] = filepath.Clean(dir)
		}
	}
	return moved
}

// isBelow tells whether path is root or in it; both are clean.
func isBelow(path, root string) bool {
	return path == root || root == "/" && filepath.IsAbs(path) || strings.HasPrefix(path, root+"/")
}

// check looks at settings that depend on each other.
func (c *Common) check() error {
	if c.MaxEventSize+envelope <= c.MaxPayload {
		return nil
	}
	if c.Raw["max_payload"] == nil {
		c.MaxPayload = c.MaxEventSize + envelope
		return nil
	}
	err := fmt.Errorf("%d leaves no room for an event of max_event_size, %d, and its envelope", c.MaxPayload, c.MaxEventSize)
	hint := fmt.Sprintf("set max_payload to %d or more, or leave it out", c.MaxEventSize+envelope)
	return &Error{File: c.ConfigFile, Key: "max_payload", Err: salt.WithHint(err, hint)}
}
