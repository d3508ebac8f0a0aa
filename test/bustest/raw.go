package bustest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/socket"
)

// Raw is a connection on which a test speaks the protocol of NATS by hand, for
// what a client library would never send.
type Raw struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

// rawTime bounds each wait for the server. It is for tests that fail.
const rawTime = 15 * time.Second

// RawTCP connects and reads the server's greeting; TLS has not begun.
func (b *Bus) RawTCP(t testing.TB) *Raw {
	t.Helper()
	c, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	r := newRaw(t, c)
	if line := r.Line(); !strings.HasPrefix(line, "INFO ") {
		t.Fatalf("greeting %q", line)
	}
	return r
}

// RawTLS connects with the certificate of c and shakes hands; no CONNECT was sent.
func (b *Bus) RawTLS(t testing.TB, c Claim) *Raw {
	t.Helper()
	certificate, err := c.Key.Certificate(c.ID)
	if err != nil {
		t.Fatal(err)
	}
	s := tls.Client(b.RawTCP(t), &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}})
	if err := s.Handshake(); err != nil {
		t.Fatal(err)
	}
	return newRaw(t, s)
}

// RawLocal connects to the local socket; nothing was sent, and so nothing read.
func (b *Bus) RawLocal(t testing.TB) *Raw {
	t.Helper()
	c, err := socket.Dial(b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	return newRaw(t, c)
}

func newRaw(t testing.TB, c net.Conn) *Raw {
	t.Cleanup(func() { c.Close() })
	return &Raw{Conn: c, t: t, r: bufio.NewReader(c)}
}

// Send writes lines, each ended as the protocol wants. That the server closed
// the connection meanwhile is not a failure: the next read tells.
func (r *Raw) Send(lines ...string) {
	r.t.Helper()
	_ = r.SetWriteDeadline(time.Now().Add(rawTime))
	_, err := io.WriteString(r.Conn, strings.Join(lines, "\r\n")+"\r\n")
	if errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Fatalf("the server takes nothing")
	}
}

// Line reads one line, "" at the end of the connection.
func (r *Raw) Line() string {
	r.t.Helper()
	_ = r.SetReadDeadline(time.Now().Add(rawTime))
	line, err := r.r.ReadString('\n')
	if errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Fatalf("nothing from the server in %s", rawTime)
	}
	if err != nil {
		return ""
	}
	return strings.TrimRight(line, "\r\n")
}

// Until reads lines up to one that begins with prefix, and returns all that were
// read and whether that one was among them: the connection may end before.
func (r *Raw) Until(prefix string) (lines []string, found bool) {
	r.t.Helper()
	for {
		line := r.Line()
		if line == "" {
			return lines, false
		}
		lines = append(lines, line)
		if strings.HasPrefix(line, prefix) {
			return lines, true
		}
	}
}
