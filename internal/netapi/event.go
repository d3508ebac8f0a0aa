package netapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/salt"
)

// text returns an event as Salt writes it into a stream.
func text(e client.Event) []byte {
	tag, _ := json.Marshal(e.Tag) // a string never fails
	b := append([]byte(`{"data": `), e.Data...)
	b = append(b, `, "tag": `...)
	return append(append(b, tag...), '}')
}

// heard is an event and the position after it.
type heard struct {
	client.Event
	passed uint64 // the position in the own journal of the master
	own    string // the name of that journal, in a cluster
	others string // the positions in the journals of the other members
}

// id is what Last-Event-ID continues after: a sequence, or in a cluster one for each journal, as
// 'salt-event token' prints it. It is "" for an event that is not stored.
func (h heard) id() string {
	switch {
	case h.Seq == 0:
		return ""
	case h.own == "":
		return strconv.FormatUint(h.Seq, 10)
	}
	id := h.own + ":" + strconv.FormatUint(h.passed, 10)
	if h.others != "" {
		id += "," + h.others
	}
	return id
}

// hear asks for events, of all members of a cluster, and calls f with them until ctx or the login
// ends.
func hear(ctx context.Context, conn *client.Conn, q client.ListenOptions, ready func(), f func(heard) error) error {
	q.Members = true
	l, err := conn.Listen(ctx, q)
	if err != nil {
		return err
	}
	defer l.Close()
	ready()
	for e, err := range l.All(ctx) {
		if err != nil {
			return err
		}
		h := heard{Event: e, passed: l.Position(), own: l.Journal()}
		if h.own != "" {
			h.others = l.Positions()
		}
		if err := f(h); err != nil {
			return err
		}
	}
	return nil
}

// feed passes the live events of one login to all of its streams that want no stored events:
// the master sends them once. It goes on without readers until the connection is closed, since
// the master does not notice at once that nobody listens.
type feed struct {
	conn *client.Conn

	mu      sync.Mutex
	readers map[*reader]bool // nil while not listening
	ready   chan struct{}    // closed when listening has begun
	ended   chan struct{}    // closed when it has ended
	err     error            // why it has ended
}

// reader is one stream. It is ended if it reads too slowly.
type reader struct {
	tags []string
	c    chan heard
	slow bool // guarded by the feed
	size int  // bytes that wait in c, guarded by the feed
}

// Limits of what waits for a slow reader.
const (
	maxWaiting      = 1000
	maxWaitingBytes = 4 << 20
)

// join starts to pass events to a reader.
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
		err := hear(context.Background(), f.conn, client.ListenOptions{}, func() { close(ready) }, f.give)
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

// why returns the error that ended the feed.
func (f *feed) why() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// give passes an event to the readers that want it, and never waits for one.
func (f *feed) give(e heard) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.readers {
		if !wants(r.tags, e.Tag) {
			continue
		}
		if r.size += len(e.Data); r.size <= maxWaitingBytes {
			select {
			case r.c <- e:
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

// took counts an event that a reader has taken.
func (f *feed) took(r *reader, e heard) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.size -= len(e.Data)
}

// wants reports whether a tag begins with one of the wanted prefixes; without any, every tag is
// wanted.
func wants(tags []string, tag string) bool {
	return len(tags) == 0 || slices.ContainsFunc(tags, func(t string) bool { return strings.HasPrefix(tag, t) })
}

// events sends events as they come, as server-sent events.
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

// stream sends events until the client is gone or its login ends.
func (r *request) stream(q client.ListenOptions, begin func() error, f func(heard) error, heartbeat func() error) error {
	r.s.stats.streams.Add(1)
	defer r.s.stats.streams.Add(-1)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(r.s.ctx, cancel)()
	stored := !q.Since.IsZero() || q.FromSeq > 0 || q.At != "" || q.Durable != "" || q.Match != ""
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
	if errors.Is(err, client.ErrDenied) && r.w.status == 0 {
		return r.deniedEvents(ctx, c, err)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the reader is gone, or the program ends
	}
	return err
}

// heartbeatEvery is how often a quiet stream sends a heartbeat, by which it also notices that
// its reader is gone.
const heartbeatEvery = 15 * time.Second

// fromFeed sends new events.
func (r *request) fromFeed(ctx context.Context, c *caller, tags []string, begin func() error, f func(heard) error, heartbeat func() error) error {
	feed := &c.pooled.feed
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
		case e, ok := <-reader.c:
			if !ok {
				return problem(http.StatusServiceUnavailable, "The stream is read too slowly.")
			}
			feed.took(reader, e)
			if err := f(e); err != nil {
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

// fromStore also sends stored events, from a time or a position on. It waits for a slow reader:
// the master keeps the events meanwhile.
func (r *request) fromStore(ctx context.Context, c *caller, q client.ListenOptions, begin func() error, f func(heard) error, heartbeat func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, failed := make(chan heard), make(chan error, 1)
	ready := make(chan bool, 1)
	go func() {
		failed <- hear(ctx, c.conn, q, func() { ready <- true }, func(e heard) error {
			select {
			case events <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	confirmed := confirmation{conn: c.conn, name: q.Durable}
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
	for {
		select {
		case e := <-events:
			if err := f(e); err != nil {
				return err
			}
			confirmed.have = e
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

// confirmation confirms to the master how far a durable stream has come, though not at every
// event. If events were lost on the way, the reader asks for them by Last-Event-ID.
type confirmation struct {
	conn *client.Conn
	name string
	have heard
	done string // the id of what was confirmed
	at   time.Time
}

const confirmEvery = time.Second

func (n *confirmation) now(ctx context.Context, must bool) {
	if n.name == "" || n.have.id() == n.done || !must && time.Since(n.at) < confirmEvery {
		return
	}
	if n.conn.Confirm(ctx, n.name, n.have.passed, n.have.others) == nil { // otherwise it is done the next time, or events come twice
		n.done = n.have.id()
	}
	n.at = time.Now()
}

// listen reads the query. marked is true if the events are to carry their positions, by which
// the reader can resume.
func (r *request) listen() (q client.ListenOptions, marked bool, err error) {
	values := r.URL.Query()
	q.Tags = values["tag"]
	q.Match = values.Get("match")
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
	if strings.Contains(last, ":") {
		q.Since, q.FromSeq, q.At, q.Resume = time.Time{}, 0, last, q.Durable != ""
	} else if last != "" {
		seq, err := strconv.ParseUint(last, 10, 64)
		if err != nil || seq == math.MaxUint64 { // no event can follow
			return q, false, problem(http.StatusBadRequest, "Last-Event-ID is not the id of an event.")
		}
		q.Since, q.FromSeq, q.Resume = time.Time{}, seq+1, q.Durable != ""
	}
	marked = len(q.Tags) > 0 || q.Durable != "" || q.FromSeq > 0 || q.At != "" || !q.Since.IsZero()
	return q, marked, nil
}

// since reads a duration before now, a time or a sequence.
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
	return time.Time{}, 0, problem(http.StatusBadRequest, "since is not a time span, a moment or a sequence.")
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

func (s *sse) event(e heard) error {
	b := make([]byte, 0, len(e.Data)+2*len(e.Tag)+64)
	if id := e.id(); s.marked && id != "" {
		b = append(append(append(b, "id: "...), id...), '\n')
	}
	b = append(append(append(b, "tag: "...), line([]byte(e.Tag))...), "\ndata: "...)
	return s.r.push(append(append(b, line(text(e.Event))...), "\n\n"...))
}

// line removes line ends from a tag or JSON text, since they would end its line. In JSON they
// occur only between tokens.
func line(text []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\n"), []byte(" ")), []byte("\r"), []byte(" "))
}

func (s *sse) heartbeat() error { return s.r.push([]byte(":\n\n")) }
