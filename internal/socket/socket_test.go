package socket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestPeer(t *testing.T) {
	for name, dir := range map[string]string{
		"short path": "s",
		"path beyond the limit of a socket address": strings.Repeat("deep/", 40) + "s",
	} {
		t.Run(name, func(t *testing.T) {
			defer syscall.Umask(syscall.Umask(0o077))
			path := filepath.Join(t.TempDir(), dir, "master.sock")
			l, err := Listen(path, 0o666)
			if err != nil {
				t.Fatal(err)
			}
			if info, _ := os.Stat(path); info.Mode().Perm() != 0o666 {
				t.Errorf("mode %v, want 0666 whatever the umask", info.Mode())
			}
			c, err := Dial(path)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			s, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			p, err := PeerOf(s)
			if err != nil || int(p.UID) != os.Getuid() || int(p.PID) != os.Getpid() || int(p.GID) != os.Getgid() {
				t.Errorf("peer %+v, %v; want this process", p, err)
			}
			if _, err := Listen(path, 0o600); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("a second listener: %v, want EADDRINUSE", err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if _, err := Dial(path); !errors.Is(err, ErrNobody) {
				t.Errorf("after close: %v, want ErrNobody", err)
			}
		})
	}
}

func TestListenReplacesWhatADeadDaemonLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	l, err := Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestListenKeepsForeignFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, 0o600); err == nil {
		t.Fatal("listened in the place of a regular file")
	}
	if b, _ := os.ReadFile(path); string(b) != "precious" {
		t.Errorf("the file became %q", b)
	}
}

func TestPeerOfTCP(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if p, err := PeerOf(a); err == nil {
		t.Errorf("a pipe had the peer %+v", p)
	}
}

// Not parallel: the umask is the process'.
func TestListenUnderAnOpenUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := t.TempDir()
	path := filepath.Join(dir, "minion.sock")
	l, err := Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("mode %v, %v; want a socket with 0600", info.Mode(), err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("beside the socket: %v, %v", list, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("after close: %v, %v", list, err)
	}
}

func TestListenWhereItCanNot(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := Listen(filepath.Join(dir, "file", "s"), 0o600); err == nil {
		l.Close()
		t.Error("a socket below a file")
	}
	if l, err := Listen(filepath.Join(dir, strings.Repeat("n", 300)), 0o600); err == nil {
		l.Close()
		t.Error("a name that no file can have")
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("left behind: %v, %v", list, err)
	}
}
