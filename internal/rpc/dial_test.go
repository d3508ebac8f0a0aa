package rpc

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/brinebus/brine/internal/socket"
)

// TestADaemonThatDiesWhileItIsCalled: whoever connects at the moment of a kill learns that nobody is there, not that
// the daemon does not answer.
func TestADaemonThatDiesWhileItIsCalled(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]func(net.Conn){
		"before it says a word": func(net.Conn) {},
		"without reading what was sent": func(c net.Conn) {
			_, _ = io.WriteString(c, "INFO {\"max_payload\": 1000}\r\n")
			_, _ = c.Read(make([]byte, 1)) // the rest is on its way now
		},
	} {
		path := filepath.Join(t.TempDir(), "s")
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false) // as after a kill
		go func() {
			c, err := l.Accept()
			l.Close()
			if err == nil {
				dies(c)
				c.Close()
			}
		}()
		if _, err := DialBySudo(path, ""); !errors.Is(err, socket.ErrNobody) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
