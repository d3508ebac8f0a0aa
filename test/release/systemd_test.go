package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// systemdPath is the program of systemd.
const systemdPath = "/usr/lib/systemd/systemd"

// units installs the packages on a machine where systemd runs, and does there what an
// administrator does: the units start, restart and stop the daemons, and so do an upgrade and the
// removal of the packages.
func units(t *testing.T, dir string) {
	for _, p := range []string{systemdPath, "dpkg"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("units are not started: %v", err)
		}
	}
	if err := mayUnshare(); err != nil {
		t.Skipf("units are not started: no machine can be made: %v", err)
	}
	m := boot(t, filesOf(t, dir), "", nil, systemdPath, "--system", "--unit=multi-user.target")
	m.until("systemctl is-active multi-user.target")
	t.Run("install", func(t *testing.T) { installed(m.of(t)) })
	t.Run("watch", func(t *testing.T) { watched(m.of(t)) })
	t.Run("upgrade", func(t *testing.T) { upgraded(m.of(t)) })
	t.Run("remove", func(t *testing.T) { removed(m.of(t)) })
	t.Run("rpm", func(t *testing.T) { byRPM(m.of(t)) })
}

// of is the machine for a part of the test.
func (m *machine) of(t *testing.T) *machine {
	part := *m
	part.t = t
	return &part
}

// filesOf are what a machine has beside programs: the packages, an empty list of those that
// are installed, and none of the system's services that change what the kernel shares.
func filesOf(t *testing.T, dir string) string {
	t.Helper()
	files := t.TempDir()
	keep(t, files, "var/lib/dpkg/status", "")
	keep(t, files, "var/lib/dpkg/available", "")
	for _, d := range []string{"var/lib/dpkg/updates", "var/lib/dpkg/info", "debs", "etc/systemd/system", "var/log", "var/cache"} {
		if err := os.MkdirAll(filepath.Join(files, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, unit := range []string{"systemd-sysctl", "systemd-timesyncd", "systemd-udevd", "systemd-udev-trigger", "systemd-modules-load", "systemd-resolved", "systemd-logind", "systemd-networkd"} {
		if err := os.Symlink("/dev/null", filepath.Join(files, "etc/systemd/system", unit+".service")); err != nil {
			t.Fatal(err)
		}
	}
	for pattern, place := range map[string]string{"*.deb": "debs", "brine-tools*.rpm": "rpms", "brine-master*.rpm": "rpms"} {
		list, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(list) == 0 {
			t.Fatalf("no packages %s: %v", pattern, err)
		}
		for _, f := range list {
			install(t, f, filepath.Join(files, place, filepath.Base(f)), 0o644)
		}
	}
	return files
}

// installed: nothing runs until it is enabled; then a minion comes, is accepted, and answers, and
// salt-api serves as its own user.
func installed(m *machine) {
	m.sh("dpkg --install /debs/*.deb")
	m.sh("id salt-api && ! systemctl --quiet is-active salt-master && ! systemctl --quiet is-active salt-minion && ! systemctl --quiet is-active salt-api")
	m.sh("printf 'id: web1\nmaster: 127.0.0.1\n' >>/etc/salt/minion")
	m.sh("printf 'netapi_enable_clients: [local]\nrest_cherrypy: {host: 127.0.0.1, port: 8000, disable_ssl: true}\n' >/etc/salt/master.d/api.conf")
	m.sh("systemctl enable --now salt-master salt-minion salt-api")
	m.sh("systemctl --quiet is-active salt-master && systemctl --quiet is-active salt-minion && systemctl --quiet is-active salt-api")
	m.sh("systemctl --quiet is-enabled salt-master salt-minion salt-api")
	m.until("salt-key -l un", "web1")
	m.sh("salt-key -y -a web1")
	m.until("salt web1 test.ping", "True")
	m.sh("salt-run status.health")
	m.sh(`[ "$(ps -o user= -C salt-api)" = salt-api ]`)
}

// watched: who dies is started again, a mistake in the settings is not tried again and again, and a
// log that was moved away is begun again.
func watched(m *machine) {
	before := m.sh("systemctl show -P MainPID salt-master")
	m.sh("systemctl kill -s KILL salt-master")
	m.until("systemctl is-active salt-master && systemctl show -P NRestarts salt-master", "active\n1\n")
	if after := m.sh("systemctl show -P MainPID salt-master"); after == before {
		m.t.Errorf("the master that was killed is still process %s", after)
	}
	m.until("salt web1 test.ping", "True")

	m.sh("echo 'ret_port: many' >/etc/salt/master.d/wrong.conf; ! systemctl restart salt-master")
	m.until("systemctl show -P ActiveState,ExecMainStatus,NRestarts salt-master", "failed", "64") // not 'activating', as before a further try
	m.sh("rm /etc/salt/master.d/wrong.conf; systemctl restart salt-master")

	m.sh("mv /var/log/salt/master /var/log/salt/master.1 && systemctl reload salt-master") // as logrotate does
	m.until("[ -e /var/log/salt/master ]")
	m.until("salt web1 test.ping", "True")
}

// upgraded: packages start a running daemon again if it would start with its settings, and leave it
// if not. Keys are not touched.
func upgraded(m *machine) {
	keys := m.sh("cat /etc/salt/pki/master/*.p* /etc/salt/pki/master/minions/* /etc/salt/pki/minion/*.p* | sha256sum")
	pids := func() string { return m.sh("systemctl show -P MainPID salt-master salt-minion salt-api") }
	before := pids()
	m.sh("echo 'ret_port: many' >/etc/salt/master.d/wrong.conf; echo 'master_port: many' >/etc/salt/minion.d/wrong.conf")
	if out := m.sh("dpkg --install --force-confold /debs/*.deb 2>&1"); strings.Count(out, "goes on with the old program") != 3 {
		m.t.Errorf("an upgrade with wrong settings said:\n%s", out)
	}
	if after := pids(); after != before {
		m.t.Errorf("an upgrade has stopped a daemon that would not start again: processes %s, before %s", after, before)
	}
	m.sh("rm /etc/salt/master.d/wrong.conf /etc/salt/minion.d/wrong.conf && dpkg --install --force-confold /debs/*.deb")
	for i, now := range strings.Fields(pids()) {
		if now == strings.Fields(before)[i] || now == "0" {
			m.t.Errorf("after the upgrade the process is %s, before it %s", now, strings.Fields(before)[i])
		}
	}
	m.until("salt web1 test.ping", "True")
	if after := m.sh("cat /etc/salt/pki/master/*.p* /etc/salt/pki/master/minions/* /etc/salt/pki/minion/*.p* | sha256sum"); after != keys {
		m.t.Errorf("an upgrade has changed keys")
	}
}

// removed: daemons end before their programs go; what is left is what the README says.
func removed(m *machine) {
	m.sh("dpkg --remove brine-api brine-master brine-minion brine-tools")
	m.sh("! ps -e -o comm= | grep ^salt && ! systemctl is-enabled salt-master && [ -e /etc/salt/master ] && [ -e /etc/salt/pki/master/master.pem ]")
	m.sh("dpkg --purge brine-api brine-master brine-minion brine-tools")
	if out, _ := m.try("ls -d /etc/salt/master /etc/logrotate.d/* /var/cache/salt /var/cache/salt/* /var/log/salt /var/log/salt/* /usr/bin/salt* 2>/dev/null"); out != "" {
		m.t.Errorf("these stay after --purge:\n%s", out)
	}
	m.sh("[ -e /etc/salt/pki/master/master.pem ] && [ -e /etc/salt/pki/minion/minion.pem ]")
}

// byRPM: the packages for Red Hat do the same, with the words that rpm gives to their scripts.
func byRPM(m *machine) {
	if _, err := exec.LookPath("rpm"); err != nil {
		m.t.Skip("rpm is not installed")
	}
	key := m.sh("sha256sum /etc/salt/pki/master/master.pem")
	m.sh("rpm --dbpath /var/lib/rpm --install --nodeps --nosignature /rpms/*.rpm") // it does not know what Debian has installed
	m.sh("! systemctl --quiet is-active salt-master && systemctl enable --now salt-master && salt-key -L")
	before := m.sh("systemctl show -P MainPID salt-master")
	m.sh("rpm --dbpath /var/lib/rpm --upgrade --replacepkgs --nodeps --nosignature /rpms/*.rpm")
	if after := m.sh("systemctl show -P MainPID salt-master"); after == before || after == "0\n" {
		m.t.Errorf("after the upgrade the process is %s, before it %s", after, before)
	}
	m.sh("rpm --dbpath /var/lib/rpm --erase brine-master brine-tools")
	m.sh("! ps -e -o comm= | grep ^salt && [ ! -e /usr/bin/salt-master ]")
	if after := m.sh("sha256sum /etc/salt/pki/master/master.pem"); after != key {
		m.t.Errorf("rpm has changed the key")
	}
}
