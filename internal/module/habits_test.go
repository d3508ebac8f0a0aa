package module

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/function"
)

// machineWith is a machine whose files are those.
func machineWith(t *testing.T, files map[string]string) *function.Host {
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &function.Host{ID: "web1", Paths: function.Paths{Root: root, CacheDir: root}}
}

func TestKernelModules(t *testing.T) {
	m := machineWith(t, map[string]string{"proc/modules": "kvm_intel 400000 0 - Live 0x0\nkvm 1100000 1 kvm_intel, Live 0x0\nbroken\n"})
	same(t, "mod_list", good(t, m, "kmod.mod_list", nil), []any{"kvm", "kvm_intel"})
	same(t, "is_loaded", good(t, m, "kmod.is_loaded", nil, "kvm-intel"), true)
	same(t, "is_loaded", good(t, m, "kmod.is_loaded", nil, "ext4"), false)
	same(t, "lsmod", good(t, m, "kmod.lsmod", nil), []any{
		map[string]any{"module": "kvm_intel", "size": 400000, "depcount": 0, "deps": []any{}},
		map[string]any{"module": "kvm", "size": 1100000, "depcount": 1, "deps": []any{"kvm_intel"}},
	})
	onlyPrograms(t, "sh", "cat")
	fakeProgram(t, "modprobe", `case "$*" in *nosuch) echo "modprobe: FATAL: Module nosuch not found" >&2; exit 1;; "-- ext4") echo "ext4 1 0 - Live 0x0" >> `+m.Root+`/proc/modules;; esac`)
	same(t, "load", good(t, m, "kmod.load", nil, "ext4"), []any{"ext4"})
	bad(t, m, "kmod.load", "Module nosuch not found", nil, "nosuch")
}

func TestLocale(t *testing.T) {
	m := machineWith(t, map[string]string{"etc/default/locale": "# x\nLANG=\"de_DE.UTF-8\"\n"})
	same(t, "get", good(t, m, "locale.get_locale", nil), "de_DE.UTF-8")
	same(t, "none", good(t, machineWith(t, nil), "locale.get_locale", nil), "")
	onlyPrograms(t, "sh")
	fakeProgram(t, "locale", `printf 'C\nde_DE.utf8\n'`)
	fakeProgram(t, "update-locale", "")
	same(t, "avail", good(t, m, "locale.avail", nil, "de_DE.UTF-8"), true)
	same(t, "avail", good(t, m, "locale.avail", nil, "fr_FR.UTF-8"), false)
	same(t, "list", good(t, m, "locale.list_avail", nil), []any{"C", "de_DE.utf8"})
	calls(t)
	good(t, m, "locale.set_locale", nil, "de_DE.UTF-8")
	bad(t, m, "locale.set_locale", "there is no locale", nil, "-x")
	if got := calls(t); !slices.Contains(got, "<update-locale><LANG=de_DE.UTF-8>") || len(got) != 3 {
		t.Errorf("called %q", got)
	}
}

const anSSHKey = "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"

func TestKeysOfSSH(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	home, err := filepath.EvalSymlinks(me.HomeDir)
	if err != nil || home == "/" {
		t.Skip("there is no home to write to")
	}
	dir, err := os.MkdirTemp(home, ".brine-test-")
	if err != nil {
		t.Skip("there is no home to write to")
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(filepath.Base(dir), "keys", "authorized")
	at := map[string]any{"config": file}
	set := func(more map[string]any) map[string]any {
		more["config"], more["enc"] = file, "ssh-ed25519"
		return more
	}
	same(t, "none", good(t, nil, "ssh.auth_keys", at, me.Username), map[string]any{})
	same(t, "set", good(t, nil, "ssh.set_auth_key", set(map[string]any{"comment": "kim"}), me.Username, anSSHKey), "new")
	same(t, "again", good(t, nil, "ssh.set_auth_key", set(map[string]any{"comment": "kim"}), me.Username, anSSHKey), "no change")
	same(t, "replace", good(t, nil, "ssh.set_auth_key", set(map[string]any{"comment": "kim at home", "options": []any{`command="echo a, b"`, "no-pty"}}), me.Username, anSSHKey), "replace")
	got := good(t, nil, "ssh.auth_keys", at, me.Username).(map[string]any)[anSSHKey].(map[string]any)
	same(t, "options", got["options"], []any{`command="echo a, b"`, "no-pty"})
	same(t, "comment", got["comment"], "kim at home")
	if f, _ := got["fingerprint"].(string); !strings.HasPrefix(f, "SHA256:") {
		t.Errorf("the fingerprint is %v", got["fingerprint"])
	}
	path := filepath.Join(home, file)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	for name, kwargs := range map[string]map[string]any{
		"another kind": {"enc": "ssh-rsa", "config": file}, "two lines": set(map[string]any{"comment": "a\nssh-rsa AAAA"}), "outside": {"enc": "ssh-ed25519", "config": "/etc/passwd"},
	} {
		if r := run(t, nil, "ssh.set_auth_key", kwargs, me.Username, anSSHKey); r.Success {
			t.Errorf("%s was taken", name)
		}
	}
	same(t, "remove", good(t, nil, "ssh.rm_auth_key", at, me.Username, anSSHKey), "Key removed")
	same(t, "remove again", good(t, nil, "ssh.rm_auth_key", at, me.Username, anSSHKey), "Key not present")

	// The user puts a link where the file was.
	elsewhere := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(elsewhere, []byte("ssh-ed25519 "+anSSHKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, path); err != nil {
		t.Fatal(err)
	}
	bad(t, nil, "ssh.auth_keys", "escapes", at, me.Username)
	bad(t, nil, "ssh.rm_auth_key", "escapes", at, me.Username, anSSHKey)
	if text, err := os.ReadFile(elsewhere); err != nil || !strings.Contains(string(text), anSSHKey) {
		t.Errorf("the file elsewhere is %q, %v", text, err)
	}
}

func TestCertificatesAreRead(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	make := func(ends time.Time) string {
		c := &x509.Certificate{SerialNumber: big.NewInt(0x1a2b), Subject: pkix.Name{CommonName: "web1", Organization: []string{"Org"}}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: ends,
			DNSNames: []string{"web1.example.com"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}}
		der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	good1, old := make(now.Add(10*24*time.Hour)), make(now.Add(-time.Hour))
	m := machineWith(t, map[string]string{"good.crt": good1, "old.crt": old, "none.crt": "x", "key.crt": string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}))})
	at := func(name string) string { return filepath.Join(m.Root, name) }
	facts := good(t, m, "x509.read_certificate", nil, at("good.crt")).(map[string]any)
	for key, want := range map[string]any{"Key Type": "ec", "Key Size": 256, "Serial Number": "1A:2B", "Names": []any{"web1.example.com", "10.0.0.1"}, "Subject": map[string]any{"CN": "web1", "name": "CN=web1,O=Org"}} {
		same(t, key, facts[key], want)
	}
	same(t, "as text", good(t, m, "x509.read_certificate", nil, good1), facts)
	same(t, "not expired", good(t, m, "x509.expired", nil, at("good.crt")), map[string]any{"path": at("good.crt"), "cn": "web1", "expired": false})
	same(t, "expired", good(t, m, "x509.expired", nil, at("old.crt")).(map[string]any)["expired"], true)
	same(t, "will expire", good(t, m, "x509.will_expire", map[string]any{"days": 30}, at("good.crt")), map[string]any{"path": at("good.crt"), "cn": "web1", "check_days": 30, "will_expire": true})
	same(t, "will not", good(t, m, "x509.will_expire", map[string]any{"days": 3}, at("good.crt")).(map[string]any)["will_expire"], false)
	bad(t, m, "x509.read_certificate", "there is no certificate", nil, at("none.crt"))
	if all := good(t, m, "x509.read_certificates", nil, at("*.crt")).(map[string]any); len(all) != 2 {
		t.Errorf("read %d certificates", len(all))
	}
	if all := good(t, m, "x509.get_pem_entries", nil, at("*.crt")).(map[string]any); len(all) != 2 || all[at("key.crt")] != nil {
		t.Errorf("a private key is shown: %d entries", len(all))
	}
}

func TestShadow(t *testing.T) {
	m := machineWith(t, map[string]string{"etc/shadow": "root:$6$abc$def:19000:0:99999:7:::\nkim:!$6$x$y:19001:1:90:7:14:20000:\nnone::19000::::::\n"})
	same(t, "info", good(t, m, "shadow.info", nil, "kim"), map[string]any{"name": "kim", "passwd": "locked", "lstchg": 19001, "min": 1, "max": 90, "warn": 7, "inact": 14, "expire": 20000})
	same(t, "hash", good(t, m, "shadow.info", nil, "root").(map[string]any)["passwd"], "set")
	same(t, "none", good(t, m, "shadow.info", nil, "none").(map[string]any)["passwd"], "")
	same(t, "users", good(t, m, "shadow.list_users", nil), []any{"kim", "none", "root"})
	bad(t, m, "shadow.info", "is not in /etc/shadow", nil, "nosuch")
	onlyPrograms(t, "sh", "cat")
	stdin := filepath.Join(t.TempDir(), "stdin")
	fakeProgram(t, "chpasswd", "cat > "+stdin)
	fakeProgram(t, "chage", "")
	fakeProgram(t, "passwd", "")
	good(t, m, "shadow.set_password", nil, "root", "$6$salt$hash")
	if text, err := os.ReadFile(stdin); err != nil || string(text) != "root:$6$salt$hash\n" {
		t.Errorf("chpasswd read %q, %v", text, err)
	}
	good(t, m, "shadow.set_maxdays", nil, "root", 90)
	good(t, m, "shadow.set_expire", nil, "root", "2026-12-31")
	good(t, m, "shadow.lock_password", nil, "root")
	wantCalls(t, "programs", "<chpasswd><-e>", "<chage><-M><90><--><root>", "<chage><-E><2026-12-31><--><root>", "<passwd><-l><--><root>")
	for name, args := range map[string][]any{"no hash": {"root", "secret"}, "two users": {"root", "$6$a\nkim:$6$b"}, "nobody": {"no-such-user", "$6$a$b"}} {
		if r := run(t, m, "shadow.set_password", nil, args...); r.Success {
			t.Errorf("%s was taken", name)
		}
	}
	bad(t, m, "shadow.set_mindays", "is a date", nil, "root", "; x")
	wantCalls(t, "nothing")
}

func TestSockets(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	m := machineWith(t, map[string]string{
		"proc/net/tcp": head + "   0: 0100007F:1F90 0200000A:01BB 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1\n" +
			"   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 17 1\n",
		"proc/net/udp6": head + "   0: 00000000000000000000000001000000:0035 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 18 1\n",
	})
	same(t, "active_tcp", good(t, m, "network.active_tcp", nil), map[string]any{"0": map[string]any{"local_addr": "127.0.0.1", "local_port": 8080, "remote_addr": "10.0.0.2", "remote_port": 443}})
	same(t, "netstat", good(t, m, "network.netstat", nil), []any{
		map[string]any{"proto": "tcp", "user": "1000", "inode": "4242", "local-address": "127.0.0.1:8080", "remote-address": "10.0.0.2:443", "state": "ESTABLISHED"},
		map[string]any{"proto": "tcp", "user": "0", "inode": "17", "local-address": "0.0.0.0:22", "remote-address": "0.0.0.0:0", "state": "LISTEN"},
		map[string]any{"proto": "udp6", "user": "0", "inode": "18", "local-address": "[::1]:53", "remote-address": "[::]:0"},
	})
	onlyPrograms(t, "sh")
	fakeProgram(t, "traceroute", `printf 'traceroute to a (10.0.0.9), 30 hops max\n 1  gate (10.0.0.1)  0.4 ms  0.5 ms  0.6 ms\n 2  * * *\n'`)
	fakeProgram(t, "dig", "echo answer")
	same(t, "traceroute", good(t, m, "network.traceroute", nil, "a"), []any{
		map[string]any{"count": "1", "hostname": "gate", "ip": "10.0.0.1", "ms1": "0.4", "ms2": "0.5", "ms3": "0.6"}, map[string]any{"count": "2", "hostname": "*", "ip": nil},
	})
	same(t, "dig", good(t, m, "network.dig", nil, "example.com"), "answer\n")
	bad(t, m, "network.dig", "is neither a name nor an address", nil, "-f/etc/shadow")
	bad(t, m, "network.dig", "is neither a name nor an address", nil, "@server")
}

func TestMoreOfPackages(t *testing.T) {
	onlyPrograms(t, "sh", "cat")
	fakeProgram(t, "apt-cache", "")
	fakeProgram(t, "dpkg-query", `case "$*" in
*Installed-Size*nosuch) echo "no packages found matching nosuch" >&2; exit 1;;
*Installed-Size*) printf 'bash\t5.2-1\tamd64\t7000\tbash\tGNU shell\n';;
"-L -- bash") printf '/.\n/bin/bash\n';;
"-L "*) echo "package is not installed" >&2; exit 1;;
*"-S -- /bin/sh") echo 'dash: /bin/sh';;
"-S "*) exit 1;;
*) echo 'installed bash 5.2-1';;
esac
exit 0`)
	fakeProgram(t, "apt-mark", `case "$*" in *broken) echo "E: no" >&2; exit 100;; esac`)
	fakeProgram(t, "apt-get", `case "$*" in
*"--just-print install"*) printf 'Inst foo [1.0] (2.0 Debian [amd64])\nInst new (1.0 Debian)\nRemv old [3.0]\n';;
*"--just-print autoremove") printf 'Remv lib1 [1.0]\n';;
esac
exit 0`)
	same(t, "test", good(t, nil, "pkg.install", map[string]any{"test": true}, "foo"), map[string]any{
		"foo": map[string]any{"old": "1.0", "new": "2.0"}, "new": map[string]any{"old": "", "new": "1.0"}, "old": map[string]any{"old": "3.0", "new": ""},
	})
	same(t, "autoremove", good(t, nil, "pkg.autoremove", map[string]any{"list_only": true}), []any{"lib1"})
	wantCalls(t, "nothing is done", "<apt-get><-q><--just-print><install><--><foo>", "<apt-get><-q><--just-print><autoremove>")
	held := good(t, nil, "pkg.hold", nil, "bash").(map[string]any)["bash"].(map[string]any)
	same(t, "hold", held["changes"], map[string]any{"old": "install", "new": "hold"})
	if r := run(t, nil, "pkg.unhold", nil, "broken"); r.Success {
		t.Errorf("unhold of a broken package: %v", r.Return)
	}
	wantCalls(t, "hold", "<apt-mark><hold><--><bash>", "<apt-mark><unhold><--><broken>")
	if r := run(t, nil, "pkg.hold", nil, "-o"); r.Success {
		t.Error("an option was taken for a package")
	}
	same(t, "info", good(t, nil, "pkg.info_installed", nil, "bash"), map[string]any{"bash": map[string]any{"version": "5.2-1", "arch": "amd64", "size": 7168000, "source": "bash", "summary": "GNU shell"}})
	bad(t, nil, "pkg.info_installed", "no packages found", nil, "nosuch")
	same(t, "owner", good(t, nil, "pkg.owner", nil, "/bin/sh"), "dash")
	same(t, "file_list", good(t, nil, "pkg.file_list", nil, "bash"), map[string]any{"errors": []any{}, "files": []any{"/.", "/bin/bash"}})
	some := run(t, nil, "pkg.file_dict", nil, "bash", "nosuch")
	if errs, _ := some.Return.(map[string]any)["errors"].([]any); some.Retcode != 1 || len(errs) != 1 || !strings.Contains(fmt.Sprint(errs), "not installed") {
		t.Errorf("file_dict with a package that is not there: %v, retcode %d", some.Return, some.Retcode)
	}
	same(t, "file_dict", some.Return.(map[string]any)["packages"], map[string]any{"bash": []any{"/.", "/bin/bash"}})
	bad(t, nil, "pkg.file_list", "name a package", nil)
	same(t, "owners", good(t, nil, "pkg.owner", nil, "/bin/sh", "/nosuch"), map[string]any{"/bin/sh": "dash", "/nosuch": ""})
	calls(t)
	good(t, nil, "pkg.upgrade", map[string]any{"dist_upgrade": false})
	if got := calls(t); !slices.Contains(got, aptYes+"<upgrade>") {
		t.Errorf("called %q", got)
	}
	m := machineWith(t, map[string]string{
		"etc/apt/sources.list":             "# a comment\ndeb [arch=amd64 signed-by=/k] http://deb.debian.org/debian/ trixie main contrib\n# deb-src http://deb.debian.org/debian trixie main\n",
		"etc/apt/sources.list.d/x.sources": "Types: deb\nURIs: https://x.example.com/apt\nSuites: stable\nComponents: main\nEnabled: no\n",
	})
	repos := good(t, m, "pkg.list_repos", nil).(map[string]any)
	same(t, "apt", repos["http://deb.debian.org/debian"].([]any)[0].(map[string]any)["comps"], []any{"main", "contrib"})
	same(t, "a disabled one", repos["http://deb.debian.org/debian"].([]any)[1].(map[string]any)["disabled"], true)
	same(t, "the newer form", repos["https://x.example.com/apt"].([]any)[0].(map[string]any)["disabled"], true)
	same(t, "providers", good(t, nil, "test.providers", nil).(map[string]any)["pkg"], "apt")
}

func TestClearCacheKeepsState(t *testing.T) {
	m := machineWith(t, map[string]string{"content/ab": "1", "files/base/x": "1", "recv/x": "1", "urls/y/z": "1", "outbox/0": "1", "datastore.json": "{}"})
	same(t, "clear", good(t, m, "saltutil.clear_cache", nil), true)
	entries, err := os.ReadDir(m.CacheDir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left %v, %v", entries, err)
	}
}
