package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Queue is a durable queue of messages that leave in the order in which they
// came, each once it was delivered: the outbox of a minion.
type Queue struct {
	js       jetstream.JetStream
	stream   jetstream.Stream
	consumer jetstream.Consumer
	subject  string
}

// drain names the one reader of a queue.
const drain = "drain"

// ackTime bounds the wait for the own server's word that a message is removed.
const ackTime = 10 * time.Second

// OpenQueue opens the queue of this name, made of capital letters, in the
// JetStream that nc is connected to.
func OpenQueue(ctx context.Context, nc *nats.Conn, name string, o Options) (*Queue, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = -1
	}
	q := &Queue{js: js, subject: "salt.queue." + name}
	q.stream, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{q.subject}, Storage: jetstream.FileStorage, Retention: jetstream.WorkQueuePolicy,
		Discard: jetstream.DiscardOld, MaxAge: o.MaxAge, MaxBytes: o.MaxBytes,
	})
	if err != nil {
		return nil, fmt.Errorf("open the queue %s: %w", name, err)
	}
	// A reader that was here before may have handed out a message to a process
	// that is no more, and would hold the queue up until that is overdue. A new
	// one begins with the oldest message that was not removed.
	if err := q.stream.DeleteConsumer(ctx, drain); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, fmt.Errorf("open the queue %s: %w", name, err)
	}
	q.consumer, err = q.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: drain, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1, AckWait: time.Minute,
	})
	if err != nil {
		return nil, fmt.Errorf("open the queue %s: %w", name, err)
	}
	return q, nil
}

// Put stores body at the end of the queue. When it returns nil the message
// survives a kill of the process.
func (q *Queue) Put(ctx context.Context, body []byte) error {
	if _, err := q.js.Publish(ctx, q.subject, body); err != nil {
		return fmt.Errorf("put into the outbox: %w", err)
	}
	return nil
}

// Len is how many messages wait.
func (q *Queue) Len(ctx context.Context) (uint64, error) {
	info, err := q.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("look into the outbox: %w", err)
	}
	return info.State.Msgs, nil
}

// Next hands the oldest message to f and removes it when f returns nil. It waits
// until there is one. An error of f leaves the message where it is.
func (q *Queue) Next(ctx context.Context, f func(body []byte) error) error {
	it, err := q.consumer.Messages(jetstream.PullMaxMessages(1))
	if err != nil {
		return fmt.Errorf("read the outbox: %w", err)
	}
	stop := context.AfterFunc(ctx, it.Stop)
	defer func() {
		if stop() {
			it.Stop()
		}
	}()
	m, err := it.Next()
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("read the outbox: %w", err)
	}
	if err := f(m.Data()); err != nil {
		return errors.Join(err, m.Nak())
	}
	// The end of ctx must not leave a message behind that was delivered.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackTime)
	defer cancel()
	return m.DoubleAck(ctx)
}
