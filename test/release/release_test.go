// Package release makes the packages and installs them as a person would, in a root of
// their own, and on a machine of its own where systemd starts the services.
package release

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var all = flag.Bool("all", false, "make the packages of all architectures, compressed as those that are handed out")

// release runs scripts/release for this machine's architecture and returns what it made,
// by name.
func release(t *testing.T, args ...string) (dir string, files []string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("packages are tried on Linux of amd64 and arm64")
	}
	dir = t.TempDir()
	if !slices.Contains(args, "--arch") {
		args = append(args, "--arch", runtime.GOARCH)
	}
	args = append(args, "--out", dir)
	if !*all {
		args = append(args, "--fast") // most of the time would go by with compressing
	}
	run(t, "../../scripts/release", args...)
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		files = append(files, f.Name())
	}
	return dir, files
}

// twice runs it two times, and wants the same bytes.
func twice(t *testing.T, args ...string) (dir string, files []string) {
	t.Helper()
	dir, files = release(t, args...)
	again, _ := release(t, args...)
	for _, f := range files {
		if a, b := sum(t, filepath.Join(dir, f)), sum(t, filepath.Join(again, f)); a != b {
			t.Errorf("%s is made of other bytes at the second time", f)
		}
	}
	return dir, files
}

// run runs a program that must do well, and returns what it prints.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("builds all programs anew")
	}
	dir, files := twice(t)
	if len(files) != 11 { // four packages of two kinds, a tarball, materials, sums
		t.Errorf("made: %s", strings.Join(files, ", "))
	}
	t.Run("sums", func(t *testing.T) {
		c := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil || strings.Count(string(out), ": OK\n") != len(files)-1 {
			t.Errorf("sha256sum: %v\n%s", err, out)
		}
	})
	t.Run("materials", func(t *testing.T) { materials(t, only(t, dir, "*.cdx.json")) })
	t.Run("tarball", func(t *testing.T) { tarball(t, only(t, dir, "*.tar.gz")) })
	t.Run("debian", func(t *testing.T) { debian(t, dir) })
	t.Run("README", func(t *testing.T) { readmePackages(t, dir) })
	t.Run("rpm", func(t *testing.T) { redHat(t, dir) })
	t.Run("systemd", func(t *testing.T) { units(t, dir) })
	t.Run("images", func(t *testing.T) { images(t, only(t, dir, "*.tar.gz")) })
}

// TestCompletions: each shell that there is reads its script, which is for every program that
// people call.
func TestCompletions(t *testing.T) {
	scripts := map[string]string{"bash": "salt.bash", "zsh": "_salt", "fish": "salt.fish"}
	programs, err := os.ReadDir("../../cmd")
	if err != nil {
		t.Fatal(err)
	}
	for shell, name := range scripts {
		script := filepath.Join("../../packaging/completions", name)
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range programs {
			called := !slices.Contains([]string{"salt-pam", "salt-returner", "salt-template"}, p.Name())
			if named := slices.Contains(strings.FieldsFunc(string(text), func(r rune) bool { return unicode.IsSpace(r) || r == '\'' }), p.Name()); named != called {
				t.Errorf("%s: %s is there: %t, want %t", name, p.Name(), named, called)
			}
		}
		if _, err := exec.LookPath(shell); err == nil {
			run(t, shell, "-n", script)
		} else {
			t.Logf("%s is not installed: its script was not read", shell)
		}
	}
}

// TestDockerfiles: what an image is built of and starts is in the sources, with the version of
// Go that they need. No image is built: that needs a daemon, and images of others.
func TestDockerfiles(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod)
	for _, daemon := range []string{"master", "minion"} {
		b, err := os.ReadFile("../../packaging/docker/Dockerfile." + daemon)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		if from := "FROM golang:" + string(version[1]) + "-"; !strings.Contains(text, from) {
			t.Errorf("%s: nothing begins with %s", daemon, from)
		}
		for _, start := range []string{"salt-" + daemon, "salt-template", "salt-event"} {
			if !slices.Contains(strings.Fields(text), "./cmd/"+start) {
				t.Errorf("%s: %s is not built", daemon, start)
			}
		}
		for _, word := range strings.Fields(text) {
			if dir, ours := strings.CutPrefix(word, "./cmd/"); ours {
				if _, err := os.Stat(filepath.Join("../../cmd", dir, "main.go")); err != nil {
					t.Errorf("%s: %v", daemon, err)
				}
			}
		}
		if _, err := os.Stat("../../packaging/etc/salt/" + daemon); err != nil || !strings.Contains(text, "COPY packaging/etc/salt/"+daemon+" ") {
			t.Errorf("%s: the settings are not copied: %v", daemon, err)
		}
		if !strings.Contains(text, `ENTRYPOINT ["salt-`+daemon+`"]`) {
			t.Errorf("%s: it does not start the daemon", daemon)
		}
	}
}

// TestArchitectures makes what is handed out for machines that this one is not.
func TestArchitectures(t *testing.T) {
	if !*all {
		t.Skip("only with -all: builds everything for other processors")
	}
	dir, files := twice(t, "--arch", "amd64,arm64,armv7")
	if len(files) != 31 {
		t.Errorf("made: %s", strings.Join(files, ", "))
	}
	for _, arch := range []string{"arm64", "armv7", "amd64"} {
		tarball(t, only(t, dir, "*-linux-"+arch+".tar.gz"))
	}
}

func sum(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

// only is the one file of a pattern.
func only(t *testing.T, dir, pattern string) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %q, %v", pattern, list, err)
	}
	return list[0]
}

// materials: each module that go.mod requires for the programs is named, and the standard
// library.
func materials(t *testing.T, file string) {
	var bom struct {
		Components []struct{ Name, Version string }
	}
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &bom)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"std", "github.com/nats-io/nats-server/v2", "github.com/urfave/cli/v2", "modernc.org/sqlite"} {
		if !slices.ContainsFunc(bom.Components, func(c struct{ Name, Version string }) bool { return c.Name == want && c.Version != "" }) {
			t.Errorf("%s is not named", want)
		}
	}
}

// tarball: its programs run, and know the version.
func tarball(t *testing.T, file string) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		_, inside, _ := strings.Cut(h.Name, "/")
		found[inside] = true
		if h.Uid != 0 || h.Gid != 0 || h.Mode&0o022 != 0 {
			t.Errorf("%s belongs to %d:%d, mode %o", h.Name, h.Uid, h.Gid, h.Mode)
		}
	}
	for _, want := range []string{"bin/salt", "bin/salt-master", "man/salt-event-listen.1.gz", "systemd/salt-minion.service", "etc/salt/master", "completions/salt.bash", "prometheus/brine-alerts.yml", "README.md"} {
		if !found[want] {
			t.Errorf("%s is not in it", want)
		}
	}
}

// debian installs the packages in a root of their own, upgrades, removes and purges them.
func debian(t *testing.T, dir string) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("dpkg is not installed")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root installs packages")
	}
	root := filepath.Join(t.TempDir(), "root")
	words := dpkgOf(t, root)
	dpkg := func(args ...string) string {
		t.Helper()
		return run(t, words[0], append(words[1:len(words):len(words)], args...)...)
	}
	debs, _ := filepath.Glob(filepath.Join(dir, "*.deb"))
	dpkg(append([]string{"--install"}, debs...)...)
	for _, program := range []string{"salt", "salt-cp", "salt-key", "salt-run", "salt-event", "salt-call", "salt-api", "salt-master", "salt-minion"} {
		if out := run(t, filepath.Join(root, "usr/bin", program), "--version"); !strings.HasPrefix(out, program+" ") || strings.Contains(out, "-dev") {
			t.Errorf("%s --version: %s", program, out)
		}
	}
	for _, u := range []string{"salt-master", "salt-minion"} {
		unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system", u+".service"))
		if err != nil || !strings.Contains(string(unit), "ExecStart=/usr/bin/"+u+"\n") {
			t.Errorf("the unit of %s does not start it: %v", u, err)
		}
	}
	for _, f := range []string{
		"bash-completion/completions/salt", "bash-completion/completions/salt-key", "zsh/site-functions/_salt", "fish/vendor_completions.d/salt-call.fish",
		"brine/grafana/brine.json", "brine/prometheus/brine-alerts.yml",
	} {
		if b, err := os.ReadFile(filepath.Join(root, "usr/share", f)); err != nil || len(b) == 0 {
			t.Errorf("%s is not installed: %v", f, err)
		}
	}
	whole(t, root)
	check := run(t, filepath.Join(root, "usr/bin/salt-master"), "--check", "-c", filepath.Join(root, "etc/salt"))
	t.Logf("salt-master --check: %s", check)

	keep(t, root, "etc/salt/master", "keep_jobs_seconds: 3600\n")
	keep(t, root, "etc/salt/pki/master/master.pem", "a key\n")
	keep(t, root, "var/cache/salt/master/journal", "events\n")
	dpkg(append([]string{"--install", "--force-confold"}, debs...)...) // an upgrade
	stays(t, root, "etc/salt/master", "etc/salt/pki/master/master.pem", "var/cache/salt/master/journal")
	dpkg("--remove", "brine-api", "brine-master", "brine-minion", "brine-tools")
	stays(t, root, "etc/salt/master", "etc/salt/pki/master/master.pem", "var/cache/salt/master/journal")
	if _, err := os.Lstat(filepath.Join(root, "usr/bin/salt")); err == nil {
		t.Error("a program stays after --remove")
	}
	out := dpkg("--purge", "brine-api", "brine-master", "brine-minion", "brine-tools")
	stays(t, root, "etc/salt/pki/master/master.pem")
	if !strings.Contains(out, "the keys in /etc/salt/pki stay") {
		t.Errorf("nobody is told that keys stay: %s", out)
	}
	for _, f := range []string{"etc/salt/master", "var/cache/salt"} {
		if _, err := os.Lstat(filepath.Join(root, f)); err == nil {
			t.Errorf("%s stays after --purge", f)
		}
	}
}

// dpkgOf makes a root where nothing is installed, and is the beginning of a command line that
// changes that.
func dpkgOf(t *testing.T, root string) []string {
	t.Helper()
	for _, d := range []string{"var/lib/dpkg/updates", "var/lib/dpkg/info", "usr/bin", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"status", "available"} {
		if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg", f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"dpkg", "--root=" + root, "--log=/dev/null", "--force-script-chrootless"}
}

func keep(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// whole: each program has its page, and each file of ours that a package is made of has its place.
func whole(t *testing.T, root string) {
	t.Helper()
	places := map[string]string{
		"../../cmd/*":                     "usr/share/man/man1/%s.1.gz",
		"../../packaging/systemd/*":       "usr/lib/systemd/system/%s",
		"../../packaging/sysusers/*":      "usr/lib/sysusers.d/%s",
		"../../packaging/logrotate/*":     "etc/logrotate.d/%s",
		"../../packaging/etc/salt/master": "etc/salt/%s",
		"../../packaging/etc/salt/minion": "etc/salt/%s",
		"../../packaging/grafana/*":       "usr/share/brine/grafana/%s",
		"../../packaging/prometheus/*":    "usr/share/brine/prometheus/%s",
		"../../doc/*":                     "usr/share/doc/brine/doc/%s",
		"../../CHANGELOG.md":              "usr/share/doc/brine/%s",
	}
	for pattern, place := range places {
		list, err := filepath.Glob(pattern)
		if err != nil || len(list) == 0 {
			t.Fatalf("%s: %q, %v", pattern, list, err)
		}
		for _, f := range list {
			if i, err := os.Stat(filepath.Join(root, fmt.Sprintf(place, filepath.Base(f)))); err != nil || i.Size() == 0 {
				t.Errorf("%s is not installed: %v", f, err)
			}
		}
	}
}

func stays(t *testing.T, root string, names ...string) {
	t.Helper()
	for _, n := range names {
		b, err := os.ReadFile(filepath.Join(root, n))
		if err != nil || len(b) > 30 {
			t.Errorf("%s is not what it was: %q, %v", n, b[:min(len(b), 30)], err)
		}
	}
}

// redHat reads the packages with the program that installs them.
func redHat(t *testing.T, dir string) {
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Skip("rpm is not installed")
	}
	files := run(t, "rpm", "-qpl", "--nosignature", only(t, dir, "brine-master*.rpm"))
	for _, want := range []string{"/usr/bin/salt-master\n", "/etc/salt/master\n", "/usr/lib/systemd/system/salt-master.service\n", "/usr/share/man/man1/salt-master.1.gz\n"} {
		if !strings.Contains(files, want) {
			t.Errorf("%q is not in the package:\n%s", want, files)
		}
	}
	if out := run(t, "rpm", "-qp", "--requires", "--nosignature", only(t, dir, "brine-minion*.rpm")); !strings.Contains(out, "brine-tools = ") {
		t.Errorf("brine-minion requires %s", out)
	}
	if out := run(t, "rpm", "-qpc", "--nosignature", only(t, dir, "brine-minion*.rpm")); !strings.Contains(out, "/etc/salt/minion\n") {
		t.Errorf("settings of brine-minion: %s", out)
	}
}
