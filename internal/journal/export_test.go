package journal

import "context"

// Doubt marks messages that were sent as possibly not stored.
func (j *Journal) Doubt() { j.writer.doubt() }

// ReadsAt returns the member where the server has placed the consumer of a cursor.
func (c *Cursor) ReadsAt() string { return (*c.consumer.Load()).CachedInfo().Cluster.Leader }

// Lose removes the consumer of a cursor from the server.
func (j *Journal) Lose(ctx context.Context, c *Cursor) error {
	return j.stream.DeleteConsumer(ctx, (*c.consumer.Load()).CachedInfo().Name)
}
