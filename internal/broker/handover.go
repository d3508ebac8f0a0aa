package broker

import (
	"errors"
	"net"
	"net/url"
	"reflect"
	"runtime"
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

// serveLink is the same for a link that another master has made, which is a leaf node to
// the server; what follows the connection is for links that a server makes itself.
//
//go:linkname serveLink github.com/nats-io/nats-server/v2/server.(*Server).createLeafNode
func serveLink(s *server.Server, c net.Conn, _ *url.URL, _, _ unsafe.Pointer) unsafe.Pointer

// introduceLinks sets what the server says to those who make a link, before it starts: it
// makes that up itself only where it has a listener of its own for them.
func introduceLinks(s *server.Server) error {
	f := reflect.ValueOf(s).Elem().FieldByName("leafNodeInfo")
	if !f.IsValid() || f.Type() != reflect.TypeFor[server.Info]() {
		return errors.New("this version of the server does not say to links what it should")
	}
	*(*server.Info)(unsafe.Pointer(f.UnsafeAddr())) = server.Info{
		ID: s.ID(), Name: s.Name(), Version: server.VERSION, GoVersion: runtime.Version(), Proto: server.MsgTraceProto, JSApiLevel: server.JSApiLevel,
		AuthRequired: true, TLSRequired: true, MaxPayload: maxPayload, Headers: true, JetStream: true, InfoOnConnect: true,
	}
	return nil
}

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
