//go:build unix

package socket

import (
	"net"
	"os"
	"path/filepath"
)

// listen creates the socket in a private directory and moves it to its path when it has its mode:
// so the umask never decides who may connect.
func listen(path string, mode os.FileMode) (*net.UnixListener, error) {
	aside, err := os.MkdirTemp(filepath.Dir(path), ".")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(aside)
	temp := filepath.Join(aside, "s")
	address, done, err := reach(temp)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, err
	}
	// The socket file is moved, so it is removed by its new name and not by the listener.
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(temp, mode); err != nil {
		l.Close()
		return nil, err
	}
	if err := os.Rename(temp, path); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}
