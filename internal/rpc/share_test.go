package rpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// However many answers a principal does not read, they cost the daemon a few flow-control
// windows, and other principals are served. When those answers end, the next ones are sent.
func TestUnreadAnswersOfOnePrincipalAreBounded(t *testing.T) {
	const answers, windows = 20, 4
	b := bustest.Start(t)
	piece := make([]byte, rpc.MaxPart)
	var sent atomic.Int64
	b.Server.Handle(bustest.Probe(bus.RoleMinion, "long"), func(ctx context.Context, r *rpc.Request) error {
		for range 2 * rpc.Window / rpc.MaxPart { // more than may be ahead, so it is never sent completely
			if err := r.SendRaw(ctx, piece); err != nil {
				return err
			}
			if r.From.Name == "deaf" {
				sent.Add(rpc.MaxPart)
			}
		}
		return nil
	})
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	for round := range 2 { // what the first round had under way is released with its connection
		sent.Store(0)
		deaf := b.As(t, bus.RoleMinion, "deaf")
		if _, err := deaf.SubscribeSync(deaf.Self.Inbox() + ".>"); err != nil {
			t.Fatal(err)
		}
		for range answers {
			if err := deaf.PublishRequest(bus.RequestSubject(bus.RoleMinion, "deaf", "long"), deaf.NewInbox(), []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
		for end := time.Now().Add(time.Minute); sent.Load() < windows*rpc.Window-answers*rpc.MaxPart; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("round %d: %d bytes were sent, want %d windows", round, sent.Load(), windows)
			}
		}
		hears(t, b)
		if n := sent.Load(); n > windows*rpc.Window+rpc.MaxPart {
			t.Errorf("round %d: %d bytes are under way to a reader that takes nothing, want at most %d windows", round, n, windows)
		}
		deaf.Close()
		awaitGone(t, b)
	}
}

// A program such as salt-api sends requests for several users: a user who does not read their
// answers does not delay others.
func TestUsersOfOneProgramHaveTheirOwnLimits(t *testing.T) {
	b := bustest.Start(t)
	piece := make([]byte, rpc.MaxPart)
	var sent atomic.Int64
	var holders sync.Map // by nonce
	b.Server.Quota = func(i bus.Identity) string {
		name, _ := holders.Load(i.Nonce)
		known, _ := name.(string) // a connection asks before its nonce is known here
		return known
	}
	b.Server.Handle(bustest.Probe(bus.RoleMinion, "long"), func(ctx context.Context, r *rpc.Request) error {
		for range 2 * rpc.Window / rpc.MaxPart {
			if err := r.SendRaw(ctx, piece); err != nil {
				return err
			}
			sent.Add(rpc.MaxPart)
		}
		return nil
	})
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	silent, reading := b.As(t, bus.RoleMinion, "api"), b.As(t, bus.RoleMinion, "api")
	holders.Store(silent.Self.Nonce, "eve")
	holders.Store(reading.Self.Nonce, "ada")
	if _, err := silent.SubscribeSync(silent.Self.Inbox() + ".>"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := silent.PublishRequest(bus.RequestSubject(bus.RoleMinion, "api", "long"), silent.NewInbox(), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(time.Minute); sent.Load() < 4*rpc.Window-5*rpc.MaxPart; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes were sent, want four windows", sent.Load())
		}
	}
	takesAll(t, reading)
}

// hears fails unless another principal gets a complete answer.
func hears(t *testing.T, b *bustest.Bus) {
	t.Helper()
	c := b.As(t, bus.RoleMinion, "web1")
	takesAll(t, c)
	c.Close()
	awaitGone(t, b)
}

// takesAll fails unless a long answer arrives completely.
func takesAll(t *testing.T, c *bustest.Client) {
	t.Helper()
	takes(t, rpc.NewConn(c.Conn, c.Self), 2*rpc.Window)
}

func takes(t *testing.T, c *rpc.Conn, want int) {
	t.Helper()
	s, err := c.Call("long", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	size := 0
	for {
		part, err := s.Next(t.Context())
		if size += len(part); errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("another principal got %d bytes of %d: %v", size, want, err)
		}
	}
	if size != want {
		t.Errorf("another principal got %d bytes of %d", size, want)
	}
}

func awaitGone(t *testing.T, b *bustest.Bus) {
	t.Helper()
	select {
	case <-b.Gone:
	case <-time.After(time.Minute):
		t.Fatal("nobody was told of the end of a connection")
	}
}

// A principal that asks again and again over many connections and reads nothing: what waits for
// it in the broker is bounded, whether its answers are below the window or it confirms what it
// has not read, and the server makes nobody wait because of it. The next answers come when it
// reads.
func TestWhatWaitsForOnePrincipalIsBounded(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer int
		lies   bool
	}{{"finished answers", rpc.MaxPart, false}, {"false confirmations", 2 * rpc.Window, true}} {
		t.Run(c.name, func(t *testing.T) { testDeafPrincipal(t, c.answer, c.lies) })
	}
}

func testDeafPrincipal(t *testing.T, answer int, lies bool) {
	const conns, most = 8, 4 * rpc.Window
	b := bustest.Start(t)
	piece := make([]byte, rpc.MaxPart)
	var sent atomic.Int64
	b.Server.Handle(bustest.Probe(bus.RoleMinion, "long"), func(ctx context.Context, r *rpc.Request) error {
		for range answer / rpc.MaxPart {
			if err := r.SendRaw(ctx, piece); err != nil {
				return err
			}
			if r.From.Name == "deaf" {
				sent.Add(rpc.MaxPart)
			}
		}
		return nil
	})
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	deaf, hear := deafClients(t, b, conns)
	waits := func() (n int64) {
		for _, c := range deaf {
			n += b.Server.Unread(c.Self.Inbox())
		}
		return n
	}
	rounds := 0
	round := func() {
		rounds++
		for _, c := range deaf {
			if err := c.PublishRequest(bus.RequestSubject(bus.RoleMinion, "deaf", "long"), c.NewInbox(), []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
		if lies {
			confirmAll(t, deaf[0], conns*min(rounds, 10), answer)
		}
	}
	bustest.Until(t, "as much waits as may", func() bool {
		round()
		return waits() > most-rpc.Window/2
	})
	c := b.As(t, bus.RoleMinion, "web1")
	web1 := rpc.NewConn(c.Conn, c.Self)
	for range 10 { // meanwhile more could be sent
		round()
		takes(t, web1, answer)
		// What was under way to the broker at a look, in buffers of the connection, was not counted then.
		if n := waits(); n > most+rpc.Window {
			t.Fatalf("%d bytes wait for a reader that takes nothing, want at most %d", n, most)
		}
	}
	if n := b.Figures().Stalled; n > 0 {
		t.Errorf("the server has made senders wait %d times", n)
	}
	before := sent.Load()
	hear()
	bustest.Until(t, "the next answers are sent", func() bool { return sent.Load() > before })
}

// deafClients returns connections of one key that read nothing until hear is called.
func deafClients(t *testing.T, b *bustest.Bus, conns int) (list []*bustest.Client, hear func()) {
	t.Helper()
	key, deaf, heard := bustest.Key(t), make(chan struct{}), make(chan struct{})
	b.Accept("deaf", key)
	for range conns {
		c, err := b.Dial(bustest.Claim{ID: "deaf", Key: key}, nats.SetCustomDialer(deafDialer{deaf, heard}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		if _, err := c.SubscribeSync(c.Self.Inbox() + ".>"); err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	close(deaf)
	hear = sync.OnceFunc(func() { close(heard) })
	t.Cleanup(hear)
	return list, hear
}

// confirmAll confirms every piece of so many answers.
func confirmAll(t *testing.T, c *bustest.Client, answers, size int) {
	t.Helper()
	for n := range answers {
		for sent := rpc.MaxPart; sent <= size; sent += 4 * rpc.MaxPart {
			if err := c.Publish(bus.AckSubject(bus.RoleMinion, "deaf", uint64(n+1), int64(sent)), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// deafDialer makes connections that read nothing between two moments.
type deafDialer struct{ deaf, heard chan struct{} }

// Dial implements nats.CustomDialer.
func (d deafDialer) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	return deafConn{c, d}, err
}

type deafConn struct {
	net.Conn
	d deafDialer
}

// Read implements net.Conn.
func (c deafConn) Read(b []byte) (int, error) {
	select {
	case <-c.d.deaf:
		<-c.d.heard
	default:
	}
	return c.Conn.Read(b)
}
