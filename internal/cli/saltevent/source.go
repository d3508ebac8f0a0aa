package saltevent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
)

// source returns the events of one listener, and reconnects after the daemon was away, without
// a gap and without duplicates.
type source struct {
	session *session
	env     *cli.Env
	q       brine.ListenOptions
	onReady func(*brine.Listener) error // called once, when the listener is ready

	conn         *brine.Conn
	listener     *brine.Listener // nil if there is none
	ready        bool
	begins       int    // how many listeners have begun
	seq          uint64 // everything up to here was handed out, or does not match
	at           string // the same for the journals of other masters, see brine.ListenOptions.At
	lost, missed uint64 // of this listener, as far as reported
}

// batch is what arrived together.
type batch struct {
	lines  [][]byte // events, each one line of JSON without its end
	passed uint64   // everything up to here is in this batch or before
	at     string   // the same for the journals of other masters; "" for none
	own    string   // the name of the own journal, in a cluster
}

// next waits for events. It returns io.EOF at the end of the requested ones.
func (s *source) next(ctx context.Context) (batch, error) {
	for {
		err := s.open(ctx)
		if err == nil {
			var lines [][]byte
			if lines, err = s.listener.NextLines(ctx); err == nil {
				return s.take(lines), nil
			}
		}
		if !s.again(ctx, err) {
			return batch{}, err
		}
	}
}

// again reports whether to reconnect after err.
func (s *source) again(ctx context.Context, err error) bool {
	if !s.ready || s.session.stay || ctx.Err() != nil || !passing(err) {
		return false
	}
	if errors.Is(err, brine.ErrLost) {
		s.session.lost(s.conn)
	}
	s.close()
	backoff.Sleep(ctx, firstPause)
	return true
}

// open requests the events, unless that is done.
func (s *source) open(ctx context.Context) (err error) {
	if s.listener != nil {
		return nil
	}
	if s.conn, err = s.session.get(ctx); err != nil {
		return err
	}
	q := s.q
	if s.ready {
		q.Since, q.FromSeq, q.Resume, q.At = time.Time{}, s.seq+1, true, s.at
	}
	defer s.env.Waiting(ctx, cli.Patience, func() string { return "the daemon to begin" })()
	if s.listener, err = s.conn.Listen(ctx, q); err != nil {
		s.listener = nil
		return err
	}
	s.lost, s.missed = 0, 0
	return s.begun()
}

func (s *source) begun() error {
	l := s.listener
	s.begins++
	s.warnLost()
	s.warnAhead(l.Ahead(), l.End())
	s.warnGone(l.Gone())
	s.seq, s.at = l.Position(), l.Positions()
	if s.ready {
		return nil
	}
	s.ready = true
	if limits := l.Limits(); len(limits) > 0 {
		s.env.Warn(fmt.Errorf("event_acl lets you hear these tags only: %q", limits))
	}
	return s.onReady(l)
}

// warnAhead warns that the journal ends before what was already received.
func (s *source) warnAhead(ahead, end uint64) {
	if ahead > 0 {
		s.env.Warn(fmt.Errorf("this listener has heard event %d, and the journal ends with %d: it was put back from a copy, or its end is lost. All that it has is heard from its start; events may come twice, others may be missing", ahead, end))
	}
}

// warnGone warns that journals of other masters are not there any more.
func (s *source) warnGone(names []string) {
	for _, name := range names {
		s.env.Warn(fmt.Errorf("the journal %q is not mirrored here any more: what this listener had not got of it is missing, and so may be the first events of a new journal of that master", name))
	}
}

// warnLost warns about events that were lost before this listener received them.
func (s *source) warnLost() {
	missed := s.listener.Missed()
	lost := s.listener.Lost() - missed
	if lost > s.lost {
		s.env.Warn(fmt.Errorf("%d events were removed from the journal before this listener got them", lost-s.lost))
	}
	if missed > s.missed {
		s.env.Warn(fmt.Errorf("%d events that are not stored, of any tag, were missed: the output is read too slowly", missed-s.missed))
	}
	s.lost, s.missed = lost, missed
}

// take returns the batch for lines from the listener.
func (s *source) take(lines [][]byte) batch {
	s.warnLost()
	s.seq, s.at = s.listener.Position(), s.listener.Positions()
	return batch{lines, s.seq, s.at, s.listener.Journal()}
}

func (s *source) close() {
	if s.listener != nil {
		s.listener.Close()
	}
	s.listener = nil
}

// confirmer confirms the position of a durable listener to the daemon. It never blocks the
// listener: while one confirmation is under way, the next one is collected.
type confirmer struct {
	session *session
	name    string
	wake    chan struct{}
	stopped sync.WaitGroup
	cancel  context.CancelFunc

	mu             sync.Mutex
	want, have     uint64
	wantAt, haveAt string // of the journals of other masters
}

// newConfirmer starts to confirm; without a name it does nothing.
func newConfirmer(s *session, name string) *confirmer {
	c := &confirmer{session: s, name: name, wake: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	if name != "" {
		c.stopped.Go(func() { c.run(ctx) })
	}
	return c
}

// done records that everything up to seq is done, and in other journals up to at.
func (c *confirmer) done(seq uint64, at string) {
	c.mu.Lock()
	c.want = max(c.want, seq)
	if at != "" {
		c.wantAt = at
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *confirmer) run(ctx context.Context) {
	for warned := false; ; {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return
		}
		err := c.flush(ctx)
		if err == nil {
			continue
		}
		// The daemon is away, or the listener has not reconnected yet. The user is warned about anything else at once: a listener
		// may run for months, and would come back where it has begun.
		if !warned && ctx.Err() == nil && !mayPass(err) {
			c.session.env.Warn(fmt.Errorf("the position %q does not move at present, so events may come again: %w", c.name, client.Error(err)))
			warned = true
		}
		if backoff.Sleep(ctx, 200*time.Millisecond) {
			c.done(0, "")
		}
	}
}

// flush confirms what is done and not confirmed yet.
func (c *confirmer) flush(ctx context.Context) error {
	c.mu.Lock()
	want, at, more := c.want, c.wantAt, c.want > c.have || c.wantAt != c.haveAt
	c.mu.Unlock()
	if !more {
		return nil
	}
	conn, err := c.session.get(ctx)
	if err != nil {
		return err
	}
	if err := conn.Confirm(ctx, c.name, want, at); err != nil {
		return err
	}
	c.mu.Lock()
	c.have, c.haveAt = max(c.have, want), at
	c.mu.Unlock()
	return nil
}

// lastWord limits the wait for the last confirmation.
const lastWord = 5 * time.Second

// stop confirms the rest and ends. If the daemon goes away meanwhile, src first listens again:
// only the connection that holds a position may confirm.
func (c *confirmer) stop(src *source) error {
	c.cancel()
	c.stopped.Wait()
	if c.name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastWord)
	defer cancel()
	for err := c.flush(ctx); err != nil; {
		if !src.again(ctx, err) {
			return fmt.Errorf("confirm what was done: it may come again: %w", client.Error(err))
		}
		if err = src.open(ctx); err == nil {
			err = c.flush(ctx)
		}
	}
	return nil
}
