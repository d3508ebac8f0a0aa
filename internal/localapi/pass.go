package localapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/peer"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// passReturn sends the return of salt-call to the master.
func (a *API) passReturn(ctx context.Context, r *rpc.Request) error {
	var q protocol.LocalReturn
	if err := r.Decode(&q); err != nil {
		return err
	}
	u := a.Masters.First()
	if u == nil {
		return nil // master_type disable: it is sent to nobody
	}
	fired, err := a.Boxes.For(u.Number).Send(ctx, outbox.Outgoing{Op: protocol.OpReturn, Body: q, ID: repeatID(r.From, string(q.JID))})
	if err != nil {
		return err
	}
	return r.Last(ctx, fired)
}

// passFiles asks the master for files, or makes other requests that need only a connection, for
// a local tool.
func (a *API) passFiles(ctx context.Context, r *rpc.Request) error {
	if a.Masters.Session() == nil {
		return rpc.Errorf(rpc.Unavailable, "there is no connection to a master")
	}
	return a.passToMaster(ctx, r)
}

// passToMaster passes a request of a local tool to the master, and the answer back as it
// arrives.
func (a *API) passToMaster(ctx context.Context, r *rpc.Request) error {
	var q protocol.Via
	if err := r.Decode(&q); err != nil {
		return err
	}
	s := a.Masters.With(q.Via)
	if s == nil {
		return rpc.Errorf(rpc.Unavailable, "%w", peer.Away(r.Op))
	}
	stream, err := s.Call(r.Op, json.RawMessage(r.Body))
	if err != nil {
		return unavailable(err)
	}
	defer stream.Close()
	for {
		b, err := stream.Next(ctx)
		if len(b) > 0 {
			if err := r.SendRaw(ctx, b); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return unavailable(err)
		}
	}
}

// unavailable gives a lost connection its error code; errors of the master keep theirs.
func unavailable(err error) error {
	if errors.Is(err, rpc.ErrLost) {
		return rpc.Errorf(rpc.Unavailable, "%w", err)
	}
	return err
}
