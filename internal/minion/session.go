package minion

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"brine/internal/bus"
	"brine/internal/link"
	"brine/internal/protocol"
	"brine/internal/value"
)

// session is a connection to a master that has accepted this minion.
type session struct {
	*link.Link
	address string
	offset  time.Duration // the master's clock less ours
}

// The pauses between two attempts to reach a master: short at first, since most
// losses are short, then growing to a cap, each with jitter so that a fleet does
// not come back all at once.
const firstPause = 50 * time.Millisecond

// shortSession is what a session must last for the next attempt to follow at
// once: a master that takes connections only to end them is left some peace.
const shortSession = time.Second

var errShort = errors.New("the connection ended as soon as it was made")

// keepLinked keeps a connection to the master for as long as ctx lasts. It
// returns an error only when the master refuses this minion for good.
func (m *Minion) keepLinked(ctx context.Context) error {
	pause := firstPause
	for ctx.Err() == nil {
		err := m.linkOnce(ctx)
		switch {
		case refusal(err):
			return err
		case err == nil:
			pause = firstPause
			continue
		case ctx.Err() != nil:
			return nil
		}
		m.log.Warn("the master can not be reached, trying again", "err", err, "pause", pause.Round(time.Millisecond))
		if !sleep(ctx, jitter(pause)) {
			return nil
		}
		pause = min(2*pause, max(m.cfg.ReconMax, time.Second))
	}
	return nil
}

func refusal(err error) bool {
	return errors.Is(err, link.ErrMasterKey) || errors.Is(err, link.ErrRejected) || errors.Is(err, link.ErrDenied)
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// linkOnce makes one connection and lives with it. It returns nil when the next
// attempt should follow at once.
func (m *Minion) linkOnce(ctx context.Context) error {
	address := m.address()
	m.setWaiting("connecting to the master at " + address)
	m.log.Debug("Attempting to authenticate with the Salt Master at " + address)
	o := linkOptions(m.cfg, m.key, address, m.version, m.log)
	o.AutosignGrains = m.autosignGrains(ctx)
	l, err := link.Connect(ctx, o)
	if err != nil {
		return err
	}
	defer l.Close()
	if !l.Ready() {
		return m.awaitAcceptance(ctx, l, address)
	}
	m.log.Info("Authentication with master successful!", "master", address, "fingerprint", l.Master.SHA256())
	return m.serve(ctx, l, address)
}

// address is the master's, with its port.
func (m *Minion) address() string {
	return withPort(m.cfg.Master[0], m.cfg.MasterPort)
}

func withPort(host string, port int) string {
	if h, p, err := net.SplitHostPort(host); err == nil && h != "" {
		return net.JoinHostPort(h, p)
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

func (m *Minion) awaitAcceptance(ctx context.Context, l *link.Link, address string) error {
	m.setWaiting("the master at " + address + " to accept this minion's key")
	switch l.State() {
	case protocol.KeyPending:
		m.log.Error("The Salt Master has cached the public key for this node, this salt minion will wait until it is accepted",
			"master", address, "fingerprint", m.key.Public().SHA256())
	case protocol.KeyFull:
		m.log.Error("the master takes no more waiting keys now; this minion keeps asking", "master", address)
		return errors.New("the master has too many waiting keys")
	}
	err := l.Wait(ctx)
	if errors.Is(err, bus.ErrLost) {
		return fmt.Errorf("while waiting to be accepted: %w", err)
	}
	return err
}

// serve takes jobs until the connection ends.
func (m *Minion) serve(ctx context.Context, l *link.Link, address string) error {
	s := &session{Link: l, address: address}
	var asm bus.Assembler
	sub, err := l.NC.Subscribe(bus.JobSubject(m.id), func(msg *nats.Msg) {
		body, done, err := asm.Add(msg.Data)
		if err != nil {
			m.log.Error("unreadable job", "err", err)
		} else if done {
			m.onJob(s, body)
		}
	})
	if err != nil {
		return err
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	if err := m.hello(ctx, s); err != nil {
		return err
	}
	m.link.Store(s)
	defer m.link.CompareAndSwap(s, nil)
	m.setWaiting("")
	m.log.Info("Minion is ready to receive requests!", "master", address)
	m.outbox.wake()
	m.announceStart(ctx)
	began := time.Now()
	select {
	case <-l.Closed:
		m.log.Warn("Connection to master "+address+" lost", "err", l.NC.LastError())
	case <-ctx.Done():
	}
	m.setWaiting("the connection to the master at " + address + ", which was lost")
	if time.Since(began) < shortSession {
		return errShort
	}
	return nil
}

// hello tells the master that jobs are welcome, and learns its time.
func (m *Minion) hello(ctx context.Context, s *session) error {
	facts, err := m.grains.get(ctx)
	if err != nil {
		m.log.Warn("facts are incomplete", "err", err)
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.AuthTimeout)
	defer cancel()
	var w protocol.Welcome
	asked := time.Now()
	if err := s.Ask(ctx, protocol.OpHello, protocol.Hello{Grains: value.Value{V: facts}, Version: m.version}, &w); err != nil {
		return fmt.Errorf("tell the master at %s that this minion is ready: %w", s.address, err)
	}
	s.offset = time.Until(w.Time) + time.Since(asked)/2
	if s.offset.Abs() > time.Minute {
		m.log.Warn("the clocks of master and minion differ; jobs are judged by the master's", "offset", s.offset.Round(time.Second))
	}
	return nil
}

// announceStart fires Salt's events of a started minion, once a start.
func (m *Minion) announceStart(ctx context.Context) {
	if m.started.Swap(true) {
		return
	}
	text := fmt.Sprintf("%q", "Minion "+string(m.id)+" started at "+time.Now().Format(time.ANSIC))
	for _, tag := range []string{"minion_start", "salt/minion/" + string(m.id) + "/start"} {
		if tag == "minion_start" && !m.cfg.EnableLegacyStartupEvents {
			continue
		}
		f := protocol.Fire{Form: protocol.FormSingle, Events: []protocol.FireEvent{{Tag: tag, Data: []byte(text)}}}
		if _, err := m.fireMaster(ctx, f); err != nil {
			m.log.Warn("start not announced", "tag", tag, "err", err)
		}
	}
}

func (m *Minion) setWaiting(text string) { m.waiting.Store(&text) }
