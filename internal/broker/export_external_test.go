package broker

import (
	"testing"

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
	return []string{public(c.traffic), public(c.answerer), public(c.watcher)}
}
