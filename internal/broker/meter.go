package broker

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/bus"
)

// Limits of the bytes under way to the daemon: read from its peers and not handled yet. A peer
// that has reached them waits on its own connection, where it costs only the peer.
const (
	// maxShare is for one identity, over all of its connections: many requests, and two pieces
	// of large ones. It is handled in a few milliseconds, some ten if large messages have
	// suddenly become small ones.
	maxShare = 1 << 20
	// strangeShare is for all peers without an accepted key on one host. Each has one short
	// question.
	strangeShare = 128 << 10
	// maxUnderWay is for all identities together; beyond it each gets only a small part of its
	// share.
	maxUnderWay = 8 << 20
	smallPart   = 16
	// maxMessages is about how many messages of one identity may be under way: small ones take
	// as long as large ones, and others wait behind them. The limit in bytes follows from the
	// size of the messages that were handled, down to minShare. It grows only slowly again, so
	// that a few large messages do not make room for a flood of small ones.
	maxMessages = 512
	minShare    = 16 << 10
	firstShare  = 8 * minShare // until anything was handled
	// probeEach is how many bytes are read between two probes of how far the daemon is.
	probeEach = 256 << 10
	// probeEvery is how often the daemon is probed when little comes, and deafAfter how long it
	// may need to answer: normally it needs milliseconds.
	probeEvery = 5 * time.Second
	deafAfter  = 60 * time.Second
)

// ErrFailed is wrapped by the errors of Failed.
var ErrFailed = errors.New("the bus has failed")

// meter counts the bytes under way from each identity to the daemon. Probes, sent the way of
// the requests, find out how far the daemon is: when one has come back, everything read before
// it has been handled.
type meter struct {
	mu      sync.Mutex
	on      bool // probes are sent
	epoch   uint64
	flight  bool  // the probe that ended the previous epoch has not come back
	was     int64 // bytes of the previous epoch
	now     int64 // bytes of this epoch
	most    int64 // limit of a share, by the size of messages: firstShare at first, maxShare where they are large
	shares  map[string]*flow
	passed  chan struct{} // closed when the probe comes back
	due     chan struct{} // a probe is to be sent
	waiting int           // connections that wait; for tests
}

// flow is what one identity has under way.
type flow struct {
	key   string
	limit int64
	conns int
	epoch uint64 // the current one
	was   int64
	now   int64
	rest  time.Time // nothing is read until then
}

// inflow is one connection of a flow.
type inflow struct {
	*flow
	pause time.Time // nothing is read from this connection until then; guarded by the meter
}

func newMeter() *meter {
	return &meter{most: firstShare, shares: map[string]*flow{}, passed: make(chan struct{}), due: make(chan struct{}, 1)}
}

// join returns the share of an identity for one more connection; leave gives it back.
func (m *meter) join(i bus.Identity, host string) *flow {
	key, limit := shareKey(i, host), int64(maxShare)
	if i.Role == bus.RoleUnaccepted || i.Role == bus.RoleGuest {
		limit = strangeShare
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.shares[key]
	if s == nil {
		s = &flow{key: key, limit: limit, epoch: m.epoch}
		m.shares[key] = s
	}
	s.conns++
	return s
}

// shareKey names the share that an identity uses; host is for those without an accepted key. A
// guest is named by its host.
func shareKey(i bus.Identity, host string) string {
	switch i.Role {
	case bus.RoleUnaccepted:
		return "key of " + host
	case bus.RoleMinion, bus.RoleCaller:
		return "minion " + i.Name
	}
	return string(i.Role) + " " + i.Name
}

// slow stops reading from an identity for a moment. A key that is not accepted shares its flow
// with all such keys of its host, which may be many machines behind one address: they would
// wait with it. So it is not slowed. It has one question and needs no pace: if it asks more, it
// is refused and its connection ended.
func (m *meter) slow(i bus.Identity, pause time.Duration) {
	if i.Role == bus.RoleUnaccepted {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.shares[shareKey(i, "")]; s != nil {
		s.rest = time.Now().Add(pause)
	}
}

func (m *meter) leave(s *flow) {
	if s == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.conns--; s.conns == 0 {
		delete(m.shares, s.key)
	}
}

// took counts bytes that were read from a connection.
func (m *meter) took(s *flow, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn(s)
	s.now += int64(n)
	m.now += int64(n)
	if m.now >= probeEach {
		m.nudge()
	}
}

// turn brings the share to the current epoch.
func (m *meter) turn(s *flow) {
	switch {
	case s.epoch == m.epoch:
	case s.epoch+1 == m.epoch:
		s.was, s.now = s.now, 0
	default:
		s.was, s.now = 0, 0
	}
	s.epoch = m.epoch
}

func (m *meter) nudge() {
	select {
	case m.due <- struct{}{}:
	default:
	}
}

// wait returns when more may be read for the share, or when the connection has ended.
func (m *meter) wait(s *flow, gone <-chan struct{}) {
	for {
		m.mu.Lock()
		passed, rest, over := m.passed, time.Until(s.rest), m.over(s)
		if !over && rest <= 0 {
			m.mu.Unlock()
			return
		}
		m.waiting++
		if over {
			m.nudge()
		}
		m.mu.Unlock()
		ended := pause(passed, rest, gone)
		m.mu.Lock()
		m.waiting--
		m.mu.Unlock()
		if ended {
			return
		}
	}
}

// waitOne is wait for one connection, which may have been slowed by itself.
func (m *meter) waitOne(r *inflow, gone <-chan struct{}) {
	for {
		m.wait(r.flow, gone)
		m.mu.Lock()
		rest := time.Until(r.pause)
		m.mu.Unlock()
		if rest <= 0 || pause(nil, rest, gone) {
			return
		}
	}
}

// pause waits until rest is over or, if there is none, until passed is closed. It reports
// whether the connection ended meanwhile.
func pause(passed <-chan struct{}, rest time.Duration, gone <-chan struct{}) (ended bool) {
	var over <-chan time.Time
	if rest > 0 {
		t := time.NewTimer(rest)
		defer t.Stop()
		passed, over = nil, t.C
	}
	select {
	case <-passed:
	case <-over:
	case <-gone:
		return true
	}
	return false
}

// over reports whether the share is used up. The caller holds the lock.
func (m *meter) over(s *flow) bool {
	if !m.on {
		return false
	}
	m.turn(s)
	own, all := s.now, m.now
	if m.flight {
		own, all = own+s.was, all+m.was
	}
	limit := min(s.limit, m.most)
	return own >= limit || all >= maxUnderWay/maxShare*m.most && own >= limit/smallPart
}

// begin ends an epoch with a probe.
func (m *meter) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch++
	m.flight, m.was, m.now = true, m.now, 0
}

// end is called when the probe has come back; looked is how many messages were handled since
// the last one.
func (m *meter) end(looked int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if looked > 0 && m.was > 0 {
		fits := max(minShare, m.was/int64(looked)*maxMessages)
		m.most = min(maxShare, fits, m.most+m.most/4)
	}
	m.flight, m.was = false, 0
	close(m.passed)
	m.passed = make(chan struct{})
}

// Slow stops reading from an identity for a moment, over all its connections.
func (b *Broker) Slow(i bus.Identity, pause time.Duration) { b.meter.slow(i, pause) }

// SlowOne returns a function that stops reading from the connection with this inbox for a moment.
// The other connections of the identity go on: they may belong to other people.
func SlowOne(b *Broker) func(inbox string, pause time.Duration) {
	return func(inbox string, pause time.Duration) {
		r := b.auth.inflow(inbox)
		if r == nil {
			return // it has ended
		}
		b.meter.mu.Lock()
		defer b.meter.mu.Unlock()
		r.pause = time.Now().Add(pause)
	}
}

// Meter starts to apply the limits of what peers may have under way. probe sends a probe the
// way of all requests, and calls back when the daemon has handled everything before it. If a
// probe does not come back, the daemon ends: one that receives nothing must not appear to run.
func (b *Broker) Meter(probe func(back func(looked int)) error) {
	b.meter.mu.Lock()
	b.meter.on = true
	b.meter.mu.Unlock()
	b.wg.Go(func() {
		if err := b.keepProbing(probe); err != nil {
			b.Fail(err)
		}
	})
}

func (b *Broker) keepProbing(probe func(func(int)) error) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	lame := 0
	for {
		select {
		case <-b.meter.due:
		case <-tick.C:
			if lame = b.lame(lame); lame > maxLame {
				return errors.New("the store was switched off")
			}
		case <-b.quit:
			return nil
		}
		back := make(chan int, 1)
		b.meter.begin()
		if err := probe(func(looked int) { back <- looked }); err != nil {
			return fmt.Errorf("the daemon's own connection: %w", err)
		}
		deaf := time.NewTimer(deafAfter)
		select {
		case looked := <-back:
			deaf.Stop()
			b.meter.end(looked)
		case <-deaf.C:
			return fmt.Errorf("the daemon has heard nothing for %s", deafAfter)
		case <-b.quit:
			deaf.Stop()
			return nil
		}
	}
}

// maxLame is how many times in a row the store may be found switched off while it is not being
// opened again.
const maxLame = 3

func (b *Broker) lame(times int) int {
	if b.opts.StoreDir == "" || b.server.JetStreamEnabled() || b.health.Err() != nil {
		return 0
	}
	return times + 1
}

// Failed reports, once, that a part of the broker has failed, so that it serves no more
// although it runs. The daemon must end, so that its service manager starts it again.
func (b *Broker) Failed() <-chan error { return b.failed }

// Fail has Failed report something, unless the broker is stopping.
func (b *Broker) Fail(err error) {
	select {
	case <-b.quit:
		return
	default:
	}
	err = fmt.Errorf("%w: %w", ErrFailed, err)
	b.opts.Log.Error("the bus has failed: the daemon ends, to be started again", "err", err)
	select {
	case b.failed <- err:
	default: // one is enough
	}
}
