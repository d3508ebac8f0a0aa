package broker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/deadline"
)

// Every request about the store that is sent while it is closed and reopened, many times, is
// answered; and nothing in the server is read while it is replaced, which the race detector
// checks.
func TestQuestionsWhileTheStoreIsReopened(t *testing.T) {
	t.Parallel()
	b, _, _ := stored(t)
	js, err := jetstream.New(b.Conn())
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	table, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "table"})
	if err == nil {
		_, err = table.Put(t.Context(), "key", []byte("value"))
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	end := make(chan struct{})
	answered := make(chan struct{}, 1)
	var all sync.WaitGroup
	for name, ask := range map[string]func() error{
		"info": func() error { _, err := stream.Info(ctx); return err },
		"get":  func() error { _, err := stream.GetMsg(ctx, 1); return err },
		"key":  func() error { _, err := table.Get(ctx, "key"); return err },
		"consumer": func() error {
			_, err := js.Consumer(ctx, "EVENTS", "none")
			return allow(err, jetstream.ErrConsumerNotFound)
		},
		"a request": func() error {
			_, err := b.Conn().RequestWithContext(ctx, "nobody.here", nil)
			return allow(err, nats.ErrNoResponders)
		},
	} {
		all.Go(func() {
			for {
				if err := ask(); err != nil {
					t.Errorf("%s: %v", name, err)
					cancel()
					return
				}
				select {
				case <-end:
					return
				case <-ctx.Done():
					return
				case answered <- struct{}{}:
				default:
				}
			}
		})
	}
	for n := range 100 {
		if err := b.reopen(2); err != nil {
			t.Fatalf("reopen %d: %v", n, err)
		}
		for range 10 {
			select {
			case <-answered:
			case <-ctx.Done():
				t.Fatal("nothing is answered")
			}
		}
	}
	close(end)
	deadline.Call(t, all.Wait, "all")
	before := questions(t, b)
	if _, err := stream.Info(ctx); err != nil {
		t.Error(err)
	}
	if n := questions(t, b) - before; n != 1 {
		t.Errorf("after 100 times one question counts as %d", n)
	}
}

func questions(t *testing.T, b *Broker) uint64 {
	t.Helper()
	info, err := b.server.Jsz(nil)
	if err != nil {
		t.Fatal(err)
	}
	return info.API.Total
}

func allow(err, wanted error) error {
	if errors.Is(err, wanted) {
		return nil
	}
	return err
}

// What is written while a loop is held arrives after it is released, in order, with answers to
// pings before it; what was written before has been handled when hold returns.
func TestHold(t *testing.T) {
	t.Parallel()
	daemon, server := newLoop().ends()
	defer daemon.Close()
	got := make(chan string)
	next := make(chan struct{})
	go func() {
		b := make([]byte, 64)
		for {
			n, err := server.Read(b)
			if err != nil {
				close(got)
				return
			}
			got <- string(b[:n])
			<-next // it has been handled
		}
	}()
	write := func(s string) {
		t.Helper()
		if _, err := daemon.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	defer time.AfterFunc(deadline.Time, func() { daemon.Close() }).Stop() // ends a write that nobody reads
	write("before")
	if _, err := daemon.hold(expired()); !errors.Is(err, context.Canceled) {
		t.Errorf("what was written is not handled, and hold says %v", err)
	}
	if s := deadline.Receive(t, got, "what was written before"); s != "before" {
		t.Errorf("the server has %q", s)
	}
	next <- struct{}{}
	release, err := daemon.hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		write(fmt.Sprint(n))
	}
	if s := deadline.Receive(t, got, "the answer to a ping"); s != "PONG\r\n" {
		t.Errorf("a loop that is held passes %q", s)
	}
	next <- struct{}{}
	released := make(chan struct{})
	go func() { release(); close(released) }()
	for s := "PONG\r\n"; s != "012"; next <- struct{}{} {
		if s = deadline.Receive(t, got, "what was kept"); s != "PONG\r\n" && s != "012" {
			t.Fatalf("after it was let go comes %q", s)
		}
	}
	deadline.Receive(t, released, "the end of release")
	go func() { _, _ = daemon.Write([]byte("after")) }()
	if s := deadline.Receive(t, got, "what is written then"); s != "after" {
		t.Errorf("then comes %q", s)
	}
}

// TestTheOwnConnectionSurvivesAPause: a daemon that reads nothing for longer than the server gives others, since the process was
// stopped, keeps its connection and gets what was under way.
func TestTheOwnConnectionSurvivesAPause(t *testing.T) {
	t.Parallel()
	const limit = 50 * time.Millisecond
	s, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, WriteDeadline: limit})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	daemon, end := newLoop().ends()
	defer daemon.Close()
	go serveClient(s, end, true)
	defer time.AfterFunc(deadline.Time, func() { daemon.Close() }).Stop() // ends a read that gets nothing
	in := bufio.NewReader(daemon)
	line := func(want string) {
		t.Helper()
		if got, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(got, want) {
			t.Fatalf("instead of %s comes %q, %v", want, got, err)
		}
	}
	line("INFO")
	if _, err := io.WriteString(daemon, "CONNECT {\"verbose\":false}\r\nSUB a 1\r\nPING\r\n"); err != nil {
		t.Fatal(err)
	}
	line("PONG")
	var wg sync.WaitGroup
	var own *loopDaemon
	other, err := nats.Connect("", nats.InProcessServer(loopMaker{s, &wg, &own}))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := errors.Join(other.Publish("a", make([]byte, 64<<10)), other.Flush()); err != nil {
		t.Fatal(err)
	}
	<-time.After(4 * limit) // nothing says that the limit has passed
	line("MSG a 1 65536")
	if _, err := io.CopyN(io.Discard, in, 64<<10+2); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(daemon, "PING\r\n"); err != nil {
		t.Fatal(err)
	}
	line("PONG")
}

// When a connection ends, nobody waits for it any longer.
func TestHoldEnds(t *testing.T) {
	t.Parallel()
	daemon, _ := newLoop().ends()
	defer time.AfterFunc(time.Minute, func() { daemon.Close() }).Stop()
	release, err := daemon.hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := daemon.Write(make([]byte, maxKept)); n != maxKept || err != nil {
		t.Fatal(n, err)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := daemon.Write([]byte("x"))
		wrote <- err
	}()
	daemon.Close()
	if err := deadline.Receive(t, wrote, "the end of the write"); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("who writes beyond what is kept has %v", err)
	}
	deadline.Call(t, release, "release")
	if _, err := daemon.hold(t.Context()); err == nil {
		t.Error("a connection that has ended is held")
	}
}

// A server that reads nothing does not block releasing or closing the loop forever.
func TestHoldWithAServerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	daemon, _ := newLoop().ends()
	defer daemon.Close()
	defer time.AfterFunc(time.Minute, func() { daemon.Close() }).Stop()
	release, err := daemon.hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	busy := time.NewTicker(time.Millisecond)
	defer busy.Stop()
	for len(daemon.loop.turn) == 0 { // until an answer to a ping is under way, which nobody reads
		select {
		case <-busy.C:
		case <-daemon.loop.end:
			t.Fatal("no answer to a ping is under way")
		}
	}
	if n, err := daemon.Write([]byte("kept")); n != 4 || err != nil {
		t.Error(n, err)
	}
	released := make(chan struct{})
	go func() { release(); close(released) }()
	daemon.Close()
	select {
	case <-released:
	case <-time.After(time.Minute):
		t.Error("it is never let go")
	}
}

func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// lossy is a connection to the server on which requests are lost.
type lossy struct {
	server *server.Server
	lose   func([]byte) bool
}

// InProcessConn implements nats.InProcessConnProvider.
func (l lossy) InProcessConn() (net.Conn, error) {
	c, err := l.server.InProcessConn()
	return &lossyConn{c, l}, err
}

type lossyConn struct {
	net.Conn
	lossy
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if c.lose(b) {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// impatient is a store that reports unanswered questions.
type impatient struct {
	journal.Store
	late chan string
}

func (i impatient) Late(what string, _ time.Duration) { i.late <- what }

// dialLossy connects to the server by a connection on which requests are lost.
func dialLossy(t *testing.T, b *Broker, lose func([]byte) bool) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("nats://self", nats.InProcessServer(lossy{b.server, lose}), nats.UserInfo(b.auth.daemon, ""), nats.SkipHostLookup(), nats.NoReconnect(), nats.CustomInboxPrefix("_INBOX.master"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Every request of the daemon to its store is repeated if the answer is missing, and that is
// logged.
func TestEachQuestionIsAskedAgain(t *testing.T) {
	t.Parallel()
	b, _, _ := startLocal(t, t.TempDir())
	fill(t, b)
	for _, c := range []struct {
		name, question string // a part of the request
		ask            func(context.Context, *journal.Journal, *journal.Table, *journal.Queue) error
	}{
		{"write a table", "$KV.facts.b ", func(ctx context.Context, _ *journal.Journal, t *journal.Table, _ *journal.Queue) error {
			return t.Put(ctx, "b", []byte("c"))
		}},
		{"read a key", "DIRECT.GET.KV_facts", func(ctx context.Context, _ *journal.Journal, t *journal.Table, _ *journal.Queue) error {
			v, err := t.Get(ctx, "a")
			return want(err, string(v), "b")
		}},
		{"read a table", "CONSUMER.CREATE.KV_facts", func(ctx context.Context, _ *journal.Journal, t *journal.Table, _ *journal.Queue) error {
			n := 0
			err := t.Each(ctx, func(key string, _ []byte) {
				if key == "a" {
					n++
				}
			})
			return want(err, n, 1)
		}},
		{"look at the journal", "STREAM.INFO.EVENTS", func(ctx context.Context, j *journal.Journal, _ *journal.Table, _ *journal.Queue) error {
			last, err := j.Last(ctx)
			return want(err, last, 1)
		}},
		{"read the journal", "CONSUMER.CREATE.EVENTS", func(ctx context.Context, j *journal.Journal, _ *journal.Table, _ *journal.Queue) error {
			n := 0
			err := j.Read(ctx, journal.Query{}, func(event.Event) error { n++; return nil })
			return want(err, n, 1)
		}},
		{"read a message", "GET.EVENTS ", func(ctx context.Context, j *journal.Journal, _ *journal.Table, _ *journal.Queue) error {
			e, err := j.Fetch(ctx, []uint64{1})
			return want(err, e.Tag, "a/tag")
		}},
		{"read a queue", "DIRECT.GET.LATER", func(ctx context.Context, _ *journal.Journal, _ *journal.Table, q *journal.Queue) error {
			list, err := q.Read(ctx, 1, 10, 1000)
			return want(err, len(list), 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var left atomic.Int64
			nc := dialLossy(t, b, func(text []byte) bool { return bytes.Contains(text, []byte(c.question)) && left.Add(-1) >= 0 })
			store := impatient{b.Store(), make(chan string, 64)}
			j, table, queue := openAll(t, nc, store)
			for len(store.late) > 0 { // on a slow machine there may be more
				<-store.late
			}
			left.Store(1)
			if err := c.ask(t.Context(), j, table, queue); err != nil {
				t.Error(err)
			}
			if left.Load() > 0 {
				t.Fatalf("nobody asks for %s", c.question)
			}
			if len(store.late) == 0 {
				t.Error("the log has no line")
			}
		})
	}
}

func want(err error, got, wanted any) error {
	if err == nil && fmt.Sprint(got) != fmt.Sprint(wanted) {
		err = fmt.Errorf("it is %v, want %v", got, wanted)
	}
	return err
}

func anEvent(t *testing.T) event.Event {
	t.Helper()
	e, err := event.New("a/tag", nil, "", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// fill stores one event, one key and one message of a queue. Nobody stores any more of these: a
// second message with the same id would be a duplicate for two minutes only, which may be over
// on a slow machine.
func fill(t *testing.T, b *Broker) {
	t.Helper()
	j, table, queue := openAll(t, b.Conn(), b.Store())
	_, err := j.Append(t.Context(), anEvent(t), "")
	if err == nil {
		err = table.Put(t.Context(), "a", []byte("b"))
	}
	if err == nil {
		_, err = queue.Put(t.Context(), []byte("x"))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// openAll opens a journal, a table and a queue.
func openAll(t *testing.T, nc *nats.Conn, store journal.Store) (*journal.Journal, *journal.Table, *journal.Queue) {
	t.Helper()
	j, err := journal.Open(t.Context(), nc, journal.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	table, err := j.Table(t.Context(), "facts")
	if err != nil {
		t.Fatal(err)
	}
	queue, err := journal.OpenQueue(t.Context(), nc, "LATER", store)
	if err != nil {
		t.Fatal(err)
	}
	return j, table, queue
}

// A start also learns names of batches from a store that is slow to answer: duplicates are not
// stored again.
func TestNamesFromASlowStore(t *testing.T) {
	t.Parallel()
	b, _, _ := startLocal(t, t.TempDir())
	slow := dialLossy(t, b, func(text []byte) bool {
		if bytes.Contains(text, []byte("CONSUMER.MSG.NEXT.EVENTS")) {
			<-time.After(1500 * time.Millisecond) // longer than the library waits for a fetch
		}
		return false
	})
	var seqs [2]uint64
	for i, nc := range []*nats.Conn{b.Conn(), slow} {
		j, err := journal.Open(t.Context(), nc, journal.Options{Store: b.Store()})
		if err != nil {
			t.Fatal(err)
		}
		if seqs[i], err = j.Append(t.Context(), anEvent(t), "web1/x"); err != nil {
			t.Fatal(err)
		}
		j.Close()
	}
	if seqs[0] != seqs[1] {
		t.Errorf("the event is at %d, and when it is sent again at %d", seqs[0], seqs[1])
	}
}

// failing is a store whose syncs fail while fail is true.
type failing struct {
	journal.Store
	fail atomic.Bool
}

func (f *failing) Sync(stream string) error {
	if f.fail.Load() {
		return errors.New("input/output error")
	}
	return f.Store.Sync(stream)
}

// A duplicate of an event that may be stored waits until the store has answered, and all other
// writers wait with it. If the store does not answer, they do not wait forever, and when it
// answers again the event is stored once.
func TestWritersWaitForAMuteStoreForABoundedTime(t *testing.T) {
	t.Parallel()
	b, _, _ := startLocal(t, t.TempDir())
	var mute atomic.Bool
	nc := dialLossy(t, b, func(text []byte) bool { return mute.Load() && bytes.Contains(text, []byte(event.Root+".nothing ")) })
	disk := &failing{Store: b.Store()}
	j, err := journal.Open(t.Context(), nc, journal.Options{Store: disk})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	disk.fail.Store(true)
	if _, err := j.Append(t.Context(), anEvent(t), "web1/x"); !errors.Is(err, journal.ErrStore) {
		t.Fatalf("its sync fails, and it is told %v", err)
	}
	disk.fail.Store(false)
	mute.Store(true)
	ended := make(chan error, 2)
	go func() {
		_, err := j.Append(t.Context(), anEvent(t), "web1/x")
		ended <- err
		_, err = j.Append(t.Context(), anEvent(t), "") // no name has to be looked up for it
		ended <- err
	}()
	if err := deadline.Receive(t, ended, "the end of the wait for the store"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the store does not answer, and it is told %v", err)
	}
	if err := deadline.Receive(t, ended, "another event"); err != nil {
		t.Error(err)
	}
	mute.Store(false)
	if seq, err := j.Append(t.Context(), anEvent(t), "web1/x"); seq != 1 || err != nil {
		t.Errorf("it is stored at %d, %v; want 1, where it has been since the first time", seq, err)
	}
}

// A start that gets no answer from its own store, as on an overloaded machine, asks again and
// logs that. A signal ends it at once.
func TestAStartInsistsOnAnAnswer(t *testing.T) {
	t.Parallel()
	b, _, _ := startLocal(t, t.TempDir())
	lost := make(chan struct{}, 64)
	var left atomic.Int64 // how many requests about tables are lost
	nc := dialLossy(t, b, func(text []byte) bool {
		if !bytes.Contains(text, []byte("KV_")) || left.Add(-1) < 0 {
			return false
		}
		lost <- struct{}{}
		return true
	})
	store := impatient{b.Store(), make(chan string, 64)}
	j, err := journal.Open(t.Context(), nc, journal.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	left.Store(1)
	table, err := j.Table(t.Context(), "facts")
	if err != nil {
		t.Fatal(err)
	}
	if what := deadline.Receive(t, store.late, "a line about a question without an answer"); !strings.Contains(what, "facts") {
		t.Errorf("told: %s", what)
	}
	if err := table.Put(t.Context(), "a", []byte("b")); err != nil {
		t.Error(err)
	}
	if v, err := table.Get(t.Context(), "a"); string(v) != "b" || err != nil {
		t.Errorf("the table has %q, %v", v, err)
	}

	signal := errors.New("a signal")
	ctx, stop := context.WithCancelCause(t.Context())
	deadline.Receive(t, lost, "a question")
	left.Store(math.MaxInt64)
	go func() { <-lost; stop(signal) }()
	if _, err := j.Table(ctx, "others"); !errors.Is(err, signal) {
		t.Errorf("ended by a signal: %v", err)
	}
}

// If a store cannot be reopened, the daemon ends and is started again, instead of blocking
// everybody forever.
func TestAStuckStoreEndsTheDaemon(t *testing.T) {
	t.Parallel()
	b, _, _ := startLocal(t, t.TempDir())
	bounded(time.Minute, b.Fail, func() {})
	select {
	case err := <-b.Failed():
		t.Errorf("what is quick ends it: %v", err)
	default:
	}
	bounded(time.Millisecond, b.Fail, func() {
		if err := deadline.Receive(t, b.Failed(), "the end of the daemon"); !errors.Is(err, ErrFailed) {
			t.Errorf("it ends with %v", err)
		}
	})
}
