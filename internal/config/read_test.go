package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/brinebus/brine/internal/salt"

	"gopkg.in/yaml.v3"
)

func TestSpecialFiles(t *testing.T) {
	tests := map[string]struct {
		place func(path string) error
		want  string
	}{
		"FIFO":      {func(p string) error { return syscall.Mkfifo(p, 0o644) }, "a FIFO"},
		"directory": {func(p string) error { return os.Mkdir(p, 0o755) }, "a directory"},
		"device":    {func(p string) error { return os.Symlink("/dev/zero", p) }, "a device"},
		"large": {func(p string) error {
			f, err := os.Create(p)
			if err != nil {
				return err
			}
			defer f.Close()
			return f.Truncate(maxFile + 1)
		}, "larger than 8 MiB"},
	}
	for name, test := range tests {
		for _, file := range []string{"master", "master.d/x.conf"} {
			dir := write(t, map[string]string{"master.d/readme": ""})
			if err := test.place(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
			_, _, err := LoadMaster(dir)
			var e *Error
			if !errors.As(err, &e) || !strings.HasSuffix(e.File, file) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s as %s: %v; want it refused as %s", name, file, err, test.want)
			}
		}
	}
}

func TestCheckOwner(t *testing.T) {
	tests := map[string]struct {
		path string
		mode fs.FileMode
		good bool
	}{
		"all right":             {"master", 0o600, true},
		"readable":              {"master", 0o644, true},
		"group writes":          {"master", 0o664, false},
		"all write":             {"master", 0o646, false},
		"drop-in":               {"master.d/a.conf", 0o666, false},
		"directory":             {".", 0o777, false},
		"directory of drop-ins": {"master.d", 0o775, false},
		"drop-in of no use":     {"master.d/readme", 0o666, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{"master": "timeout: 7", "master.d/a.conf": "show_jid: yes", "master.d/readme": ""})
			path := filepath.Join(dir, test.path)
			if err := os.Chmod(path, test.mode); err != nil {
				t.Fatal(err)
			}
			if _, _, err := LoadMaster(dir); err != nil {
				t.Errorf("without CheckOwner: %v", err)
			}
			_, _, err := Options{ConfigDir: dir, CheckOwner: true}.Master()
			var e *Error
			if (err == nil) != test.good {
				t.Fatalf("mode %v: %v, want it accepted: %v", test.mode, err, test.good)
			}
			if err != nil && (!errors.As(err, &e) || e.File != path || salt.Hint(err) != "chmod go-w "+path) {
				t.Errorf("mode %v: %v, hint %q", test.mode, err, salt.Hint(err))
			}
		})
	}
}

func TestForeignOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := write(t, map[string]string{"minion": "id: a", "minion_id": "b"})
	if err := os.Chown(filepath.Join(dir, "minion"), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	_, _, err := Options{ConfigDir: dir, CheckOwner: true}.Minion()
	if err == nil || !strings.Contains(err.Error(), "belongs to the user with uid 65534") || !strings.HasPrefix(salt.Hint(err), "chown 0 ") {
		t.Errorf("a file of somebody else: %v, hint %q", err, salt.Hint(err))
	}
}

// TestUnreadable uses a symbolic link that the kernel refuses to follow if the test runs as
// root, who can read every file.
func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		err := fileError("/x", &fs.PathError{Op: "open", Path: "/x", Err: syscall.EACCES})
		if !errors.Is(err, fs.ErrPermission) || salt.Hint(err) == "" || strings.Count(err.Error(), "/x") != 1 {
			t.Errorf("fileError: %v, hint %q", err, salt.Hint(err))
		}
		t.Skip("root may read everything")
	}
	dir := write(t, map[string]string{"master": "timeout: 7", "master.d/a.conf": "timeout: 8"})
	for _, path := range []string{"master", "master.d/a.conf", "master.d"} {
		full := filepath.Join(dir, path)
		if err := os.Chmod(full, 0); err != nil {
			t.Fatal(err)
		}
		if _, _, err := LoadMaster(dir); !errors.Is(err, fs.ErrPermission) || salt.Hint(err) == "" {
			t.Errorf("unreadable %s: %v, hint %q", path, err, salt.Hint(err))
		}
		m, notices, err := Options{ConfigDir: dir, AllowUnreadable: true}.Master()
		if err != nil || len(notices) != 1 || notices[0].File != full || m.RetPort != 4506 {
			t.Errorf("unreadable %s, allowed: %v, %v; want a notice", path, notices, err)
		}
		if err := os.Chmod(full, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "ret_port: 4506\n", "a: [1, {b: c}]\n", "a: &x {b: 1}\nc: {<<: *x}\n", "a: b: c\n", "\tx", "master: [A\n", "a: !!binary aGk=\n",
		"a: |\n  text\n", "? [a]\n: b\n", "a: *a\n", "id: 1:30\nx: 0x1f\ny: 1_0.5e+3\n", "peer: {a: &a [*a]}", "%YAML 1.2\n---\n", "a: \"\\x41\"",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, err := parse("f", text)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Line < 1 || entries != nil {
				t.Errorf("parse(%q) = %v, %v; want an *Error with a line and nothing else", text, entries, err)
			}
			return
		}
		m := NewMaster()
		l := loader{daemon: "master", common: &m.Common}
		l.origin = map[*yaml.Node]string{}
		doc := l.newDocument()
		doc.replace(l.rename(entries))
		m.Raw = doc.plain()
		if l.apply(doc); len(l.errs) > 0 {
			return
		}
		m.root()
		if m.RetPort < 1 || m.RetPort > 65535 || m.Timeout <= 0 || m.LogLevel == "" || !filepath.IsAbs(m.PKIDir) || !filepath.IsAbs(m.CacheDir) || strings.ContainsRune(m.PKIDir, 0) {
			t.Errorf("parse(%q) gave port %d, timeout %v, level %q, pki_dir %q", text, m.RetPort, m.Timeout, m.LogLevel, m.PKIDir)
		}
	})
}
