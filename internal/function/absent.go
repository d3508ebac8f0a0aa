package function

import (
	"fmt"
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// Absent is a feature of Salt that is missing here on purpose: a user who calls it gets that
// answer, and an alternative.
type Absent struct {
	Name    string // a function, or a name prefix and a star
	What    string // what it is in Salt, with an article
	Instead string // the alternative here
}

// absent lists the well-known ones, sorted by name. A custom module with the same name takes
// precedence. doc/differences.md is generated from it.
var absent = []Absent{
	{"alternatives.*", "the management of alternatives", "cmd.run with update-alternatives"},
	{"ansible.*", "the client of another system", "cmd.run with ansible-playbook"},
	{"apt.*", "the functions of one package manager", "pkg.* does it on every system"},
	{"at.*", "the queue of at", "schedule.add with once, or cmd.run with at"},
	{"augeas.*", "the editing of files with Augeas", "file.line and file.replace, or cmd.run with augtool"},
	{"boto*", "the interfaces to a cloud", "the provider's own tool"},
	{"bridge.*", "the management of network bridges", "cmd.run with ip, or a program of your own: see doc/modules.md"},
	{"chef.*", "the client of another system", "cmd.run with chef-client"},
	{"cloud.*", "the interface to clouds", "the provider's own tool, and salt-key --gen-keys for the new machine"},
	{"cmd.powershell*", "PowerShell on other systems", "cmd.run with shell=powershell, or cmd.run of powershell -Command"},
	{"composer.*", "the management of PHP packages", "cmd.run with composer"},
	{"config.merge", "a setting that is merged from configuration, grains and pillar", "config.get, grains.get and pillar.get"},
	{"consul.*", "the client of a service", "http.query, or cmd.run with the service's own tool"},
	{"cp.list_states", "the state files of the master", "cp.list_master"},
	{"debconf.*", "the answers to questions of packages", "cmd.run with debconf-set-selections"},
	{"dnsutil.*", "questions to name servers", "network.dig"},
	{"docker.*", "the management of containers", "cmd.run with docker or podman, or a program of your own: see doc/modules.md"},
	{"dockermod.*", "the management of containers", "cmd.run with docker or podman, or a program of your own: see doc/modules.md"},
	{"file.delete_backup", "the backups of backup_mode", "the .bak that file.line and file.replace leave beside a file"},
	{"file.list_backup*", "the backups of backup_mode", "the .bak that file.line and file.replace leave beside a file: file.find lists it"},
	{"file.patch", "the application of a patch to a file", "file.line and file.replace, or cmd.run with patch"},
	{"file.restore_backup", "the backups of backup_mode", "the .bak that file.line and file.replace leave beside a file: file.copy brings it back"},
	{"firewalld.*", "the management of a firewall", "cmd.run with firewall-cmd"},
	{"gem.*", "the management of Ruby packages", "cmd.run with gem"},
	{"gpg.*", "the management of GnuPG keys", "cmd.run with gpg"},
	{"grains.fetch", "another name of grains.get", "grains.get"},
	{"ini.*", "the editing of files with sections", "file.line and file.replace"},
	{"iptables.*", "the management of a firewall", "cmd.run with iptables or nft"},
	{"jinja.*", "the functions that inspect Salt's templates", "cp.get_template and file.managed render them: see doc/templates.md"},
	{"kubernetes.*", "the client of a service", "cmd.run with kubectl"},
	{"ldap3.*", "the client of a service", "cmd.run with ldapsearch and ldapmodify"},
	{"logrotate.*", "the settings of logrotate", "file.managed of a file below /etc/logrotate.d"},
	{"lowpkg.*", "the functions of dpkg and rpm", "pkg.*, and cmd.run with dpkg or rpm"},
	{"lvm.*", "the management of volumes", "cmd.run with lvs, lvcreate and lvextend"},
	{"lxc.*", "the management of containers", "cmd.run with the tools of LXC"},
	{"lxd.*", "the management of containers", "cmd.run with lxc"},
	{"manage.bootstrap*", "the installation of minions over SSH", "the packages of the system, and salt-key --gen-keys for the new machine"},
	{"mongodb.*", "the client of a database", "cmd.run with the database's own tool"},
	{"mysql.*", "the client of a database", "cmd.run with mysql"},
	{"napalm*", "the interface to network devices", "a minion on a machine that reaches the device, and cmd.run there"},
	{"nftables.*", "the management of a firewall", "cmd.run with nft"},
	{"nginx.*", "the control of a web server", "service.* and cmd.run with nginx"},
	{"npm.*", "the management of JavaScript packages", "cmd.run with npm"},
	{"partition.*", "the management of partitions", "cmd.run with parted or sgdisk"},
	{"pillar.ext", "the pillar of a source that is named in the call", "pillar.items"},
	{"pillar.fetch", "another name of pillar.get", "pillar.get"},
	{"pillar.file_exists", "the pillar files of a minion without a master", "pillar.items, or salt-run pillar.show_pillar"},
	{"pillar.show_top", "the part of the top file that applies to a minion", "salt-run pillar.show_pillar, which shows what a minion gets"},
	{"pip.*", "the management of Python packages", "cmd.run with pip"},
	{"postgres.*", "the client of a database", "cmd.run with psql"},
	{"puppet.*", "the client of another system", "cmd.run with puppet"},
	{"queue.*", "queues on the master", "salt --queue leaves a job for minions that are away: see doc/jobs.md"},
	{"quota.*", "the management of quotas", "cmd.run with quota and setquota"},
	{"rabbitmq.*", "the control of a service", "cmd.run with rabbitmqctl"},
	{"raid.*", "the management of RAID", "cmd.run with mdadm"},
	{"redis.*", "the client of a database", "cmd.run with redis-cli"},
	{"rsync.*", "the copying of directories", "cmd.run with rsync, or cp.get_dir"},
	{"salt_proxy.*", "proxy minions", "a minion on a machine that reaches the device, and cmd.run there"},
	{"saltclass.*", "a tree of classes", "pillar files by target: see doc/configuration.md"},
	{"saltutil.clear_job_cache", "a cache of jobs on the minion", "saltutil.clear_cache; the journal of the master keeps jobs, see keep_jobs_seconds"},
	{"saltutil.list_extmods", "the list of modules that were copied", "sys.list_modules, which lists them, too"},
	{"saltutil.mmodule", "functions of modules that were just added", "call the function: it is there at once"},
	{"saltutil.refresh_beacons", "the reading of beacons from pillar", "beacons.add and the setting beacons, which act at once"},
	{"saltutil.sync_*", "the copying of modules of other kinds", "saltutil.sync_all, which copies the kinds that Brine has: modules, grains and returners"},
	{"saltutil.update", "the upgrade of the minion by itself", "pkg.install of the package, or a file that cp.get_file brings"},
	{"schedule.copy", "the copying of a job to other minions", "schedule.add for those minions"},
	{"schedule.move", "the moving of a job to other minions", "schedule.add for those minions, and schedule.delete here"},
	{"schedule.postpone_job", "the moving of one run to another time", "schedule.modify of the job, or schedule.disable_job and schedule.enable_job"},
	{"schedule.purge", "the removal of all jobs at once", "schedule.list, and schedule.delete for each job"},
	{"schedule.skip_job", "the skipping of one run", "schedule.disable_job and schedule.enable_job"},
	{"sdb.*", "the interface to stores of secrets", "pillar, or cmd.run with the store's own tool"},
	{"selinux.*", "the management of SELinux", "cmd.run with semanage and setsebool"},
	{"slsutil.*", "the renderers of states", "pillar.items shows what a minion gets"},
	{"sqlite3.*", "the client of a database", "cmd.run with sqlite3"},
	{"ssh.cmd", "functions without a minion", "a minion: one program and one key"},
	{"state.*", "the states of Salt", "pkg.*, service.*, file.* and user.* one at a time, or a script: cmd.script"},
	{"state.orch*", "the orchestration of states", "a script that calls salt, whose exit codes say what happened, and salt-event wait; or the reactor: see doc/reactor.md"},
	{"supervisord.*", "the control of supervisord", "cmd.run with supervisorctl"},
	{"svn.*", "the client of a version control system", "cmd.run with svn"},
	{"thin.*", "salt-ssh", "a minion on that machine"},
	{"tls.*", "the making of certificates", "cmd.run with openssl"},
	{"tomcat.*", "the control of a service", "http.query, or cmd.run with its own scripts"},
	{"vault.*", "the client of a service", "http.query, or cmd.run with the service's own tool"},
	{"virt.*", "the management of virtual machines", "cmd.run with virsh"},
	{"virtualenv.*", "the making of Python environments", "cmd.run with python3 -m venv"},
	{"win_pkg.*", "the functions of one package manager", "cmd.run with the system's installer"},
	{"win_servermanager.*", "the roles and features of Windows", "cmd.run with PowerShell"},
	{"winrepo.*", "the package repository for Windows", "cmd.run with the system's installer"},
	{"x509.*", "the making of certificates", "cmd.run with openssl"},
	{"zfs.*", "the management of a file system", "cmd.run with zfs"},
	{"zpool.*", "the management of a file system", "cmd.run with zpool"},
}

// absentPrograms are programs of Salt that are missing here; only the documents use it.
var absentPrograms = []Absent{
	{"salt-cloud", "makes machines in clouds", "the provider's own tool, and `salt-key --gen-keys` for the new machine"},
	{"salt-proxy", "a minion for devices", "a minion on a machine that reaches the device, and `cmd.run` there"},
	{"salt-ssh", "functions without a minion", "a minion: one program and one key"},
	{"salt-syndic", "a master below a master", "more masters: [many masters](masters.md)"},
	{"spm", "packages of states", "the packages of the system"},
}

// IsAbsent returns the entry for name if it is missing here on purpose. If several match, the most
// specific one counts.
func IsAbsent(name salt.Function) (found Absent, ok bool) {
	for _, a := range absent {
		begin, isPattern := strings.CutSuffix(a.Name, "*")
		means := a.Name == string(name) || isPattern && strings.HasPrefix(string(name), begin)
		if means && len(a.Name) > len(found.Name) {
			found, ok = a, true
		}
	}
	return found, ok
}

func (a Absent) String() string {
	return fmt.Sprintf("Brine does not have %s. Instead: %s.", a.What, a.Instead)
}
