package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/test/order"
)

// strict reads a master's configuration as the daemon does.
func strict(t *testing.T, files map[string]string) (*Master, error) {
	t.Helper()
	m, _, err := Options{ConfigDir: write(t, files), Strict: true}.Master()
	return m, err
}

func TestRefusalsAddUp(t *testing.T) {
	m, err := strict(t, map[string]string{
		"master":          "publisher_acl_blacklist:\n  users: [eve]\n  modules: [cmd.*]\ninclude: more.conf\n",
		"master.d/a.conf": "publisher_acl_blacklist:\n  users: mallory\n",
		"master.d/b.conf": "client_acl_blacklist:\n  users: [eve, trudy]\n  modules:\n",
		"master.d/c.conf": "publisher_acl_blacklist:\n",
		"more.conf":       "publisher_acl_blacklist: {modules: [test.echo]}\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"users": []any{"eve", "mallory", "trudy"}, "modules": []any{"cmd.*", "test.echo"}}
	if got := m.PublisherACLBlacklist.Value(); !reflect.DeepEqual(got, want) {
		t.Errorf("the blacklist is %v, want %v", got, want)
	}
	users := m.PublisherACLBlacklist.Node.Content[1]
	if where := m.PublisherACLBlacklist.Where(users.Content[1]); !strings.HasSuffix(where, "a.conf:2") {
		t.Errorf("mallory is at %s", where)
	}
	m, err = strict(t, map[string]string{"master": "publisher_acl_blacklist:\n  users: [eve]\nclient_acl_blacklist:\n  users: [trudy]\n"})
	if err != nil || !reflect.DeepEqual(m.PublisherACLBlacklist.Value(), map[string]any{"users": []any{"eve", "trudy"}}) {
		t.Errorf("both names in one file: %v, %v", m, err)
	}
	n, _, err := Options{ConfigDir: write(t, map[string]string{"minion": "id: a\ndisable_modules: [cmd]\n", "minion.d/a.conf": "disable_modules: test\n", "minion.d/b.conf": "disable_modules:\n"}), Strict: true}.Minion()
	if err != nil || !slices.Equal(n.DisableModules, []string{"cmd", "test"}) {
		t.Errorf("disable_modules: %+v, %v", n, err)
	}
}

// A word left out, or two words exchanged, counts as a misspelling like a wrong letter.
func TestMisspelledSecuritySettingsByWords(t *testing.T) {
	keys := append(NewMaster().Keys(), NewMinion().Keys()...)
	for key, want := range map[string]string{
		"publisher_blacklist": "publisher_acl_blacklist", "acl_blacklist": "publisher_acl_blacklist", "acl-publisher": "publisher_acl",
		"auth_external": "external_auth", "allow_unsigned": "allow_unsigned_master", "trust_on_first_use": "master_trust_on_first_use",
		"verify_master_sign": "verify_master_pubkey_sign",
		"inlcude":            "include", "includes": "include", "default_incldue": "default_include", "exclude": "",
		"blacklist": "", "master_key": "", "key_name": "", "my_own_setting": "", "publisher": "", "acl": "",
	} {
		if got := nearGuard(key, keys); got != want {
			t.Errorf("%s is near to %q, want %q", key, got, want)
		}
	}
}

// A missing file with rules is an error; a pattern may match no file.
func TestMissingIncludes(t *testing.T) {
	for text, ok := range map[string]bool{"include: more.conf": false, "include: [more.conf, 'x/*.conf']": false, "include: 'x/*.conf'": true, "include: ''": true} {
		_, err := strict(t, map[string]string{"master": "timeout: 1\n" + text + "\n"})
		var e *Error
		if ok != (err == nil) || !ok && (!errors.As(err, &e) || e.Line != 2 || !strings.Contains(e.Error(), "more.conf is not there")) {
			t.Errorf("%s: %v", text, err)
		}
	}
	dir := write(t, map[string]string{"master": "timeout: 1\n"})
	if err := os.Symlink("nowhere", filepath.Join(dir, "master.d")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := (Options{ConfigDir: dir, Strict: true}).Master(); err == nil {
		t.Error("a folder of drop-ins that leads nowhere is passed over")
	}
}

// An entry that names no module, and so disables nothing, is an error.
func TestModulesByName(t *testing.T) {
	for _, text := range []string{"disable_modules: [cmd.run]", "disable_modules: cmd.*", "disable_modules: ['cmd*']", "disable_modules: 'cmd, file'", "whitelist_modules: [test.*]"} {
		_, _, err := Options{ConfigDir: write(t, map[string]string{"minion": "id: a\n" + text + "\n"}), Strict: true}.Minion()
		var e *Error
		if !errors.As(err, &e) || e.Line != 2 || !strings.Contains(e.Error(), "is not the name of a module") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestAccessSettingsAreReadFromOneFile(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"main and drop-in": {"master": "timeout: 1\npeer: {a: [b.c]}\n", "master.d/x.conf": "peer: {d: [e.f]}\n"},
		"two drop-ins":     {"master.d/w.conf": "timeout: 1\npublisher_acl: {fred: [.*]}\n", "master.d/x.conf": "publisher_acl: {fred: [test.*]}\n"},
		"an include":       {"master": "include: x.conf\nexternal_auth: {pam: {}}\n", "x.conf": "external_auth: {pam: {}}\n"},
		"old name":         {"master": "timeout: 1\nclient_acl: {fred: [.*]}\n", "master.d/x.conf": "publisher_acl: {fred: [test.*]}\n"},
		"emptied":          {"master": "timeout: 1\nmine_get: {a: [b]}\n", "master.d/x.conf": "mine_get:\n"},
	} {
		_, err := strict(t, files)
		var e *Error
		if !errors.As(err, &e) || filepath.Base(e.File) != "x.conf" || e.Line != 1 || !strings.Contains(e.Error(), ":2 has these rules too") {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := LoadMaster(write(t, files)); err != nil {
			t.Errorf("%s: a tool does not work: %v", name, err)
		}
	}
	if _, err := strict(t, map[string]string{"master": "client_acl: {fred: [.*]}\npublisher_acl: {eve: [.*]}\n"}); err == nil {
		t.Error("both names in one file are accepted")
	}
}

func TestNearlySecurity(t *testing.T) {
	for key, want := range map[string]string{
		"publisher_acl_blaklist": "publisher_acl_blacklist", "publisher-acl-blacklist": "publisher_acl_blacklist", "Publisher_ACL": "publisher_acl",
		"client_acl_blacklst": "client_acl_blacklist", "peers": "peer", "external_auths": "external_auth", "auto_acept": "auto_accept", "openmode": "open_mode",
		"master_sign_pubky": "master_sign_pubkey", "auth.ldap.strttls": "auth.ldap.starttls", "sudo-acl": "sudo_acl", "nodegroup": "nodegroups",
	} {
		_, err := strict(t, map[string]string{"master": "timeout: 1\n" + key + ": x\n"})
		var e *Error
		if !errors.As(err, &e) || e.Line != 2 || e.Column != 1 || e.Key != key || !strings.Contains(e.Error(), "did you mean "+want+"?") {
			t.Errorf("%s: %v", key, err)
		}
	}
	for _, key := range []string{"my_app", "timeot", "postgres.host", "verify_master_pubkey_sign", "publish_port", "users_of_mine"} {
		if _, err := strict(t, map[string]string{"master": key + ": x\n"}); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	_, _, err := Options{ConfigDir: write(t, map[string]string{"minion": "id: a\nverify_master_pubky_sign: True\n"}), Strict: true}.Minion()
	if err == nil || !strings.Contains(err.Error(), "verify_master_pubkey_sign?") {
		t.Errorf("the minion: %v", err)
	}
}

// Every name in the lists of security settings is a setting.
func TestGuardsAreSettings(t *testing.T) {
	keys := append(NewMaster().Keys(), NewMinion().Keys()...)
	for _, list := range [][]string{denying, allowing, guarding} {
		order.Check(t, "settings of security", list)
		for _, key := range list {
			if !slices.Contains(keys, key) {
				t.Errorf("%s is not a setting", key)
			}
		}
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	m, err := strict(t, map[string]string{
		"master":          "timeout: soon\nret_port: 99999\npublisher_acl_blaklist: {}\nnats_servers: [a:4222]\n",
		"master.d/a.conf": "a: [\n",
		"master.d/b.conf": "log_level: loud\n",
	})
	var places []string
	for _, one := range Mistakes(err) {
		var e *Error
		if !errors.As(one, &e) {
			t.Errorf("%v has no place", one)
			continue
		}
		places = append(places, fmt.Sprintf("%s:%d", filepath.Base(e.File), e.Line))
	}
	want := []string{"master:1", "master:2", "master:3", "master:4", "a.conf:2", "b.conf:1"}
	if m != nil || !slices.Equal(places, want) {
		t.Errorf("mistakes at %v, want %v: %v", places, want, err)
	}
}
