package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// installLines are the command lines of the README on how to install.
func installLines(t *testing.T) (list []string) {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(b), "\n## Install\n")
	part, _, _ = strings.Cut(part, "\n## ")
	for _, line := range strings.Split(part, "\n") {
		if text, is := strings.CutPrefix(line, "    "); is {
			command, _, _ := strings.Cut(text, "#")
			list = append(list, strings.TrimSpace(command))
		}
	}
	if len(list) < 8 {
		t.Fatalf("the README shows %d command lines on how to install", len(list))
	}
	return list
}

// TestReadmeInstall types what the README says on how to install without packages, below a root of
// its own. Lines about packages are for other tests here, and there are no others.
func TestReadmeInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	root := t.TempDir()
	for _, d := range []string{"/usr/local/bin", "/etc/systemd/system"} {
		if err := os.MkdirAll(root+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range installLines(t) {
		switch words := strings.Fields(line); {
		case words[0] == "scripts/release", words[0] == "apt", words[0] == "systemctl": // TestRelease
			continue
		case words[0] == "CGO_ENABLED=0" && !*all:
			line = strings.Replace(line, "go build", "go build -n", 1) // says what it would do, and links nothing
		case words[0] == "CGO_ENABLED=0", words[0] == "install", strings.HasPrefix(line, "go install"):
		default:
			t.Errorf("nobody tries: %s", line)
			continue
		}
		c := exec.Command("sh", "-c", strings.NewReplacer(" /usr/", " "+root+"/usr/", " /etc/", " "+root+"/etc/").Replace(line))
		c.Dir = "../.."
		c.Env = append(os.Environ(), "GOBIN="+root)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	for _, f := range []string{"etc/salt/master", "etc/salt/minion", "etc/systemd/system/salt-master.service"} {
		if _, err := os.Stat(filepath.Join(root, f)); err != nil {
			t.Error(err)
		}
	}
	if out := run(t, filepath.Join(root, "salt-event"), "--version"); !strings.HasPrefix(out, "salt-event ") {
		t.Errorf("salt-event --version: %s", out)
	}
}

// readmePackages installs what each 'apt install' of the README names, alone on an empty machine:
// nothing is missing.
func readmePackages(t *testing.T, dir string) {
	if _, err := exec.LookPath("dpkg"); err != nil || os.Geteuid() != 0 {
		t.Skip("only root installs packages, with dpkg")
	}
	for _, line := range installLines(t) {
		names, is := strings.CutPrefix(line, "apt install ")
		if !is {
			continue
		}
		words := append(dpkgOf(t, filepath.Join(t.TempDir(), "root")), "--install")
		for _, name := range strings.Fields(names) {
			words = append(words, only(t, dir, strings.TrimPrefix(name, "./dist/")))
		}
		run(t, words[0], words[1:]...)
	}
}
