package broker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/test/deadline"
)

// Whoever reads a mirror while it is reopened waits: nobody is told that it does not exist.
func TestReadersOfAMirrorThatIsReopened(t *testing.T) {
	t.Parallel()
	m, err := StartMirror(t.Context(), MirrorOptions{Peer: "127.0.0.1:1", TLS: linkTLS(t, "m2"), StoreDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Stop)
	js, err := jetstream.New(m.Conn())
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MIRROR_m1", Subjects: []string{"a"}, AllowDirect: true})
	if err == nil {
		_, err = js.Publish(t.Context(), "a", []byte("one"))
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	end, answered := make(chan struct{}), make(chan struct{}, 1)
	var all sync.WaitGroup
	for name, ask := range map[string]func() error{
		"info": func() error { _, err := stream.Info(ctx); return err },
		"get":  func() error { _, err := stream.GetMsg(ctx, 1); return err },
		"direct get": func() error {
			m, err := m.Conn().RequestWithContext(ctx, "$JS.API.DIRECT.GET.MIRROR_m1", []byte(`{"seq":1}`))
			if err == nil && string(m.Data) != "one" {
				err = errors.New("it brings " + string(m.Data))
			}
			return err
		},
		"consumer": func() error {
			_, err := js.Consumer(ctx, "MIRROR_m1", "none")
			return allow(err, jetstream.ErrConsumerNotFound)
		},
		"a request": func() error {
			_, err := m.Conn().RequestWithContext(ctx, "nobody.here", nil)
			return allow(err, nats.ErrNoResponders)
		},
	} {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := ask(); err != nil {
					t.Errorf("%s: %v", name, err)
					cancel()
					return
				}
				select {
				case <-end:
					return
				case <-ctx.Done():
				case answered <- struct{}{}:
				default:
				}
			}
		})
	}
	for n := 0; n < 50 && ctx.Err() == nil; n++ {
		if err := m.Reopen(); err != nil {
			t.Errorf("reopen %d: %v", n, err)
			break
		}
		for range 10 {
			select {
			case <-answered:
			case <-ctx.Done(): // a reader says why
			}
		}
	}
	close(end)
	deadline.Call(t, all.Wait, "the readers")
}
