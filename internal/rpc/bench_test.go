package rpc_test

import (
	"bytes"
	"context"
	"strconv"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// Both ends and the server are in this process, with TLS between them. In addition to the time
// the benchmarks report the CPU time of all three, which other programs on the machine affect
// less:
//
//	go test -run X -bench . -benchmem ./internal/rpc

// small is about the content of a return or an event.
var small = []byte(`{"tag":"x","data":"` + string(bytes.Repeat([]byte("x"), 280)) + `"}`)

func benched(b *testing.B) (*bustest.Bus, *rpc.Conn) {
	b.Helper()
	bus1 := bustest.Start(b)
	bus1.Server.Pace = 1e9
	bus1.Server.Handle(bustest.Probe(bus.RoleMinion, "echo"), func(ctx context.Context, r *rpc.Request) error {
		return r.Last(ctx, true)
	})
	bus1.Server.Handle(bustest.Probe(bus.RoleMinion, "ok"), func(context.Context, *rpc.Request) error { return nil })
	bus1.Server.Handle(bustest.Probe(bus.RoleMinion, "count"), func(ctx context.Context, r *rpc.Request) error {
		n, err := strconv.Atoi(string(r.Body))
		for range n {
			if err := r.SendRaw(ctx, small); err != nil {
				return err
			}
		}
		return err
	})
	if err := bus1.Server.Start(); err != nil {
		b.Fatal(err)
	}
	c := bus1.As(b, bus.RoleMinion, "web1")
	conn := rpc.NewConn(c.Conn, c.Self)
	conn.AsksOften()
	return bus1, conn
}

// measured runs f and reports its CPU time.
func measured(b *testing.B, f func()) {
	b.Helper()
	b.ReportAllocs()
	before := processorTime(b)
	b.ResetTimer()
	f()
	b.StopTimer()
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

func processorTime(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkQuestion is a small request with an answer of one message.
func BenchmarkQuestion(b *testing.B) {
	_, c := benched(b)
	measured(b, func() {
		for range b.N {
			var ok bool
			if err := c.Ask(b.Context(), "echo", true, &ok); err != nil || !ok {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkConfirmed is a message that is only acknowledged.
func BenchmarkConfirmed(b *testing.B) {
	_, c := benched(b)
	measured(b, func() {
		for range b.N {
			if err := c.Ask(b.Context(), "ok", true, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkQuestionBareNATS is BenchmarkQuestion with plain NATS.
func BenchmarkQuestionBareNATS(b *testing.B) {
	bus1, c := benched(b)
	bus1.Server.Stop()
	subject := bus.RequestSubject(bus.RoleMinion, "web1", "echo")
	if _, err := bus1.Conn().Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte("true")) }); err != nil {
		b.Fatal(err)
	}
	if err := bus1.Conn().Flush(); err != nil {
		b.Fatal(err)
	}
	measured(b, func() {
		for range b.N {
			if _, err := c.NC.RequestWithContext(b.Context(), subject, []byte("true")); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkStream is one message of a long answer.
func BenchmarkStream(b *testing.B) {
	_, c := benched(b)
	measured(b, func() {
		s, err := c.Call("count", b.N)
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		for range b.N {
			if m, err := s.Next(b.Context()); err != nil || len(m) != len(small) {
				b.Fatal(len(m), err)
			}
		}
	})
}

// BenchmarkStreamBareNATS is BenchmarkStream with plain NATS, without flow control.
func BenchmarkStreamBareNATS(b *testing.B) {
	bus1, c := benched(b)
	sub, err := c.NC.SubscribeSync(c.NC.NewInbox())
	if err != nil {
		b.Fatal(err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		b.Fatal(err)
	}
	if err := c.NC.Flush(); err != nil {
		b.Fatal(err)
	}
	measured(b, func() {
		for n := 0; n < b.N; {
			batch := min(b.N-n, 1000) // as many as may be under way at once
			for range batch {
				if err := bus1.Conn().Publish(sub.Subject, small); err != nil {
					b.Fatal(err)
				}
			}
			for range batch {
				if _, err := sub.NextMsgWithContext(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			n += batch
		}
	})
}
