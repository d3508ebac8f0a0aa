package netlab

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// patience is how long one connection may take.
const patience = time.Minute

// echo returns to whoever connects to the host what they send.
func echo(t *testing.T, h *Host, address string) {
	t.Helper()
	var l net.Listener
	h.lab.must(h.inside(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	}))
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // the other side notices
			}()
		}
	}()
}

func dial(t *testing.T, h *Host, address string) net.Conn {
	t.Helper()
	var c net.Conn
	h.lab.must(h.inside(func() (err error) {
		c, err = net.DialTimeout("tcp", address, patience)
		return err
	}))
	t.Cleanup(func() { c.Close() })
	h.lab.must(c.SetDeadline(time.Now().Add(patience)))
	return c
}

// shortest is the time of the quickest of some round trips.
func shortest(t *testing.T, h *Host, address string) time.Duration {
	t.Helper()
	c, least := dial(t, h, address), patience
	for range 5 {
		start := time.Now()
		_, err := c.Write([]byte{1})
		h.lab.must(err)
		_, err = io.ReadFull(c, make([]byte, 1))
		h.lab.must(err)
		least = min(least, time.Since(start))
	}
	return least
}

// transfer sends much and wants it back as it was.
func transfer(t *testing.T, h *Host, address string, size int) {
	t.Helper()
	c, sent, came := dial(t, h, address), make([]byte, size), make([]byte, size)
	for i := range sent {
		sent[i] = byte(rand.Uint32())
	}
	writing := make(chan error, 1)
	go func() {
		_, err := c.Write(sent)
		writing <- err
	}()
	_, err := io.ReadFull(c, came)
	h.lab.must(err)
	h.lab.must(<-writing)
	if !bytes.Equal(sent, came) {
		t.Errorf("%d bytes came back changed", size)
	}
}

// slowLab has three hosts on a switch, of which the first can be slow.
func slowLab(t *testing.T) (l *Lab, a, b, c *Host) {
	t.Helper()
	l = New(t)
	middle := l.Switch("s")
	a, b, c = l.Host("a"), l.Host("b"), l.Host("c")
	l.Plug(a, middle, "10.77.3.1/24")
	l.Plug(b, middle, "10.77.3.2/24")
	l.Plug(c, middle, "10.77.3.3/24")
	if err := a.Slow(Delay{}); err != nil {
		t.Skipf("no slow links here: %v", err)
	}
	a.Unslow()
	echo(t, b, "10.77.3.2:7")
	echo(t, c, "10.77.3.3:7")
	return l, a, b, c
}

func TestSlowLink(t *testing.T) {
	t.Parallel()
	_, a, _, _ := slowLab(t)
	const base, jitter = 100 * time.Millisecond, 50 * time.Millisecond
	both := []string{Incoming, Outgoing}
	normal := func(when string) {
		t.Helper()
		for _, to := range []string{"10.77.3.2:7", "10.77.3.3:7"} {
			if took := shortest(t, a, to); took >= base/2 {
				t.Errorf("%s a round trip to %s takes %v", when, to, took)
			}
		}
	}
	normal("before")
	for _, c := range []struct {
		name   string
		slow   func() error
		b, c   time.Duration // the shortest round trips that are possible
		passes bool          // those to c are not slow
	}{
		{"both ways", func() error { return a.Slow(Delay{Base: base}, both...) }, 2 * base, 2 * base, false},
		{"with jitter", func() error { return a.Slow(Delay{Base: base, Jitter: jitter}, both...) }, 2 * (base - jitter), 2 * (base - jitter), false},
		{"incoming", func() error { return a.Slow(Delay{Base: base}, Incoming) }, base, base, false},
		{"outgoing", func() error { return a.Slow(Delay{Base: base}, Outgoing) }, base, base, false},
		{"one peer", func() error { return a.SlowPeer("10.77.3.2", Delay{Base: base}, both...) }, 2 * base, 0, true},
		{"one peer, incoming", func() error { return a.SlowPeer("10.77.3.2", Delay{Base: base}, Incoming) }, base, 0, true},
		{"one peer, outgoing", func() error { return a.SlowPeer("10.77.3.2", Delay{Base: base}, Outgoing) }, base, 0, true},
	} {
		if err := c.slow(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		toB, toC := shortest(t, a, "10.77.3.2:7"), shortest(t, a, "10.77.3.3:7")
		t.Logf("%s: %v and %v", c.name, toB, toC)
		if toB < c.b || toC < c.c || c.passes && toC >= base/2 {
			t.Errorf("%s: round trips take %v and %v", c.name, toB, toC)
		}
		if a.Slow(Delay{}) == nil {
			t.Errorf("%s: the link is slow twice", c.name)
		}
		a.Unslow()
		normal("after " + c.name)
	}
}

func TestASlowLinkCarriesMuch(t *testing.T) {
	t.Parallel()
	l, a, b, _ := slowLab(t)
	const size = 4 << 20
	before := dial(t, a, "10.77.3.2:7")
	l.must(a.Slow(Delay{Base: 20 * time.Millisecond, Jitter: 10 * time.Millisecond}, Incoming, Outgoing))
	start := time.Now()
	transfer(t, a, "10.77.3.2:7", size)
	t.Logf("%d bytes there and back in %v", size, time.Since(start))
	echo(t, a, "10.77.3.1:7")
	transfer(t, b, "10.77.3.1:7", size)
	a.Unslow()
	transfer(t, a, "10.77.3.2:7", size)
	if _, err := before.Write([]byte{1}); err != nil {
		t.Errorf("a connection that was open before the link was slow: %v", err)
	}
	if _, err := io.ReadFull(before, make([]byte, 1)); err != nil {
		t.Errorf("a connection that was open before the link was slow: %v", err)
	}
}

// TestAConnectionOutlastsChanges: what waits is lost when a link is slow no longer, and TCP sends it again.
func TestAConnectionOutlastsChanges(t *testing.T) {
	t.Parallel()
	l, a, _, _ := slowLab(t)
	c, stop, blocks := dial(t, a, "10.77.3.2:7"), make(chan struct{}), make(chan int)
	go func() {
		defer close(blocks)
		sent, came := bytes.Repeat([]byte("packet "), 10_000), make([]byte, 70_000)
		for n := 1; ; n++ {
			go func() { _, _ = c.Write(sent) }() // else it does not come back
			if _, err := io.ReadFull(c, came); err != nil || !bytes.Equal(sent, came) {
				t.Errorf("block %d: %v", n, err)
				return
			}
			select {
			case blocks <- n:
			case <-stop:
				return
			}
		}
	}()
	for range 5 {
		l.must(a.Slow(Delay{Base: 30 * time.Millisecond}, Incoming, Outgoing))
		<-blocks
		a.Unslow()
		<-blocks
	}
	close(stop)
	for range blocks {
	}
}
