package localapi

import (
	"context"
	"strconv"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/forwarder"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// localFire stores events on the minion's own bus, and passes on those with the tag
// fire_master. A mistake in one of them refuses them all. A user who may fire that tag speaks
// for the minion: the master, not event_acl, decides about the events inside.
func (a *API) localFire(ctx context.Context, r *rpc.Request) error {
	var q protocol.Fire
	if err := r.Decode(&q); err != nil {
		return err
	}
	who := a.principal(ctx, r.From)
	firing := a.Events.Rules().Fire(who)
	fired, err := a.Forwarder.Fire(ctx, q, forwarder.Source{
		Sender: who.Sender, ID: repeatID(r.From, requestID(q)), Check: firing.Check,
		Decide: func() error { return r.Decide(firing.Decide(ctx, len(q.Events))) },
	})
	if err != nil {
		return err
	}
	return r.Last(ctx, fired)
}

// repeatID is the id of a request against duplicates, "" if the request has none.
func repeatID(from bus.Identity, id string) string {
	if id == "" {
		return ""
	}
	return from.String() + "/" + id
}

// requestID returns the id of a request to fire. A series is split into requests as its lines
// arrive, so only a request with a single event is certainly the same when repeated.
func requestID(q protocol.Fire) string {
	if q.Series != "" && len(q.Events) == 1 {
		return q.Series + "/" + strconv.Itoa(q.First)
	}
	return q.ID
}

// passOn sends events of a local tool to the master's bus.
func (a *API) passOn(ctx context.Context, r *rpc.Request) error {
	var q protocol.Fire
	if err := r.Decode(&q); err != nil {
		return err
	}
	fired, err := a.Forwarder.FireMaster(ctx, q, repeatID(r.From, requestID(q)))
	if err != nil {
		return err
	}
	return r.Last(ctx, fired)
}
