package netapi

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// pool has the connections to the master that are logged in by a token, by token and
// address: a login is of a connection, and whoever shows the same token from the same
// address goes on over the one that stands. The master looks at the login at each request.
type pool struct {
	dial func() (*rpc.Conn, error)

	mu    sync.Mutex
	links map[linkKey]*link
}

// linkKey names a token without holding it.
type linkKey struct {
	token   [sha256.Size]byte
	address netip.Addr
}

// link is one connection, logged in. conn and in stand once made is closed, unless err
// does.
type link struct {
	of    *pool
	key   linkKey
	made  chan struct{}
	conn  *rpc.Conn
	in    protocol.LoggedIn
	err   error
	users int       // guarded by pool, as what follows
	idle  time.Time // since when there are none
	gone  bool      // no longer in the pool

	feed feed // of live events, shared by the streams over this connection
}

// Bounds of connections to the master, which lets one local user have 256.
const (
	maxLinks          = 140
	maxLogins         = 40 // more, which log in by a password
	maxPositions      = 60 // more, for streams with a position
	maxPositionsOfOne = 20 // of one login
	idleLink          = time.Minute
	loginTime         = time.Minute
)

func newPool(dial func() (*rpc.Conn, error)) *pool {
	return &pool{dial: dial, links: map[linkKey]*link{}}
}

// take returns a connection that is logged in by a token; release gives it back.
func (p *pool) take(ctx context.Context, who login, address netip.Addr) (*link, error) {
	key := linkKey{sha256.Sum256([]byte(who.token)), address}
	p.mu.Lock()
	k := p.links[key]
	if k != nil && k.lost() {
		p.forget(k)
		k = nil
	}
	if k == nil {
		if len(p.links) >= maxLinks && !p.evict() {
			p.mu.Unlock()
			return nil, problem(http.StatusServiceUnavailable, "Too many sessions are in use.")
		}
		k = &link{of: p, key: key, made: make(chan struct{})}
		p.links[key] = k
		go k.make(who)
	}
	k.users++
	p.mu.Unlock()
	select {
	case <-k.made:
	case <-ctx.Done():
		k.release()
		return nil, context.Cause(ctx)
	}
	if k.err != nil {
		k.release()
		return nil, k.err
	}
	return k, nil
}

// make connects and logs in. It is not ended by who asked first: others may wait for it.
func (k *link) make(who login) {
	defer close(k.made)
	ctx, cancel := context.WithTimeout(context.Background(), loginTime)
	defer cancel()
	conn, err := k.of.dial()
	if err == nil {
		k.in, err = logIn(ctx, conn, protocol.Login{Backend: who.backend, User: who.user, Token: who.token}, k.key.address)
		if err != nil {
			conn.Close()
		}
	} else {
		err = because(err, http.StatusServiceUnavailable, noMaster)
	}
	if err != nil {
		k.err = err
		k.discard()
		return
	}
	k.conn = conn
	k.feed.conn = conn
}

// logIn logs in on a connection, for somebody at an address.
func logIn(ctx context.Context, conn *rpc.Conn, q protocol.Login, address netip.Addr) (in protocol.LoggedIn, err error) {
	q.Address = address.String()
	err = conn.Ask(ctx, protocol.OpLogin, q, &in)
	return in, err
}

// lost says whether the connection has ended. The caller holds the lock of the pool.
func (k *link) lost() bool {
	select {
	case <-k.made:
		return k.err != nil || k.conn.NC.IsClosed()
	default:
		return false
	}
}

// release gives the connection back.
func (k *link) release() {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	k.users--
	k.idle = time.Now()
	if k.users == 0 && k.gone {
		k.shut()
	}
}

// discard takes the connection out of the pool: it is closed when its last user is done.
func (k *link) discard() {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	k.of.forget(k)
}

// forget is discard. The caller holds the lock.
func (p *pool) forget(k *link) {
	if p.links[k.key] == k {
		delete(p.links, k.key)
	}
	k.gone = true
	if k.users == 0 {
		k.shut()
	}
}

func (k *link) shut() {
	if k.conn != nil {
		k.conn.Close()
	}
}

// evict closes the connection that was idle longest, if one is.
func (p *pool) evict() bool {
	var oldest *link
	for _, k := range p.links {
		if k.users == 0 && (oldest == nil || k.idle.Before(oldest.idle)) {
			oldest = k
		}
	}
	if oldest != nil {
		p.forget(oldest)
	}
	return oldest != nil
}

// sweep closes what nobody has used for a while.
func (p *pool) sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.links {
		if k.users == 0 && now.Sub(k.idle) > idleLink {
			p.forget(k)
		}
	}
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.links {
		p.forget(k)
	}
}

// drop ends all connections of a token: its session has ended.
func (p *pool) drop(token string) {
	sum := sha256.Sum256([]byte(token))
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, k := range p.links {
		if key.token == sum {
			p.forget(k)
			select {
			case <-k.made:
				k.shut() // its streams end, too
			default:
			}
		}
	}
}
