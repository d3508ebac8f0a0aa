package broker

import (
	"errors"
	"net"
	"net/url"
	"reflect"
	"runtime"
	"sync"
	"unsafe"

	"github.com/nats-io/nats-server/v2/server"
)

// serveClient makes the server serve a connection that it has not accepted itself. The server's
// own accept loop calls the same function; it returns when TLS is done. The server exports no
// way to hand it a connection: its listener accepts everybody without a limit for each host,
// and its in-process connections would copy every byte of every minion once more. TestHandover
// checks that the name is still that of the same function.
//
//go:linkname serveClient github.com/nats-io/nats-server/v2/server.(*Server).createClientEx
func serveClient(s *server.Server, c net.Conn, inProcess bool) unsafe.Pointer

// serveLink is the same for a link that another master has dialled, which is a leaf node to the
// server. The parameters after the connection are for links that a server dials itself.
//
//go:linkname serveLink github.com/nats-io/nats-server/v2/server.(*Server).createLeafNode
func serveLink(s *server.Server, c net.Conn, _ *url.URL, _, _ unsafe.Pointer) unsafe.Pointer

// serveRoute is the same for a route, in either direction: peer is the address that was dialled,
// nil for one that came in.
//
//go:linkname serveRoute github.com/nats-io/nats-server/v2/server.(*Server).createRoute
func serveRoute(s *server.Server, c net.Conn, peer *url.URL, kind server.RouteType, gossip byte, account string) unsafe.Pointer

// gossipDisabled keeps the server from telling other members of this route: they have a list.
const gossipDisabled = 1

// nowhere is what a member tells the server of another one as its address: the port 0, to which a connection fails at once. A server makes a
// route again that another one has dialled, if that has dialled twice, and tries that without end: the connection that it makes is refused
// in the handshake, see tls. Only members dial, and have a list.
const nowhere = "127.0.0.1"

// introduceRoutes sets, before the server starts, the INFO that it sends first over routes: the
// server prepares that only if it has its own listener for them.
func introduceRoutes(s *server.Server, so *server.Options) error {
	f := reflect.ValueOf(s).Elem().FieldByName("routeInfo")
	if !f.IsValid() || f.Type() != reflect.TypeFor[server.Info]() {
		return errors.New("this version of the server does not say to routes what it should")
	}
	i := server.Info{
		ID: s.ID(), Name: s.Name(), Version: server.VERSION, GoVersion: runtime.Version(), Proto: server.MsgTraceProto, Cluster: so.Cluster.Name,
		Host: nowhere, IP: "nats-route://" + nowhere + ":0/",
		TLSRequired: true, TLSVerify: true, MaxPayload: maxPayload, Headers: true, JetStream: so.JetStream, LNOC: true, LNOCU: true, LN: true, Compression: server.CompressionOff,
	}
	if p := so.Cluster.Permissions; p != nil {
		i.Import, i.Export = p.Import, p.Export
	}
	*(*server.Info)(unsafe.Pointer(f.UnsafeAddr())) = i
	return nil
}

// introduceLinks sets, before the server starts, the INFO that it sends first over links: the
// server prepares that only if it has its own listener for them.
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

// setOptions puts options in force, under the server's lock. The server's own reload does not
// include MaxPending.
//
//go:linkname setOptions github.com/nats-io/nats-server/v2/server.(*Server).setOpts
func setOptions(s *server.Server, o *server.Options)

// limitReaders sets MaxPending for every connection that comes from now on. The daemon's own
// connection keeps its value.
func limitReaders(s *server.Server, so *server.Options) {
	o := so.Clone()
	o.MaxPending = maxPending
	setOptions(s, o)
}

// reader is where the server's own record of a connection has its lock and the number of bytes
// that wait to be read.
type reader struct{ lock, pending uintptr }

// findReader looks for them. The server's Connz has that number too, but copies the list of all
// connections for each question.
var findReader = sync.OnceValues(func() (r reader, err error) {
	unknown := errors.New("this version of the server does not say what a connection has not read")
	client := reflect.TypeOf((*server.Server).GetClient).Out(0).Elem()
	lock, ok := client.FieldByName("mu")
	if !ok || lock.Type != reflect.TypeFor[sync.RWMutex]() || len(lock.Index) != 1 {
		return r, unknown
	}
	out, ok := client.FieldByName("out")
	if !ok || out.Type.Kind() != reflect.Struct || len(out.Index) != 1 {
		return r, unknown
	}
	bytes, ok := out.Type.FieldByName("pb")
	if !ok || bytes.Type != reflect.TypeFor[int64]() || len(bytes.Index) != 1 {
		return r, unknown
	}
	return reader{lock.Offset, out.Offset + bytes.Offset}, nil
})

// readersKnown returns an error if pending does not work with this version of the server.
func readersKnown() error {
	_, err := findReader()
	return err
}

// pending returns how many bytes wait for a connection; 0 if it has ended.
func pending(s *server.Server, cid uint64) int64 {
	c := s.GetClient(cid)
	r, err := findReader() // it has been checked at the start
	if c == nil || err != nil {
		return 0
	}
	lock := (*sync.RWMutex)(unsafe.Add(unsafe.Pointer(c), r.lock))
	lock.RLock()
	defer lock.RUnlock()
	return *(*int64)(unsafe.Add(unsafe.Pointer(c), r.pending))
}
