package config

import (
	"slices"
	"time"
)

// Master is the configuration of a master. NewMaster makes one with the
// defaults, LoadMaster one from files; after the latter every path is absolute.
type Master struct {
	Common

	// Minions may let the master forget their key: saltutil.revoke_auth.
	AllowMinionKeyRevoke bool `yaml:"allow_minion_key_revoke"`
	// The audit trail holds the arguments of functions, not only a digest of
	// them. There may be secrets among them.
	AuditArgs bool `yaml:"audit_args"`
	// A file that gets every entry of the audit trail too, one line of JSON each.
	AuditFile string `yaml:"audit_file"`
	// The most that the audit trail may hold; the oldest entries go first, and
	// that is noted in it.
	AuditMaxBytes int64 `yaml:"audit_max_bytes"`
	// How long the audit trail keeps entries; 0 keeps them for ever.
	AuditRetention time.Duration `yaml:"audit_retention"`
	// The log of salt-api.
	APILogFile string `yaml:"api_logfile"`
	// The file with the process number of salt-api.
	APIPidfile string `yaml:"api_pidfile"`
	// The user whose programs log others in by the addresses that they come from:
	// the one that salt-api runs as. Empty means nobody but root.
	APIUser string `yaml:"api_user"`
	// The attribute of a user's groups that names him, and of the user himself
	// in Active Directory.
	LDAPAccountAttribute string `yaml:"auth.ldap.accountattributename"`
	// The directory is one of Active Directory: groups are those with the
	// user's DN as a member.
	LDAPActiveDirectory bool `yaml:"auth.ldap.activedirectory"`
	// Users are looked up without a name and password.
	LDAPAnonymous bool `yaml:"auth.ldap.anonymous"`
	// Where users and groups are looked up.
	LDAPBaseDN string `yaml:"auth.ldap.basedn"`
	// As whom users are looked up; with {{ username }} in it, as whom a user
	// binds without being looked up first.
	LDAPBindDN string `yaml:"auth.ldap.binddn"`
	// The password to look users up with.
	LDAPBindPassword string `yaml:"auth.ldap.bindpw"`
	// A file with the certificates that the server's must be signed by; empty
	// means those of the system.
	LDAPCAFile string `yaml:"auth.ldap.ca_file"`
	// The filter by which a user is found.
	LDAPFilter string `yaml:"auth.ldap.filter"`
	// The directory is one of FreeIPA.
	LDAPFreeIPA bool `yaml:"auth.ldap.freeipa"`
	// Where groups are looked up in FreeIPA; empty means basedn.
	LDAPGroupBaseDN string `yaml:"auth.ldap.group_basedn"`
	// The filter by which the groups of a user are found in FreeIPA.
	LDAPGroupFilter string `yaml:"auth.ldap.group_filter"`
	// The attribute of a user that names groups by their DN.
	LDAPGroupAttribute string `yaml:"auth.ldap.groupattribute"`
	// The class of groups.
	LDAPGroupClass string `yaml:"auth.ldap.groupclass"`
	// The organisational unit below basedn with the groups; empty means all
	// below basedn.
	LDAPGroupOU string `yaml:"auth.ldap.groupou"`
	// Is refused: the certificate of the server is always verified.
	LDAPNoVerify bool `yaml:"auth.ldap.no_verify"`
	// The class of users in Active Directory.
	LDAPPersonType string `yaml:"auth.ldap.persontype"`
	// The port of the directory server; 0 means 389, with tls 636.
	LDAPPort int `yaml:"auth.ldap.port"`
	// How deep users are looked up: 0 is basedn itself, 1 what is directly
	// below it, 2 all below it.
	LDAPScope int `yaml:"auth.ldap.scope"`
	// The directory server.
	LDAPServer string `yaml:"auth.ldap.server"`
	// The connection becomes TLS by StartTLS.
	LDAPStartTLS bool `yaml:"auth.ldap.starttls"`
	// The connection is TLS from its beginning.
	LDAPTLS bool `yaml:"auth.ldap.tls"`
	// The directory server as ldap://HOST, ldaps://HOST or ldapi://PATH; goes
	// before server, port and tls.
	LDAPURI string `yaml:"auth.ldap.uri"`
	// The PAM service whose file in /etc/pam.d decides about users of the
	// backend pam.
	PAMService string `yaml:"auth.pam.service"`
	// Accept every new key that was not rejected before.
	AutoAccept bool `yaml:"auto_accept"`
	// A file with ids and patterns of minions whose keys are rejected when they
	// come.
	AutorejectFile string `yaml:"autoreject_file"`
	// A file with ids and patterns of minions whose keys are accepted when they
	// come.
	AutosignFile string `yaml:"autosign_file"`
	// A directory with one file for a grain, whose lines are the values that
	// let a new key in.
	AutosignGrainsDir string `yaml:"autosign_grains_dir"`
	// How long a file in pki_dir/minions_autosign lets a key in.
	AutosignTimeout time.Duration `yaml:"autosign_timeout"`
	// A batch that would run on more minions than this at once is cut down to
	// batch_safe_size.
	BatchSafeLimit int `yaml:"batch_safe_limit"`
	// The size of a batch that was cut down.
	BatchSafeSize int `yaml:"batch_safe_size"`
	// The command-line tools print a summary below the returns.
	CLISummary bool `yaml:"cli_summary"`
	// The users of publisher_acl must exist on this machine.
	ClientACLVerify bool `yaml:"client_acl_verify"`
	// The module that gives users their rules; empty means the one that
	// authenticated them.
	EauthACLModule string `yaml:"eauth_acl_module"`
	// The most that the journal may hold: beyond it goes first what a sender has stored
	// beyond its share, the oldest of it.
	EventMaxBytes int64 `yaml:"event_max_bytes"`
	// How long the journal keeps events.
	EventRetention time.Duration `yaml:"event_retention"`
	// Which users of which authentication backend may do what.
	ExternalAuth Located `yaml:"external_auth"`
	// Minions may push files to the master.
	FileRecv bool `yaml:"file_recv"`
	// The largest file that a minion may push, in megabytes.
	FileRecvMaxSize int `yaml:"file_recv_max_size"`
	// How long a tool waits for a word from minions about jobs that they have
	// not returned.
	GatherJobTimeout time.Duration `yaml:"gather_job_timeout"`
	// The name of the master in events; empty means the host's name with
	// _master behind it.
	ID string `yaml:"id"`
	// The address that the master listens on.
	Interface string `yaml:"interface"`
	// When what is stored is on the disk: always, before anybody is told that it is
	// stored, or default, within about a second: what was stored in the last second may
	// then go with the power. The death of the daemon loses nothing either way.
	JournalSync string `yaml:"journal_sync"`
	// A token holds the rules of the moment in which it was made.
	KeepACLInToken bool `yaml:"keep_acl_in_token"`
	// How long jobs are kept; 0 keeps them for ever.
	KeepJobs time.Duration `yaml:"keep_jobs_seconds"`
	// The log of key operations.
	KeyLogfile string `yaml:"key_logfile"`
	// The file in pki_dir with the signature of the master's public key that
	// was made in advance; null means master_pubkey_signature.
	MasterPubkeySignature string `yaml:"master_pubkey_signature"`
	// Minions get a signature of the master's public key, by the key that
	// master_sign_key_name names.
	MasterSignPubkey bool `yaml:"master_sign_pubkey"`
	// That signature is read from master_pubkey_signature, so that the signing
	// key need not be on this machine.
	MasterUsePubkeySignature bool `yaml:"master_use_pubkey_signature"`
	// The most minions that may be connected; 0 sets no limit.
	MaxMinions int `yaml:"max_minions"`
	// How often a silent connection of a minion is tried out: the minion is named
	// as disconnected after three to four of these without an answer.
	MinionAliveInterval time.Duration `yaml:"minion_alive_interval"`
	// Which minions may read which entries of the mine; every minion every entry
	// when it is not set.
	MineGet Located `yaml:"mine_get"`
	// The most files that the daemon may have open.
	MaxOpenFiles int `yaml:"max_open_files"`
	// What salt-api may be asked for: local, local_async, local_batch, local_subset,
	// runner, runner_async, wheel, wheel_async.
	NetapiClients []string `yaml:"netapi_enable_clients"`
	// Targets with names.
	Nodegroups Located `yaml:"nodegroups"`
	// Which minions may publish which functions to which minions.
	Peer Located `yaml:"peer"`
	// Which minions may run which runners.
	PeerRun Located `yaml:"peer_run"`
	// The rules of * hold beside those of a user's own, not only for users
	// without.
	PermissiveACL bool `yaml:"permissive_acl"`
	// Changes of presence are told as events.
	PresenceEvents bool `yaml:"presence_events"`
	// Which local users may run which functions on which minions.
	PublisherACL Located `yaml:"publisher_acl"`
	// Users and functions that are refused whatever the other rules say.
	PublisherACLBlacklist Located `yaml:"publisher_acl_blacklist"`
	// What is done about which events.
	Reactor Located `yaml:"reactor"`
	// How salt-api serves HTTP.
	RestCherrypy Located `yaml:"rest_cherrypy"`
	// The one port of the master.
	RetPort int `yaml:"ret_port"`
	// Directories with runners of your own, beside _runners in file_roots.
	// Relative ones are below root_dir.
	RunnerDirs []string `yaml:"runner_dirs"`
	// The secret of the backend sharedsecret.
	SharedSecret string `yaml:"sharedsecret"`
	// The tools show the id of each job.
	ShowJID bool `yaml:"show_jid"`
	// The tools name minions that did not answer.
	ShowTimeout bool `yaml:"show_timeout"`
	// Users of sudo are held to their own rules too, not to those of root.
	SudoACL bool `yaml:"sudo_acl"`
	// How long a tool waits for the first word from minions.
	Timeout time.Duration `yaml:"timeout"`
	// How long a token of an external user is valid.
	TokenExpire time.Duration `yaml:"token_expire"`
	// Users may ask for another validity: true for all, or a map from a
	// backend to users.
	TokenExpireUserOverride Located `yaml:"token_expire_user_override"`
	// Where the tools keep the token of their user; ~ is the home directory.
	TokenFile string `yaml:"token_file"`

	// How long jobs are kept, in hours; keep_jobs_seconds goes before it.
	keepJobHours time.Duration `yaml:"keep_jobs"`
}

// NewMaster returns the defaults. Paths are Salt's, as with root_dir /.
func NewMaster() *Master {
	m := &Master{
		Common:                newCommon("master"),
		AllowMinionKeyRevoke:  true,
		APILogFile:            "/var/log/salt/api",
		APIPidfile:            "/var/run/salt-api.pid",
		APIUser:               "salt-api",
		AuditMaxBytes:         1 << 30,
		AuditRetention:        365 * day,
		LDAPAccountAttribute:  "memberUid",
		LDAPFilter:            "(uid={{ username }})",
		LDAPGroupAttribute:    "memberOf",
		LDAPGroupClass:        "posixGroup",
		LDAPGroupFilter:       "(&(member={{ userdn }})(objectClass=ipausergroup))",
		LDAPGroupOU:           "Groups",
		LDAPPersonType:        "person",
		LDAPScope:             2,
		LDAPServer:            "localhost",
		PAMService:            "login",
		AutosignTimeout:       2 * time.Hour,
		BatchSafeLimit:        100,
		BatchSafeSize:         8,
		ClientACLVerify:       true,
		EventMaxBytes:         1 << 30,
		EventRetention:        day,
		FileRecvMaxSize:       100,
		GatherJobTimeout:      10 * time.Second,
		Interface:             "0.0.0.0",
		JournalSync:           "default",
		KeepJobs:              day,
		KeyLogfile:            "/var/log/salt/key",
		MasterPubkeySignature: "master_pubkey_signature",
		MaxOpenFiles:          100_000,
		MinionAliveInterval:   5 * time.Second,
		RetPort:               4506,
		ShowTimeout:           true,
		Timeout:               5 * time.Second,
		TokenExpire:           12 * time.Hour,
		TokenFile:             "~/.salt_token",
		keepJobHours:          day,
	}
	m.LoopInterval = time.Minute
	m.Common.settings = m.settings()
	return m
}

// settings binds the keys to the fields of m.
func (m *Master) settings() []setting {
	return slices.Concat(commonSettings(&m.Common), []setting{
		{"allow_minion_key_revoke", boolean(&m.AllowMinionKeyRevoke)},
		{"api_logfile", path(&m.APILogFile)},
		{"api_pidfile", path(&m.APIPidfile)},
		{"api_user", text(&m.APIUser)},
		{"audit_args", boolean(&m.AuditArgs)},
		{"audit_file", text(&m.AuditFile)},
		{"audit_max_bytes", size(&m.AuditMaxBytes, 1<<20, 1<<50)},
		{"audit_retention", duration(&m.AuditRetention, time.Second, 0, maxDuration)},
		{"auth.ldap.accountattributename", text(&m.LDAPAccountAttribute)},
		{"auth.ldap.activedirectory", boolean(&m.LDAPActiveDirectory)},
		{"auth.ldap.anonymous", boolean(&m.LDAPAnonymous)},
		{"auth.ldap.basedn", text(&m.LDAPBaseDN)},
		{"auth.ldap.binddn", text(&m.LDAPBindDN)},
		{"auth.ldap.bindpw", text(&m.LDAPBindPassword)},
		{"auth.ldap.ca_file", path(&m.LDAPCAFile)},
		{"auth.ldap.filter", text(&m.LDAPFilter)},
		{"auth.ldap.freeipa", boolean(&m.LDAPFreeIPA)},
		{"auth.ldap.group_basedn", text(&m.LDAPGroupBaseDN)},
		{"auth.ldap.group_filter", text(&m.LDAPGroupFilter)},
		{"auth.ldap.groupattribute", text(&m.LDAPGroupAttribute)},
		{"auth.ldap.groupclass", text(&m.LDAPGroupClass)},
		{"auth.ldap.groupou", text(&m.LDAPGroupOU)},
		{"auth.ldap.no_verify", boolean(&m.LDAPNoVerify)},
		{"auth.ldap.persontype", text(&m.LDAPPersonType)},
		{"auth.ldap.port", integer(&m.LDAPPort, 0, 65535)},
		{"auth.ldap.scope", integer(&m.LDAPScope, 0, 2)},
		{"auth.ldap.server", text(&m.LDAPServer)},
		{"auth.ldap.starttls", boolean(&m.LDAPStartTLS)},
		{"auth.ldap.tls", boolean(&m.LDAPTLS)},
		{"auth.ldap.uri", text(&m.LDAPURI)},
		{"auth.pam.service", fileName(&m.PAMService)},
		{"auto_accept", boolean(&m.AutoAccept)},
		{"autoreject_file", text(&m.AutorejectFile)},
		{"autosign_file", text(&m.AutosignFile)},
		{"autosign_grains_dir", text(&m.AutosignGrainsDir)},
		{"autosign_timeout", duration(&m.AutosignTimeout, time.Minute, 0, 365*day)},
		{"batch_safe_limit", integer(&m.BatchSafeLimit, 0, maxCount)},
		{"batch_safe_size", integer(&m.BatchSafeSize, 1, maxCount)},
		{"cli_summary", boolean(&m.CLISummary)},
		{"client_acl_verify", boolean(&m.ClientACLVerify)},
		{"eauth_acl_module", text(&m.EauthACLModule)},
		{"event_max_bytes", size(&m.EventMaxBytes, 1<<20, 1<<50)},
		{"event_retention", duration(&m.EventRetention, time.Second, time.Minute, maxDuration)},
		{"external_auth", elsewhere{&m.ExternalAuth}},
		{"file_recv", boolean(&m.FileRecv)},
		{"file_recv_max_size", integer(&m.FileRecvMaxSize, 1, maxCount)},
		{"gather_job_timeout", duration(&m.GatherJobTimeout, time.Second, 100*time.Millisecond, day)},
		{"id", text(&m.ID)},
		{"interface", text(&m.Interface)},
		{"journal_sync", oneOf(&m.JournalSync, "default", "always")},
		{"keep_acl_in_token", boolean(&m.KeepACLInToken)},
		{"keep_jobs", duration(&m.keepJobHours, time.Hour, 0, maxDuration)},
		{"keep_jobs_seconds", duration(&m.KeepJobs, time.Second, 0, maxDuration)},
		{"key_logfile", path(&m.KeyLogfile)},
		{"master_pubkey_signature", fileName(&m.MasterPubkeySignature)},
		{"master_sign_pubkey", boolean(&m.MasterSignPubkey)},
		{"master_use_pubkey_signature", boolean(&m.MasterUsePubkeySignature)},
		{"max_minions", integer(&m.MaxMinions, 0, maxCount)},
		{"max_open_files", integer(&m.MaxOpenFiles, 256, 1<<30)},
		{"mine_get", elsewhere{&m.MineGet}},
		{"minion_alive_interval", duration(&m.MinionAliveInterval, time.Second, time.Second, day)},
		{"netapi_enable_clients", list(&m.NetapiClients)},
		{"nodegroups", elsewhere{&m.Nodegroups}},
		{"peer", elsewhere{&m.Peer}},
		{"peer_run", elsewhere{&m.PeerRun}},
		{"permissive_acl", boolean(&m.PermissiveACL)},
		{"presence_events", boolean(&m.PresenceEvents)},
		{"publisher_acl", elsewhere{&m.PublisherACL}},
		{"publisher_acl_blacklist", elsewhere{&m.PublisherACLBlacklist}},
		{"reactor", elsewhere{&m.Reactor}},
		{"rest_cherrypy", elsewhere{&m.RestCherrypy}},
		{"ret_port", port(&m.RetPort)},
		{"runner_dirs", list(&m.RunnerDirs)},
		{"sharedsecret", text(&m.SharedSecret)},
		{"show_jid", boolean(&m.ShowJID)},
		{"show_timeout", boolean(&m.ShowTimeout)},
		{"sudo_acl", boolean(&m.SudoACL)},
		{"timeout", duration(&m.Timeout, time.Second, 100*time.Millisecond, day)},
		{"token_expire", duration(&m.TokenExpire, time.Second, time.Second, maxDuration)},
		{"token_expire_user_override", elsewhere{&m.TokenExpireUserOverride}},
		{"token_file", text(&m.TokenFile)},
	})
}

// maxCount bounds numbers of minions and the like: more is a slip.
const maxCount = 10_000_000

// root puts root_dir before the paths.
func (m *Master) root() {
	m.Common.root()
	m.under(&m.APILogFile, &m.APIPidfile, &m.AuditFile, &m.AutorejectFile, &m.AutosignFile, &m.AutosignGrainsDir, &m.KeyLogfile)
	m.relativeUnder(m.RunnerDirs)
}
