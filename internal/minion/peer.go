package minion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"brine/internal/bus"
	"brine/internal/job"
	"brine/internal/module"
	"brine/internal/peer"
)

// peers reaches other minions, and the mine, over a connection to a master: that of
// preferred while it lasts, else the first there is.
func (m *Minion) peers(preferred *uplink) peer.Client {
	return peer.Client{Conn: func() *bus.Conn {
		if preferred != nil {
			if s := preferred.session.Load(); s != nil {
				return s.Conn
			}
		}
		if s := m.session(); s != nil {
			return s.Conn
		}
		return nil
	}}
}

// hostOf is this minion as the functions of a job see it that came over an uplink,
// nil for one of the schedule. A job that another minion has published can not
// publish: two minions would keep each other busy for ever.
func (m *Minion) hostOf(e *job.Envelope, u *uplink) *module.Host {
	h := m.host()
	if u != nil {
		h = u.host()
	}
	if e.From != "" {
		h.Publisher = noPublisher{e.From}
	}
	return h
}

// noPublisher implements module.Publisher by a refusal.
type noPublisher struct{ from string }

func (n noPublisher) refuse() error {
	return fmt.Errorf("%w: the minion %s has published this job, and such a job can not publish", module.ErrRefused, n.from)
}

// Publish implements module.Publisher.
func (n noPublisher) Publish(context.Context, module.Publication) ([]module.Answer, error) {
	return nil, n.refuse()
}

// Runner implements module.Publisher.
func (n noPublisher) Runner(context.Context, module.RemoteCall, time.Duration) (any, error) {
	return nil, n.refuse()
}

// passToMaster asks the master what a local tool asks, and passes the answer on
// as it comes.
func (m *Minion) passToMaster(ctx context.Context, r *bus.Request) error {
	s := m.session()
	if s == nil {
		return bus.Errorf(bus.Unavailable, "%w", peer.Away(r.Op))
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
	if errors.Is(err, bus.ErrLost) {
		return bus.Errorf(bus.Unavailable, "%w", err)
	}
	return err
}
