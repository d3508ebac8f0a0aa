package config

import (
	"time"
)

// Master is the configuration of a master. NewMaster returns the defaults, LoadMaster reads
// files; then every path is absolute.
type Master struct {
	Common

	// A minion may delete its own key at the master, with saltutil.revoke_auth.
	AllowMinionKeyRevoke bool `yaml:"allow_minion_key_revoke" default:"true"`
	// Store the arguments of functions in the audit log, not only a digest. There may be secrets
	// among them.
	AuditArgs bool `yaml:"audit_args"`
	// A file to which each entry of the audit log is also written, as a line of JSON.
	AuditFile string `yaml:"audit_file" is:"below root"`
	// The maximum size of the audit log. Beyond it the oldest entries are removed, and
	// an entry says so.
	AuditMaxBytes int64 `yaml:"audit_max_bytes" is:"1MiB..1024TiB" default:"1GiB"`
	// How long the audit log keeps entries; 0 keeps them forever.
	AuditRetention time.Duration `yaml:"audit_retention" is:"s 0.." default:"365d"`
	// The directory with the credentials (see 'salt-event creds') with which salt-api connects to
	// a master on another machine. Empty means the master of this machine, through its socket.
	APICreds string `yaml:"api_creds" is:"below root"`
	// The log of salt-api.
	APILogFile string `yaml:"api_logfile" is:"path below root" default:"/var/log/salt/api"`
	// The file with the process id of salt-api.
	APIPidfile string `yaml:"api_pidfile" is:"path below root" default:"/var/run/salt-api.pid"`
	// Users whose programs may log in other users and say from which address these come: the user
	// as which salt-api runs, client:NAME for credentials that it uses from another machine, or a
	// list of these. Empty means only root.
	APIUser []string `yaml:"api_user" is:"texts" default:"salt-api"`
	// The attribute of a group that has the names of its members; in Active Directory the attribute
	// of a user that has the user's name.
	LDAPAccountAttribute string `yaml:"auth.ldap.accountattributename" default:"memberUid"`
	// The server is Active Directory: the groups of a user are those that have the user's DN as a
	// member.
	LDAPActiveDirectory bool `yaml:"auth.ldap.activedirectory"`
	// Look up users without a name and password.
	LDAPAnonymous bool `yaml:"auth.ldap.anonymous"`
	// The DN below which users and groups are looked up.
	LDAPBaseDN string `yaml:"auth.ldap.basedn"`
	// The DN with which users are looked up. If it contains {{ username }}, users log in with this
	// DN themselves, and are not looked up.
	LDAPBindDN string `yaml:"auth.ldap.binddn"`
	// The password of auth.ldap.binddn.
	LDAPBindPassword string `yaml:"auth.ldap.bindpw"`
	// A file with the certificates of the authorities that may have signed the server's
	// certificate; empty means those of the system.
	LDAPCAFile string `yaml:"auth.ldap.ca_file" is:"path"`
	// The filter that finds a user.
	LDAPFilter string `yaml:"auth.ldap.filter" default:"(uid={{ username }})"`
	// The server is FreeIPA.
	LDAPFreeIPA bool `yaml:"auth.ldap.freeipa"`
	// Where groups are looked up in FreeIPA; empty means basedn.
	LDAPGroupBaseDN string `yaml:"auth.ldap.group_basedn"`
	// The filter that finds the groups of a user in FreeIPA.
	LDAPGroupFilter string `yaml:"auth.ldap.group_filter" default:"(&(member={{ userdn }})(objectClass=ipausergroup))"`
	// The attribute of a user that names groups by their DN.
	LDAPGroupAttribute string `yaml:"auth.ldap.groupattribute" default:"memberOf"`
	// The class of groups.
	LDAPGroupClass string `yaml:"auth.ldap.groupclass" default:"posixGroup"`
	// The organisational unit below basedn with the groups; empty means all
	// below basedn.
	LDAPGroupOU string `yaml:"auth.ldap.groupou" default:"Groups"`
	// Refused: the certificate of the server is always verified.
	LDAPNoVerify bool `yaml:"auth.ldap.no_verify"`
	// The port of the directory server; 0 means 389, or 636 with tls.
	LDAPPort int `yaml:"auth.ldap.port" is:"0..65535"`
	// Where users are looked up: 0 is basedn itself, 1 the level below it, 2 everything below it.
	LDAPScope int `yaml:"auth.ldap.scope" is:"0..2" default:"2"`
	// The directory server.
	LDAPServer string `yaml:"auth.ldap.server" default:"localhost"`
	// The connection is upgraded to TLS by StartTLS.
	LDAPStartTLS bool `yaml:"auth.ldap.starttls"`
	// The connection uses TLS from the start.
	LDAPTLS bool `yaml:"auth.ldap.tls"`
	// The directory server as ldap://HOST, ldaps://HOST or ldapi://PATH. It takes precedence
	// over server, port and tls.
	LDAPURI string `yaml:"auth.ldap.uri"`
	// The PAM service whose file in /etc/pam.d decides about users of the
	// backend pam.
	PAMService string `yaml:"auth.pam.service" is:"file" default:"login"`
	// Accept every new key that was not rejected before.
	AutoAccept bool `yaml:"auto_accept"`
	// A file with ids and patterns of minions whose new keys are rejected.
	AutorejectFile string `yaml:"autoreject_file" is:"below root"`
	// A file with ids and patterns of minions whose new keys are accepted.
	AutosignFile string `yaml:"autosign_file" is:"below root"`
	// A directory with a file for each grain, which has the grain's name: a new key is accepted if
	// the minion's grain has one of the values in that file, one on each line.
	AutosignGrainsDir string `yaml:"autosign_grains_dir" is:"below root"`
	// The command-line tools print a summary below the returns.
	CLISummary bool `yaml:"cli_summary"`
	// The users of publisher_acl must exist on this machine.
	ClientACLVerify bool `yaml:"client_acl_verify" default:"true"`
	// The entry of cluster_peers that is this master. It is needed only if none of them is an
	// address of this machine, as in a container: without it a start waits until one is.
	ClusterAdvertise string `yaml:"cluster_advertise"`
	// On how many members of the cluster each event, job, key and table is stored: 3, or 5 in a
	// cluster of at least five members.
	ClusterCopies int `yaml:"cluster_copies" is:"0..5" default:"3"`
	// The name of the cluster of masters that this master is a member of; empty for a single
	// master. It has at most 64 letters, digits, - and _.
	ClusterID string `yaml:"cluster_id"`
	// All members of the cluster, three to nine, this one included, each as the host:port at which
	// the others reach it. An address without a port has cluster_port. It is the same on all members.
	ClusterPeers []string `yaml:"cluster_peers" is:"texts"`
	// The port on which the other members of the cluster reach this one.
	ClusterPort int `yaml:"cluster_port" is:"1..65535" default:"4520"`
	// What a member does when it cannot reach most of the others, and so can store nothing and does
	// not know which keys they refuse: with refuse it disconnects its minions after 15 seconds and
	// refuses jobs, with run it goes on with the keys that it knew last, and runs jobs that are
	// stored later. Batches and queued jobs are refused in both cases. If most of the others are
	// reached, run changes nothing: where most copies of a table are lost nevertheless, as two of
	// three in a cluster of five members, all members disconnect their minions. Set cluster_copies to
	// 5 there.
	ClusterWithoutQuorum string `yaml:"cluster_without_quorum" is:"one of refuse run" default:"refuse"`
	// The maximum size of the journal. Beyond it the oldest events are removed, first those of
	// senders that have stored more than their share.
	EventMaxBytes int64 `yaml:"event_max_bytes" is:"1MiB..1024TiB" default:"1GiB"`
	// How long the journal keeps events.
	EventRetention time.Duration `yaml:"event_retention" is:"s 1m.." default:"1d"`
	// Which users of which authentication backend may do what.
	ExternalAuth Located `yaml:"external_auth"`
	// Minions may upload files to the master. In a cluster all members get them: set it on all.
	FileRecv bool `yaml:"file_recv"`
	// The maximum size of a file that a minion uploads, in megabytes.
	FileRecvMaxSize int `yaml:"file_recv_max_size" is:"1..10000000" default:"100"`
	// The name of the master in events; empty means the host's name followed by _master.
	ID string `yaml:"id"`
	// The address that the master listens on.
	Interface string `yaml:"interface" default:"0.0.0.0"`
	// When stored messages are synced to the disk: always, before they are acknowledged, or
	// default, within about a second. With default, a power failure can lose what was stored in
	// the last second; a crash of the daemon loses nothing either way.
	JournalSync string `yaml:"journal_sync" is:"one of default always" default:"default"`
	// The other one of two masters, as host:port, with the port that is its journal_mirror_port.
	// Its journal is mirrored here; its own journal_mirror decides whether this master's is
	// mirrored there. It needs master_sign_pubkey, with the same signing key pair on both.
	JournalMirror string `yaml:"journal_mirror"`
	// Keys that the other master has accepted, and tokens that it has issued, are valid here, too.
	// What it rejects, deletes or revokes is invalid here in any case.
	JournalMirrorAccept bool `yaml:"journal_mirror_accept"`
	// The port on which the other master reaches this one, if journal_mirror is set.
	JournalMirrorPort int `yaml:"journal_mirror_port" is:"1..65535" default:"4507"`
	// A token keeps the access rules that were in force when it was issued.
	KeepACLInToken bool `yaml:"keep_acl_in_token"`
	// How long jobs are kept; 0 keeps them forever.
	KeepJobs time.Duration `yaml:"keep_jobs_seconds" is:"s 0.." default:"1d"`
	// The file in pki_dir with a signature of the master's public key that was made in advance;
	// null means master_pubkey_signature.
	MasterPubkeySignature string `yaml:"master_pubkey_signature" is:"file" default:"master_pubkey_signature"`
	// Minions get a signature of the master's public key, by the key that
	// master_sign_key_name names.
	MasterSignPubkey bool `yaml:"master_sign_pubkey"`
	// With master_sign_pubkey, read the signature from the file master_pubkey_signature instead of
	// making it, so that the signing key need not be on this machine.
	MasterUsePubkeySignature bool `yaml:"master_use_pubkey_signature"`
	// How many minions may be connected to this master; 0 means any number. Further ones are
	// refused until others have disconnected, and try their other masters meanwhile.
	MaxMinions int `yaml:"max_minions" is:"0..10000000"`
	// How often a silent connection of a minion is probed. A minion counts as disconnected
	// after three to four probes without an answer.
	MinionAliveInterval time.Duration `yaml:"minion_alive_interval" is:"s 1s..1d" default:"5s"`
	// Which minions may read which entries of the mine. If it is not set, every minion may read
	// every entry.
	MineGet Located `yaml:"mine_get"`
	// The file with the secret from which this master's keys for nats_servers are derived. It must
	// exist. Masters that take over from each other must have the same file. Empty means
	// master_nats.seed in pki_dir, which is created if it does not exist.
	NATSCreds string `yaml:"nats_creds" is:"below root"`
	// On how many of nats_servers each event, job, key and table is stored, with nats_jetstream;
	// an odd number. 1 is for a single server.
	NATSCopies int `yaml:"nats_copies" is:"1..5" default:"3"`
	// The journal, tables, tokens and decisions about keys are stored in the JetStream of
	// nats_servers instead of in cachedir, so that another master with an empty cachedir can
	// continue with them. Each of the servers needs JetStream.
	NATSJetStream bool `yaml:"nats_jetstream"`
	// The clients of salt-api that are enabled: local, local_async, local_batch, local_subset,
	// runner, runner_async, wheel, wheel_async.
	NetapiClients []string `yaml:"netapi_enable_clients"`
	// Names for targets.
	Nodegroups Located `yaml:"nodegroups"`
	// Which minions may publish which functions to which minions.
	Peer Located `yaml:"peer"`
	// Which minions may run which runners, and below @wheel which wheel functions.
	PeerRun Located `yaml:"peer_run"`
	// The rules of * also apply to users with rules of their own.
	PermissiveACL bool `yaml:"permissive_acl"`
	// Fire events about minions that connect and disconnect.
	PresenceEvents bool `yaml:"presence_events"`
	// Which local users may run which functions on which minions.
	PublisherACL Located `yaml:"publisher_acl"`
	// Users and functions that are refused whatever the other rules say.
	PublisherACLBlacklist Located `yaml:"publisher_acl_blacklist"`
	// Which events trigger which actions.
	Reactor Located `yaml:"reactor"`
	// Users of external_auth may log in from other machines, over the master's port.
	RemoteLogin bool `yaml:"remote_login"`
	// How salt-api serves HTTP: its port, its certificate and its limits.
	RestCherrypy Located `yaml:"rest_cherrypy"`
	// The port of the master, for minions and for clients on other machines.
	RetPort int `yaml:"ret_port" is:"1..65535" default:"4506"`
	// Directories with your own runners, in addition to _runners in file_roots. Relative ones are
	// below root_dir.
	RunnerDirs []string `yaml:"runner_dirs" is:"below root"`
	// The secret of the backend sharedsecret.
	SharedSecret string `yaml:"sharedsecret"`
	// The tools show the id of each job.
	ShowJID bool `yaml:"show_jid"`
	// Users who run a tool through sudo are also bound by their own rules, not only by those of
	// root.
	SudoACL bool `yaml:"sudo_acl"`
	// How long a tool waits for the first answer of minions.
	Timeout time.Duration `yaml:"timeout" is:"s 100ms..1d" default:"5s"`
	// How long a token of an external user is valid.
	TokenExpire time.Duration `yaml:"token_expire" is:"s 1s.." default:"12h"`
	// Who may choose how long their tokens are valid: true for all users, or a map from a backend
	// to users.
	TokenExpireUserOverride Located `yaml:"token_expire_user_override"`
	// Where the tools keep the token of their user; ~ is the home directory.
	TokenFile string `yaml:"token_file" default:"~/.salt_token"`

	// How long jobs are kept, in hours; keep_jobs_seconds takes precedence.
	KeepJobHours time.Duration `yaml:"keep_jobs" is:"h 0.." default:"1d"`
}

// NewMaster returns the defaults. Paths are Salt's, as with root_dir /.
func NewMaster() *Master {
	m := new(Master)
	m.Common.bind("master", m)
	m.LoopInterval = time.Minute
	return m
}
