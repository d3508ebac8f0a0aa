package netapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/client"
)

// watched signals when the server closes its end.
type watched struct {
	net.Conn
	closed chan struct{}
}

// Close implements net.Conn.
func (w *watched) Close() error {
	select {
	case <-w.closed:
	default:
		close(w.closed)
	}
	return w.Conn.Close()
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

// dial connects; closed is closed when the server closes the connection.
func (p *pipes) dial() (c net.Conn, closed <-chan struct{}) {
	c, theirs := net.Pipe()
	w := &watched{theirs, make(chan struct{})}
	p.taken <- w
	return c, w.closed
}

// unreachable returns options of a server whose master is not reachable.
func unreachable() Options {
	return Options{Dial: func(context.Context) (*client.Conn, error) { return nil, errors.New("away") }, Log: slog.New(slog.DiscardHandler), MaxBody: 1 << 20, AppPath: "/app", Sessions: true}
}

// A client that does not send its headers, sends no further request, or does not read its answer,
// is disconnected after the time limit for it.
func TestSlowHTTPClientsAreDisconnected(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(page, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		send  string
		read  bool // the answer
		limit time.Duration
	}{
		"headers that do not end": {"POST /login HTTP/1.1\r\nHost: x\r\n", false, headerTime},
		"nothing more":            {"GET / HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n", true, idleTime},
		"an answer is not taken":  {"GET /app HTTP/1.1\r\nHost: x\r\n\r\n", false, writeTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := unreachable()
				if test.send[:8] == "GET /app" {
					o.App = page
				}
				s, err := New(o)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				l, served := newPipes(), make(chan error, 1)
				go func() { served <- s.Serve(ctx, l, nil) }()
				c, closed := l.dial()
				fmt.Fprint(c, test.send)
				if test.read {
					res, err := http.ReadResponse(bufio.NewReader(c), nil)
					if err != nil {
						t.Fatal(err)
					}
					io.Copy(io.Discard, res.Body) //nolint:errcheck // only the end matters
				}
				began := time.Now()
				select {
				case <-closed:
				case <-time.After(time.Hour):
					t.Error("the connection stays for ever")
				}
				if took := time.Since(began); took > test.limit+time.Second || took < test.limit-time.Second {
					t.Errorf("ended after %s, want %s", took, test.limit)
				}
				c.Close()
				cancel()
				if err := <-served; err != nil {
					t.Error(err)
				}
				s.Close()
			})
		})
	}
}

// TestAStreamIsNotWrittenForEver: writing a piece of a stream that the client does not read
// ends.
func TestAStreamIsNotWrittenForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, gave := newPipes(), make(chan time.Duration, 1)
		hs := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			a := answer{w: &recorder{ResponseWriter: w}}
			a.streamHeader()
			time.Sleep(time.Hour) // a piece has the same time limit even after a long pause of the stream
			began := time.Now()
			for a.push(make([]byte, 4<<10)) == nil {
			}
			gave <- time.Since(began)
		})}
		go hs.Serve(l) //nolint:errcheck // it ends with the listener
		c, _ := l.dial()
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if took := <-gave; took < writeTime || took > writeTime+time.Second {
			t.Errorf("given up after %s, want %s", took, writeTime)
		}
		c.Close()
		hs.Close()
		l.Close()
	})
}

// TestALongAnswerIsReadSlowly: a client that reads all the time gets the whole of an answer, however
// long that takes.
func TestALongAnswerIsReadSlowly(t *testing.T) {
	long := strings.Repeat("x", 4<<20)
	for name, answers := range map[string]func(*answer) error{
		"an answer":        func(a *answer) error { return a.send(http.StatusOK, long) },
		"a part of stream": func(a *answer) error { return a.push([]byte(long)) },
		"a file":           func(a *answer) error { return a.content(strings.NewReader(long), int64(len(long))) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newPipes()
				hs := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if err := answers(&answer{w: &recorder{ResponseWriter: w}}); err != nil {
						t.Error(err)
					}
				})}
				go hs.Serve(l) //nolint:errcheck // it ends with the listener
				c, _ := l.dial()
				fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
				n, part := 0, make([]byte, 64<<10)
				for {
					k, err := io.ReadFull(c, part)
					if n += k; err != nil {
						break
					}
					time.Sleep(time.Second)
				}
				if n < len(long) {
					t.Errorf("%d bytes came, want %d", n, len(long))
				}
				c.Close()
				hs.Close()
				l.Close()
			})
		})
	}
}

// A stream that is not read is ended by the number and by the bytes of waiting events, and the
// other streams continue.
func TestSlowReadersOfEventsAreDisconnected(t *testing.T) {
	for name, test := range map[string]struct{ size, fit int }{"small events": {10, maxWaiting}, "large events": {1 << 20, maxWaitingBytes >> 20}} {
		t.Run(name, func(t *testing.T) {
			f := &feed{readers: map[*reader]bool{}}
			slow, _, _ := f.join(nil)
			quick, _, _ := f.join(nil)
			deaf, _, _ := f.join([]string{"other/"})
			for i := range test.fit + 1 {
				if f.readers[slow] != true {
					t.Fatalf("the slow reader is ended with %d events that wait for it", i)
				}
				if err := f.give(heard{Event: client.Event{Tag: "t", Data: make([]byte, test.size)}}); err != nil {
					t.Fatal(err)
				}
				f.took(quick, <-quick.c)
			}
			if f.readers[slow] || !f.readers[quick] || !f.readers[deaf] || len(deaf.c) != 0 {
				t.Fatalf("with %d events: slow %v, quick %v, deaf %v", test.fit+1, f.readers[slow], f.readers[quick], f.readers[deaf])
			}
			n := 0
			for range slow.c {
				n++
			}
			if n != test.fit {
				t.Errorf("%d events wait for the slow reader, want %d and an end", n, test.fit)
			}
		})
	}
}

// TestLimitsOfOneAndOfAll: requests under way are limited for each login or address and in all,
// requests that have ended make room, and an IPv6 network counts as one address.
func TestLimitsOfOneAndOfAll(t *testing.T) {
	l := newLimits(0)
	var leaves []func()
	for range 3 {
		leave, err := l.both("kind", 4, "one", 3, "too many")
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	if _, err := l.both("kind", 4, "one", 3, "too many"); err == nil {
		t.Error("one has more than one may")
	}
	leave, err := l.both("kind", 4, "two", 3, "too many")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.both("kind", 4, "three", 3, "too many"); err == nil {
		t.Error("all have more than all may")
	}
	for _, leave := range append(leaves, leave) {
		leave()
	}
	if len(l.underWay) != 0 {
		t.Errorf("what has ended is still counted: %v", l.underWay)
	}
	if a, b, c := block(netip.MustParseAddr("2001:db8::1")), block(netip.MustParseAddr("2001:db8::ffff:1")), block(netip.MustParseAddr("2001:db8:0:1::1")); a != b || a == c {
		t.Errorf("networks are %s, %s and %s", a, b, c)
	}
}

// TestConnectionsAreBounded: a connection beyond the limit is closed before anything is read,
// and the next one is accepted when one has ended.
func TestConnectionsAreBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limits := newLimits(0)
	l := limits.listen(inner)
	defer l.Close()
	set := func(key string, n int) {
		limits.mu.Lock()
		defer limits.mu.Unlock()
		limits.underWay[key] = n
	}
	set("connection 127.0.0.1/32", maxConnsOfOne-1)
	accepted := make(chan net.Conn)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetReadDeadline(time.Now().Add(time.Minute)) // nothing can be read from an accepted one
		return c
	}
	dial()
	first := <-accepted
	if _, err := dial().Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("one too many is taken")
	}
	first.Close()
	first.Close() // closing it twice counts once
	dial()
	(<-accepted).Close()
	set("connection", maxConns)
	set("connection 127.0.0.1/32", 0)
	if _, err := dial().Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("one too many of all is taken")
	}
}

// TestSessionsAndConnectionsToTheMasterAreBounded: those beyond the limit are refused, and an
// unused one makes room.
func TestSessionsAndConnectionsToTheMasterAreBounded(t *testing.T) {
	p := newPool(func(context.Context) (*client.Conn, error) { return nil, errors.New("away") })
	refused := func(want string) {
		t.Helper()
		if _, err := p.take(t.Context(), login{token: "one more"}, netip.MustParseAddr("127.0.0.1")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	made := make(chan struct{})
	var idle *pooled
	for i := range maxPooled {
		k := &pooled{of: p, made: made, users: 1}
		k.key.token[0], k.key.token[1] = byte(i), byte(i>>8)+1
		p.conns[k.key], idle = k, k
	}
	refused("Too many sessions are in use")
	idle.users = 0
	refused(noMaster)
	if len(p.conns) != maxPooled-1 {
		t.Errorf("there are %d, want %d: the idle one has made room, and the new one has failed", len(p.conns), maxPooled-1)
	}

	p = newPool(p.dial)
	for i := range maxPooledOfOne {
		k := &pooled{of: p, made: made, who: "file:fred", users: 1}
		k.key.token[0] = byte(i)
		p.conns[k.key], idle = k, k
	}
	other := &pooled{of: p, made: made, who: "file:other"}
	other.key.token[1] = 1
	p.conns[other.key] = other
	room := func(who, want string) {
		t.Helper()
		leave, err := p.own(who)
		if got := fmt.Sprint(err); !strings.Contains(got, want) {
			t.Errorf("one more of %s: %s, want %s", who, got, want)
		}
		if err == nil {
			leave()
		}
	}
	room("file:fred", "Too many sessions of this login")
	room("file:other", "<nil>")
	idle.users = 0
	room("file:fred", "<nil>")
	if p.conns[idle.key] != nil || p.conns[other.key] == nil || len(p.owned) != 0 {
		t.Errorf("an idle connection of the login itself makes room for it: %d are left, %v owned", len(p.conns), p.owned)
	}

	s := newSessions()
	for i := range maxSessions {
		s.byID[fmt.Sprint(i)] = nil
	}
	if _, err := s.open(client.Session{}); err == nil {
		t.Error("there are more sessions than there may be")
	}
}
