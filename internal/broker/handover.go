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
