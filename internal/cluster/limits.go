package cluster

import (
	"context"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/rpc"
)

// Limits of the requests of one kind. Each kind has its own: minions cause many of some kinds, and
// must not keep away a job, or what else somebody waits for at another member.
const (
	maxUnderWay      = 2048            // requests of one member at a time
	maxUnderWayOfAll = 4 * maxUnderWay // and of all members
	maxBytes         = 96 << 20        // bytes of the bodies of one member's requests, which may be incomplete
	maxBytesOfAll    = 2 * maxBytes    // and of those of all members
	smallBody        = 4 << 10         // a body up to this size does not count: the number of requests limits these
)

// Limits of incomplete requests.
const (
	maxPartial = 4096
	// pieceTime is how long the next piece may take; then the bytes of those before are released.
	pieceTime = 30 * time.Second
	// lateTime is how long it is known that pieces may follow which must not be taken for a whole
	// request.
	lateTime = 10 * time.Minute
)

// kind is one kind of request, with what is under way of it.
type kind struct {
	handle Handler
	places *rpc.Shares // by the member that asks, as are the bytes
	bytes  *rpc.Shares
}

func newKind(h Handler) *kind {
	return &kind{handle: h, places: rpc.NewShares(maxUnderWay, maxUnderWayOfAll), bytes: rpc.NewShares(maxBytes, maxBytesOfAll)}
}

// request is a request of another member from its first piece until it was answered.
type request struct {
	rpc.Assembler
	kind    *kind
	from    string
	size    int       // bytes so far
	held    int       // of these, what counts as under way
	latest  time.Time // when the latest piece came
	dropped bool      // its pieces are skipped
}

// reserve counts n more bytes as under way, or else drops the request.
func (r *request) reserve(n int) {
	if r.size += n; r.dropped || r.size <= smallBody {
		return
	}
	switch {
	case r.size > maxBody:
		r.drop(rpc.Errorf(rpc.Usage, "%v: the limit is %d bytes", rpc.ErrTooLarge, maxBody))
	case !r.kind.bytes.Take(r.from, r.size-r.held):
		r.drop(rpc.Errorf(rpc.Busy, "the requests of this kind that are under way hold too many bytes"))
	default:
		r.held = r.size
	}
}

// drop releases what has come of a request. It is answered with err after its last piece.
func (r *request) drop(err error) {
	if !r.dropped {
		r.dropped = true
		r.Drop(err)
		r.release()
	}
}

func (r *request) release() {
	r.kind.bytes.Give(r.from, r.held)
	r.held = 0
}

// assemble assembles a request of several pieces; it returns nil before the last one. With an
// error, the request is not handled.
func (x *Exchange) assemble(k *kind, from string, m *nats.Msg) (*request, []byte, error) {
	if m.Reply == "" {
		return nil, nil, nil
	}
	x.partialMu.Lock()
	defer x.partialMu.Unlock()
	r := x.partial[m.Reply]
	if r == nil {
		r = &request{Assembler: rpc.Assembler{Limit: maxBody}, kind: k, from: from}
	}
	r.latest = time.Now()
	r.reserve(len(m.Data))
	body, done, err := r.Add(m)
	switch {
	case done:
		delete(x.partial, m.Reply)
		return r, body, err
	case x.partial[m.Reply] == nil:
		x.bound()
		x.partial[m.Reply] = r
	}
	return nil, nil, nil
}

// bound forgets all incomplete requests if there are too many. Members do not make so many; one
// whose request is forgotten gets an error.
func (x *Exchange) bound() {
	if len(x.partial) < maxPartial {
		return
	}
	for _, r := range x.partial {
		r.release()
	}
	clear(x.partial)
}

// errBroken is the answer to a request whose pieces have not come together.
var errBroken = rpc.Errorf(rpc.Unavailable, "the request has come in part only")

// dropBroken releases what incomplete requests hold whose next piece is late, until the exchange ends.
func (x *Exchange) dropBroken() {
	tick := time.NewTicker(pieceTime / 10)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			x.dropLate(now)
		case <-x.ctx.Done():
			return
		}
	}
}

func (x *Exchange) dropLate(now time.Time) {
	x.partialMu.Lock()
	defer x.partialMu.Unlock()
	for reply, r := range x.partial {
		switch since := now.Sub(r.latest); {
		case since > lateTime:
			r.release()
			delete(x.partial, reply)
		case since > pieceTime:
			r.drop(errBroken)
		}
	}
}

// dropUnfinished releases what the incomplete requests of a member that is gone hold. It may have
// been stopped only, so they are not forgotten.
func (x *Exchange) dropUnfinished(from string) {
	x.partialMu.Lock()
	defer x.partialMu.Unlock()
	for _, r := range x.partial {
		if r.from == from {
			r.drop(errBroken)
		}
	}
}

// headerTime says how many milliseconds the sender of a request waits for its answer: the clocks
// of members may differ.
const headerTime = "Salt-Time"

// withTime adds that header. The other ones may be shared, so they are copied.
func withTime(ctx context.Context, m *nats.Msg) *nats.Msg {
	if end, ok := ctx.Deadline(); ok {
		all := nats.Header{headerTime: {strconv.FormatInt(max(1, time.Until(end).Milliseconds()), 10)}}
		maps.Copy(all, m.Header)
		m.Header = all
	}
	return m
}

// timed publishes the pieces of a request with that header.
type timed struct {
	ctx  context.Context
	conn *nats.Conn
}

// PublishMsg implements rpc.Publisher.
func (t timed) PublishMsg(m *nats.Msg) error { return t.conn.PublishMsg(withTime(t.ctx, m)) }

// timeOf returns how long the handler of a request may take: no longer than somebody waits. A
// member of an older version does not say how long that is.
func timeOf(m *nats.Msg) time.Duration {
	n, err := strconv.ParseInt(m.Header.Get(headerTime), 10, 64)
	if err != nil || n <= 0 || n > handleTime.Milliseconds() {
		return handleTime
	}
	return time.Duration(n) * time.Millisecond
}
