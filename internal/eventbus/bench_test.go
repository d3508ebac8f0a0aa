package eventbus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// The benchmarks do the same work over Brine's bus, as salt-event does it, and over a plain
// NATS server with the library's own client on loopback TCP, in turns within one run. "ratio"
// is Brine's rate divided by the other one: 1 means equally fast. On a busy machine only the
// ratio is meaningful.
//
//	go test ./internal/eventbus -run xxx -bench . -benchtime 3x

// batchSize is how many events are fired at once, as salt-event fire --stdin does.
const batchSize = 1000

// bare is a bare server with a stream that takes the subject "e".
type bare struct {
	b      *testing.B
	server *server.Server
	all    []*server.Server // of a cluster
	js     jetstream.JetStream
	stream jetstream.Stream
}

func startBare(b *testing.B) *bare {
	b.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: b.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		b.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		b.Fatal("the bare server does not start")
	}
	b.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	x := &bare{b: b, server: s}
	if x.js, err = jetstream.New(x.dial(), jetstream.WithPublishAsyncMaxPending(4096)); err != nil {
		b.Fatal(err)
	}
	x.stream, err = x.js.CreateStream(b.Context(), jetstream.StreamConfig{Name: "E", Subjects: []string{"e"}, Storage: jetstream.FileStorage})
	if err != nil {
		b.Fatal(err)
	}
	return x
}

func (x *bare) dial() *nats.Conn {
	x.b.Helper()
	return x.dialTo(x.server)
}

func (x *bare) dialTo(s *server.Server) *nats.Conn {
	x.b.Helper()
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		x.b.Fatal(err)
	}
	x.b.Cleanup(nc.Close)
	return nc
}

// publish stores n messages and waits for the last acknowledgement of each batch.
func (x *bare) publish(n int, body []byte) {
	for range n / batchSize {
		acks := make([]jetstream.PubAckFuture, batchSize)
		for i := range acks {
			var err error
			if acks[i], err = x.js.PublishAsync("e", body); err != nil {
				x.b.Fatal(err)
			}
		}
		for _, a := range acks {
			select {
			case <-a.Ok():
			case err := <-a.Err():
				x.b.Fatal(err)
			}
		}
	}
}

// consume reads n messages from the sequence from on. It returns when the consumer is ready.
func (x *bare) consume(nc *nats.Conn, from uint64, n int) (done chan struct{}) {
	x.b.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		x.b.Fatal(err)
	}
	c, err := js.OrderedConsumer(x.b.Context(), "E", jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from})
	if err != nil {
		x.b.Fatal(err)
	}
	it, err := c.Messages()
	if err != nil {
		x.b.Fatal(err)
	}
	done = make(chan struct{})
	go func() {
		defer close(done)
		defer it.Stop()
		for range n {
			if _, err := it.Next(); err != nil {
				x.b.Error(err)
				return
			}
		}
	}()
	return done
}

func (x *bare) last() uint64 {
	info, err := x.stream.Info(x.b.Context())
	if err != nil {
		x.b.Fatal(err)
	}
	return info.State.LastSeq
}

// payload is data of about size bytes.
func payload(size int) json.RawMessage {
	return json.RawMessage(`{"message":"` + strings.Repeat("x", max(1, size-14)) + `"}`)
}

// fireBatches stores n events.
func (w *world) fireBatches(c *rpc.Conn, n int, data json.RawMessage) { w.batches(c, n, data, false) }

// batches fires n events; those that are live are not stored.
func (w *world) batches(c *rpc.Conn, n int, data json.RawMessage, live bool) {
	events := make([]event.Item, batchSize)
	for i := range events {
		events[i] = event.Item{Tag: "bench/tag", Data: data}
	}
	for range n / batchSize {
		if err := c.Ask(context.Background(), protocol.OpFire, protocol.Fire{ID: bus.NewNonce(), Live: live, Events: events}, nil); err != nil {
			w.t.Fatal(err)
		}
	}
}

// hear counts n events.
func (h *hearing) hear(n int) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		for n > 0 {
			b, err := h.stream.Next(context.Background())
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				h.w.t.Error(err)
				return
			}
			for len(b) > 0 { // as salt-event does it
				line, rest, _ := bytes.Cut(b, []byte("\n"))
				b = rest
				switch {
				case !bytes.HasPrefix(line, []byte(`{"passed":`)):
					_ = event.SeqOf(line)
					n--
				case bytes.Contains(line, []byte(`"missed":`)) || bytes.Contains(line, []byte(`"lost":`)):
					h.w.t.Error("the listener is too slow: events were missed")
					return
				}
			}
		}
	}()
	return done
}

// pair measures ours and theirs in turns, and reports the rates and their ratio, and the ratio of the processor time
// that they take, which depends less on what else the machine does. Above 1 is better than the other, for both.
func pair(b *testing.B, n int, ours, theirs func()) {
	b.Helper()
	var mine, other spent
	for b.Loop() {
		begun := now(b)
		ours()
		middle := now(b)
		theirs()
		mine.add(begun, middle)
		other.add(middle, now(b))
	}
	events := float64(n * b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(events/mine.wall.Seconds(), "events/s")
	b.ReportMetric(events/other.wall.Seconds(), "bare/s")
	b.ReportMetric(other.wall.Seconds()/mine.wall.Seconds(), "ratio")
	b.ReportMetric(other.processor.Seconds()/mine.processor.Seconds(), "cpu-ratio")
}

// spent is what something has taken, and also a moment.
type spent struct{ wall, processor time.Duration }

var started = time.Now()

// now returns the moment, and what this process has used of the processor.
func now(b *testing.B) spent {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return spent{time.Since(started), time.Duration(u.Utime.Nano() + u.Stime.Nano())}
}

func (s *spent) add(from, to spent) {
	s.wall += to.wall - from.wall
	s.processor += to.processor - from.processor
}

var sizes = []int{100, 1024}

// BenchmarkFireStored compares with a client that publishes to JetStream.
func BenchmarkFireStored(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			w, x := start(b), startBare(b)
			c, data := w.dial(), payload(size)
			const n = 20 * batchSize
			pair(b, n, func() { w.fireBatches(c, n, data) }, func() { x.publish(n, data) })
		})
	}
}

// BenchmarkFireStoredOnThree compares with a client that publishes to JetStream with three copies,
// both at the leader.
func BenchmarkFireStoredOnThree(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			w, x := startLeading(b)[0], startBareThree(b)
			c, data := w.dial(), payload(size)
			const n = 20 * batchSize
			pair(b, n, func() { w.fireBatches(c, n, data) }, func() { x.publish(n, data) })
		})
	}
}

// startLeading starts a cluster whose first member leads its journal.
func startLeading(b *testing.B) []*memberWorld {
	b.Helper()
	_, list := startCluster(b)
	w := list[0]
	bustest.Until(b, "it leads its journal", func() bool {
		_ = w.journal.Lead(b.Context(), w.m.Name)
		leader, err := w.journal.Leader(b.Context())
		return err == nil && leader == w.m.Name
	})
	return list
}

// startBareThree starts three bare servers with a stream of three copies. The client is connected to
// its leader.
func startBareThree(b *testing.B) *bare {
	b.Helper()
	servers := bustest.BareServers(b, 3)
	x := &bare{b: b, server: servers[0], all: servers}
	config := jetstream.StreamConfig{Name: "E", Subjects: []string{"e"}, Storage: jetstream.FileStorage, Replicas: 3}
	bustest.Until(b, "there is a stream", func() bool {
		js, err := jetstream.New(x.dial())
		if err == nil {
			x.stream, err = js.CreateStream(b.Context(), config)
		}
		return err == nil
	})
	for _, s := range servers {
		if s.Name() == x.stream.CachedInfo().Cluster.Leader {
			x.server = s
		}
	}
	var err error
	if x.js, err = jetstream.New(x.dial(), jetstream.WithPublishAsyncMaxPending(4096)); err != nil {
		b.Fatal(err)
	}
	return x
}

// BenchmarkFireToListen compares with JetStream from the publisher to a consumer:
// every event is stored, and heard by one listener.
func BenchmarkFireToListen(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			w, x := start(b), startBare(b)
			c, data, nc := w.dial(), payload(size), x.dial()
			h := w.mustListen(w.dial(), protocol.Listen{Tags: []string{"bench/"}})
			const n = 20 * batchSize
			pair(b, n, func() {
				done := h.hear(n)
				w.fireBatches(c, n, data)
				<-done
			}, func() {
				done := x.consume(nc, x.last()+1, n)
				x.publish(n, data)
				<-done
			})
		})
	}
}

// BenchmarkFireToListenBareNATS compares with a publisher and a subscriber of a plain server
// that stores nothing: both events that Brine stores, and events that it does not.
func BenchmarkFireToListenBareNATS(b *testing.B) {
	for name, live := range map[string]bool{"stored": false, "not stored": true} {
		for _, size := range sizes {
			b.Run(fmt.Sprintf("%s/%dB", name, size), func(b *testing.B) {
				w, x := start(b), startBare(b)
				c, data := w.dial(), payload(size)
				h := w.mustListen(w.dial(), protocol.Listen{Tags: []string{"bench/"}, Live: live})
				pub, sub := x.dial(), x.dial()
				const n = 10 * batchSize // events that are not stored may be that far ahead of a listener
				pair(b, n, func() {
					done := h.hear(n)
					w.batches(c, n, data, live)
					<-done
				}, func() { fanOut(b, pub, []*nats.Conn{sub}, n, data) })
			})
		}
	}
}

// fanOut publishes n messages to all subscribers.
func fanOut(b *testing.B, pub *nats.Conn, subs []*nats.Conn, n int, body []byte) {
	all := make(chan struct{}, len(subs))
	for _, nc := range subs {
		left := n
		sub, err := nc.Subscribe("plain", func(*nats.Msg) {
			if left--; left == 0 {
				all <- struct{}{}
			}
		})
		if err != nil {
			b.Fatal(err)
		}
		defer sub.Unsubscribe() //nolint:errcheck // the end of the benchmark
		if err := sub.SetPendingLimits(-1, -1); err != nil {
			b.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	for range n {
		if err := pub.Publish("plain", body); err != nil {
			b.Fatal(err)
		}
	}
	for range subs {
		<-all
	}
}

// publishTo stores n messages and waits until a consumer of each connection has read them.
func (x *bare) publishTo(conns []*nats.Conn, n int, body []byte) {
	from := x.last() + 1
	var done []chan struct{}
	for _, nc := range conns {
		done = append(done, x.consume(nc, from, n))
	}
	x.publish(n, body)
	for _, d := range done {
		<-d
	}
}

// fireTo fires n events and waits until each listener has heard them.
func (w *world) fireTo(all []*hearing, c *rpc.Conn, n int, data json.RawMessage) {
	var done []chan struct{}
	for _, h := range all {
		done = append(done, h.hear(n))
	}
	w.fireBatches(c, n, data)
	for _, d := range done {
		<-d
	}
}

// BenchmarkHundredListeners compares one publisher with a hundred listeners.
func BenchmarkHundredListeners(b *testing.B) {
	const listeners, n = 100, 2 * batchSize
	data := payload(100)
	setUp := func(b *testing.B) (*world, *rpc.Conn, func()) {
		w := start(b)
		c := w.dial()
		var all []*hearing
		for range listeners {
			all = append(all, w.mustListen(w.dial(), protocol.Listen{Tags: []string{"bench/"}}))
		}
		return w, c, func() { w.fireTo(all, c, n, data) }
	}
	b.Run("JetStream", func(b *testing.B) {
		_, _, ours := setUp(b)
		x := startBare(b)
		var conns []*nats.Conn
		for range listeners {
			conns = append(conns, x.dial())
		}
		pair(b, n, ours, func() { x.publishTo(conns, n, data) })
	})
	b.Run("NATS", func(b *testing.B) {
		_, _, ours := setUp(b)
		x := startBare(b)
		var conns []*nats.Conn
		for range listeners {
			conns = append(conns, x.dial())
		}
		pub := x.dial()
		pair(b, n, ours, func() { fanOut(b, pub, conns, n, data) })
	})
}

// BenchmarkListenersAtThree compares one publisher with listeners that are distributed over three members and hear all
// events: with as many consumers of a stream of three copies, and with as many subscribers of three servers that
// store nothing.
func BenchmarkListenersAtThree(b *testing.B) {
	const listeners, n = 99, 2 * batchSize
	data := payload(100)
	setUp := func(b *testing.B) (ours func(), x *bare, conns []*nats.Conn) {
		list := startLeading(b)
		w := list[0]
		c, all := w.dial(), make([]*hearing, listeners)
		for i := range all {
			at := list[i%len(list)]
			all[i] = at.mustListen(at.dial(), protocol.Listen{Tags: []string{"bench/"}, Lines: true, Members: true})
		}
		x = startBareThree(b)
		for i := range listeners {
			conns = append(conns, x.dialTo(x.all[i%len(x.all)]))
		}
		return func() { w.fireTo(all, c, n, data) }, x, conns
	}
	b.Run("JetStream", func(b *testing.B) {
		ours, x, conns := setUp(b)
		pair(b, n, ours, func() { x.publishTo(conns, n, data) })
	})
	b.Run("NATS", func(b *testing.B) {
		ours, x, conns := setUp(b)
		pub := x.dial()
		pair(b, n, ours, func() { fanOut(b, pub, conns, n, data) })
	})
}

// BenchmarkLatency compares one event at a time, from before it is fired until it
// is heard, with JetStream. The ratios are those of the times: above 1 is slower.
func BenchmarkLatency(b *testing.B) {
	w, x := start(b), startBare(b)
	c, data, nc := w.dial(), payload(100), x.dial()
	h := w.mustListen(w.dial(), protocol.Listen{Tags: []string{"bench/"}})
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	consumer, err := js.OrderedConsumer(b.Context(), "E", jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
	if err != nil {
		b.Fatal(err)
	}
	it, err := consumer.Messages()
	if err != nil {
		b.Fatal(err)
	}
	defer it.Stop()
	var mine, other []time.Duration
	for b.Loop() {
		for range 500 {
			begun := time.Now()
			heard := h.hear(1)
			err := c.Ask(context.Background(), protocol.OpFire, protocol.Fire{ID: bus.NewNonce(), Events: []event.Item{{Tag: "bench/tag", Data: data}}}, nil)
			<-heard
			mine = append(mine, time.Since(begun))
			begun = time.Now()
			_, err2 := x.js.Publish(b.Context(), "e", data)
			_, err3 := it.Next()
			other = append(other, time.Since(begun))
			if err := errors.Join(err, err2, err3); err != nil {
				b.Fatal(err)
			}
		}
	}
	slices.Sort(mine)
	slices.Sort(other)
	at := func(d []time.Duration, p float64) float64 { return float64(d[int(float64(len(d)-1)*p)].Microseconds()) }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(at(mine, .5), "p50-µs")
	b.ReportMetric(at(mine, .99), "p99-µs")
	b.ReportMetric(at(other, .5), "bare-p50-µs")
	b.ReportMetric(at(other, .99), "bare-p99-µs")
	b.ReportMetric(at(mine, .5)/at(other, .5), "p50-ratio")
	b.ReportMetric(at(mine, .99)/at(other, .99), "p99-ratio")
}

// BenchmarkReplay reads stored events of 100 bytes.
func BenchmarkReplay(b *testing.B) {
	for _, n := range []int{50_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			if testing.Short() && n > 50_000 {
				b.Skip("skipped with -short: to store them takes its time")
			}
			w, x := start(b), startBare(b)
			data := payload(100)
			fill(b, w.events.journal, n, data)
			x.publish(n, data)
			c, nc := w.dial(), x.dial()
			pair(b, n, func() {
				h := w.mustListen(c, protocol.Listen{FromSeq: 1, UntilEnd: true})
				<-h.hear(n + 1) // ends at the end
				h.stream.Close()
			}, func() { <-x.consume(nc, 1, n) })
		})
	}
}

// fill stores n events.
func fill(b *testing.B, j *journal.Journal, n int, data json.RawMessage) {
	b.Helper()
	e := event.Event{Tag: "bench/tag", From: "user:root", Data: data}
	pending := make([]*journal.Pending, 0, batchSize)
	for range n / batchSize {
		pending = pending[:0]
		for range batchSize {
			p, err := j.Begin(e, "")
			if err != nil {
				b.Fatal(err)
			}
			pending = append(pending, p)
		}
		for _, p := range pending {
			if _, err := p.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
}
