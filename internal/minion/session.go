package minion

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"brine/internal/bus"
	"brine/internal/job"
	"brine/internal/link"
	"brine/internal/protocol"
	"brine/internal/value"
)

// session is a connection to a master that has accepted this minion.
type session struct {
	*link.Link
	address string
	clock   job.Steady // the master's
}

// The pauses between two attempts to reach a master: short at first, since most
// losses are short, then growing to a cap, each with jitter so that a fleet does
// not come back all at once.
const firstPause = 50 * time.Millisecond

// shortSession is what a session must last for the next attempt to follow at
// once: a master that takes connections only to end them is left some peace.
const shortSession = time.Second

var errShort = errors.New("the connection ended as soon as it was made")

// keepLinked keeps a connection to one of the masters for as long as ctx lasts.
// It returns an error only when every master of the list refuses this minion:
// masters that can not be reached never end it.
func (m *Minion) keepLinked(ctx context.Context) error {
	pause := firstPause
	if len(m.roster.masters) > 1 {
		m.log.Info("Got list of available master addresses", "masters", strings.Join(m.roster.masters, ", "))
	}
	for ctx.Err() == nil {
		served, err := m.tryAll(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case refusal(err):
			return err
		case served:
			pause = firstPause
			continue
		}
		m.tellUnreachable(err, pause)
		if !sleep(ctx, jitter(pause)) {
			return nil
		}
		pause = min(2*pause, max(m.cfg.ReconMax, time.Second))
	}
	return nil
}

// tellAgain is how often the log repeats that no master can be reached.
const tellAgain = time.Minute

// tellUnreachable logs a failed round: the first, then once a minute.
func (m *Minion) tellUnreachable(err error, pause time.Duration) {
	level := slog.LevelDebug
	if pause == firstPause || time.Since(m.toldAway) > tellAgain {
		level, m.toldAway = slog.LevelWarn, time.Now()
	}
	m.log.Log(m.ctx, level, "no master can be reached, trying again", "err", err, "pause", pause.Round(time.Millisecond))
}

// tryAll tries the masters of one round. served says that one of them was in
// use, or asks to be tried again at once. The error is a refusal if all have
// refused, else the last of those that did not.
func (m *Minion) tryAll(ctx context.Context) (served bool, err error) {
	var refused, failed error
	for i, address := range m.roster.round() {
		if i > 0 {
			m.log.Info("Trying to tune in to next master from master-list", "master", address)
		}
		err := m.linkOnce(ctx, address)
		switch {
		case err == nil || ctx.Err() != nil:
			return true, nil
		case errors.Is(err, errShort):
			m.roster.failed(address)
			return false, err
		case refusal(err):
			refused = errors.Join(refused, err)
			m.log.Error("master "+address+" is passed over", "err", err)
		default:
			failed = err
			if len(m.roster.masters) > 1 {
				m.log.Info("Master "+address+" could not be reached, trying next master (if any)", "err", err)
			}
		}
	}
	if failed == nil {
		return false, refused
	}
	return false, failed
}

func refusal(err error) bool {
	for _, refused := range []error{link.ErrMasterKey, link.ErrSignature, link.ErrRejected, link.ErrDenied} {
		if errors.Is(err, refused) {
			return true
		}
	}
	return false
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
func (m *Minion) linkOnce(ctx context.Context, address string) error {
	m.setWaiting("connecting to the master at " + address)
	m.log.Debug("Attempting to authenticate with the Salt Master at " + address)
	o, err := link.FromConfig(m.cfg, m.key, address, m.log)
	if err != nil {
		return err
	}
	o.Version, o.AutosignGrains = m.version, m.autosignGrains(ctx)
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
	if err := m.fetchPillar(ctx, s); err != nil {
		m.log.Error("pillar not loaded, the old one stays", "err", err)
	}
	m.tune(address)
	m.link.Store(s)
	defer m.link.CompareAndSwap(s, nil)
	m.setWaiting("")
	m.log.Info("Minion is ready to receive requests!", "master", address)
	m.outbox.wake()
	select {
	case m.linked <- struct{}{}:
	default:
	}
	m.announceStart(ctx)
	began := time.Now()
	return m.untilLost(ctx, s, began)
}

// untilLost returns when the connection ends, or when the first master of the
// list is back and the minion shall return to it.
func (m *Minion) untilLost(ctx context.Context, s *session, began time.Time) error {
	back, stop := m.watchFirst(ctx, s.address)
	defer stop()
	select {
	case <-ctx.Done():
		return nil
	case <-back:
		m.localEvent("__master_failback", m.roster.first())
		m.log.Info("failing back to "+m.roster.first(), "from", s.address)
		return nil
	case <-s.Closed:
	}
	m.log.Warn("Connection to master "+s.address+" lost", "err", s.NC.LastError())
	m.localEvent("__master_disconnected", s.address)
	m.setWaiting("the connection to the master at " + s.address + ", which was lost")
	if len(m.roster.masters) > 1 {
		m.log.Info("Removing possibly failed master " + s.address + " from list of masters")
		m.roster.failed(s.address)
	}
	if time.Since(began) < shortSession {
		return errShort
	}
	return nil
}

// tune tells of the master that is now in use.
func (m *Minion) tune(address string) {
	before := m.lastMaster
	m.lastMaster = address
	m.localEvent("__master_connected", address)
	if before != "" && before != address {
		m.log.Warn("Master ip address changed from " + before + " to " + address)
	}
}

// localEvent fires an event of the minion itself on its own bus.
func (m *Minion) localEvent(tag, master string) {
	m.relay.Announce(tag, map[string]any{"master": master})
}

// watchFirst looks from time to time whether the first master of the list takes
// this minion again, and closes back when it does. It does nothing where
// master_failback is off or the first master is the one in use.
func (m *Minion) watchFirst(ctx context.Context, current string) (back <-chan struct{}, stop func()) {
	first := m.roster.first()
	if first == "" || first == current || m.cfg.MasterFailbackInterval <= 0 {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	found := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for sleep(ctx, m.cfg.MasterFailbackInterval) {
			if m.takes(ctx, first) {
				close(found)
				return
			}
		}
	})
	return found, func() { cancel(); wg.Wait() }
}

// takes says whether a master accepts this minion now.
func (m *Minion) takes(ctx context.Context, address string) bool {
	o, err := link.FromConfig(m.cfg, m.key, address, m.log)
	if err != nil {
		return false
	}
	o.Version, o.Caller = m.version, true
	l, err := link.Connect(ctx, o)
	if err != nil {
		m.log.Debug("the first master is not back", "master", address, "err", err)
		return false
	}
	defer l.Close()
	return l.Ready()
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
	s.clock = job.NewSteady(w.Time.Add(time.Since(asked) / 2))
	if offset := time.Until(w.Time); offset.Abs() > time.Minute {
		m.log.Warn("the clocks of master and minion differ; jobs are judged by the master's", "offset", offset.Round(time.Second))
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
		if _, err := m.outbox.put(ctx, outgoing{op: protocol.OpFire, body: f, events: 1}, false); err != nil {
			m.log.Warn("start not announced", "tag", tag, "err", err)
		}
	}
}

func (m *Minion) setWaiting(text string) { m.waiting.Store(&text) }
