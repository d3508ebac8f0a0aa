package netapi

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/brinebus/brine/client"
)

// pool has the connections to the master that are logged in by a token, by token and address: a
// login belongs to a connection, and requests with the same token from the same address share
// one. The master checks the login at each request.
type pool struct {
	dial func(context.Context) (*client.Conn, error)

	mu    sync.Mutex
	conns map[connKey]*pooled
	owned map[string]int // connections of one request each, which have a place, too, by login
}

// connKey identifies a token without containing it.
type connKey struct {
	token   [sha256.Size]byte
	address netip.Addr
}

// pooled is one logged-in connection. conn and in are valid once made is closed, unless err is
// set.
type pooled struct {
	of    *pool
	key   connKey
	who   string // the login by its name; it is not known on trial
	made  chan struct{}
	conn  *client.Conn
	in    client.Session
	err   error
	users int       // guarded by pool, as are the next fields
	trial bool      // by a token that the master has not accepted yet: it has no place in the pool
	idle  time.Time // since when there are no users
	gone  bool      // no longer in the pool

	feed feed // of live events, shared by the streams over this connection
}

// Limits of connections to the master, which allows an account of api_user 256.
const (
	maxPooled         = 140           // including those of requests that have logged in by password
	maxPooledOfOne    = maxPooled / 4 // of one login, with all of its tokens and addresses
	maxLogins         = 40            // in addition, until the master has accepted a password or a token
	maxPositions      = 60            // in addition, for streams with a position
	maxPositionsOfOne = 20            // of one login
	idlePooled        = time.Minute
	loginTime         = time.Minute
)

func newPool(dial func(context.Context) (*client.Conn, error)) *pool {
	return &pool{dial: dial, conns: map[connKey]*pooled{}, owned: map[string]int{}}
}

// take returns a connection that is logged in by a token of a session; release gives it back.
func (p *pool) take(ctx context.Context, who login, address netip.Addr) (*pooled, error) {
	return p.get(ctx, who, address, nil)
}

// try is take for a token that may be a guess: unless it has a connection, admit counts it as a
// login until the master has accepted it, and only then others make room for it.
func (p *pool) try(ctx context.Context, who login, address netip.Addr, admit func(netip.Addr) (leave func(), err error)) (*pooled, error) {
	return p.get(ctx, who, address, admit)
}

func (p *pool) get(ctx context.Context, who login, address netip.Addr, admit func(netip.Addr) (leave func(), err error)) (*pooled, error) {
	key := connKey{sha256.Sum256([]byte(who.token)), address}
	p.mu.Lock()
	k := p.conns[key]
	if k != nil && k.lost() {
		p.forget(k)
		k = nil
	}
	if k == nil {
		leave, err := p.admit(who, address, admit)
		if err != nil {
			p.mu.Unlock()
			return nil, err
		}
		k = &pooled{of: p, key: key, who: who.name(), made: make(chan struct{}), trial: admit != nil}
		p.conns[key] = k
		go func() {
			defer leave()
			k.make(who)
		}()
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

// admit finds a place for one more connection, or counts it as a login. The caller holds the lock.
func (p *pool) admit(who login, address netip.Addr, admit func(netip.Addr) (leave func(), err error)) (leave func(), err error) {
	if admit != nil {
		return admit(address)
	}
	return func() {}, p.room(who.name())
}

// room makes room for one more connection of a login. The caller holds the lock.
func (p *pool) room(who string) error {
	if p.placed(who) >= maxPooledOfOne && !p.evict(who) {
		return problem(http.StatusTooManyRequests, "Too many sessions of this login are in use.")
	}
	if p.placed("") >= maxPooled && !p.evict("") {
		return problem(http.StatusServiceUnavailable, "Too many sessions are in use.")
	}
	return nil
}

// placed returns how many connections have a place, of a login or, with "", of all. The caller holds the
// lock.
func (p *pool) placed(who string) (n int) {
	for name, owned := range p.owned {
		if who == "" || name == who {
			n += owned
		}
	}
	for _, k := range p.conns {
		if !k.trial && (who == "" || k.who == who) {
			n++
		}
	}
	return n
}

// own finds a place for a connection that one request has logged in.
func (p *pool) own(who string) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.room(who); err != nil {
		return nil, err
	}
	p.owned[who]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.owned[who]--; p.owned[who] == 0 {
			delete(p.owned, who)
		}
	}, nil
}

// make connects and logs in. It does not end with the first caller, since others may wait for
// it.
func (k *pooled) make(who login) {
	defer close(k.made)
	ctx, cancel := context.WithTimeout(context.Background(), loginTime)
	defer cancel()
	conn, err := k.of.dial(ctx)
	if err == nil {
		k.in, err = logIn(ctx, conn, client.Login{Backend: who.backend, User: who.user, Token: who.token}, k.key.address)
		if err != nil {
			conn.Close()
		}
	} else {
		err = because(err, http.StatusServiceUnavailable, noMaster)
	}
	if err == nil {
		err = k.accepted(conn)
	}
	if err != nil {
		k.err = err
		k.discard()
	}
}

// accepted finds a place for a connection by a token that was on trial.
func (k *pooled) accepted(conn *client.Conn) error {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	if k.trial && !k.gone {
		k.who = login{backend: k.in.Backend, user: k.in.User}.name()
		if err := k.of.room(k.who); err != nil {
			conn.Close()
			return err
		}
	}
	k.trial, k.conn, k.feed.conn = false, conn, conn
	if k.gone && k.users == 0 {
		k.shut() // nobody has waited for it
	}
	return nil
}

// logIn logs in on a connection, for a client at an address.
func logIn(ctx context.Context, conn *client.Conn, l client.Login, address netip.Addr) (client.Session, error) {
	l.Address = address.String()
	return conn.Login(ctx, l)
}

// lost reports whether the connection has ended. The caller holds the lock of the pool.
func (k *pooled) lost() bool {
	select {
	case <-k.made:
		return k.err != nil || k.conn.IsClosed()
	default:
		return false
	}
}

// release gives the connection back.
func (k *pooled) release() {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	k.users--
	k.idle = time.Now()
	if k.users == 0 && k.gone {
		k.shut()
	}
}

// discard removes the connection from the pool: it is closed when its last user is done.
func (k *pooled) discard() {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	k.of.forget(k)
}

// forget is discard for callers that hold the lock.
func (p *pool) forget(k *pooled) {
	if p.conns[k.key] == k {
		delete(p.conns, k.key)
	}
	k.gone = true
	if k.users == 0 {
		k.shut()
	}
}

func (k *pooled) shut() {
	if k.conn != nil {
		k.conn.Close()
	}
}

// evict closes the connection of a login, or with "" of any, that was idle longest, and reports whether
// there was one.
func (p *pool) evict(who string) bool {
	var oldest *pooled
	for _, k := range p.conns {
		if k.users == 0 && !k.trial && (who == "" || k.who == who) && (oldest == nil || k.idle.Before(oldest.idle)) {
			oldest = k
		}
	}
	if oldest != nil {
		p.forget(oldest)
	}
	return oldest != nil
}

// sweep closes connections that were not used for a while.
func (p *pool) sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.conns {
		if k.users == 0 && !k.trial && now.Sub(k.idle) > idlePooled {
			p.forget(k)
		}
	}
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.conns {
		p.forget(k)
	}
}

// drop ends all connections of a token whose session has ended.
func (p *pool) drop(token string) {
	sum := sha256.Sum256([]byte(token))
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, k := range p.conns {
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
