package backup_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/test/bustest"
)

// TestAPromotedMirrorKeepsNoPositions is why one master becomes three by a backup and a restore, and not by a mirror that takes
// the place of its source. That has the shorter pause, but durable listeners would begin again: the positions of
// consumers are not in it. With -events it says how long both take, for doc/operating.md.
func TestAPromotedMirrorKeepsNoPositions(t *testing.T) {
	t.Parallel()
	servers := bustest.BareServers(t, 3)
	nc, err := nats.Connect(servers[0].ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context() // the client limits each request to five seconds
	source := jetstream.StreamConfig{Name: "ONE", Subjects: []string{"e"}, Storage: jetstream.FileStorage}
	var one jetstream.Stream
	bustest.Until(t, "there is a stream", func() bool {
		one, err = js.CreateStream(ctx, source)
		return err == nil
	})
	n := max(*measured, 100)
	for range n {
		if _, err := js.PublishAsync("e", []byte(strings.Repeat("x", 100))); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	if _, err := one.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "alerts", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	three := jetstream.StreamConfig{Name: "THREE", Mirror: &jetstream.StreamSource{Name: "ONE"}, Storage: jetstream.FileStorage, Replicas: 3}
	copied, err := js.CreateStream(ctx, three)
	if err != nil {
		t.Fatal(err)
	}
	bustest.Until(t, "all is copied", func() bool {
		i, err := copied.Info(ctx)
		return err == nil && i.State.LastSeq == uint64(n)
	})
	t.Logf("%d events are mirrored with three copies: %s", n, time.Since(begun).Round(time.Millisecond))

	begun = time.Now()
	source.Subjects = []string{"e.old"}
	if _, err = js.UpdateStream(ctx, source); err != nil {
		t.Fatal(err)
	}
	three.Mirror, three.Subjects = nil, []string{"e"}
	if _, err = js.UpdateStream(ctx, three); err != nil {
		t.Fatal(err)
	}
	ack, err := js.Publish(ctx, "e", []byte("next"))
	if err != nil || ack.Stream != "THREE" || ack.Sequence != uint64(n)+1 {
		t.Fatalf("the next event is stored as %+v: %v", ack, err)
	}
	t.Logf("the mirror takes the place of its source: %s", time.Since(begun).Round(time.Millisecond))
	if _, err := copied.Consumer(ctx, "alerts"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("a mirror keeps positions now (%v): the pause of the change to a cluster can be shorter", err)
	}
}
