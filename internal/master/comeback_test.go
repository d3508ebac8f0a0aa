package master_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/test/deadline"
)

var fleetSize = flag.Int("fleet", 16, "how many `minions` TestAFleetComesBackWithoutAFlood has")

// simulated is a minion whose connections are those of the daemon, and that runs nothing.
type simulated struct{}

func (simulated) Facts(context.Context) (map[string]any, error) { return map[string]any{}, nil }

func (simulated) Job(s *upstream.Session, body []byte) {
	if e, err := job.Open(body, s.Master, time.Now()); err == nil {
		_ = s.Tell("ret."+string(e.JID), pong(e))
	}
}

func (simulated) Attend(ctx context.Context, _ *upstream.Session) { <-ctx.Done() }

// path is how the minions come to the master, at an address that stays. It counts those who
// try, and ends their connections while there is no master.
type path struct {
	net.Listener
	to    atomic.Pointer[string]
	tried atomic.Int64
}

func newPath(t *testing.T) *path {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &path{Listener: l}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n := p.tried.Add(1)
			all.Go(func() { p.pass(c, n) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		deadline.Call(t, all.Wait, "all")
	})
	return p
}

// pass hands on the nth connection, from an address of its own: of one host the master would
// take half of what it takes in all.
func (p *path) pass(c net.Conn, n int64) {
	defer c.Close()
	to := p.to.Load()
	if to == nil {
		return
	}
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, byte(1+n>>16%128), byte(n>>8), byte(n))}}
	d, err := from.Dial("tcp", *to)
	if err != nil {
		return
	}
	defer d.Close()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(d, c)
		d.Close()
	})
	_, _ = io.Copy(c, d)
	c.Close()
	both.Wait()
}

// Minions that have lost their master try again at longer and longer pauses, and when it is
// back each connects once and stores little; jobs for those that are back are answered meanwhile.
func TestAFleetComesBackWithoutAFlood(t *testing.T) {
	n := *fleetSize
	w := start(t, "")
	relay := newPath(t)
	open := func() {
		address := w.m.Addr().String()
		relay.to.Store(&address)
	}
	open()
	ctx, cancel := context.WithCancel(t.Context())
	var fleet sync.WaitGroup
	defer fleet.Wait()
	defer cancel()
	for i := range n { // whose keys are known: many that nobody knows are another matter
		id, k := fmt.Sprintf("m%04d", i), key(t)
		if err := os.WriteFile(filepath.Join(w.cfg.PKIDir, "minions", id), k.Public().PEM(), 0o600); err != nil {
			t.Fatal(err)
		}
		keepSimulated(ctx, t, &fleet, relay, id, k)
	}
	first := w.user()
	for begun := time.Now(); ; { // until the master has seen all keys, and they can be targets
		if _, returns, err := publish(t, first, ping("m*", "glob")); err == nil && len(returns) == n {
			break
		}
		if time.Since(begun) > deadline.Time {
			t.Fatal("they have not connected")
		}
	}
	back := func() {
		user := w.user()
		for answers := 0; answers < n; {
			_, returns, err := publish(t, user, ping("m*", "glob"))
			if err != nil {
				t.Fatal(err)
			}
			answers = 0
			for _, u := range returns {
				if u.State == job.Done {
					answers++
				}
			}
		}
	}
	back()
	if tried := relay.tried.Load(); tried != int64(n) {
		t.Errorf("%d minions have connected %d times", n, tried)
	}

	relay.to.Store(nil)
	w.stop()
	lost, before := time.Now(), relay.tried.Load()
	for relay.tried.Load() < before+5*int64(n) {
		if time.Since(lost) > deadline.Time {
			t.Fatal("nobody tries again")
		}
		time.Sleep(10 * time.Millisecond)
	}
	tried := relay.tried.Load() - before
	away := time.Since(lost)
	if most := float64(n) * (math.Log2(away.Seconds()/0.05+1) + 1); float64(tried) > most { // after 50 ms, 100, 200 ...
		t.Errorf("%d minions have tried %d times within %s, more than %.0f", n, tried, away, most)
	}
	w.run()
	open()
	before = relay.tried.Load()
	back()
	if tried := relay.tried.Load() - before; tried > int64(n) {
		t.Errorf("%d minions have come back with %d connections", n, tried)
	}
	took := time.Since(lost) - away
	stored := 0
	for _, e := range listenSince(t, w.user(), "salt/") {
		if !strings.HasPrefix(e.Tag, "salt/job/") { // of which there are as many as questions
			stored++
		}
	}
	if most := 8 * n; stored > most {
		t.Errorf("%d events are stored of two connections of each of %d minions", stored, n)
	}
	t.Logf("%d minions, away for %s, back after %s, %d events", n, away, took, stored)
}

// keepSimulated lets a minion keep its connection until ctx ends.
func keepSimulated(ctx context.Context, t *testing.T, fleet *sync.WaitGroup, relay *path, id string, key *pki.PrivateKey) {
	dir := t.TempDir()
	port := relay.Addr().(*net.TCPAddr).Port
	text := fmt.Sprintf("root_dir: %s\nid: %s\nmaster: 127.0.0.1\nmaster_port: %d\nrecon_randomize: False\n", dir, id, port)
	if err := os.WriteFile(filepath.Join(dir, "minion"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.LoadMinion(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
		t.Fatal(err)
	}
	all := upstream.New(upstream.Setup{
		Config: cfg, Key: key, Version: "test", Service: true, Daemon: simulated{}, Announce: func(string, map[string]any) {}, Log: slog.New(slog.DiscardHandler),
	})
	fleet.Go(func() { _ = all.All()[0].Keep(ctx) })
}
