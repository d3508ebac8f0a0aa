package journal

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The newest block of a stream with copies must always have a message, see Table.occupy. If nothing is stored in a
// journal for as long as it keeps events, its newest message is removed by its age. So another one, which belongs to no event,
// is stored behind that before: by the member whose journal it is, when half of that time is over, and by any other member when
// three quarters are, since the first does not run, or has a version that does not do this. While no member runs, nobody
// does: what is left is the second after a start that finds everything too old.

// agingLabel is in such a message of a member's own journal, which is sent like an event. In the journal of another
// member it is a mark that ends the term.
const agingLabel = "aging/1/3"

// Parts of the time for which a journal keeps events, after which its newest message is followed.
const (
	ownAging  = 2. / 4
	peerAging = 3. / 4
)

// agingLooks is how often in that time it is looked how old the newest message is, agingPause the longest pause between two
// looks, and agingAgain the pause after one that has failed: it may be that nothing is known yet of a journal.
const (
	agingLooks = 32
	agingPause = 5 * time.Minute
	agingAgain = 2 * time.Second
)

// newestKeeper does that for the journals of all members. It is part of the journal of this one.
type newestKeeper struct{ *Journal }

// run does it until Close, or the end of the connection.
func (j newestKeeper) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan struct{})
	defer func() { <-ended }()
	go func() {
		defer close(ended)
		defer cancel()
		select {
		case <-j.stop:
		case <-j.closed:
		}
	}()
	for {
		pause := time.NewTimer(j.look(ctx))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// look looks once, and returns the pause before the next look.
func (j newestKeeper) look(ctx context.Context) time.Duration {
	pause := agingPause
	at := func(name string, part float64, follow func(context.Context, jetstream.Stream) error) {
		ctx, cancel := context.WithTimeout(ctx, apiTime)
		defer cancel()
		s, err := j.js.Stream(ctx, name)
		if err == nil && !byLeader(s.CachedInfo().Cluster) {
			err = errNoLeader
		}
		if err == nil && s.CachedInfo().Config.MaxAge > 0 {
			pause = min(pause, max(s.CachedInfo().Config.MaxAge/agingLooks, time.Millisecond))
		}
		if err == nil && isAging(s.CachedInfo(), part) {
			err = follow(ctx, s)
		}
		if err != nil {
			pause = min(pause, agingAgain)
		}
	}
	at(j.name, ownAging, j.follow)
	if j.turn != nil { // nobody else has a journal there
		return pause
	}
	names := j.js.StreamNames(ctx)
	for name := range names.Name() {
		if strings.HasPrefix(name, memberPrefix) && name != j.name {
			at(name, peerAging, j.followPeer)
		}
	}
	if names.Err() != nil {
		pause = min(pause, agingAgain)
	}
	return pause
}

// isAging reports whether the newest message of a stream with copies has been there for that part of the time for which it
// keeps messages.
func isAging(info *jetstream.StreamInfo, part float64) bool {
	c := info.Config
	return c.Replicas > 1 && c.MaxAge > 0 && info.State.LastSeq > 0 && info.TimeStamp.Sub(info.State.LastTime).Seconds() > part*c.MaxAge.Seconds()
}

// follow stores a message behind the newest one of the own journal, unless something else is just being stored.
func (j newestKeeper) follow(ctx context.Context, s jetstream.Stream) error {
	last := s.CachedInfo().State.LastSeq
	m := &nats.Msg{Subject: markSubject, Data: []byte{partMark}, Header: nats.Header{partHeader: {agingLabel}}}
	if h := behindNewest(ctx, s); h.Get(behindHeader) == strconv.FormatUint(last, 10) {
		m.Header.Set(entryHeader, h.Get(entryHeader)) // what may still come between them is marks
	}
	p, err := j.writer.sendFollowing(last, m)
	if p != nil && err == nil {
		_, err = p.Wait(ctx)
	}
	return err
}

// sendFollowing sends a message of no event, if nothing of this writer is stored behind the one with the sequence last, or under
// way, or about to be sent; otherwise the Pending is nil.
func (w *writer) sendFollowing(last uint64, m *nats.Msg) (*Pending, error) {
	if !w.order.TryLock() {
		return nil, nil
	}
	defer w.order.Unlock()
	w.mu.Lock()
	other := w.tap.seq > last || w.sent.n > w.tap.n
	w.mu.Unlock()
	if other {
		return nil, nil
	}
	p, err := w.begin()
	if err != nil {
		return nil, err
	}
	return p, w.put(m, inFlight{part: agingLabel}, p, true)
}

// followPeer stores a mark in the journal of another member, and ends its term, whether that is open or not. In one that goes on,
// the mark could take the place of a message that the member has under way, and the one behind that would be stored.
func (j newestKeeper) followPeer(ctx context.Context, s jetstream.Stream) error {
	c := s.CachedInfo().Config
	_, _, err := change(ctx, j.js, c, Options{Name: strings.TrimPrefix(c.Name, memberPrefix)}.root(), endedTerm, behindNewest(ctx, s))
	return err
}

// behindHeader has the sequence of the message directly behind which a mark was to be stored: entryHeader counts only if it was.
const behindHeader = "Salt-Behind"

// behindNewest returns the headers of a mark that is to be stored behind the newest message of a journal; nil if that is not known.
func behindNewest(ctx context.Context, s jetstream.Stream) nats.Header {
	m, err := s.GetLastMsgForSubject(ctx, ">")
	if err != nil {
		return nil
	}
	event := m.Sequence
	if before, ok := eventBefore(m.Header, m.Sequence); ok {
		event = before
	}
	return nats.Header{entryHeader: {strconv.FormatUint(event, 10)}, behindHeader: {strconv.FormatUint(m.Sequence, 10)}}
}

// eventBefore returns the sequence of the newest event before the message with the sequence at, if that is one of no event and tells
// it.
func eventBefore(h nats.Header, at uint64) (seq uint64, ok bool) {
	if h.Get(partHeader) != agingLabel && !(isMark(h) && h.Get(behindHeader) == strconv.FormatUint(at-1, 10)) {
		return 0, false
	}
	seq = newestOf(h)
	return seq, seq > 0
}

// firstEvent returns the sequence from which on no event was removed at the head of a stream. That is before its first
// message if there were only messages of no event since the newest event: who has read that has missed nothing.
func (j *source) firstEvent(ctx context.Context, info *jetstream.StreamInfo) (uint64, error) {
	first := info.State.FirstSeq
	if info.Config.Replicas <= 1 || info.Config.MaxAge <= 0 {
		return first, nil
	}
	m, err := j.message(ctx, first)
	if errors.Is(err, jetstream.ErrMsgNotFound) { // it was removed since
		return first, nil
	}
	if err != nil {
		return 0, err
	}
	if before, ok := eventBefore(m.Header, first); ok {
		first = min(first, before+1)
	}
	return first, nil
}
