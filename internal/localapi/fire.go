package localapi

import (
	"context"
	"strconv"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/forwarder"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// localFire stores events on the minion's own bus, and passes on those whose tag
// says so. A mistake in one of them refuses them all. Who may fire the tag
// fire_master on this bus speaks for the minion: what is within is not for
// event_acl to judge, but for the master.
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

// repeatID names what somebody asked for, so that the same request again is no
// second one. "" where the request has no name.
func repeatID(from bus.Identity, id string) string {
	if id == "" {
		return ""
	}
	return from.String() + "/" + id
}

// requestID is the name of a request to fire. A series is cut into requests as its lines
// come, so that only one of a single event is the same request for sure.
func requestID(q protocol.Fire) string {
	if q.Series != "" && len(q.Events) == 1 {
		return q.Series + "/" + strconv.Itoa(q.First)
	}
	return q.ID
}

// passOn sends events to the master's bus for a local tool.
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
