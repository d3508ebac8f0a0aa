package minion

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/link"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// session is a connection to a master that has accepted this minion.
type session struct {
	*link.Link
	up    *uplink
	name  string        // of the master, as the configuration has it
	clock job.Steady    // the master's
	first bool          // made to go back to the first master of the list
	begun chan struct{} // closed when it is the one in use
	asked []salt.JID    // the jobs that the master asks for
}

// Gone implements outbox.Master.
func (s *session) Gone() <-chan struct{} { return s.Closed }

// greet makes a session of a connection: the master hears that jobs are welcome,
// and they are taken from then on. After an error the connection is closed.
func (u *uplink) greet(ctx context.Context, l *link.Link, name string) (*session, error) {
	s := &session{Link: l, up: u, name: name, begun: make(chan struct{})}
	if err := s.prepare(ctx); err != nil {
		l.Close()
		return nil, err
	}
	return s, nil
}

// prepare subscribes before the master hears of it, so that no job is missed. One
// that comes at once waits until the session can be used: until then the master's
// time is not known, and nobody is there to be told of the job.
func (s *session) prepare(ctx context.Context) error {
	m := s.up.m
	var asm rpc.Assembler
	sub, err := s.NC.Subscribe(bus.JobSubject(m.id), func(msg *nats.Msg) {
		body, done, err := asm.Add(msg.Data)
		if err != nil {
			m.log.Error("unreadable job", "err", err)
		} else if done && s.wait() {
			m.onJob(s, body)
		}
	})
	if err != nil {
		return err
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	if err := s.hello(ctx); err != nil {
		return err
	}
	if err := s.fetchPillar(ctx); err != nil {
		m.log.Error("pillar not loaded, the old one stays", "err", err)
	}
	return nil
}

// wait returns when the session is in use, false if it never will be.
func (s *session) wait() bool {
	select {
	case <-s.begun:
		return true
	case <-s.Closed:
		return false
	}
}

// live uses a session until it ends. It returns the session that is to take its
// place, nil if it was lost or ctx has ended.
func (u *uplink) live(ctx context.Context, s *session) *session {
	u.tune(s)
	u.session.Store(s)
	close(s.begun)
	u.setWaiting("")
	u.log.Info("Authentication with master successful!")
	u.log.Info("Minion is ready to receive requests!")
	u.log.Debug("the master in use", "master", s.name, "address", s.NC.ConnectedAddr(), "fingerprint", s.Master.SHA256())
	u.outbox.Wake()
	select {
	case u.linked <- struct{}{}:
	default:
	}
	u.announceStart(ctx)
	ctx, stop := context.WithCancel(ctx)
	back := make(chan *session)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { u.watchFirst(ctx, s, back) })
	wg.Go(func() { u.ping(ctx, s) })
	wg.Go(func() { u.m.account(ctx, s) })
	select {
	case <-ctx.Done():
	case next := <-back:
		u.m.localEvent("__master_failback", next.name)
		u.log.Info("failing back to "+next.name, "from", s.name)
		return next
	case <-s.Closed:
	}
	return nil
}

// tune tells of the master that is now in use.
func (u *uplink) tune(s *session) {
	u.tellChange(s.name)
	u.m.localEvent("__master_connected", s.name)
}

// localEvent fires an event of the minion itself on its own bus.
func (m *Minion) localEvent(tag, master string) {
	m.events.Announce(tag, map[string]any{"master": master})
}

// hello tells the master that jobs are welcome, and learns its time.
func (s *session) hello(ctx context.Context) error {
	m := s.up.m
	facts, err := m.grains.get(ctx)
	if err != nil {
		m.log.Warn("facts are incomplete", "err", err)
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.AuthTimeout)
	defer cancel()
	var w protocol.Welcome
	asked := time.Now()
	if err := s.Ask(ctx, protocol.OpHello, protocol.Hello{Grains: value.Value{V: facts}, Version: m.version}, &w); err != nil {
		return fmt.Errorf("tell the master at %s that this minion is ready: %w", s.name, err)
	}
	s.asked = w.Jobs
	s.clock = job.NewSteady(w.Time.Add(time.Since(asked) / 2))
	if offset := time.Until(w.Time); offset.Abs() > time.Minute {
		m.log.Warn("the clocks of master and minion differ; jobs are judged by the master's", "offset", offset.Round(time.Second))
	}
	return nil
}

// announceStart fires Salt's events of a started minion, once a start.
func (u *uplink) announceStart(ctx context.Context) {
	if u.started {
		return
	}
	u.started = true
	m := u.m
	text := fmt.Sprintf("%q", "Minion "+string(m.id)+" started at "+time.Now().Format(time.ANSIC))
	for _, tag := range []string{"minion_start", "salt/minion/" + string(m.id) + "/start"} {
		if tag == "minion_start" && !m.cfg.EnableLegacyStartupEvents {
			continue
		}
		f := protocol.Fire{Form: protocol.FormSingle, Events: []protocol.FireEvent{{Tag: tag, Data: []byte(text)}}}
		if err := u.outbox.Put(ctx, outbox.Outgoing{Op: protocol.OpFire, Body: f, Events: 1}); err != nil {
			m.log.Warn("start not announced", "tag", tag, "err", err)
		}
	}
}
