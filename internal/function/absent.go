package function

import (
	"fmt"
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// Absent is something of Salt that is not here on purpose: whoever asks for it is told so,
// and what to do in its place.
type Absent struct {
	Name    string // a function, or a module with .*
	What    string // what it is in Salt, with an article
	Instead string // the way to do it here
}

// absent are the well-known ones, sorted by name. One that was added by somebody under the
// same name is found before. doc/differences.md is printed from it.
var absent = []Absent{
	{"apt.*", "a module of one system", "pkg.* does it on every system"},
	{"bridge.*", "the management of network bridges", "cmd.run with ip, or a program of your own: see doc/modules.md"},
	{"cloud.*", "the interface to clouds", "the provider's own tool, and salt-key --gen-keys for the new machine"},
	{"consul.*", "the client of a service", "http.query, or cmd.run with the service's own tool"},
	{"docker.*", "the management of containers", "cmd.run with docker or podman, or a program of your own: see doc/modules.md"},
	{"dockermod.*", "the management of containers", "cmd.run with docker or podman, or a program of your own: see doc/modules.md"},
	{"firewalld.*", "the management of a firewall", "cmd.run with firewall-cmd"},
	{"iptables.*", "the management of a firewall", "cmd.run with iptables or nft"},
	{"jinja.*", "the functions that look into Salt's templates", "cp.get_template and file.managed render them: see doc/templates.md"},
	{"lxc.*", "the management of containers", "cmd.run with the tools of LXC"},
	{"mongodb.*", "the client of a database", "cmd.run with the database's own tool"},
	{"mysql.*", "the client of a database", "cmd.run with mysql"},
	{"nginx.*", "the control of a web server", "service.* and cmd.run with nginx"},
	{"pip.*", "the management of Python packages", "cmd.run with pip"},
	{"pkg.del_repo", "the removal of a repository", "file.remove of its file below /etc/apt/sources.list.d or /etc/yum.repos.d"},
	{"pkg.mod_repo", "the change of a repository", "file.managed of its file below /etc/apt/sources.list.d or /etc/yum.repos.d"},
	{"postgres.*", "the client of a database", "cmd.run with psql"},
	{"puppet.*", "the client of another system", "cmd.run with puppet"},
	{"redis.*", "the client of a database", "cmd.run with redis-cli"},
	{"salt_proxy.*", "proxy minions", "a minion on a machine that reaches the device, and cmd.run there"},
	{"saltclass.*", "a tree of classes", "pillar files by target: see doc/configuration.md"},
	{"saltutil.find_cached_job", "a cache of returns on the minion", "salt-run jobs.lookup_jid on the master, which keeps all of them"},
	{"saltutil.wheel", "wheel functions for minions", "salt-run --wheel on the master"},
	{"selinux.*", "the management of SELinux", "cmd.run with semanage and setsebool"},
	{"slsutil.*", "the renderers of states", "pillar.items shows what a minion gets"},
	{"state.*", "the states of Salt", "pkg.*, service.*, file.* and user.* one at a time, or a script: cmd.script"},
	{"supervisord.*", "the control of supervisord", "cmd.run with supervisorctl"},
	{"thin.*", "salt-ssh", "a minion on that machine"},
	{"tls.*", "the making of certificates", "cmd.run with openssl"},
	{"vault.*", "the client of a service", "http.query, or cmd.run with the service's own tool"},
	{"virt.*", "the management of virtual machines", "cmd.run with virsh"},
	{"win_pkg.*", "a module of one system", "Brine runs on Linux"},
	{"win_servermanager.*", "a module of one system", "Brine runs on Linux"},
	{"x509.*", "the making of certificates", "cmd.run with openssl"},
	{"zfs.*", "the management of a file system", "cmd.run with zfs"},
	{"zpool.*", "the management of a file system", "cmd.run with zpool"},
}

// absentPrograms are programs of Salt that are not here, for the documents alone.
var absentPrograms = []Absent{
	{"salt-cloud", "makes machines in clouds", "the provider's own tool, and `salt-key --gen-keys` for the new machine"},
	{"salt-proxy", "a minion for devices", "a minion on a machine that reaches the device, and `cmd.run` there"},
	{"salt-ssh", "functions without a minion", "a minion: one program and one key"},
	{"salt-syndic", "a master below a master", "more masters: [many masters](masters.md)"},
	{"spm", "packages of states", "the packages of the system"},
}

// IsAbsent says what name is in Salt, if it is left out here on purpose.
func IsAbsent(name salt.Function) (Absent, bool) {
	for _, a := range absent {
		if a.Name == string(name) || strings.TrimSuffix(a.Name, ".*") == name.Module() {
			return a, true
		}
	}
	return Absent{}, false
}

func (a Absent) String() string {
	return fmt.Sprintf("Brine does not have %s. Instead: %s.", a.What, a.Instead)
}
