package module

import (
	"slices"
	"testing"

	"github.com/brinebus/brine/internal/function"
)

func TestUsersAreRead(t *testing.T) {
	root := good(t, nil, "user.info", nil, "root").(map[string]any)
	for key, want := range map[string]any{"name": "root", "uid": 0, "gid": 0, "home": "/root"} {
		same(t, key, root[key], want)
	}
	same(t, "info by number", good(t, nil, "user.info", nil, int64(0)).(map[string]any)["name"], "root")
	same(t, "info of nobody", good(t, nil, "user.info", nil, "nosuchuser"), map[string]any{})
	same(t, "list_groups", good(t, nil, "user.list_groups", nil, "root").([]any)[0], "root")
	if all := good(t, nil, "user.list_users", nil).([]any); !slices.Contains(all, any("root")) || len(all) != len(good(t, nil, "user.getent", nil).([]any)) {
		t.Errorf("list_users = %v", all)
	}
	bad(t, nil, "user.list_groups", `user "nosuchuser" does not exist`, nil, "nosuchuser")
	same(t, "group", good(t, nil, "group.info", nil, "root"), map[string]any{"name": "root", "passwd": "x", "gid": 0, "members": []any{}})
	same(t, "group of nobody", good(t, nil, "group.info", nil, "nosuchgroup"), map[string]any{})
	if all := good(t, nil, "group.getent", nil).([]any); len(all) == 0 {
		t.Error("no groups")
	}
}

func TestUsersAreChanged(t *testing.T) {
	for _, name := range []string{"useradd", "usermod", "userdel", "groupadd", "groupmod", "groupdel", "gpasswd"} {
		fakeProgram(t, name, `case "$*" in *taken) echo "`+name+`: taken" >&2; exit 9;; esac`)
	}
	for _, tt := range []struct {
		function string
		args     []any
		kwargs   map[string]any
		call     string
	}{
		{"user.add", []any{"fred"}, nil, "<useradd><-m><--><fred>"},
		{"user.add", []any{"-r"}, map[string]any{"uid": 1500, "gid": 100, "groups": "a,b", "home": "/h", "shell": "/bin/sh", "fullname": "Fred F", "system": true, "createhome": false},
			"<useradd><-g><100><-d></h><-s></bin/sh><-c><Fred F><-u><1500><-G><a,b><-r><-M><--><-r>"},
		{"user.delete", []any{"fred", true}, nil, "<userdel><-r><--><fred>"},
		{"user.chuid", []any{"fred", 5}, nil, "<usermod><-u><5><--><fred>"},
		{"user.chgid", []any{"fred", "staff"}, nil, "<usermod><-g><staff><--><fred>"},
		{"user.chgroups", []any{"fred", "a,b", true}, nil, "<usermod><-a><-G><a,b><--><fred>"},
		{"user.chhome", []any{"fred", "/h", true}, nil, "<usermod><-d></h><-m><--><fred>"},
		{"user.chshell", []any{"fred", "/bin/zsh"}, nil, "<usermod><-s></bin/zsh><--><fred>"},
		{"group.add", []any{"staff", 7}, nil, "<groupadd><-g><7><--><staff>"},
		{"group.chgid", []any{"staff", 7}, nil, "<groupmod><-g><7><--><staff>"},
		{"group.adduser", []any{"staff", "-x"}, nil, "<gpasswd><--add=-x><--><staff>"},
		{"group.deluser", []any{"staff", "fred"}, nil, "<gpasswd><--delete=fred><--><staff>"},
		{"group.members", []any{"staff", "a,b"}, nil, "<gpasswd><--members=a,b><--><staff>"},
		{"group.delete", []any{"staff"}, nil, "<groupdel><--><staff>"},
	} {
		same(t, tt.function, good(t, nil, tt.function, tt.kwargs, tt.args...), true)
		wantCalls(t, tt.function, tt.call)
	}
	bad(t, nil, "user.add", "useradd: exit code 9: useradd: taken", nil, "taken")
	bad(t, nil, "user.chshell", "want an absolute path", nil, "fred", "zsh")
}

func TestAccountLines(t *testing.T) {
	if a, ok := parseAccount("fred:x:1000:100:Fred,1,,:/home/fred:/bin/sh"); !ok || a.uid != 1000 || a.gid != 100 || a.shell != "/bin/sh" {
		t.Errorf("got %+v, %v", a, ok)
	}
	for _, line := range []string{"", "#fred", "+::::::", "fred:x:-1:0:::", "fred:x:1:2::", "fred:x:99999999999:0:::"} {
		if a, ok := parseAccount(line); ok {
			t.Errorf("parseAccount(%q) = %+v", line, a)
		}
	}
	if g, ok := parseGroup("staff:x:50:fred,barney"); !ok || g.gid != 50 || !slices.Equal(g.members, []string{"fred", "barney"}) {
		t.Errorf("got %+v, %v", g, ok)
	}
	if g, ok := parseGroup("staff:x:no:"); ok {
		t.Errorf("got %+v", g)
	}
}

func TestMatchAndPillar(t *testing.T) {
	host := &function.Host{
		ID: "web1",
		Data: minionData{
			grains: map[string]any{"os": "Debian", "ipv4": []any{"10.0.0.5"}, "a": map[string]any{"b": "c"}},
			pillar: map[string]any{"role": "front", "p": map[string]any{"q": "r", "s": []any{"t"}}},
		},
	}
	for _, tt := range []struct {
		function string
		args     []any
		want     any
	}{
		{"match.glob", []any{"web*"}, true},
		{"match.glob", []any{"web*", "db1"}, false},
		{"match.list", []any{"db1,web1"}, true},
		{"match.pcre", []any{"web[0-9]"}, true},
		{"match.grain", []any{"os:Deb*"}, true},
		{"match.grain", []any{"a|b|c", "|"}, true},
		{"match.pillar_pcre", []any{"role|fr.*", "|"}, true},
		{"match.grain_pcre", []any{"os:Fed.*"}, false},
		{"match.ipcidr", []any{"10.0.0.0/8"}, true},
		{"match.pillar", []any{"role:fr*"}, true},
		{"match.pillar_pcre", []any{"role:(back|middle)"}, false},
		{"match.compound", []any{"web* and not G@os:RedHat"}, true},
		{"pillar.get", []any{"p:q"}, "r"},
		{"pillar.get", []any{"x", "d"}, "d"},
		{"pillar.item", []any{"role", "p:s:0", "x"}, map[string]any{"role": "front", "p:s:0": "t", "x": ""}},
		{"pillar.keys", []any{"p"}, []any{"q", "s"}},
		{"pillar.ls", nil, []any{"p", "role"}},
		{"pillar.items", nil, host.PillarData()},
		{"pillar.raw", nil, host.PillarData()},
		{"pillar.raw", []any{"role"}, "front"},
		{"pillar.obfuscate", nil, map[string]any{"role": "<str>", "p": map[string]any{"q": "<str>", "s": []any{"<str>"}}}},
	} {
		same(t, tt.function+repr(tt.args), good(t, host, tt.function, nil, tt.args...), tt.want)
	}
	bad(t, host, "pillar.keys", "is not a dictionary", nil, "role")
	bad(t, host, "match.glob", "invalid minion id", nil, "*", "../x")
	bad(t, host, "match.compound", "web*", nil, "web* and (")
}
