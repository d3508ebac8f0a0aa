package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/salt"
	differences "github.com/brinebus/brine/test/documented"
)

// write creates files, named relative to a new directory, and returns the directory.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// master loads a master's configuration of one file.
func master(t testing.TB, text string) (*Master, []Notice, error) {
	t.Helper()
	return LoadMaster(write(t, map[string]string{"master": text}))
}

// minion loads a minion's configuration of one file, which may lack an id.
func minion(t testing.TB, text string) (*Minion, []Notice, error) {
	t.Helper()
	return Options{ConfigDir: write(t, map[string]string{"minion": text}), Lookup: hostNamed("web1")}.Minion()
}

func TestDefaults(t *testing.T) {
	m, notices, err := master(t, "")
	if err != nil || len(notices) > 0 {
		t.Fatalf("an empty file: %v, %v", notices, err)
	}
	want := map[string]any{
		"interface": "0.0.0.0", "ret_port": int64(4506), "timeout": int64(5), "file_recv_max_size": int64(100),
		"keep_jobs_seconds": int64(86400), "pki_dir": "/etc/salt/pki/master", "cachedir": "/var/cache/salt/master",
		"sock_dir": "/var/run/salt/master", "log_file": "/var/log/salt/master", "pidfile": "/var/run/salt-master.pid",
		"log_level": "warning", "token_expire": int64(43200), "auto_accept": false, "keysize": int64(2048),
		"max_event_size": int64(1048576), "hash_type": "sha256", "loop_interval": int64(60),
		"client_acl_verify": true, "cluster_copies": int64(3), "ipv6": nil, "peer": nil,
		"file_roots": map[string]any{"base": []any{"/srv/salt"}}, "journal_sync": "default", "key_type": "ed25519",
	}
	for key, value := range want {
		if got, ok := m.Lookup(key); !ok || !reflect.DeepEqual(got, value) {
			t.Errorf("Lookup(%q) = %v, %v; want %v", key, got, ok, value)
		}
	}
	if v, ok := m.Lookup("nobody_knows"); ok {
		t.Errorf("Lookup of an unknown key = %v", v)
	}
}

func TestKinds(t *testing.T) {
	type test struct {
		text string
		get  func(*Master) any
		want any
	}
	tests := map[string]test{
		"yes":                 {"auto_accept: yes", func(m *Master) any { return m.AutoAccept }, true},
		"On":                  {"auto_accept: On", func(m *Master) any { return m.AutoAccept }, true},
		"True":                {"auto_accept: True", func(m *Master) any { return m.AutoAccept }, true},
		"no":                  {"client_acl_verify: no", func(m *Master) any { return m.ClientACLVerify }, false},
		"OFF":                 {"client_acl_verify: OFF", func(m *Master) any { return m.ClientACLVerify }, false},
		"null is the default": {"client_acl_verify:", func(m *Master) any { return m.ClientACLVerify }, true},
		"quoted number":       {"ret_port: '25506'", func(m *Master) any { return m.RetPort }, 25506},
		"number with _":       {"file_recv_max_size: 1_000", func(m *Master) any { return m.FileRecvMaxSize }, 1000},
		"not octal, as Salt":  {"ret_port: 04506", func(m *Master) any { return m.RetPort }, 4506},
		"seconds":             {"timeout: 30", func(m *Master) any { return m.Timeout }, 30 * time.Second},
		"half a second":       {"timeout: 0.5", func(m *Master) any { return m.Timeout }, 500 * time.Millisecond},
		"90s":                 {"timeout: 90s", func(m *Master) any { return m.Timeout }, 90 * time.Second},
		"24h":                 {"event_retention: 24h", func(m *Master) any { return m.EventRetention }, 24 * time.Hour},
		"7d":                  {"event_retention: 7d", func(m *Master) any { return m.EventRetention }, 168 * time.Hour},
		"1h30m":               {"event_retention: 1h30m", func(m *Master) any { return m.EventRetention }, 90 * time.Minute},
		"1.5d":                {"event_retention: 1.5d", func(m *Master) any { return m.EventRetention }, 36 * time.Hour},
		"keep for ever":       {"keep_jobs_seconds: 0", func(m *Master) any { return m.KeepJobs }, time.Duration(0)},
		"hours":               {"keep_jobs: 48", func(m *Master) any { return m.KeepJobs }, 48 * time.Hour},
		"seconds win":         {"keep_jobs: 48\nkeep_jobs_seconds: 60", func(m *Master) any { return m.KeepJobs }, time.Minute},
		"plain bytes":         {"event_max_bytes: 2000000", func(m *Master) any { return m.EventMaxBytes }, int64(2000000)},
		"1GB":                 {"event_max_bytes: 1GB", func(m *Master) any { return m.EventMaxBytes }, int64(1e9)},
		"512MiB":              {"event_max_bytes: 512MiB", func(m *Master) any { return m.EventMaxBytes }, int64(512 << 20)},
		"1.5 GiB":             {"event_max_bytes: 1.5 GiB", func(m *Master) any { return m.EventMaxBytes }, int64(3 << 29)},
		"2G":                  {"event_max_bytes: 2G", func(m *Master) any { return m.EventMaxBytes }, int64(2 << 30)},
		"level in capitals":   {"log_level: DEBUG", func(m *Master) any { return m.LogLevel }, "debug"},
		"a text for a list":   {"module_dirs: /a", func(m *Master) any { return m.ModuleDirs }, []string{"/a"}},
		"number as text":      {"user: 1000", func(m *Master) any { return m.User }, "1000"},
		"alias":               {"x: &a 25506\nret_port: *a", func(m *Master) any { return m.RetPort }, 25506},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m, _, err := master(t, test.text)
			if err != nil {
				t.Fatalf("%s: %v", test.text, err)
			}
			if got := test.get(m); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%s = %#v, want %#v", test.text, got, test.want)
			}
		})
	}
}

func TestMistakes(t *testing.T) {
	tests := map[string]struct {
		text         string
		line, column int
		key, want    string
		hint         bool
	}{
		"not a number":        {"x: 1\nret_port: abc", 2, 11, "ret_port", "abc stands where a whole number is wanted", false},
		"half a port":         {"ret_port: 1.5", 1, 11, "ret_port", "1.5 stands where a whole number is wanted", false},
		"port 0":              {"ret_port: 0", 1, 11, "ret_port", "0 is not in the range from 1 to 65535", false},
		"port 65536":          {"ret_port: 65536", 1, 11, "ret_port", "65536 is not in the range from 1 to 65535", false},
		"port beyond 64 bits": {"ret_port: 99999999999999999999", 1, 11, "ret_port", "stands where a whole number", false},
		"quoted boolean":      {"open_mode: 'True'", 1, 12, "open_mode", `the text "True" stands where true or false`, true},
		"number for boolean":  {"open_mode: 1", 1, 12, "open_mode", "1 stands where true or false", true},
		"list for boolean":    {"auto_accept: [true]", 1, 14, "auto_accept", "a list stands where", true},
		"map for text":        {"user: {a: 1}", 1, 7, "user", "a map stands where a single value", false},
		"boolean for time":    {"timeout: true", 1, 10, "timeout", `"true" is not a time`, true},
		"time without unit":   {"timeout: 5x", 1, 10, "timeout", `"5x" is not a time`, true},
		"time out of range":   {"timeout: 0", 1, 10, "timeout", "not in the range from 100ms to 1d", false},
		"time for ever":       {"timeout: .inf", 1, 10, "timeout", "is not a time", true},
		"negative time":       {"timeout: -5", 1, 10, "timeout", "not in the range", false},
		"size":                {"event_max_bytes: 1XB", 1, 18, "event_max_bytes", `"1XB" is not a size`, true},
		"size too small":      {"event_max_bytes: 1", 1, 18, "event_max_bytes", "not in the range", false},
		"negative size":       {"event_max_bytes: -1", 1, 18, "event_max_bytes", "is not a size", true},
		"word":                {"log_level: debgu", 1, 12, "log_level", `"debgu" is not one of all, garbage`, true},
		"file name":           {"master_sign_key_name: ../x", 1, 23, "master_sign_key_name", "not the bare name of a file", false},
		"empty path":          {"pki_dir: ''", 1, 10, "pki_dir", "it must be a path", false},
		"escaped NUL":         {"pki_dir: \"/a\\0b\"", 1, 10, "pki_dir", "control character", false},
		"null in a list":      {"module_dirs: [a, ~]", 1, 14, "module_dirs", "entry 2: nothing stands", false},
		"map of environments": {"file_roots: [a]", 1, 13, "file_roots", "a list stands where a map", false},
		"double key":          {"user: a\ntimeout: 5\nuser: b", 3, 1, "user", "the key is there already, in line 1", false},
		"double key below":    {"peer:\n  a: 1\n  a: 2", 3, 3, "peer.a", "the key is there already, in line 2", false},
		"double quoted key":   {"user: a\n'user': b", 2, 1, "user", "already", false},
		"list as key":         {"[a]: b", 1, 1, "", "a list stands where a key", false},
		"tag":                 {"user: !!python/object/apply:os.system [id]", 1, 7, "user", "is not allowed", false},
		"own tag":             {"user: !evil x", 1, 7, "user", "the tag !evil is not allowed", false},
		"no map":              {"- a\n- b", 1, 1, "", "a list stands where a map of settings", true},
		"only text":           {"hello", 1, 1, "", "hello stands where a map of settings", true},
		"two documents":       {"user: a\n---\nuser: b", 2, 1, "", "a second document begins here", true},
		"open bracket":        {"user: a\nmaster: [A\n", 2, 0, "", "did not find expected ',' or ']'", true},
		"open bracket, first": {"master: [A\n", 2, 0, "", "did not find expected ',' or ']'", true},
		"tab":                 {"user: a\n\tb: 1\n", 2, 0, "", "tab", true},
		"two colons":          {"a: b: c\n", 1, 0, "", "mapping values are not allowed", true},
		"star":                {"user: a\npeer:\n  *x: 1\n", 3, 0, "", "unknown anchor", true},
		"NUL":                 {"user: a\nb: \x00\n", 2, 4, "", "control character 0x00", true},
		"escape sequence":     {"user: \x1b[31m\n", 1, 7, "", "control character 0x1b", true},
		"latin 1":             {"user: a\nb: J\xfcrgen\n", 2, 5, "", "byte 0xfc is not UTF-8", true},
		"UTF-16":              {"\xff\xfeu\x00", 1, 1, "", "not UTF-8", true},
		"circle":              {"user: &a [*a]", 1, 7, "user", "levels deep", false},
		"bomb": {
			"a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
				"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]", 1, 0, "", "more than 500000 values", false,
		},
		"merge of text": {"a: {<<: x}", 1, 9, "a.<<", "a map to merge", false},
		"include":       {"include: {a: b}", 1, 10, "include", "a map stands where a list", false},
		"bad pattern":   {"include: '[a'", 1, 0, "include", "syntax error in pattern", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m, _, err := master(t, test.text)
			var e *Error
			if m != nil || !errors.As(err, &e) {
				t.Fatalf("%q: got %v, %v; want an *Error", test.text, m, err)
			}
			if !strings.HasSuffix(e.File, "/master") || e.Line != test.line && name != "bomb" || test.column > 0 && e.Column != test.column || test.key != "" && e.Key != test.key {
				t.Errorf("%q: at %s:%d:%d key %q; want master:%d:%d key %q", test.text, e.File, e.Line, e.Column, e.Key, test.line, test.column, test.key)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q: %v; want it to say %q", test.text, err, test.want)
			}
			if (salt.Hint(err) != "") != test.hint {
				t.Errorf("%q: hint %q, want one: %v", test.text, salt.Hint(err), test.hint)
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	_, _, err := LoadMaster(write(t, map[string]string{"master": "\n\n  ret_port: x\n"}))
	if _, text, _ := strings.Cut(err.Error(), "/master:"); text != "3:13: ret_port: x stands where a whole number is wanted" {
		t.Errorf("the error reads %q", err)
	}
}

func TestUnknownKeys(t *testing.T) {
	tests := map[string]struct{ text, key, want string }{
		"Salt's":      {"worker_threads: 5", "worker_threads", "Salt has this setting, Brine does not: it is ignored, since there are no worker processes"},
		"the port":    {"publish_port: 4505", "publish_port", "since one port carries everything"},
		"slip":        {"intreface: 127.0.0.1", "intreface", "did you mean interface?"},
		"slip 2":      {"publisher_acls: {}", "publisher_acls", "did you mean publisher_acl?"},
		"nobody's":    {"our_own_thing: 1", "our_own_thing", "it is kept for config.get"},
		"the other's": {"master_finger: aa", "master_finger", "of the other daemon: it has no effect on the master"},
		"old name":    {"client_acl: {fred: [test.ping]}", "client_acl", "this is now called publisher_acl"},
		"no value":    {"timeout:", "timeout", "it has no value: the default applies"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m, notices, err := master(t, "user: x\n"+test.text)
			if err != nil || len(notices) != 1 {
				t.Fatalf("%s: %v, %v; want one notice", test.text, notices, err)
			}
			n := notices[0]
			if n.Line != 2 || n.Key != test.key || !strings.Contains(n.Text, test.want) || !strings.HasSuffix(n.File, "/master") {
				t.Errorf("%s: %+v; want %q", test.text, n, test.want)
			}
			if _, ok := m.Raw[test.key]; !ok && name != "old name" {
				t.Errorf("%s: it is not kept in Raw", test.text)
			}
		})
	}
	if _, notices, err := master(t, "auth.ldap.server: localhost\nipv6:\nlog_level_logfile: ~\n"); err != nil || len(notices) > 0 {
		t.Errorf("settings of backends, and those that may be empty: %v, %v", notices, err)
	}
}

func TestOldNames(t *testing.T) {
	m, _, err := master(t, "client_acl:\n  fred: [test.ping]\nclient_acl_blacklist:\n  users: [root]\n")
	if err != nil || !m.PublisherACL.Present() || !m.PublisherACLBlacklist.Present() || m.Raw["publisher_acl"] == nil || m.PublisherACL.Node.Line != 2 {
		t.Errorf("the old names: %+v, %v", m, err)
	}
	m, notices, err := master(t, "client_acl: {fred: [a.b]}\npublisher_acl: {eve: [c.d]}\n")
	want := map[string]any{"eve": []any{"c.d"}}
	if err != nil || len(notices) != 1 || !reflect.DeepEqual(m.PublisherACL.Value(), want) {
		t.Errorf("both names: %v, %v, %v; want %v", m.PublisherACL.Value(), notices, err, want)
	}
	if n, _, err := minion(t, "master_shuffle: True\n"); err != nil || !n.RandomMaster {
		t.Errorf("master_shuffle: %v, %v", n, err)
	}
}

func TestDropIns(t *testing.T) {
	dir := write(t, map[string]string{
		"master":                "timeout: 1\nret_port: 1\npeer: {main: [a.b]}\ninclude:\n  - extra/*.conf\n  - nothing/*.conf\n",
		"master.d/a.conf":       "timeout: 2\npeer:\n  a: [x.y]\n  both: [one.a]\nmodule_dirs: [/a, /b]\n",
		"master.d/b.conf":       "timeout: 3\npeer:\n  b: [x.y]\n  both: [two.b]\nmodule_dirs: [/b, /c]\ninclude: nested.inc\n",
		"master.d/nested.inc":   "show_jid: yes\n",
		"master.d/.hidden.conf": "timeout: 99\n",
		"master.d/c.conf.off":   "timeout: 99\n",
		"extra/x.conf":          "loop_interval: 77\n",
	})
	m, notices, err := LoadMaster(dir)
	if err != nil {
		t.Fatal(err)
	}
	if m.Timeout != 3*time.Second || m.RetPort != 1 || m.LoopInterval != 77*time.Second || !m.ShowJID {
		t.Errorf("timeout %v, ret_port %v, loop_interval %v, show_jid %v", m.Timeout, m.RetPort, m.LoopInterval, m.ShowJID)
	}
	if want := []string{"/a", "/b", "/c"}; !reflect.DeepEqual(m.ModuleDirs, want) {
		t.Errorf("module_dirs = %v, want the lists joined: %v", m.ModuleDirs, want)
	}
	want := map[string]any{"a": []any{"x.y"}, "b": []any{"x.y"}, "both": []any{"one.a", "two.b"}}
	if !reflect.DeepEqual(m.Peer.Value(), want) {
		t.Errorf("peer = %v, want the drop-ins merged in place of the main file: %v", m.Peer.Value(), want)
	}
	if len(notices) != 1 || !strings.Contains(notices[0].Text, `nothing/*.conf`) || notices[0].Line != 4 {
		t.Errorf("notices %v; want one about the include that matches nothing", notices)
	}
	if len(m.Files) != 5 {
		t.Errorf("files = %v", m.Files)
	}
	both := m.Peer.Node.Content[3] // a, its list, both, its list
	for i, file := range []string{"a.conf", "b.conf"} {
		at := m.Peer.At(both.Content[i], errors.New("x"))
		if filepath.Base(at.File) != file || at.Line != 4 || at.Key != "peer" {
			t.Errorf("entry %d of peer.both is placed at %v; want line 4 of %s", i, at, file)
		}
	}
}

func TestIncludeCircle(t *testing.T) {
	dir := write(t, map[string]string{"master": "include: a.conf", "a.conf": "include: b.conf", "b.conf": "x: 1\ninclude: a.conf"})
	_, _, err := LoadMaster(dir)
	var e *Error
	if !errors.As(err, &e) || filepath.Base(e.File) != "b.conf" || e.Line != 2 {
		t.Errorf("a circle of includes: %v", err)
	}
	if _, _, err := LoadMaster(write(t, map[string]string{"master": "include: master"})); err == nil {
		t.Error("a file that includes itself is accepted")
	}
}

func TestMergeKeys(t *testing.T) {
	m, _, err := master(t, "base: &b {x: 1, y: 2}\nmore: &m {y: 3, z: 4}\npeer: {<<: [*b, *m], x: 9}\nexternal_auth: {<<: *b}\nquoted: {'<<': 1}\n")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"x": int64(9), "y": int64(2), "z": int64(4)}
	if !reflect.DeepEqual(m.Peer.Value(), want) || !reflect.DeepEqual(m.Raw["peer"], want) {
		t.Errorf("peer = %v, want %v", m.Peer.Value(), want)
	}
	if want := map[string]any{"<<": int64(1)}; !reflect.DeepEqual(m.Raw["quoted"], want) {
		t.Errorf("quoted = %v, want %v", m.Raw["quoted"], want)
	}
}

func TestRootDir(t *testing.T) {
	dir := write(t, map[string]string{"master": strings.Join([]string{
		"root_dir: scratch", "sock_dir: run", "autosign_file: /etc/salt/autosign.conf", "log_file: udp://host:514",
		"module_dirs: [/opt/m, own]", "pidfile: /elsewhere/m.pid",
	}, "\n")})
	m, _, err := LoadMaster(dir)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "scratch")
	got := []string{m.RootDir, m.PKIDir, m.SockDir, m.AutosignFile, m.LogFile, m.ModuleDirs[0], m.ModuleDirs[1], m.PIDFile, m.FileRoots["base"][0], m.AutorejectFile}
	want := []string{root, root + "/etc/salt/pki/master", root + "/run", root + "/etc/salt/autosign.conf", "udp://host:514", "/opt/m", root + "/own", root + "/elsewhere/m.pid", root + "/srv/salt", ""}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("paths\n %q, want\n %q", got, want)
	}
	m, _, err = Options{ConfigDir: dir, Overrides: map[string]any{"root_dir": root, "pki_dir": root + "/pki"}}.Master()
	if err != nil || m.PKIDir != root+"/pki" {
		t.Errorf("pki_dir below root_dir = %q, %v; want it left alone", m.PKIDir, err)
	}
	m, _, err = master(t, "root_dir: /tmp/x/\nfile_roots: {base: [/srv/a, b], dev: , prod: /srv/p}")
	if want := map[string][]string{"base": {"/srv/a", "/tmp/x/b"}, "dev": {}, "prod": {"/srv/p"}}; err != nil || !reflect.DeepEqual(m.FileRoots, want) {
		t.Errorf("file_roots = %v, %v; want %v", m.FileRoots, err, want)
	}
	m, _, err = master(t, "root_dir: /tmp/x\npki_dir: /tmp/xy/pki")
	if err != nil || m.PKIDir != "/tmp/x/tmp/xy/pki" {
		t.Errorf("a directory with a longer name counts as below: %q, %v", m.PKIDir, err)
	}
}

func TestOverrides(t *testing.T) {
	dir := write(t, map[string]string{"master": "timeout: 1\nlog_level: info", "master.d/a.conf": "timeout: 2"})
	m, _, err := Options{ConfigDir: dir, Overrides: map[string]any{"timeout": "90s", "show_jid": "yes", "ret_port": 1234, "module_dirs": []string{"/x"}, "auto_accept": true}}.Master()
	if err != nil || m.Timeout != 90*time.Second || !m.ShowJID || m.RetPort != 1234 || m.ModuleDirs[0] != "/x" || !m.AutoAccept || m.LogLevel != "info" {
		t.Errorf("overrides: %+v, %v", m, err)
	}
	if got, _ := m.Lookup("ret_port"); got != int64(1234) {
		t.Errorf("Lookup of an overridden key = %v", got)
	}
	for key, value := range map[string]any{"timeout": "soon", "nobody": 1, "log_level": "loud"} {
		_, _, err := Options{ConfigDir: dir, Overrides: map[string]any{key: value}}.Master()
		var e *Error
		if !errors.As(err, &e) || e.File != "command line" || e.Key != key || e.Line != 0 {
			t.Errorf("override of %s by %v: %v", key, value, err)
		}
	}
}

func TestMissing(t *testing.T) {
	_, _, err := LoadMaster(filepath.Join(t.TempDir(), "nonexist"))
	if !errors.Is(err, fs.ErrNotExist) || salt.Hint(err) == "" {
		t.Errorf("a directory that does not exist: %v, hint %q", err, salt.Hint(err))
	}
	dir := t.TempDir()
	m, notices, err := LoadMaster(dir)
	if err != nil || len(notices) != 1 || notices[0].File != filepath.Join(dir, "master") || m.RetPort != 4506 {
		t.Errorf("a directory without the file: %v, %v; want a notice", notices, err)
	}
	file := filepath.Join(write(t, map[string]string{"master": ""}), "master")
	if _, _, err := LoadMaster(file); err == nil || salt.Hint(err) == "" {
		t.Errorf("a file in the place of the directory: %v", err)
	}
	if _, notices, err := LoadMaster(""); err != nil {
		t.Errorf("the default directory: %v, %v; want it to be optional", notices, err)
	}
}

// TestMasters compares with the answers of Salt 3006 in testdata.
func TestMasters(t *testing.T) {
	var vectors struct {
		Defaults map[string]any
		Cases    []struct {
			ID, YAML string
			Config   map[string]json.RawMessage
			Verdict  map[string]any
		}
	}
	text, err := os.ReadFile("testdata/minion_masters.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	for key, want := range vectors.Defaults {
		if _, none := ignored(key); none || key == "master_shuffle" { // that is an old name of random_master
			continue
		}
		got, ok := NewMinion().Lookup(key)
		if !ok || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("default of %s = %v, %v; want %v", key, got, ok, want)
		}
	}
	differences.Differences(t, slices.Collect(maps.Values(masterDifferences))...)
	unseen := maps.Clone(masterDifferences)
	var count differences.Comparison
	for _, c := range vectors.Cases {
		delete(unseen, c.ID)
		lines := c.YAML
		for key, value := range c.Config {
			lines += key + ": " + string(value) + "\n"
		}
		m, _, err := minion(t, lines)
		why, differs := masterDifferences[c.ID]
		if (err == nil) == (c.Verdict["exit"] != nil || differs) {
			t.Errorf("%s: %q: error %v; different from Salt: %v %s", c.ID, lines, err, differs, why)
			continue
		}
		count.Count(differences.Refusal(!differs, err == nil, c.Verdict["exit"] == nil))
		for key, want := range c.Verdict {
			if err != nil || want == nil || key == "master_shuffle" {
				continue // null is the default, which the next test would not show
			}
			if got, _ := m.Lookup(key); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %q: %s = %v, want %v", c.ID, lines, key, got, want)
			}
		}
	}
	for id := range unseen {
		t.Errorf("%s is listed as different, and is not a case", id)
	}
	count.Stands(t, "settings of masters")
}

// masterDifferences are the cases in which Salt at most warns, and continues with a value that
// it cannot use; here they are errors.
var masterDifferences = map[string]string{
	"master_failover-0012": "a map cannot be the name of a master",
	"master_failover-0024": "a master_type that does not exist; Salt notices it only when it connects",
	"master_failover-0031": "quoted text is not a boolean",
	"master_failover-0032": "a number is not a boolean",
	"master_failover-0037": "a time cannot be negative",
	"master_failover-0039": "text is not a time",
	"master_failover-0040": "a boolean is not a time",
	"master_failover-0043": "quoted text is not a boolean",
	"master_failover-0054": "text is not a time",
	"master_failover-0061": "a fraction is not a count",
	"master_failover-0066": "a boolean is not a time",
	"master_failover-0070": "a list is not a time",
	"master_failover-0083": "quoted text is not a boolean; Salt ignores it silently",
	"master_failover-0084": "a number is not a boolean; Salt ignores it silently",
}

func BenchmarkLoadMaster(b *testing.B) {
	text, err := os.ReadFile("../../packaging/etc/salt/master")
	if err != nil {
		b.Fatal(err)
	}
	benchmark(b, string(text))
}

func BenchmarkLoadMasterSmall(b *testing.B) {
	benchmark(b, "interface: 127.0.0.1\nret_port: 25506\nroot_dir: /tmp/x\npeer:\n  web.*:\n    - test.*\n")
}

func benchmark(b *testing.B, text string) {
	dir := write(b, map[string]string{"master": text, "master.d/a.conf": "timeout: 10\n"})
	for b.Loop() {
		if _, _, err := LoadMaster(dir); err != nil {
			b.Fatal(err)
		}
	}
}

// TestOnlyMaster: a name that no master can have is an error with file and line if it is the
// only one; in a list it is a master that cannot be reached.
func TestOnlyMaster(t *testing.T) {
	for lines, want := range map[string]string{
		"master: tcp://a:4506": "is a URL", "master: 'a b'": "has a blank in it", "master: 'a:x'": "no port from 1 to 65535", "master: 'a:'": "no port",
		"master: ':4506'": "is missing", "master: '[::1]x'": "not an address in brackets", "master: a:70000": "no port", "master: a\nmaster_uri_format: ip_only": "is not an address",
		"master: 10.0.0.1:1\nmaster_uri_format: ip_only": "is not an address",
	} {
		_, _, err := minion(t, lines+"\n")
		var e *Error
		if !errors.As(err, &e) || e.Key != "master" || !strings.Contains(err.Error(), want) || salt.Hint(err) == "" {
			t.Errorf("%q: %v, want %q with a hint", lines, err, want)
		}
	}
	for lines, want := range map[string]string{
		"master: ' a:1 '": "a:1", "master: '[::1]:4506'": "[::1]:4506", "master: ::1": "::1", "master: ''": "", "master: ['tcp://a', b]": "tcp://a", "master: 'fe80::1%eth0'": "fe80::1%eth0",
		"master: 10.0.0.1\nmaster_uri_format: ip_only": "10.0.0.1", "master_uri_format: ip_only": "salt",
	} {
		if m, _, err := minion(t, lines+"\n"); err != nil || m.Master[0] != want {
			t.Errorf("%q: %v", lines, err)
		}
	}
}
