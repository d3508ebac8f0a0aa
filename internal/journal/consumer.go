package journal

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/backoff"
)

// A reader has a consumer of its own, in the memory of one server. It is lost with the member where
// it is, for example. Then the reader makes another one, behind the message that it has read last.
// The library's ordered consumer does so, too, but it asks for the same name until it succeeds,
// whatever its caller's context says: if the server has placed that name at a member that has just
// died, the reader waits until that member is back.

// Limits of consumers.
const (
	consumerTime = time.Minute          // the server removes one that is not used
	heartbeat    = 5 * time.Second      // what the server sends if there is nothing to read; a consumer that misses two is lost
	placeTries   = 30                   // how often the server is asked for a place at a member
	placePause   = 5 * time.Millisecond // after the first try for a place at another member; it grows with each try
	firstRenewal = time.Second          // the pauses of a reader that follows
	lastRenewal  = 10 * time.Second     // while there is no server for its consumer
)

// errGap means that messages were lost on their way from the server.
var errGap = errors.New("messages are missing")

// consumerSettings are those for a query, from the start of the stream.
func consumerSettings(q Query) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		FilterSubjects: everywhere(q.Subjects), DeliverPolicy: jetstream.DeliverAllPolicy, HeadersOnly: q.bare,
		AckPolicy: jetstream.AckNonePolicy, Replicas: 1, MemoryStorage: true, InactiveThreshold: consumerTime,
	}
}

// consume makes the consumer of the cursor, or a new one behind what was read.
func (c *Cursor) consume(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	cfg := c.settings
	if at := c.at.Load(); at > 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = jetstream.DeliverByStartSequencePolicy, at+1, nil
	}
	consumer, err := c.reader.journal.consumer(ctx, cfg, c.place(ctx))
	if err != nil {
		return nil, err
	}
	c.consumer.Store(&consumer)
	return consumer.CachedInfo(), nil
}

// place returns the member whose copy is to be read, "" for any.
func (c *Cursor) place(ctx context.Context) string {
	j := c.reader.journal
	of := j.stream.CachedInfo().Cluster
	here := j.js.Conn().ConnectedServerName()
	switch {
	case of == nil:
		return ""
	case c.behind.Load():
		if info, err := j.info(ctx); err == nil && info.Cluster != nil {
			of = info.Cluster
		}
		return of.Leader
	case c.follow && hasCopy(of, here):
		return here
	}
	return ""
}

// consumer makes a consumer of the stream. If the answer is late, there may be a second one
// until the server removes it. In a cluster the server chooses a member with a copy at random; with place
// it is asked again until it is that one. At the own member the end of no other one interrupts a reader.
// For a place at another member it pauses between two tries: the server prefers members that have applied what
// was decided last, such as the end of the former consumer.
func (j *source) consumer(ctx context.Context, cfg jetstream.ConsumerConfig, place string) (c jetstream.Consumer, err error) {
	here := j.js.Conn().ConnectedServerName()
	for try := 1; ; try++ {
		err = j.ask(ctx, func(ctx context.Context) (err error) {
			c, err = j.stream.CreateConsumer(ctx, cfg)
			return err
		})
		if err != nil || place == "" || try == placeTries || c.CachedInfo().Cluster == nil || c.CachedInfo().Cluster.Leader == place {
			return c, err
		}
		once, cancel := context.WithTimeout(ctx, askTime)
		_ = j.stream.DeleteConsumer(once, c.CachedInfo().Name) // otherwise the server removes it later
		cancel()
		if place != here && !backoff.Sleep(ctx, time.Duration(try)*placePause) {
			return nil, context.Cause(ctx)
		}
	}
}

// hasCopy reports whether a member has a copy of a stream.
func hasCopy(c *jetstream.ClusterInfo, member string) bool {
	return c != nil && (c.Leader == member || slices.ContainsFunc(c.Replicas, func(r *jetstream.PeerInfo) bool { return r.Name == member }))
}

// deliveries are the messages that the server sends to a cursor.
type deliveries struct {
	cursor *Cursor
	most   int             // requested and not read yet
	bytes  int             // their size, at most
	ctx    context.Context // ends with the reading
	cancel context.CancelFunc
	last   atomic.Uint64 // the number of the latest, for this consumer

	mu sync.Mutex
	it jetstream.MessagesContext
}

// deliveries begins to request messages.
func (c *Cursor) deliveries(ctx context.Context, most, bytes int) (*deliveries, error) {
	ctx, cancel := context.WithCancel(ctx)
	d := &deliveries{cursor: c, most: most, bytes: bytes, ctx: ctx, cancel: cancel}
	if err := d.request(); err != nil {
		cancel()
		return nil, err
	}
	return d, nil
}

// request asks the consumer for messages.
func (d *deliveries) request() error {
	it, err := (*d.cursor.consumer.Load()).Messages(jetstream.PullMaxMessagesWithBytesLimit(d.most, d.bytes), jetstream.PullHeartbeat(heartbeat))
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.it = it
	if d.ctx.Err() != nil {
		it.Stop()
	}
	return nil
}

// next returns the next message, of a new consumer if the server has lost the other one.
func (d *deliveries) next() (jetstream.Msg, delivery, error) {
	for {
		m, at, err := d.one()
		if err == nil {
			return m, at, nil
		}
		if d.ctx.Err() != nil || errors.Is(err, jetstream.ErrConnectionClosed) {
			return nil, delivery{}, err
		}
		if errors.Is(err, jetstream.ErrMaxBytesExceeded) { // a message of an older daemon
			d.most, d.bytes = 1, aheadBytes
		}
		if err := d.renew(); err != nil {
			return nil, delivery{}, err
		}
	}
}

func (d *deliveries) one() (jetstream.Msg, delivery, error) {
	m, err := d.it.Next()
	if err != nil {
		return nil, delivery{}, err
	}
	at, err := whereabouts(m)
	if err == nil && at.delivered != d.last.Load()+1 {
		err = errGap
	}
	if err == nil {
		d.last.Store(at.delivered)
	}
	return m, at, err
}

// renew makes a new consumer. A reader that follows waits until there is a server for it.
func (d *deliveries) renew() error {
	d.lose()
	for pauses := (backoff.Pauses{}); ; {
		_, err := d.cursor.consume(d.ctx)
		if err == nil {
			d.last.Store(0)
			return d.request()
		}
		if !d.cursor.follow || d.ctx.Err() != nil || errors.Is(err, nats.ErrConnectionClosed) || !backoff.Sleep(d.ctx, pauses.Next(firstRenewal, lastRenewal)) {
			return err
		}
	}
}

// lose gives up the consumer: next makes another one.
func (d *deliveries) lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.it.Stop()
}

// stop ends next.
func (d *deliveries) stop() {
	d.cancel()
	d.lose()
}

// idle reports whether the server has nothing for the reader, and nothing is on its way. In a
// cluster, a consumer about which nobody answers is given up.
func (d *deliveries) idle(ctx context.Context) bool {
	once, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	info, err := (*d.cursor.consumer.Load()).Info(once)
	if err == nil {
		return info.NumPending == 0 && info.Delivered.Consumer <= d.last.Load()
	}
	j := d.cursor.reader.journal
	if _, remote := remoteOf(j.delays); ctx.Err() == nil && (remote || clustered(j.delays)) {
		d.lose()
	}
	return false
}

// followLook is how often a reader that follows looks whether there is something that does not come.
const followLook = 5 * time.Second

// attend gives up the consumer of a reader that follows if it does not bring what the leader has: its
// member may not catch up. The next one is at the leader.
func (w *watcher) attend(ctx context.Context, d *deliveries) {
	j := d.cursor.reader.journal
	tick := time.NewTicker(followLook)
	defer tick.Stop()
	last, missing := uint64(0), uint64(0) // what the leader had at the latest look, if it has not come since
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now := w.count.Load(); now != last || !w.waiting.Load() {
			last, missing = now, 0
			continue
		}
		end, err := j.tip.get(ctx, j)
		switch {
		case err != nil || end < d.cursor.from || end <= d.cursor.at.Load() || w.count.Load() != last:
			missing = 0
		case missing == 0:
			missing = end
		default:
			missing = 0
			d.elsewhere(followLook)
		}
	}
}

// elsewhere gives up a consumer at a member that lacks what the leader has, and has brought nothing for
// that time: it may not catch up. The next one is at the leader.
func (d *deliveries) elsewhere(waited time.Duration) {
	j := d.cursor.reader.journal
	j.delays.Late("read the stream "+j.name+": this member lacks what another one has", waited)
	d.cursor.behind.Store(true)
	d.lose()
}

// tip is the end of a stream as its leader had it a moment ago: many readers ask for it.
type tip struct {
	mu  sync.Mutex
	seq uint64
	at  time.Time
}

// tipTime is how old the answer may be.
const tipTime = time.Second

// get returns the sequence of the newest message, 0 for none.
func (t *tip) get(ctx context.Context, j *source) (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.at) < tipTime {
		return t.seq, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	m, err := j.newest(ctx, nil)
	if err != nil {
		return 0, err
	}
	t.seq, t.at = 0, time.Now()
	if m != nil {
		t.seq = m.Sequence
	}
	return t.seq, nil
}
