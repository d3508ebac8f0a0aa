package module

import (
	"archive/zip"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/function"
)

// quietServer keeps the complaints of a test's server to itself.
var quietServer = log.New(io.Discard, "", 0)

// inRoot is a machine whose files lie below a new folder.
func inRoot(t testing.TB, files map[string]string) (*function.Host, string) {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		place := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(place, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &function.Host{ID: "web1", Paths: function.Paths{Root: root, CacheDir: root}, Config: map[string]any{}}, root
}

func TestEnviron(t *testing.T) {
	t.Setenv("BRINE_TEST_A", "a")
	t.Setenv("BRINE_TEST_B", "")
	same(t, "get", good(t, nil, "environ.get", nil, "BRINE_TEST_A"), "a")
	same(t, "default", good(t, nil, "environ.get", nil, "BRINE_TEST_NONE", "d"), "d")
	same(t, "setval", good(t, nil, "environ.setval", nil, "BRINE_TEST_B", "5"), "5")
	same(t, "program", good(t, nil, "cmd.run", nil, "echo $BRINE_TEST_B"), "5")
	same(t, "has_value", good(t, nil, "environ.has_value", nil, "BRINE_TEST_B", "5"), true)
	same(t, "has_value", good(t, nil, "environ.has_value", nil, "BRINE_TEST_B", "6"), false)
	same(t, "item", good(t, nil, "environ.item", nil, "BRINE_TEST_A,BRINE_TEST_NONE"), map[string]any{"BRINE_TEST_A": "a", "BRINE_TEST_NONE": ""})
	same(t, "setenv", good(t, nil, "environ.setenv", map[string]any{"false_unsets": true}, map[string]any{"BRINE_TEST_B": false}), map[string]any{"BRINE_TEST_B": nil})
	if _, ok := os.LookupEnv("BRINE_TEST_B"); ok {
		t.Error("it is still set")
	}
	if v := good(t, nil, "environ.items", nil).(map[string]any)["BRINE_TEST_A"]; v != "a" {
		t.Errorf("items: %v", v)
	}
	bad(t, nil, "environ.setval", "is not text", nil, "X", []any{1})
}

func TestHosts(t *testing.T) {
	h, root := inRoot(t, map[string]string{"hosts": "# the machine\n127.0.0.1 localhost lo # first\n\n::1\tlocalhost\n192.0.2.1 a\n192.0.2.1 b\n"})
	h.Config["hosts.file"] = root + "/hosts"
	same(t, "list_hosts", good(t, h, "hosts.list_hosts", nil), map[string]any{
		"127.0.0.1": map[string]any{"aliases": []any{"localhost", "lo"}}, "::1": map[string]any{"aliases": []any{"localhost"}}, "192.0.2.1": map[string]any{"aliases": []any{"a", "b"}},
	})
	same(t, "get_ip", good(t, h, "hosts.get_ip", nil, "b"), "192.0.2.1")
	same(t, "get_ip", good(t, h, "hosts.get_ip", nil, "none"), "")
	same(t, "get_alias", good(t, h, "hosts.get_alias", nil, "192.0.2.1"), []any{"a", "b"})
	same(t, "has_pair", good(t, h, "hosts.has_pair", nil, "192.0.2.1", "a,b"), true)
	same(t, "has_pair", good(t, h, "hosts.has_pair", nil, "192.0.2.1", "a,c"), false)
	good(t, h, "hosts.add_host", nil, "192.0.2.1", "c")
	good(t, h, "hosts.add_host", nil, "192.0.2.2", "d")
	good(t, h, "hosts.rm_host", nil, "127.0.0.1", "lo")
	good(t, h, "hosts.rm_host", nil, "::1", "localhost")
	same(t, "file", content(t, root+"/hosts"), "# the machine\n127.0.0.1\tlocalhost\t# first\n\n192.0.2.1\ta b c\n192.0.2.2\td\n")
	good(t, h, "hosts.set_host", nil, "192.0.2.1", "only")
	same(t, "get_alias", good(t, h, "hosts.get_alias", nil, "192.0.2.1"), []any{"only"})
	bad(t, h, "hosts.add_host", "is not an address", nil, "192.0.2", "x")
	bad(t, h, "hosts.add_host", "is not the name of a host", nil, "192.0.2.1", "x\n192.0.2.66 y")
}

func TestHashutil(t *testing.T) {
	same(t, "encode", good(t, nil, "hashutil.base64_b64encode", nil, "get salted"), "Z2V0IHNhbHRlZA==")
	same(t, "decode", good(t, nil, "hashutil.base64_b64decode", nil, "Z2V0IHNhbHRlZA=="), "get salted")
	same(t, "encodestring", good(t, nil, "hashutil.base64_encodestring", nil, strings.Repeat("x", 60)), strings.Repeat("eHh4", 19)+"\neHh4\n")
	same(t, "decodestring", good(t, nil, "hashutil.base64_decodestring", nil, "Z2V0\nIHNhbHRlZA==\n"), "get salted")
	same(t, "md5", good(t, nil, "hashutil.md5_digest", nil, "get salted"), "2aacf29e92feaf528fb738bcf9d647ac")
	same(t, "digest", good(t, nil, "hashutil.digest", nil, "get salted", "sha256"), good(t, nil, "hashutil.sha256_digest", nil, "get salted"))
	same(t, "hmac", good(t, nil, "hashutil.hmac_signature", nil, "get salted", "shared secret", "eBWf9bstXg+NiP5AOwppB5HMvZiYMPzEM9W5YMm/AmQ="), true)
	same(t, "hmac", good(t, nil, "hashutil.hmac_signature", nil, "get salted", "other secret", "eBWf9bstXg+NiP5AOwppB5HMvZiYMPzEM9W5YMm/AmQ="), false)
	file := filepath.Join(t.TempDir(), "f")
	good(t, nil, "hashutil.base64_decodefile", nil, "Z2V0IHNhbHRlZA==", file)
	same(t, "digest_file", good(t, nil, "hashutil.digest_file", nil, file), "2aacf29e92feaf528fb738bcf9d647ac")
	same(t, "encodefile", good(t, nil, "hashutil.base64_encodefile", nil, file), "Z2V0IHNhbHRlZA==\n")
	bad(t, nil, "hashutil.base64_b64decode", "is not base64", nil, "?")
	bad(t, nil, "hashutil.digest", "unknown hash type", nil, "x", "crc")
}

func TestRandom(t *testing.T) {
	a, b := good(t, nil, "random.get_str", nil, 30).(string), good(t, nil, "random.get_str", nil, 30).(string)
	if len(a) != 30 || a == b {
		t.Errorf("%q and %q", a, b)
	}
	same(t, "chars", good(t, nil, "random.get_str", map[string]any{"chars": "x"}, 3), "xxx")
	if n := good(t, nil, "random.rand_int", nil, 5, 7).(int64); n != 5 && n != 6 {
		t.Errorf("rand_int: %d", n)
	}
	seeded := map[string]any{"seed": "s"}
	list := []any{int64(1), int64(2), int64(3), int64(4)}
	same(t, "shuffle", good(t, nil, "random.shuffle", seeded, list), good(t, nil, "random.shuffle", seeded, list))
	same(t, "sample", len(good(t, nil, "random.sample", nil, list, 2).([]any)), 2)
	same(t, "seed", good(t, &function.Host{ID: "a"}, "random.seed", nil, 1), 0)
	same(t, "encode", good(t, nil, "random.str_encode", nil, "a", "hex"), "61")
	bad(t, nil, "random.rand_int", "is not above start", nil, 5, 5)
	bad(t, nil, "random.sample", "is not between", nil, list, 9)
	bad(t, nil, "random.get_str", "want a length", nil, -1)
}

func TestData(t *testing.T) {
	h, _ := inRoot(t, nil)
	good(t, h, "data.update", nil, "a", []any{int64(1)})
	same(t, "get", good(t, h, "data.get", nil, "a"), []any{int64(1)})
	same(t, "default", good(t, h, "data.get", nil, "b", "none"), "none")
	same(t, "cas", good(t, h, "data.cas", nil, "a", "new", "wrong"), false)
	same(t, "cas", good(t, h, "data.cas", nil, "a", "new", []any{int64(1)}), true)
	same(t, "items", good(t, h, "data.items", nil), map[string]any{"a": "new"})
	same(t, "has_key", good(t, h, "data.has_key", nil, "a"), true)
	same(t, "pop", good(t, h, "data.pop", nil, "a"), "new")
	same(t, "keys", good(t, h, "data.keys", nil), []any{})
	good(t, h, "data.dump", nil, map[string]any{"x": int64(1), "y": int64(2)})
	same(t, "values", good(t, h, "data.values", nil), []any{int64(1), int64(2)})
	good(t, h, "data.clear", nil)
	same(t, "load", good(t, h, "data.load", nil), map[string]any{})
	bad(t, nil, "data.items", "not available here", nil)
}

func TestTimezone(t *testing.T) {
	h, root := inRoot(t, map[string]string{"usr/share/zoneinfo/Europe/Berlin": "TZif2", "usr/share/zoneinfo/tzdata.zi": "# no zone", "etc/timezone": "UTC\n"})
	same(t, "get_zone", good(t, h, "timezone.get_zone", nil), "UTC")
	same(t, "get_hwclock", good(t, h, "timezone.get_hwclock", nil), "UTC")
	same(t, "get_offset", good(t, h, "timezone.get_offset", nil), "+0000")
	same(t, "get_zonecode", good(t, h, "timezone.get_zonecode", nil), "UTC")
	same(t, "list", good(t, h, "timezone.list", nil), []any{"Europe/Berlin"})
	same(t, "set_zone", good(t, h, "timezone.set_zone", nil, "Europe/Berlin"), true)
	same(t, "zone_compare", good(t, h, "timezone.zone_compare", nil, "Europe/Berlin"), true)
	same(t, "file", content(t, root+"/etc/timezone"), "Europe/Berlin\n")
	for _, name := range []string{"../../../etc/passwd", "/etc/passwd", "tzdata.zi", "Europe", ""} {
		bad(t, h, "timezone.set_zone", "there is no time zone", nil, name)
	}
}

func TestSysctl(t *testing.T) {
	h, root := inRoot(t, map[string]string{"proc/sys/net/ipv4/ip_forward": "0\n", "proc/sys/kernel/x": "a\tb\n", "conf": "# note\nkernel.x = a b\n-net.ipv4.ip_forward=0\n"})
	same(t, "get", good(t, h, "sysctl.get", nil, "net.ipv4.ip_forward"), "0")
	same(t, "get", good(t, h, "sysctl.get", nil, "no.such"), "")
	same(t, "assign", good(t, h, "sysctl.assign", nil, "net.ipv4.ip_forward", 1), map[string]any{"net.ipv4.ip_forward": "1"})
	same(t, "get", good(t, h, "sysctl.get", nil, "net/ipv4/ip_forward"), "1")
	same(t, "show", good(t, h, "sysctl.show", nil), map[string]any{"net.ipv4.ip_forward": "1", "kernel.x": "a\tb"})
	same(t, "show", good(t, h, "sysctl.show", map[string]any{"config_file": root + "/conf"}), map[string]any{"kernel.x": "a b", "net.ipv4.ip_forward": "0"})
	same(t, "persist", good(t, h, "sysctl.persist", map[string]any{"config": root + "/conf"}, "net.ipv4.ip_forward", 1), "Updated")
	same(t, "persist", good(t, h, "sysctl.persist", map[string]any{"config": root + "/conf"}, "net.ipv4.ip_forward", 1), "Already set")
	same(t, "file", content(t, root+"/conf"), "# note\nkernel.x = a b\nnet.ipv4.ip_forward = 1\n")
	same(t, "persist", good(t, h, "sysctl.persist", nil, "kernel.x", "c"), "Updated")
	same(t, "file", content(t, root+sysctlFile), "kernel.x = c\n")
	for _, name := range []string{"../../etc/passwd", "/etc/passwd", "a=b"} {
		bad(t, h, "sysctl.assign", "is not the name of a parameter", nil, name, "x")
	}
	bad(t, h, "sysctl.assign", "no such file", nil, "no.such", "1")
}

func TestFstab(t *testing.T) {
	h, root := inRoot(t, map[string]string{"etc/fstab": "# static\n/dev/sda1 / ext4 defaults 0 1\n/dev/sdb1 /my\\040disk xfs ro\n"})
	all := good(t, h, "mount.fstab", nil).(map[string]any)
	same(t, "fstab", all["/my disk"], map[string]any{"device": "/dev/sdb1", "fstype": "xfs", "opts": []any{"ro"}, "dump": "0", "pass": "0"})
	same(t, "set", good(t, h, "mount.set_fstab", nil, "/", "/dev/sda1", "ext4", "defaults", 0, 1), "present")
	same(t, "set", good(t, h, "mount.set_fstab", nil, "/", "/dev/sda2", "ext4"), "change")
	same(t, "set", good(t, h, "mount.set_fstab", map[string]any{"test": true}, "/new one", "/dev/sdc1", "ext4"), "new")
	same(t, "set", good(t, h, "mount.set_fstab", nil, "/new one", "/dev/sdc1", "ext4", "noatime,ro"), "new")
	same(t, "rm", good(t, h, "mount.rm_fstab", nil, "/my disk"), true)
	same(t, "file", content(t, root+"/etc/fstab"), "# static\n/dev/sda2\t/\text4\tdefaults\t0\t0\n/dev/sdc1\t/new\\040one\text4\tnoatime,ro\t0\t0\n")
	same(t, "is_mounted", good(t, nil, "mount.is_mounted", nil, "/proc"), true)
	same(t, "is_mounted", good(t, nil, "mount.is_mounted", nil, "/no/such"), false)
	if m := good(t, nil, "mount.active", nil).(map[string]any)["/proc"].(map[string]any); m["fstype"] != "proc" {
		t.Errorf("active: %v", m)
	}
}

func TestMountPrograms(t *testing.T) {
	for _, name := range []string{"mount", "umount", "swapon", "swapoff", "shutdown", "hostname"} {
		fakeProgram(t, name, "exit 0")
	}
	h, root := inRoot(t, map[string]string{"etc/hostname": "old\n"})
	h.Data = minionData{grains: map[string]any{"init": "other"}}
	good(t, h, "mount.mount", map[string]any{"fstype": "ext4", "opts": "ro,noatime", "mkmnt": true}, root+"/mnt", "-dev")
	good(t, h, "mount.umount", nil, root+"/mnt")
	good(t, h, "mount.swapoff", nil, "/swap")
	good(t, h, "system.reboot", map[string]any{"at_time": 5})
	good(t, h, "system.shutdown", nil)
	good(t, h, "system.set_computer_name", nil, "web2")
	wantCalls(t, "mount and system", "<mount><-t><ext4><-o><ro,noatime><--><-dev><"+root+"/mnt>", "<umount><--><"+root+"/mnt>", "<swapoff><--><"+"/swap>",
		"<shutdown><-r><+5>", "<shutdown><-h><now>", "<hostname><--><web2>")
	same(t, "file", content(t, root+"/etc/hostname"), "web2\n")
	bad(t, h, "system.reboot", "at_time is", nil, "-k")
	bad(t, h, "system.set_computer_name", "is not the name of a machine", nil, "-x")
	same(t, "reboot required", good(t, h, "system.get_reboot_required_witnessed", nil), false)
}

func TestHTTP(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		user, password, _ := q.BasicAuth()
		_ = q.ParseForm()
		if q.URL.Path == "/no" {
			w.WriteHeader(http.StatusTeapot)
		}
		w.Header().Set("X-A", "b")
		fmt.Fprintf(w, `{"method": %q, "form": %q, "user": %q, "h": %q}`, q.Method, q.Form.Encode(), user+password, q.Header.Get("X-Y"))
	}))
	server.Config.ErrorLog = quietServer
	defer server.Close()
	with := func(more map[string]any) map[string]any {
		kwargs := map[string]any{"verify_ssl": false}
		for k, v := range more {
			kwargs[k] = v
		}
		return kwargs
	}
	got := good(t, nil, "http.query", with(map[string]any{"method": "POST", "data": map[string]any{"a": 1}, "params": map[string]any{"p": "q r"}, "username": "u", "password": "p",
		"header_dict": map[string]any{"X-Y": "z"}, "decode": true, "status": true, "headers": true}), server.URL).(map[string]any)
	same(t, "dict", got["dict"], map[string]any{"method": "POST", "form": "a=1&p=q+r", "user": "up", "h": "z"})
	same(t, "status", got["status"], 200)
	r := run(t, nil, "http.query", with(nil), server.URL+"/no")
	if m := r.Return.(map[string]any); r.Success || m["status"] != 418 || m["error"] != "HTTP 418 I'm a teapot" {
		t.Errorf("%+v", r)
	}
	same(t, "status", good(t, nil, "http.query", with(map[string]any{"raise_error": false}), server.URL+"/no").(map[string]any)["status"], 418)
	bad(t, nil, "http.query", "certificate", nil, server.URL)
	bad(t, nil, "http.query", "is not an address that begins with http", nil, "file:///etc/passwd")
	bad(t, nil, "http.wait_for_successful_query", "no success within 0.1 seconds", with(map[string]any{"wait_for": 0.1, "request_interval": 0.01}), server.URL+"/no")
	good(t, nil, "http.wait_for_successful_query", with(nil), server.URL)
}

func TestArchive(t *testing.T) {
	h, root := inRoot(t, map[string]string{"src/a.txt": "A", "src/sub/b.txt": "B", "file": "text"})
	same(t, "zip", good(t, h, "archive.zip", map[string]any{"cwd": root}, root+"/x.zip", "src"), []any{"src/a.txt", "src/sub/b.txt"})
	same(t, "list", good(t, h, "archive.list", nil, root+"/x.zip"), []any{"src/a.txt", "src/sub/b.txt"})
	same(t, "unzip", good(t, h, "archive.unzip", map[string]any{"excludes": "*b.txt"}, root+"/x.zip", root+"/out"), []any{"src/a.txt"})
	same(t, "content", content(t, root+"/out/src/a.txt"), "A")
	same(t, "is_encrypted", good(t, h, "archive.is_encrypted", nil, root+"/x.zip"), false)
	same(t, "gzip", good(t, h, "archive.gzip", nil, root+"/file"), root+"/file.gz")
	same(t, "gunzip", good(t, h, "archive.gunzip", nil, root+"/file.gz"), root+"/file")
	same(t, "content", content(t, root+"/file"), "text")
	if which("tar") != nil {
		good(t, h, "archive.tar", map[string]any{"cwd": root}, "czf", root+"/x.tgz", "src")
		same(t, "list", good(t, h, "archive.list", map[string]any{"verbose": true}, root+"/x.tgz"), map[string]any{"dirs": []any{"src/", "src/sub/"}, "files": []any{"src/a.txt", "src/sub/b.txt"}, "links": []any{}})
		if err := os.Mkdir(root+"/un", 0o755); err != nil {
			t.Fatal(err)
		}
		good(t, h, "archive.tar", map[string]any{"dest": root + "/un"}, "xf", root+"/x.tgz")
		same(t, "content", content(t, root+"/un/src/sub/b.txt"), "B")
		bad(t, h, "archive.tar", "options are letters", nil, "xf --to-command=sh", root+"/x.tgz")
		bad(t, h, "archive.tar", "does not begin with a hyphen", nil, "xf", "--checkpoint=1")
	}
	bad(t, h, "archive.list", "file", nil, root+"/none")
}

// TestUnzipStaysWithin is a zip file made to write elsewhere.
func TestUnzipStaysWithin(t *testing.T) {
	h, root := inRoot(t, nil)
	for _, name := range []string{"../evil", "/evil", "a/../../evil", `..\evil`} {
		f, err := os.Create(root + "/x.zip")
		if err != nil {
			t.Fatal(err)
		}
		z := zip.NewWriter(f)
		if _, err := z.Create(name); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		f.Close()
		bad(t, h, "archive.unzip", "unpack", nil, root+"/x.zip", root+"/out")
		if _, err := os.Stat(root + "/evil"); err == nil {
			t.Errorf("%q was unpacked", name)
		}
	}
	if err := os.Symlink(root, root+"/out/link"); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(root + "/x.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := zip.NewWriter(f)
	if _, err := z.Create("link/evil"); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	bad(t, h, "archive.unzip", "escapes", nil, root+"/x.zip", root+"/out")
}

// TestCron uses a crontab that keeps its table in a file.
func TestCron(t *testing.T) {
	dir := t.TempDir()
	tab := filepath.Join(dir, "tab")
	fakeProgram(t, "crontab", `case $3 in -l) cat `+tab+` 2>/dev/null || { echo "no crontab for $2" >&2; exit 1; };; -) cat > `+tab+`;; --) cat "$4" > `+tab+`;; esac`)
	same(t, "empty", good(t, nil, "cron.raw_cron", nil, "root"), "")
	same(t, "set_job", good(t, nil, "cron.set_job", map[string]any{"identifier": "t1", "comment": "a task"}, "root", "*/5", "*", "*", "*", "1-5", "/bin/task 1"), "new")
	same(t, "set_job", good(t, nil, "cron.set_job", map[string]any{"identifier": "t1", "comment": "a task"}, "root", "*/5", "*", "*", "*", "1-5", "/bin/task 1"), "present")
	same(t, "set_job", good(t, nil, "cron.set_job", map[string]any{"identifier": "t1"}, "root", "0", "1", "*", "*", "*", "/bin/task 2"), "updated")
	same(t, "set_special", good(t, nil, "cron.set_special", nil, "root", "@daily", "/bin/daily"), "new")
	same(t, "set_env", good(t, nil, "cron.set_env", nil, "root", "MAILTO", "me@example.com"), "new")
	same(t, "raw", good(t, nil, "cron.raw_cron", nil, "root"), "MAILTO=\"me@example.com\"\n"+cronHead+"\n# SALT_CRON_IDENTIFIER:t1\n0 1 * * * /bin/task 2\n@daily /bin/daily\n")
	list := good(t, nil, "cron.ls", nil, "root").(map[string]any)
	same(t, "crons", list["crons"], []any{map[string]any{"cmd": "/bin/task 2", "comment": "", "commented": false, "identifier": "t1", "minute": "0", "hour": "1", "daymonth": "*", "month": "*", "dayweek": "*"}})
	same(t, "env", list["env"], []any{map[string]any{"name": "MAILTO", "value": "me@example.com"}})
	same(t, "get_entry", good(t, nil, "cron.get_entry", map[string]any{"identifier": "t1"}, "root").(map[string]any)["cmd"], "/bin/task 2")
	same(t, "rm_job", good(t, nil, "cron.rm_job", nil, "root", "/bin/daily"), "removed")
	same(t, "rm_job", good(t, nil, "cron.rm_job", nil, "root", "/bin/daily"), "absent")
	same(t, "rm_env", good(t, nil, "cron.rm_env", nil, "root", "MAILTO"), "removed")
	foreign := "# mine\n#5 * * * * /bin/off\n\n@reboot /bin/mine\n"
	if err := os.WriteFile(tab, []byte(foreign), 0o600); err != nil {
		t.Fatal(err)
	}
	good(t, nil, "cron.set_job", nil, "root", "1", "1", "*", "*", "*", "/bin/new")
	same(t, "what others wrote", content(t, tab), foreign+cronHead+"\n1 1 * * * /bin/new\n")
	bad(t, nil, "cron.set_job", "is not a time", nil, "root", "1;", "*", "*", "*", "*", "x")
	bad(t, nil, "cron.set_job", "is one line", nil, "root", "1", "*", "*", "*", "*", "x\n* * * * * y")
	bad(t, nil, "cron.set_special", "is not a time", nil, "root", "@often", "x")
	bad(t, nil, "cron.raw_cron", "is not a user", nil, "-x")
}

func FuzzParseCron(f *testing.F) {
	f.Add("# a SALT_CRON_IDENTIFIER:b\n* * * * * x\n@daily y\nA=b\n#DISABLED#1 1 1 1 1 z\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, l := range parseCron(text) {
			if l.isEntry() && (len(l.time) != 1 && len(l.time) != 5 || l.variable != "") {
				t.Errorf("%q: %+v", text, l)
			}
		}
	})
}

func TestGit(t *testing.T) {
	if which("git") == nil {
		t.Skip("there is no git")
	}
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	repo, clone := dir+"/repo", dir+"/clone"
	good(t, nil, "git.init", map[string]any{"opts": "-b main"}, repo)
	for key, v := range map[string]string{"user.name": "Me", "user.email": "me@example.com"} {
		same(t, key, good(t, nil, "git.config_set", map[string]any{"cwd": repo}, key, v), []any{v})
	}
	same(t, "config_get", good(t, nil, "git.config_get", map[string]any{"cwd": repo}, "user.name"), "Me")
	same(t, "config_get", good(t, nil, "git.config_get", map[string]any{"cwd": repo}, "no.such"), nil)
	if err := os.WriteFile(repo+"/a b", []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad(t, nil, "git.pull", "there is no directory /nosuch", nil, "/nosuch")
	same(t, "status", good(t, nil, "git.status", nil, repo), map[string]any{"untracked": []any{"a b"}})
	good(t, nil, "git.add", nil, repo, "a b")
	good(t, nil, "git.commit", nil, repo, "first; $(touch x)")
	head := good(t, nil, "git.rev_parse", nil, repo, "HEAD")
	same(t, "revision", good(t, nil, "git.revision", map[string]any{"short": true}, repo), head.(string)[:7])
	same(t, "current_branch", good(t, nil, "git.current_branch", nil, repo), "main")
	good(t, nil, "git.tag", map[string]any{"message": "one"}, repo, "v1")
	good(t, nil, "git.branch", nil, repo, "topic")
	same(t, "list_branches", good(t, nil, "git.list_branches", nil, repo), []any{"main", "topic"})
	same(t, "list_tags", good(t, nil, "git.list_tags", nil, repo), []any{"v1"})
	same(t, "describe", good(t, nil, "git.describe", nil, repo), "v1")
	good(t, nil, "git.clone", nil, clone, repo)
	same(t, "is_worktree", good(t, nil, "git.is_worktree", nil, clone), true)
	same(t, "is_worktree", good(t, nil, "git.is_worktree", nil, dir), false)
	same(t, "remotes", good(t, nil, "git.remotes", nil, clone), map[string]any{"origin": map[string]any{"fetch": repo, "push": repo}})
	same(t, "ls_remote", good(t, nil, "git.ls_remote", map[string]any{"ref": "refs/heads/main"}, clone), map[string]any{"refs/heads/main": head})
	good(t, nil, "git.checkout", nil, clone, "v1")
	same(t, "detached", good(t, nil, "git.current_branch", nil, clone), "")
	commits := good(t, nil, "git.log", nil, clone).([]any)
	if len(commits) != 1 || commits[0].(map[string]any)["subject"] != "first; $(touch x)" {
		t.Errorf("log: %v", commits)
	}
	bad(t, nil, "git.checkout", "begins with a hyphen", nil, clone, "--orphan=x")
	bad(t, nil, "git.clone", "begins with a hyphen", nil, dir+"/x", "--upload-pack=touch /tmp/evil")
	bad(t, nil, "git.clone", "not allowed", nil, dir+"/x", "ext::sh -c touch% "+dir+"/evil")
	bad(t, nil, "git.rev_parse", "git: exit code", nil, repo, "nosuch")
	if !strings.Contains(good(t, nil, "git.version", nil).(string), ".") {
		t.Error("git.version")
	}
}

func TestMinionAndItsKeys(t *testing.T) {
	h, root := inRoot(t, map[string]string{"pid": "0\n", "pki/minion.pem": "k", "pki/minion.pub": "k", "pki/minion_master.pub": "m"})
	bad(t, h, "minion.kill", "minion's daemon: not available here", nil)
	h.PIDFile = root + "/pid"
	bad(t, h, "minion.kill", "names no process", nil)
	bad(t, h, "saltutil.regen_keys", "not available here", nil)
	h.PKIDir = root + "/pki"
	same(t, "regen_keys", good(t, h, "saltutil.regen_keys", nil), true)
	same(t, "regen_keys", good(t, h, "saltutil.regen_keys", nil), true)
	if left, err := os.ReadDir(h.PKIDir); err != nil || len(left) != 1 || left[0].Name() != "minion_master.pub" {
		t.Errorf("left: %v, %v", left, err)
	}
	bad(t, h, "saltutil.revoke_auth", "not available here", nil)
	bad(t, h, "sys.list_runners", "not available here", nil)
}
