package minion_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/test/bustest"
)

// forwarded is an event for the master with about 100 bytes of data.
var forwarded = fireEvent("fire_master", `{"tag":"bench/tag","data":{"message":"`+strings.Repeat("x", 86)+`"}}`)

// BenchmarkForward fires events on a minion's bus whose tag is fire_master, until the
// master has stored them and a listener there has heard them; beside it messages go to
// one JetStream server, from there over TLS to a second one that acknowledges each, and
// to a consumer of that. "ratio" is Brine's rate by the bare one.
func BenchmarkForward(b *testing.B) {
	for _, c := range []struct {
		name           string
		batch, repeats int
	}{{"batches of 1000", 1000, 20}, {"one at a time", 1, 400}} {
		b.Run(c.name, func(b *testing.B) {
			p, bare := startPair(b, ""), startBareForward(b)
			hear := p.listen(b)
			events := make([]event.Item, c.batch)
			for i := range events {
				events[i] = forwarded
			}
			var ours, theirs time.Duration
			for b.Loop() {
				for range c.repeats {
					begin := time.Now()
					p.forward(events, hear)
					middle := time.Now()
					bare.forward(b, c.batch)
					ours, theirs = ours+middle.Sub(begin), theirs+time.Since(middle)
				}
			}
			n := float64(b.N * c.batch * c.repeats)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(n/ours.Seconds(), "events/s")
			b.ReportMetric(n/theirs.Seconds(), "bare/s")
			b.ReportMetric(theirs.Seconds()/ours.Seconds(), "ratio")
		})
	}
}

// listen hears at the master; what it returns waits for n more events.
func (p *pair) listen(b *testing.B) func(n int) error {
	b.Helper()
	s, err := dial(b, p.master.SockDir, master.SocketName).Call(protocol.OpListen, protocol.Listen{Tags: []string{"bench/"}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	var ready protocol.Ready
	if err := s.Decode(b.Context(), &ready); err != nil {
		b.Fatal(err)
	}
	return func(n int) error {
		for n > 0 {
			lines, err := s.Next(context.Background())
			if err != nil {
				return err
			}
			n -= strings.Count(string(lines), `"bench/tag"`)
		}
		return nil
	}
}

// forward fires a batch and returns when it is stored at the master and heard there.
func (p *pair) forward(events []event.Item, hear func(n int) error) {
	p.t.Helper()
	fired, err := p.fire(events...)
	if err == nil && fired.Outcome != protocol.Stored {
		err = fmt.Errorf("%s at the master, not stored", fired.Outcome)
	}
	if err := errors.Join(err, hear(len(events))); err != nil {
		p.t.Fatal(err)
	}
}

// bareForward is two servers, and a program that passes on from one to the other.
type bareForward struct {
	near  jetstream.JetStream // who publishes
	heard jetstream.MessagesContext
}

func startBareForward(b *testing.B) *bareForward {
	b.Helper()
	certificate, err := bustest.Key(b).Certificate("bare")
	if err != nil {
		b.Fatal(err)
	}
	nearURL := startBare(b, &server.Options{})
	farURL := startBare(b, &server.Options{TLS: true, TLSTimeout: 20, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAnyClientCert}})
	secure := nats.Secure(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true})
	passed, up := consume(b, bareStream(b, nearURL)), bareStream(b, farURL, secure)
	go func() {
		for {
			m, err := passed.Next()
			if err != nil {
				return // the end of the benchmark
			}
			if _, err := up.PublishAsync("e", m.Data()); err != nil {
				b.Error(err)
			}
		}
	}()
	return &bareForward{near: bareStream(b, nearURL), heard: consume(b, bareStream(b, farURL, secure))}
}

func startBare(b *testing.B, o *server.Options) (url string) {
	b.Helper()
	o.Host, o.Port, o.JetStream, o.StoreDir, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, true, b.TempDir(), true, true
	s, err := server.NewServer(o)
	if err != nil {
		b.Fatal(err)
	}
	s.Start()
	b.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		b.Fatal("the bare server does not start")
	}
	return s.ClientURL()
}

// bareStream connects to a server, whose stream takes the subject "e".
func bareStream(b *testing.B, url string, options ...nats.Option) jetstream.JetStream {
	b.Helper()
	nc, err := nats.Connect(url, options...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := js.CreateOrUpdateStream(b.Context(), jetstream.StreamConfig{Name: "E", Subjects: []string{"e"}, Storage: jetstream.FileStorage}); err != nil {
		b.Fatal(err)
	}
	return js
}

func consume(b *testing.B, js jetstream.JetStream) jetstream.MessagesContext {
	b.Helper()
	c, err := js.OrderedConsumer(b.Context(), "E", jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
	if err != nil {
		b.Fatal(err)
	}
	it, err := c.Messages()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(it.Stop)
	return it
}

// forward publishes n messages at one server, is acknowledged, and returns when the
// consumer of the other has them.
func (x *bareForward) forward(b *testing.B, n int) {
	b.Helper()
	body := json.RawMessage(forwarded.Data)
	acks := make([]jetstream.PubAckFuture, n)
	for i := range acks {
		var err error
		if acks[i], err = x.near.PublishAsync("e", body); err != nil {
			b.Fatal(err)
		}
	}
	for _, a := range acks {
		select {
		case <-a.Ok():
		case err := <-a.Err():
			b.Fatal(err)
		}
	}
	for range n {
		if _, err := x.heard.Next(); err != nil {
			b.Fatal(err)
		}
	}
}
