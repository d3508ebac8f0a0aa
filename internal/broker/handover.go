package broker

import (
	"net"
	"unsafe"

	"github.com/nats-io/nats-server/v2/server"
)

// serveClient makes the server serve a connection that it has not accepted itself: it
// is what the server's own accept loop calls, and returns when TLS is done. The server has
// no exported way in for a connection: its listener takes whoever comes, without a bound
// for a host, and its in-process connections would copy every byte of every minion
// once more. That the name is still that of the same function is what TestHandover
// checks.
//
//go:linkname serveClient github.com/nats-io/nats-server/v2/server.(*Server).createClientEx
func serveClient(s *server.Server, c net.Conn, inProcess bool) unsafe.Pointer

// setOptions puts options in force, under the server's lock. What it reloads by itself
// does not have MaxPending among it.
//
//go:linkname setOptions github.com/nats-io/nats-server/v2/server.(*Server).setOpts
func setOptions(s *server.Server, o *server.Options)

// limitReaders gives every connection that comes from now on the limit of what may wait
// for it; the daemon's own keeps what it began with.
func limitReaders(s *server.Server, so *server.Options) {
	o := so.Clone()
	o.MaxPending = maxPending
	setOptions(s, o)
}
