package module

import (
	"testing"

	"github.com/brinebus/brine/internal/function"
)

func systemdHost() *function.Host {
	return &function.Host{Data: minionData{grains: map[string]any{"init": "systemd"}}}
}

// fakeSystemctl knows the units sshd, which runs and is enabled, and cron,
// which does neither.
const fakeSystemctl = `
case "$*" in
*list-unit-files*--state=disabled*) echo 'cron.service disabled enabled';;
*list-unit-files*--state=*) echo 'sshd.service enabled enabled';;
*list-unit-files*) printf 'cron.service disabled enabled\nsshd.service enabled enabled\n';;
*list-units*) echo 'sshd.service loaded active running OpenSSH';;
"show -- nosuch.service") echo LoadState=not-found;;
show*) printf 'Id=sshd.service\nLoadState=loaded\nExecStart={ path=/a ; argv[]=b=c }\n';;
is-*sshd.service) ;;
is-*) exit 3;;
*bad.service) echo "Failed to start bad.service" >&2; exit 1;;
esac`

func TestServicesOfSystemd(t *testing.T) {
	fakeProgram(t, "systemctl", fakeSystemctl)
	host := systemdHost()
	for _, tt := range []struct {
		function, name string
		want           any
		call           string
	}{
		{"service.status", "sshd", true, "<systemctl><is-active><--quiet><--><sshd.service>"},
		{"service.status", "cron", false, "<systemctl><is-active><--quiet><--><cron.service>"},
		{"service.enabled", "sshd", true, "<systemctl><is-enabled><--quiet><--><sshd.service>"},
		{"service.disabled", "cron", true, "<systemctl><is-enabled><--quiet><--><cron.service>"},
		{"service.start", "sshd", true, "<systemctl><start><--><sshd.service>"},
		{"service.stop", "sshd.socket", true, "<systemctl><stop><--><sshd.socket>"},
		{"service.restart", "--now", true, "<systemctl><restart><--><--now.service>"},
		{"service.reload", "sshd", true, "<systemctl><reload><--><sshd.service>"},
		{"service.force_reload", "sshd", true, "<systemctl><reload-or-restart><--><sshd.service>"},
		{"service.enable", "sshd", true, "<systemctl><enable><--><sshd.service>"},
		{"service.disable", "sshd", true, "<systemctl><disable><--><sshd.service>"},
		{"service.mask", "sshd", true, "<systemctl><mask><--><sshd.service>"},
		{"service.unmask", "sshd", true, "<systemctl><unmask><--><sshd.service>"},
		{"service.masked", "sshd", false, "<systemctl><show><--><sshd.service>"},
		{"service.available", "sshd", true, "<systemctl><show><--><sshd.service>"},
		{"service.missing", "nosuch", true, "<systemctl><show><--><nosuch.service>"},
	} {
		same(t, tt.function, good(t, host, tt.function, nil, tt.name), tt.want)
		wantCalls(t, tt.function, tt.call)
	}
	same(t, "show", good(t, host, "service.show", nil, "sshd"), map[string]any{"Id": "sshd.service", "LoadState": "loaded", "ExecStart": "{ path=/a ; argv[]=b=c }"})
	same(t, "get_all", good(t, host, "service.get_all", nil), []any{"cron", "sshd"})
	same(t, "get_running", good(t, host, "service.get_running", nil), []any{"sshd"})
	same(t, "get_enabled", good(t, host, "service.get_enabled", nil), []any{"sshd"})
	same(t, "get_disabled", good(t, host, "service.get_disabled", nil), []any{"cron"})
	same(t, "get_static", good(t, host, "service.get_static", nil), []any{"sshd"})
	same(t, "status of a glob", good(t, host, "service.status", nil, "*"), map[string]any{"cron": false, "sshd": true})
	calls(t)
	same(t, "systemctl_reload", good(t, host, "service.systemctl_reload", nil), true)
	wantCalls(t, "systemctl_reload", "<systemctl><daemon-reload>")
	bad(t, host, "service.start", "ERROR: systemctl: exit code 1: Failed to start bad.service", nil, "bad")
}

func TestServicesOfScripts(t *testing.T) {
	host := &function.Host{Data: minionData{grains: map[string]any{"init": "sysvinit"}}}
	fakeProgram(t, "service", `case "$1 $2" in "cron status") exit 3;; "bad start") echo broken; exit 1;; esac`)
	same(t, "status", good(t, host, "service.status", nil, "sshd"), true)
	same(t, "status of a stopped one", good(t, host, "service.status", nil, "cron"), false)
	same(t, "restart", good(t, host, "service.restart", nil, "sshd"), true)
	same(t, "force_reload", good(t, host, "service.force_reload", nil, "sshd"), true)
	wantCalls(t, "service", "<service><sshd><status>", "<service><cron><status>", "<service><sshd><restart>", "<service><sshd><force-reload>")
	bad(t, host, "service.start", "service: exit code 1: broken", nil, "bad")
	calls(t)
	for _, name := range []string{"--status-all", "", "../sshd"} {
		bad(t, host, "service.start", "is not the name of a service", nil, name)
		bad(t, host, "service.status", "is not the name of a service", nil, name)
	}
	for _, function := range []string{"service.mask", "service.show"} {
		bad(t, host, function, "systemd: not available here", nil, "sshd")
	}
	bad(t, host, "service.get_running", "systemd: not available here", nil)
	bad(t, host, "service.status", "not available here", nil, "ssh*")
	if got := calls(t); got != nil {
		t.Errorf("a refused call ran %v", got)
	}
	if all := good(t, host, "service.get_all", nil).([]any); len(all) > 0 {
		same(t, "available", good(t, host, "service.available", nil, all[0]), true)
	}
	same(t, "missing", good(t, host, "service.missing", nil, "nosuchservice"), true)
}

func TestServicesOfOtherInitSystems(t *testing.T) {
	for name, row := range map[string]struct {
		programs map[string]string
		calls    []string
	}{
		"OpenRC": {map[string]string{"rc-service": "", "rc-update": "echo ' sshd |  default'"},
			[]string{"<rc-service><sshd><restart>", "<rc-update><add><sshd><default>", "<rc-update><del><sshd><default>", "<rc-update><show><default>", "<rc-update><show><default>"}},
		"SysV": {map[string]string{"update-rc.d": "", "service": ""},
			[]string{"<service><sshd><restart>", "<update-rc.d><sshd><enable>", "<update-rc.d><sshd><disable>"}},
		"chkconfig": {map[string]string{"chkconfig": "[ $1 = sshd ]", "service": ""},
			[]string{"<service><sshd><restart>", "<chkconfig><sshd><on>", "<chkconfig><sshd><off>", "<chkconfig><sshd>", "<chkconfig><cron>"}},
	} {
		t.Run(name, func(t *testing.T) {
			onlyPrograms(t, "sh")
			for program, script := range row.programs {
				fakeProgram(t, program, script)
			}
			h, _ := inRoot(t, map[string]string{"etc/rc3.d/S01sshd": "", "etc/rc3.d/K01cron": ""})
			h.Data = minionData{grains: map[string]any{"init": "other"}}
			good(t, h, "service.restart", nil, "sshd")
			good(t, h, "service.enable", nil, "sshd")
			good(t, h, "service.disable", nil, "sshd")
			same(t, "enabled", good(t, h, "service.enabled", nil, "sshd"), true)
			same(t, "disabled", good(t, h, "service.disabled", nil, "cron"), true)
			wantCalls(t, name, row.calls...)
			bad(t, h, "service.enable", "is not the name of a service", nil, "--x")
		})
	}
}
