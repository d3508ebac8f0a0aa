package minion

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/peer"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/upstream"
)

// peers reaches other minions, and the mine, over a connection to a master: that of
// preferred while it lasts, else the first there is.
func (m *Minion) peers(preferred *upstream.Uplink) peer.Client {
	return peer.Client{Conn: func(master string) *rpc.Conn { return m.masters.Conn(preferred, master) }}
}

// peersOf reaches other minions over the master of an uplink and no other, unless one
// is named: it has decided about what the job publishes.
func (m *Minion) peersOf(u *upstream.Uplink) peer.Client {
	return peer.Client{Conn: func(master string) *rpc.Conn {
		if master != "" {
			return m.masters.Conn(u, master)
		}
		if s := u.Session(); s != nil {
			return s.Conn
		}
		return nil
	}}
}

// hostOf is this minion as the functions of a job see it that came over an uplink,
// nil for one of the schedule. A job that another minion has published cannot
// publish: two minions would keep each other busy for ever. Programs that it starts
// are told, for the sake of salt-call.
func (m *Minion) hostOf(e *job.Envelope, u *upstream.Uplink) *function.Host {
	h := m.host()
	if u != nil {
		h = m.hostFor(u)
	}
	if u != nil && !e.Reach.Free {
		h.Publisher = m.peersOf(u)
	}
	h.User = e.User
	if e.From != "" {
		h.Publisher, h.Environ = peer.Published{By: e.From}, []string{peer.PublishedBy + "=" + e.From}
	}
	return h
}

// passFiles asks the master for files, or what else needs no more than a connection,
// for a local tool.
func (m *Minion) passFiles(ctx context.Context, r *rpc.Request) error {
	if m.masters.Session() == nil {
		return rpc.Errorf(rpc.Unavailable, "there is no connection to a master")
	}
	return m.passToMaster(ctx, r)
}

// passToMaster asks the master what a local tool asks, and passes the answer on
// as it comes.
func (m *Minion) passToMaster(ctx context.Context, r *rpc.Request) error {
	var q struct {
		Via string `json:"via"`
	}
	if err := r.Decode(&q); err != nil {
		return err
	}
	s := m.masters.With(q.Via)
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

// unavailable gives a lost connection its code; what the master said keeps its.
func unavailable(err error) error {
	if errors.Is(err, rpc.ErrLost) {
		return rpc.Errorf(rpc.Unavailable, "%w", err)
	}
	return err
}
