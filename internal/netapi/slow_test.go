package netapi

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are inside the process, so that a test can control
// their time.
type pipes struct {
	taken  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.taken:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

// TestASlowBodyEnds: a client that announces a body and sends it slowly, or not at all, holds a
// connection for twenty seconds, whatever the request is and whether or not it is refused
// before.
func TestASlowBodyEnds(t *testing.T) {
	for name, c := range map[string]struct {
		head   string // and a byte each second
		status int
		within time.Duration
	}{
		"that is read":      {"POST /run HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n[", http.StatusRequestTimeout, bodyTime},
		"in chunks":         {"POST /run HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n[", http.StatusRequestTimeout, bodyTime},
		"of no size":        {"POST /run HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", http.StatusRequestTimeout, bodyTime},
		"of a refusal":      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", http.StatusUnauthorized, bodyTime},
		"of a GET":          {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", http.StatusRequestTimeout, bodyTime},
		"of a path of none": {"PUT /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", http.StatusNotFound, bodyTime},
		"that is too long":  {"POST /run HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n", http.StatusRequestEntityTooLarge, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := bare(t)
				l := &pipes{make(chan net.Conn), make(chan struct{})}
				ctx, cancel := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() { served <- s.Serve(ctx, l, nil) }()
				defer func() {
					cancel()
					if err := <-served; err != nil {
						t.Error(err)
					}
					s.Close()
				}()
				own, theirs := net.Pipe()
				var sender sync.WaitGroup
				defer sender.Wait()
				defer own.Close()
				l.taken <- theirs
				begun := time.Now()
				sender.Go(func() { trickle(own, c.head) })
				_ = own.SetReadDeadline(begun.Add(time.Hour))
				r := bufio.NewReader(own)
				res, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatalf("after %s: %v", time.Since(begun), err)
				}
				defer res.Body.Close()
				if took := time.Since(begun); res.StatusCode != c.status || took > c.within+time.Second {
					t.Errorf("%s after %s, want %d after %s", res.Status, took, c.status, c.within)
				}
				if _, err := io.Copy(io.Discard, r); err != nil {
					t.Errorf("the connection stays open: %v", err)
				}
				if took := time.Since(begun); took > c.within+2*time.Second {
					t.Errorf("the connection was closed after %s", took)
				}
			})
		})
	}
}

// trickle sends text, and then a byte each second until the other end closes.
func trickle(c net.Conn, text string) {
	for part := range strings.SplitSeq(text, "") {
		if _, err := io.WriteString(c, part); err != nil {
			return
		}
	}
	for {
		time.Sleep(time.Second)
		if _, err := io.WriteString(c, " "); err != nil {
			return
		}
	}
}
