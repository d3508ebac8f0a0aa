package broker

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// looksInTime is how often a member asks for its streams in the time that is too long.
	looksInTime = 12
	// shutTime is how long a server may take to end whose store has failed: it may wait for a lock that nobody gives back.
	shutTime = 10 * time.Second
)

// watchStreams ends a member whose server says nothing of its streams for too long, until the broker stops.
//
// If the disk is full in the middle of the record of a removal, the server waits for its own lock for ever (nats-server 2.15.2). It logs
// nothing, and goes on to lead the stream if it did: then no member could write that stream, also when there is space again. A single
// master reserves the space, which members cannot do on the disks of the others.
//
// Time in which this process was suspended does not count: there was no look then.
func (b *Broker) watchStreams() {
	limit := cmp.Or(b.opts.Stuck, stuckTime)
	tick := time.NewTicker(limit / looksInTime)
	defer tick.Stop()
	answered := make(chan struct{}, 1)
	ask := func() { // it may never return
		_, _ = b.server.Jsz(&server.JSzOptions{Account: account, Streams: true}) // what it says does not matter
		answered <- struct{}{}
	}
	go ask()
	for late := 0; late < looksInTime; {
		select {
		case <-tick.C:
		case <-b.health.stopped:
			return
		}
		select {
		case <-answered:
			late = 0
			go ask()
		default:
			late++
		}
	}
	b.health.spoil(fmt.Errorf("the store of this member does not answer for %s", limit))
}

// isSpoiled reports whether the store of a member has failed for good: then its server may not end.
func (h *Health) isSpoiled() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.spoiled
}

// shutDown ends the server, and waits for everything that runs in the broker. If the store of a member has failed it does not wait for
// ever: the end of the process ends what is left.
func (b *Broker) shutDown() {
	ctx, cancel := context.WithCancel(context.Background())
	if b.health.isSpoiled() {
		ctx, cancel = context.WithTimeout(ctx, shutTime)
	}
	defer cancel()
	err := within(ctx, func(context.Context) error {
		b.server.Shutdown()
		b.server.WaitForShutdown()
		if b.auth.routes != nil {
			b.auth.routes.stop()
		}
		b.wg.Wait()
		return nil
	})
	if err != nil {
		b.opts.Log.Error("the bus does not end, since its store has failed: the daemon ends without it")
	}
}
