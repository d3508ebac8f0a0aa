package journal

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// SetCopies gives a stream of a cluster so many copies, and changes nothing else of it. It must not be the journal of a
// member that may write it meanwhile, which does the same when it opens it.
func SetCopies(ctx context.Context, nc *nats.Conn, stream string, copies int) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	if !byLeader(s.CachedInfo().Cluster) {
		return errNoLeader // see leaderInfo
	}
	c := s.CachedInfo().Config
	if c.Replicas == copies {
		return nil
	}
	c.Replicas = copies
	_, err = js.UpdateStream(ctx, c)
	return err
}
