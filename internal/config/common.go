package config

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Common holds the settings that the master and the minion share. The text of
// doc/configuration.md is made from the comments of its fields.
type Common struct {
	// ConfigDir is the directory that the configuration was read from.
	ConfigDir string `yaml:"-"`
	// ConfigFile is the main file in ConfigDir; it may not exist.
	ConfigFile string `yaml:"-"`
	// Files are the files that were read, in that order.
	Files []string `yaml:"-"`
	// Raw is everything that the files and the command line set, merged, as plain data by the
	// present names of the keys: what config.get shows. It includes unknown keys and no
	// defaults.
	Raw map[string]any `yaml:"-"`
	// Strange are settings that may be meant as they are, and probably are not. A check of the
	// configuration tells them, a start does not.
	Strange []Place `yaml:"-"`

	// The command-line tools use colours on a terminal.
	Color bool `yaml:"color" default:"true"`
	// The directory of state: journal, grains, outbox.
	CacheDir string `yaml:"cachedir" is:"path below root" default:"/var/cache/salt/{daemon}"`
	// Further configuration files (drop-ins), which are read after the main file: a pattern
	// relative to its directory. Empty means none.
	DefaultInclude string `yaml:"default_include" default:"{daemon}.d/*.conf"`
	// Which users may fire and hear events of which tags on the bus of this machine; on a master
	// also users of external_auth, as BACKEND:NAME, and programs with credentials, as client:NAME.
	// If it is not set, only root and the daemon's own user may.
	EventACL Located `yaml:"event_acl"`
	// The environments and directories of the file server. Relative
	// directories are below root_dir.
	FileRoots map[string][]string `yaml:"file_roots" default:"/srv/salt"`
	// The algorithm of fingerprints: md5, sha1, sha224, sha256, sha384, sha512.
	HashType string `yaml:"hash_type" is:"one of md5 sha1 sha224 sha256 sha384 sha512" default:"sha256"`
	// Use IPv6 as well as IPv4; null lets the system decide.
	IPv6 *bool `yaml:"ipv6"`
	// The type of the key pair that is generated on the first start: ed25519 or rsa. An existing
	// key is used, whatever its type.
	KeyType string `yaml:"key_type" is:"one of ed25519 rsa" default:"ed25519"`
	// The size, in bits, of an RSA key that is generated on the first start.
	KeySize int `yaml:"keysize" is:"2048..16384" default:"2048"`
	// Where the daemon logs to: a file, or a URL such as file:///dev/log or udp://host:514.
	LogFile string `yaml:"log_file" is:"path below root" default:"/var/log/salt/{daemon}"`
	// The format of the logs of daemons and tools, on the console and in files: text, or json,
	// with one object per line.
	LogFormat string `yaml:"log_format" is:"one of text json" default:"text"`
	// The log level on the console: all, garbage, trace, debug, profile, info, warning, error,
	// critical or quiet.
	LogLevel string `yaml:"log_level" is:"one of all garbage trace debug profile info warning error critical quiet" default:"warning"`
	// The log level in log_file; null means the value of log_level.
	LogLevelLogfile string `yaml:"log_level_logfile" is:"one of all garbage trace debug profile info warning error critical quiet"`
	// With presence_events, how often the master fires these events. It has no effect on a minion.
	LoopInterval time.Duration `yaml:"loop_interval" is:"s 10ms..1d"`
	// The name, without suffix, of the key pair in pki_dir that signs the
	// master's public key.
	MasterSignKeyName string `yaml:"master_sign_key_name" is:"file" default:"master_sign"`
	// The maximum size of an event. A larger one is refused, and its sender gets an
	// error.
	MaxEventSize int64 `yaml:"max_event_size" is:"1KiB..65472KiB" default:"1MiB"`
	// Where the daemon serves HTTP: metrics for Prometheus at /metrics, and its health at /healthz
	// and /readyz. HOST:PORT of this machine, or unix:PATH; empty means nowhere.
	MetricsListen string `yaml:"metrics_listen"`
	// Allow metrics_listen to be an address that other machines can reach. Anyone who can reach it
	// can read the metrics without a login.
	MetricsPublic bool `yaml:"metrics_public"`
	// Additional directories with modules.
	ModuleDirs []string `yaml:"module_dirs" is:"below root"`
	// A file with the certificates of the authorities that have signed those of nats_servers. The
	// names in the certificates of the servers are checked, too.
	NATSCA string `yaml:"nats_ca" is:"below root"`
	// The SHA-256 fingerprints of the certificates of nats_servers. One of nats_finger and
	// nats_ca is needed; with both, a certificate must satisfy both.
	NATSFinger []string `yaml:"nats_finger" is:"texts"`
	// NATS servers that others run, each as host:port. Minions and masters reach each other through
	// them, and the master does not open its own port for minions. Empty means that minions connect
	// to the master's own port.
	NATSServers []string `yaml:"nats_servers" is:"texts"`
	// Accept every key. On a minion: accept every key of a master, even if another one is pinned;
	// the pinned one is not replaced. Only for test systems.
	OpenMode bool `yaml:"open_mode"`
	// How the command-line tools show results; empty means the outputter that
	// the function asks for.
	Output string `yaml:"output"`
	// The indentation of json, yaml and pprint in the command-line tools, unless --out-indent is
	// given: 0 to 9 spaces, -1 for everything on one line, or pretty for 4 spaces and the keys of
	// json sorted. Empty leaves it to the outputter.
	OutputIndent string `yaml:"output_indent" is:"one of pretty -1 0 1 2 3 4 5 6 7 8 9"`
	// The file with the process id of the daemon.
	PIDFile string `yaml:"pidfile" is:"path below root" default:"/var/run/salt-{daemon}.pid"`
	// The environments and directories of pillar data. Relative directories
	// are below root_dir.
	PillarRoots map[string][]string `yaml:"pillar_roots" default:"/srv/pillar"`
	// The directory of keys.
	PKIDir string `yaml:"pki_dir" is:"path below root" default:"/etc/salt/pki/{daemon}"`
	// The directory that is put before every path that is not below it already, so that a whole
	// system can live in a scratch directory. A relative one is relative to the configuration
	// directory.
	RootDir string `yaml:"root_dir" is:"path" default:"/"`
	// Jobs that the daemon runs by itself at set times.
	Schedule Located `yaml:"schedule"`
	// A signature algorithm that is accepted from RSA keys in addition to Brine's own:
	// PKCS1v15-SHA1, PKCS1v15-SHA224 or PKCS1v15-SHA256. Set the first two only as long as old
	// signatures must be read.
	SigningAlgorithm string `yaml:"signing_algorithm" is:"one of PKCS1v15-SHA1 PKCS1v15-SHA224 PKCS1v15-SHA256"`
	// The directory of the Unix sockets of the command-line tools.
	SockDir string `yaml:"sock_dir" is:"path below root" default:"/var/run/salt/{daemon}"`
	// The user as which the daemon runs; empty means the user who starts it.
	User string `yaml:"user"`

	settings []setting         // bound to the fields, for Lookup
	daemon   string            // master or minion
	places   map[string]*Error // of the settings that the files have, by key; without Err
}

// bind binds the keys to the fields of c and of own, the struct of the daemon (master or
// minion), and fills in the defaults. Paths in these are relative to root_dir.
func (c *Common) bind(daemon string, own any) {
	c.daemon, c.ConfigDir = daemon, DefaultDir
	c.settings = slices.Concat(bind(c, daemon), bind(own, daemon))
}

// Lookup returns the value in force of a key, as data: the configured one or the default. It is
// false for an unknown key.
func (c *Common) Lookup(key string) (any, bool) {
	if v, ok := c.Raw[key]; ok && v != nil {
		return v, true
	}
	for _, s := range c.settings {
		if s.key == key {
			return s.kind().get(), true
		}
	}
	v, ok := c.Raw[key]
	return v, ok
}

// At puts the place of a setting in front of err, which names the setting itself. A setting that no
// file has is in no place: err is returned as it is.
func (c *Common) At(key string, err error) error {
	place, ok := c.places[key]
	if !ok || err == nil {
		return err
	}
	return &Error{File: place.File, Line: place.Line, Column: place.Column, Err: err}
}

// strange adds to Strange.
func (c *Common) strange(key, text string) {
	p := PlaceOf(c.At(key, errors.New(text)))
	p.Key = key
	c.Strange = append(c.Strange, p)
}

// Keys returns the keys of all settings: first those of both daemons, then those of this one,
// each sorted by name.
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
	for _, s := range c.settings {
		if !s.below {
			continue
		}
		switch to := s.to.(type) {
		case *string:
			c.under(to)
		case *[]string:
			c.relativeUnder(*to)
		}
	}
	if path, isPath := strings.CutPrefix(c.MetricsListen, "unix:"); isPath && path != "" {
		c.under(&path)
		c.MetricsListen = "unix:" + path
	}
	c.FileRoots = c.rootsUnder("file_roots", c.FileRoots)
	c.PillarRoots = c.rootsUnder("pillar_roots", c.PillarRoots)
}

// relativeUnder puts root_dir before those of the directories that are relative.
func (c *Common) relativeUnder(dirs []string) {
	for i, dir := range dirs {
		if !filepath.IsAbs(dir) {
			c.under(&dirs[i])
		}
	}
}

// under puts root_dir before paths that are not below it. Empty paths and URLs of log files are
// left alone.
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

// rootsUnder moves the defaults and relative directories below root_dir. Absolute ones from the
// configuration are left alone: several systems often share file roots.
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
