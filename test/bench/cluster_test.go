package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// clusterWindow is how many messages are under way, for both.
const clusterWindow = 1024

// BenchmarkStoreOnThree stores messages of 200 bytes with three copies, at the leader: events
// of a member's journal, and messages of three bare servers without TLS.
func BenchmarkStoreOnThree(b *testing.B) {
	b.Run("journal", benchJournalOnThree)
	b.Run("bare", benchBareOnThree)
}

func benchJournalOnThree(b *testing.B) {
	s := bustest.StartSystem(b, 3)
	s.Leader(b)
	m := s.Members[0]
	ctx, cancel := context.WithTimeout(journal.Starting(b.Context()), 10*time.Minute)
	defer cancel()
	j, err := journal.Open(ctx, m.Conn(), journal.Options{Copies: 3, Name: m.Name, Store: m.Store()})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	bustest.Until(b, "it leads", func() bool {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_ = j.Lead(once, m.Name)
		now, err := j.Leader(once)
		return err == nil && now == m.Name
	})
	text := event.Event{Tag: "bench/x", Data: []byte(`"` + strings.Repeat("x", 140) + `"`), From: "web1"}.Text()
	const batch = clusterWindow / 4
	var under []*journal.Pending
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		count := min(batch, b.N-n)
		p, err := j.BeginAll(journal.Batch{Name: fmt.Sprintf("bench/%d", n), Count: count, Drafts: func(yield func(journal.Draft) bool) {
			for range count {
				if !yield(journal.Draft{Tag: "bench/x", Text: text}) {
					return
				}
			}
		}})
		if err != nil {
			b.Fatal(err)
		}
		if under = append(under, p); len(under) == clusterWindow/batch {
			if _, err := under[0].Wait(ctx); err != nil {
				b.Fatal(err)
			}
			under = under[1:]
		}
	}
	for _, p := range under {
		if _, err := p.Wait(ctx); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(text)))
}

func benchBareOnThree(b *testing.B) {
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	servers := bustest.BareServers(b, 3)
	js, leader := bareStream(ctx, b, servers)
	body := []byte(strings.Repeat("x", 200))
	b.ResetTimer()
	for range b.N {
		if _, err := js.PublishAsync("bench.x", body); err != nil {
			b.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		b.Fatal("not stored")
	}
	b.SetBytes(int64(len(body)))
	b.Log("at", leader)
}

// bareStream makes a stream with three copies, and connects to its leader.
func bareStream(ctx context.Context, b *testing.B, servers []*server.Server) (jetstream.JetStream, string) {
	b.Helper()
	connect := func(s *server.Server) jetstream.JetStream {
		nc, err := nats.Connect("nats://bare", nats.InProcessServer(s), nats.SkipHostLookup())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(nc.Close)
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(clusterWindow))
		if err != nil {
			b.Fatal(err)
		}
		return js
	}
	js := connect(servers[0])
	var made jetstream.Stream
	bustest.Until(b, "there is a stream", func() bool {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		var err error
		made, err = js.CreateOrUpdateStream(once, jetstream.StreamConfig{Name: "BENCH", Subjects: []string{"bench.>"}, Replicas: 3})
		return err == nil
	})
	leader := made.CachedInfo().Cluster.Leader
	for _, s := range servers {
		if s.Name() == leader {
			return connect(s), leader
		}
	}
	return js, "another server"
}
