package saltevent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// source hands out the events of one listener and comes back by itself, without a
// gap and without a repetition, when the daemon was away.
type source struct {
	session *session
	env     *cli.Env
	q       protocol.Listen
	onReady func(protocol.Ready) error // told once, when the listener stands

	conn   *rpc.Conn
	stream *rpc.Stream
	ready  bool
	ended  bool           // the daemon has said that this was all
	seq    uint64         // everything up to here was handed out, or does not match
	at     event.Position // the same of the journals of other masters
}

// batch is what arrived together.
type batch struct {
	lines  [][]byte       // events, each one line of JSON without its end
	passed uint64         // everything up to here is in this batch or before
	at     event.Position // the same of the journals of other masters; nil for none
}

// next waits for events. It returns io.EOF at the end of what was asked for.
func (s *source) next(ctx context.Context) (batch, error) {
	for {
		if s.ended {
			return batch{}, io.EOF
		}
		err := s.open(ctx)
		if err == nil {
			var b []byte
			if b, err = s.stream.Next(ctx); err == nil {
				return s.take(b)
			}
		}
		if !s.again(ctx, err) {
			return batch{}, err
		}
	}
}

// again says whether to come back after err.
func (s *source) again(ctx context.Context, err error) bool {
	if !s.ready || s.session.stay || ctx.Err() != nil || !passing(err) {
		return false
	}
	if errors.Is(err, rpc.ErrLost) {
		s.session.lost(s.conn)
	}
	if s.stream != nil {
		s.stream.Close()
	}
	s.stream = nil
	backoff.Sleep(ctx, firstPause)
	return true
}

// open asks for the events if that is not done.
func (s *source) open(ctx context.Context) (err error) {
	if s.stream != nil {
		return nil
	}
	if s.conn, err = s.session.get(ctx); err != nil {
		return err
	}
	q := s.q
	q.Lines = true
	if s.ready {
		q.Since, q.FromSeq, q.Resume, q.At = time.Time{}, s.seq+1, true, behind(s.at)
	}
	stream, err := s.conn.Call(protocol.OpListen, q)
	if err != nil {
		return err
	}
	defer s.env.Waiting(ctx, cli.Patience, func() string { return "the daemon to begin" })()
	var ready protocol.Ready
	if err := stream.Decode(ctx, &ready); err != nil {
		stream.Close()
		return err
	}
	s.stream = stream
	return s.begun(ready)
}

func (s *source) begun(ready protocol.Ready) error {
	s.warnLost(ready.Lost)
	if ready.Ahead > 0 {
		s.env.Warn(fmt.Errorf("this listener has heard event %d, and the journal ends with %d: it was put back from a copy, or its end is lost. All that it has is heard from its start; events may come twice, others may be missing", ready.Ahead, ready.Last))
	}
	s.seq = ready.Start - 1
	for name, start := range ready.At {
		s.pass(name, start-1)
	}
	if s.ready {
		return nil
	}
	s.ready = true
	if len(ready.Limits) > 0 {
		s.env.Warn(fmt.Errorf("event_acl lets you hear these tags only: %q", ready.Limits))
	}
	return s.onReady(ready)
}

// pass notes how far it is in the journal of another master.
func (s *source) pass(master string, seq uint64) {
	if s.at == nil {
		s.at = event.Position{}
	}
	s.at.Pass(master, seq)
}

// behind are the sequences behind those of at.
func behind(at event.Position) event.Position {
	next := maps.Clone(at)
	for name := range next {
		next[name]++
	}
	return next
}

// warnLost tells the person that the journal did not keep what was still to come.
func (s *source) warnLost(n uint64) {
	if n > 0 {
		s.env.Warn(fmt.Errorf("%d events were removed from the journal before this listener got them", n))
	}
}

// take splits a message into its lines.
func (s *source) take(b []byte) (batch, error) {
	got := batch{}
	for len(b) > 0 {
		line, rest, _ := bytes.Cut(b, []byte("\n"))
		b = rest
		if isProgress(line) {
			var m protocol.Progress
			if err := json.Unmarshal(line, &m); err != nil {
				return got, fmt.Errorf("unreadable answer: %w", err)
			}
			if m.Master != "" {
				s.pass(m.Master, m.Passed)
				continue
			}
			s.seq, s.ended = max(s.seq, m.Passed), m.End
			s.warnLost(m.Lost)
			if m.Missed > 0 {
				s.env.Warn(fmt.Errorf("%d events that are not stored, of any tag, went by unheard: the output is read too slowly", m.Missed))
			}
			continue
		}
		seq := event.SeqOf(line)
		if seq == 0 && !s.q.Live {
			return got, errors.New("unreadable answer: an event without its sequence")
		}
		if master := s.masterOf(line); master != "" {
			s.pass(master, seq)
		} else {
			s.seq = max(s.seq, seq)
		}
		got.lines = append(got.lines, line)
	}
	got.passed, got.at = s.seq, maps.Clone(s.at)
	return got, nil
}

// masterOf is the journal of a line, "" for that of the daemon.
func (s *source) masterOf(line []byte) string {
	if !s.q.Mirrors {
		return ""
	}
	return event.MasterOf(line)
}

func isProgress(line []byte) bool { return bytes.HasPrefix(line, []byte(`{"passed":`)) }

func (s *source) close() {
	if s.stream != nil {
		s.stream.Close()
	}
}

// confirmer tells the daemon how far a durable listener has come. It never holds
// up the listener: while one word is under way, the next one grows.
type confirmer struct {
	session *session
	name    string
	wake    chan struct{}
	stopped sync.WaitGroup
	cancel  context.CancelFunc

	mu             sync.Mutex
	want, have     uint64
	wantAt, haveAt event.Position // of the journals of other masters
}

// newConfirmer starts to confirm; without a name there is nothing to do.
func newConfirmer(s *session, name string) *confirmer {
	c := &confirmer{session: s, name: name, wake: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	if name != "" {
		c.stopped.Go(func() { c.run(ctx) })
	}
	return c
}

// done says that everything up to seq is done, and of other journals up to at.
func (c *confirmer) done(seq uint64, at event.Position) {
	c.mu.Lock()
	c.want = max(c.want, seq)
	if at != nil {
		c.wantAt = at
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *confirmer) run(ctx context.Context) {
	for {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return
		}
		if c.flush(ctx) == nil {
			continue
		}
		// The daemon is away, or the listener has not come back to it yet.
		if backoff.Sleep(ctx, 200*time.Millisecond) {
			c.done(0, nil)
		}
	}
}

// flush confirms what is done and not confirmed.
func (c *confirmer) flush(ctx context.Context) error {
	c.mu.Lock()
	want, at, more := c.want, c.wantAt, c.want > c.have || !maps.Equal(c.wantAt, c.haveAt)
	c.mu.Unlock()
	if !more {
		return nil
	}
	conn, err := c.session.get(ctx)
	if err != nil {
		return err
	}
	if err := conn.Ask(ctx, protocol.OpConfirm, protocol.Confirm{Durable: c.name, Seq: want, At: at}, nil); err != nil {
		return err
	}
	c.mu.Lock()
	c.have, c.haveAt = max(c.have, want), at
	c.mu.Unlock()
	return nil
}

// lastWord bounds the wait for the daemon to hear the last confirmation.
const lastWord = 5 * time.Second

// stop confirms the rest and ends. Where the daemon goes away meanwhile, src listens again
// first: only the connection that holds a position may confirm.
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
