package netapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// heard is one event for a stream.
type heard struct {
	tag  string
	data json.RawMessage
	seq  uint64
}

// text is the event as Salt writes it into a stream.
func (h heard) text() []byte {
	tag, _ := json.Marshal(h.tag) // a text always does
	b := append([]byte(`{"data": `), h.data...)
	b = append(b, `, "tag": `...)
	return append(append(b, tag...), '}')
}

// message is one message of the answer to Listen.
type message struct {
	Ready  bool            `json:"ready"`
	Passed uint64          `json:"passed"`
	Tag    string          `json:"tag"`
	Data   json.RawMessage `json:"data"`
	Seq    uint64          `json:"seq"`
}

// hear asks for events and gives them to f until ctx or the login ends.
func hear(ctx context.Context, conn *rpc.Conn, q protocol.Listen, ready func(), f func(heard) error) error {
	stream, err := conn.Call(protocol.OpListen, q)
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		b, err := stream.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var m message
		if err := json.Unmarshal(b, &m); err != nil {
			return err
		}
		switch {
		case m.Ready:
			ready()
		case m.Tag != "":
			if err := f(heard{m.Tag, m.Data, m.Seq}); err != nil {
				return err
			}
		}
	}
}

// feed gives the live events of one login to all of its streams that ask for no more: the
// master sends them once. It goes on without readers, until the connection is closed: the
// master does not notice at once that nobody hears.
type feed struct {
	conn *rpc.Conn

	mu      sync.Mutex
	readers map[*reader]bool // nil while nothing is heard
	ready   chan struct{}    // closed when events come
	ended   chan struct{}    // closed when no more do
	err     error            // then
}

// reader is one stream. What it does not take in time ends it.
type reader struct {
	tags []string
	c    chan heard
	slow bool // guarded by the feed
	size int  // bytes that wait in c, guarded by the feed
}

// Bounds of what waits for a reader that is slow.
const (
	maxWaiting      = 1000
	maxWaitingBytes = 4 << 20
)

// join begins to give events to a reader.
func (f *feed) join(tags []string) (*reader, <-chan struct{}, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &reader{tags: tags, c: make(chan heard, maxWaiting)}
	if f.readers == nil {
		f.begin()
	}
	f.readers[r] = true
	return r, f.ready, f.ended
}

func (f *feed) begin() {
	f.readers, f.ready, f.ended, f.err = map[*reader]bool{}, make(chan struct{}), make(chan struct{}), nil
	ready, ended := f.ready, f.ended
	go func() {
		err := hear(context.Background(), f.conn, protocol.Listen{}, func() { close(ready) }, f.give)
		f.mu.Lock()
		f.err, f.readers = err, nil
		f.mu.Unlock()
		close(ended)
	}()
}

func (f *feed) leave(r *reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.readers, r)
}

// why is the error by which the feed ended.
func (f *feed) why() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// give hands an event to the readers that want it, and never waits for one.
func (f *feed) give(h heard) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.readers {
		if !wants(r.tags, h.tag) {
			continue
		}
		if r.size += len(h.data); r.size <= maxWaitingBytes {
			select {
			case r.c <- h:
				continue
			default:
			}
		}
		r.slow = true
		close(r.c)
		delete(f.readers, r)
	}
	return nil
}

// took says that a reader has taken an event.
func (f *feed) took(r *reader, h heard) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.size -= len(h.data)
}

// wants says whether a tag begins as one of the wanted; no wish is every tag.
func wants(tags []string, tag string) bool {
	return len(tags) == 0 || slices.ContainsFunc(tags, func(t string) bool { return strings.HasPrefix(tag, t) })
}

// events tells events as they come, as a stream of server-sent events.
func events(r *request) error {
	q, marked, err := r.listen()
	if err != nil {
		return err
	}
	leave, err := r.s.limits.stream(r.session.backend + ":" + r.session.user)
	if err != nil {
		return err
	}
	defer leave()
	if r.Method == http.MethodHead {
		r.streamHeader()
		return nil
	}
	out := &sse{r: r, marked: marked}
	return r.stream(q, out.begin, out.event, out.heartbeat)
}

// stream gives events to one who listens, until they go or their login ends.
func (r *request) stream(q protocol.Listen, begin func() error, f func(heard) error, heartbeat func() error) error {
	r.s.stats.streams.Add(1)
	defer r.s.stats.streams.Add(-1)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(r.s.ctx, cancel)()
	stored := !q.Since.IsZero() || q.FromSeq > 0 || q.Durable != "" || q.Match != ""
	var c *caller
	var err error
	if stored {
		c, err = r.callAlone(ctx)
	} else {
		c, err = r.call(ctx)
	}
	if err != nil {
		return err
	}
	defer c.close()
	if stored {
		err = r.fromStore(ctx, c, q, begin, f, heartbeat)
	} else {
		err = r.fromFeed(ctx, c, q.Tags, begin, f, heartbeat)
	}
	if rpc.CodeOf(err) == rpc.Denied && r.w.status == 0 {
		return r.deniedEvents(ctx, c, err)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the reader has gone, or the program ends
	}
	return err
}

// heartbeatEvery is how often a quiet stream says that it stands; it finds out then that its
// reader has gone.
const heartbeatEvery = 15 * time.Second

// fromFeed tells what comes from now on.
func (r *request) fromFeed(ctx context.Context, c *caller, tags []string, begin func() error, f func(heard) error, heartbeat func() error) error {
	feed := &c.link.feed
	reader, ready, ended := feed.join(tags)
	defer feed.leave(reader)
	select {
	case <-ready:
	case <-ended:
		return feed.why()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := begin(); err != nil {
		return err
	}
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	for {
		select {
		case h, ok := <-reader.c:
			if !ok {
				return problem(http.StatusServiceUnavailable, "The stream is read too slowly.")
			}
			feed.took(reader, h)
			if err := f(h); err != nil {
				return err
			}
		case <-ended:
			return feed.why()
		case <-tick.C:
			if err := heartbeat(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fromStore tells what is stored, too, from a moment or a position on. A reader that is
// slow is waited for: the master keeps the events meanwhile.
func (r *request) fromStore(ctx context.Context, c *caller, q protocol.Listen, begin func() error, f func(heard) error, heartbeat func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, failed := make(chan heard), make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		failed <- hear(ctx, c.conn, q, func() { close(ready) }, func(h heard) error {
			select {
			case events <- h:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	select {
	case <-ready:
	case err := <-failed:
		return err
	}
	if err := begin(); err != nil {
		return err
	}
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	confirmed := confirmation{c: c, name: q.Durable}
	for {
		select {
		case h := <-events:
			if err := f(h); err != nil {
				return err
			}
			confirmed.seq = h.seq
			confirmed.now(ctx, false)
		case err := <-failed:
			return err
		case <-tick.C:
			if err := heartbeat(); err != nil {
				return err
			}
			confirmed.now(ctx, true)
		}
	}
}

// confirmation tells the master how far a durable stream has come, not at every event.
// What the reader has not got all the same it asks for by Last-Event-ID.
type confirmation struct {
	c              *caller
	name           string
	seq, confirmed uint64
	at             time.Time
}

const confirmEvery = time.Second

func (n *confirmation) now(ctx context.Context, must bool) {
	if n.name == "" || n.seq == n.confirmed || !must && time.Since(n.at) < confirmEvery {
		return
	}
	q := protocol.Confirm{Durable: n.name, Seq: n.seq}
	if n.c.conn.Ask(ctx, protocol.OpConfirm, q, nil) == nil { // else the next time, or they come again
		n.confirmed = n.seq
	}
	n.at = time.Now()
}

// listen reads what the query asks for. marked says that the events are to have their
// sequences, by which the reader resumes.
func (r *request) listen() (q protocol.Listen, marked bool, err error) {
	values := r.URL.Query()
	q.Tags = values["tag"]
	q.Match = event.MatchType(values.Get("match"))
	q.Durable = values.Get("durable")
	if text := values.Get("since"); text != "" {
		if q.Since, q.FromSeq, err = since(text, time.Now()); err != nil {
			return q, false, err
		}
	}
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		last = values.Get("last_event_id")
	}
	if last != "" {
		seq, err := strconv.ParseUint(last, 10, 64)
		if err != nil || seq == math.MaxUint64 { // nothing is behind that
			return q, false, problem(http.StatusBadRequest, "Last-Event-ID is no sequence.")
		}
		q.Since, q.FromSeq, q.Resume = time.Time{}, seq+1, q.Durable != ""
	}
	marked = len(q.Tags) > 0 || q.Durable != "" || q.FromSeq > 0 || !q.Since.IsZero()
	return q, marked, nil
}

// since reads a span before now, a moment or a sequence.
func since(text string, now time.Time) (moment time.Time, seq uint64, err error) {
	if seq, err := strconv.ParseUint(text, 10, 64); err == nil {
		return time.Time{}, max(seq, 1), nil
	}
	if d, err := salt.ParseDuration(text, time.Second); err == nil && d >= 0 {
		return now.Add(-d), 0, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, 0, nil
	}
	return time.Time{}, 0, problem(http.StatusBadRequest, "since is no time span, no moment and no sequence.")
}

// sse writes server-sent events.
type sse struct {
	r      *request
	marked bool
}

func (s *sse) begin() error {
	s.r.streamHeader()
	return s.r.push([]byte("retry: 400\n"))
}

func (s *sse) event(h heard) error {
	b := make([]byte, 0, len(h.data)+2*len(h.tag)+64)
	if s.marked && h.seq > 0 {
		b = strconv.AppendUint(append(b, "id: "...), h.seq, 10)
		b = append(b, '\n')
	}
	b = append(append(append(b, "tag: "...), line([]byte(h.tag))...), "\ndata: "...)
	return s.r.push(append(append(b, line(h.text())...), "\n\n"...))
}

// line is a tag or a text of JSON without what would end its line. Within JSON that is only
// between words.
func line(text []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\n"), []byte(" ")), []byte("\r"), []byte(" "))
}

func (s *sse) heartbeat() error { return s.r.push([]byte(":\n\n")) }
