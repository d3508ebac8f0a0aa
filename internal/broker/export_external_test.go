package broker

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// Forget forgets every connection, and compares with what is at the servers.
func (x *External) Forget() {
	x.dropAll()
	x.wake()
}

// Again connects once more with the user for minions.
func (x *External) Again(t *testing.T) *nats.Conn {
	t.Helper()
	return x.AgainAll(t)[0]
}

// AgainAll connects once more with each user.
func (x *External) AgainAll(t *testing.T) (list []*nats.Conn) {
	t.Helper()
	c := x.opts.Credentials
	for _, k := range []nkeys.KeyPair{c.traffic, c.answerer, c.watcher} {
		nc, err := x.connect("test", k)
		if err != nil {
			t.Fatal(err)
		}
		nc.SetClosedHandler(nil) // it is the test that ends it
		t.Cleanup(nc.Close)
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		list = append(list, nc)
	}
	return list
}

// Names are those of the users, which are public.
func (x *External) Names() []string {
	c := x.opts.Credentials
	return []string{public(c.traffic), public(c.answerer), public(c.watcher), public(c.store)}
}

// StoreAgain connects once more with the user of the journal.
func (x *External) StoreAgain(t *testing.T) *nats.Conn {
	t.Helper()
	nc, err := x.connect("test", x.opts.Credentials.store)
	if err != nil {
		t.Fatal(err)
	}
	nc.SetClosedHandler(nil) // it is the test that ends it
	t.Cleanup(nc.Close)
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return nc
}

// Reach sets how long servers that are not reached are waited for, and how often it is told that they are.
func (x *External) Reach(d, tell time.Duration) { x.reach, x.tellEvery = d, tell }

// TellUnreached logs, as at that time, that servers are not reached.
func (x *External) TellUnreached(now time.Time) { tellUnreached(x, now) }

// VacantAfter sets how long nobody may have been at work before this one is.
func (x *External) VacantAfter(d time.Duration) { x.vacantAfter = d }

// Lose has a server end the connection over which others hear that this master is at work.
func (x *External) Lose(t *testing.T) {
	t.Helper()
	id, err := x.traffic.GetClientID()
	if err != nil {
		t.Fatal(err)
	}
	x.kick(place{x.traffic.ConnectedServerId(), id})
}

// Reconnects is how often it was made again.
func (x *External) Reconnects() uint64 { return x.traffic.Stats().Reconnects }

// StoreRights are the subjects to which the journal sends something.
var StoreRights = storeRights

// Minority returns why this member can decide nothing.
func (c *Cluster) Minority() error { return c.r.minority() }

// SharesTurns reports whether the handshakes of members and of clients take turns with each other.
func (c *Cluster) SharesTurns() bool { return c.r.acceptor.turns == c.b.auth.acceptor.turns }

// MaxRoutes is how many routes a member may have.
const MaxRoutes = maxRoutes

// Taken is how many connections have counted as routes of members so far.
func (c *Cluster) Taken() int {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	return c.r.n
}
