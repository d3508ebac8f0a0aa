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
)

// peers reaches other minions, and the mine, over a connection to a master: that of
// preferred while it lasts, else the first there is.
func (m *Minion) peers(preferred *uplink) peer.Client {
	return peer.Client{Conn: func(master string) *rpc.Conn { return m.conn(preferred, master) }}
}

// peersOf reaches other minions over the master of an uplink and no other, unless one
// is named: it has decided about what the job publishes.
func (m *Minion) peersOf(u *uplink) peer.Client {
	return peer.Client{Conn: func(master string) *rpc.Conn {
		if master != "" {
			return m.conn(u, master)
		}
		if s := u.session.Load(); s != nil {
			return s.Conn
		}
		return nil
	}}
}

// conn is the connection to the named master; for "" that of preferred while it
// lasts, else the first there is. It is nil for none.
func (m *Minion) conn(preferred *uplink, master string) *rpc.Conn {
	if master == "" && preferred != nil {
		if s := preferred.session.Load(); s != nil {
			return s.Conn
		}
	}
	if s := m.sessionWith(master); s != nil {
		return s.Conn
	}
	return nil
}

// sessionWith is the connection to the named master, or to the first there is for "";
// nil for none.
func (m *Minion) sessionWith(master string) *session {
	if master == "" {
		return m.session()
	}
	for _, u := range m.uplinks {
		if s := u.session.Load(); s != nil && s.name == master {
			return s
		}
	}
	return nil
}

// hostOf is this minion as the functions of a job see it that came over an uplink,
// nil for one of the schedule. A job that another minion has published can not
// publish: two minions would keep each other busy for ever. Programs that it starts
// are told, for the sake of salt-call.
func (m *Minion) hostOf(e *job.Envelope, u *uplink) *function.Host {
	h := m.host()
	if u != nil {
		h = u.host()
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
	if m.session() == nil {
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
	s := m.sessionWith(q.Via)
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
