package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Uplink keeps a connection to one master at a time: with failover, one of the list after the
// other; if the minion is connected to all masters of its list, always the same one.
type Uplink struct {
	Number  int // number of the minion's uplink, from 0
	all     *Uplinks
	log     *slog.Logger
	roster  *roster
	session atomic.Pointer[Session] // the one in use, nil for none
	pillar  atomic.Pointer[pillar]
	waiting atomic.Pointer[string] // for what, if there is no session
	nudge   chan struct{}          // ends the pause before the next attempt
	made    atomic.Uint64          // sessions since the start

	// How to reach a master: a connection, and a session on a ready connection.
	dial  func(ctx context.Context, name string) (*Connection, error)
	greet func(ctx context.Context, l *Connection, name string) (*Session, error)

	// Only the loop in Keep uses these.
	pauses     pauses
	rounds     int       // without a master, in a row
	nameless   int       // of those, rounds in which the name of the only master had no address
	lastMaster string    // the master that was last in use, or is tried instead
	awayLogged time.Time // when the log last said that no master can be reached
	refusals   logging.Throttle
	unreadable logging.Throttle // about jobs
	doubts     int              // how often the first master was lost soon after failing back to it
	spread     time.Duration    // the longest pause before the next attempt, since a member of a cluster was lost
	lingering  sync.WaitGroup
}

// Name is the uplink's name in answers: the master in use, or the first to be tried.
func (u *Uplink) Name() string {
	if s := u.session.Load(); s != nil {
		return s.Name
	}
	return u.roster.masters[0]
}

// shortSession is how long a session must last for the next attempt to follow at once: a master
// that ends every connection at once gets a pause.
const shortSession = time.Second

// Why a round ended without a master in use.
var (
	errShort    = errors.New("the connection ended as soon as it was made")
	errAccepted = errors.New("the key was accepted")
	errFull     = errors.New("the master has too many waiting keys")
)

// Keep keeps the connection until ctx ends. It returns an error if the minion is to end;
// masters that cannot be reached are not a reason for that.
func (u *Uplink) Keep(ctx context.Context) error {
	defer u.lingering.Wait()
	if u.roster.several() {
		u.log.Info("Got list of available master addresses: " + pythonList(u.roster.names()))
	}
	if most := u.all.Config.RandomStartupDelay; most > 0 && !backoff.Sleep(ctx, rand.N(most)) {
		return nil
	}
	for ctx.Err() == nil {
		err := u.tryAll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			u.all.verdicts.clear(u)
			u.pauses.reset()
			u.rounds, u.nameless = 0, 0
			if most := u.takeSpread(); most > 0 && !u.pause(ctx, rand.N(most)) {
				return nil
			}
			continue
		}
		pause, err := u.judge(err)
		if err != nil {
			return err
		}
		if !u.pause(ctx, pause) {
			return nil
		}
	}
	return nil
}

// pause returns true when the pause is over or Nudge ends it, false if ctx ends first.
func (u *Uplink) pause(ctx context.Context, pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-u.nudge:
	case <-ctx.Done():
		return false
	}
	return true
}

// judge decides what follows a round without a master: a pause, or the end.
func (u *Uplink) judge(err error) (time.Duration, error) {
	if u.rounds++; u.rounds == u.all.Config.MasterTries {
		u.log.Error("no master was found in as many rounds as master_tries says; the minion goes on trying", "rounds", u.rounds)
	}
	if u.ends(err) {
		if end := u.all.verdicts.refused(u, err); end != nil {
			return 0, end
		}
		return u.pauses.refused(), nil
	}
	u.all.verdicts.clear(u)
	var pause time.Duration
	switch {
	case isRefusal(err) && !u.asksAgain(err):
		pause = u.pauses.barred()
		u.tellBarred(err, pause)
		return pause, nil
	case isRefusal(err), errors.Is(err, errFull), errors.Is(err, ErrForgotten):
		pause = u.pauses.refused()
		u.log.Error(fmt.Sprintf("the master does not accept this minion now; waiting %s before the next attempt", pause), "err", err)
		return pause, nil
	case errors.Is(err, ErrNoAddress) && !u.roster.several() && u.all.Config.RetryDNS > 0:
		if u.nameless++; u.givesUp() {
			return 0, fmt.Errorf("retry_dns_count: %w", err)
		}
		pause = u.pauses.nameless()
	default:
		pause = u.pauses.unreachable()
	}
	u.tellUnreachable(err, pause)
	return pause, nil
}

// givesUp reports whether the name of the only master had no address as often as the
// configuration allows.
func (u *Uplink) givesUp() bool {
	most := u.all.Config.RetryDNSCount
	return most != nil && u.nameless > *most && len(u.all.list) == 1
}

// ends reports whether a refusal by every master of this uplink is final. For a service none
// is: the right key may come back, and nobody would restart the minion.
func (u *Uplink) ends(err error) bool {
	return isRefusal(err) && !u.all.Service && !u.asksAgain(err)
}

// asksAgain reports whether the configuration treats this refusal as temporary.
func (u *Uplink) asksAgain(err error) bool {
	return u.all.Config.AuthSafemode || u.all.Config.RejectedRetry && errors.Is(err, ErrRejected)
}

// tellBarred logs, each time, what was refused and what an operator can do.
func (u *Uplink) tellBarred(err error, pause time.Duration) {
	if errors.Is(err, ErrRejected) || errors.Is(err, ErrDenied) {
		u.log.Log(context.Background(), logging.LevelCritical, "The Salt Master has rejected this minion's public key!")
	}
	u.setWaiting("the next attempt at its master, after this: " + err.Error())
	u.log.Error("nothing is run for a master that is not trusted or refuses this minion; trying again",
		"pause", pause.Round(time.Millisecond), "err", err, "hint", strings.Join(hints(err), "; "))
}

// hints are those of an error, each once. Masters may refuse, or be refused, for different reasons.
func hints(err error) (list []string) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		if hint := salt.Hint(err); hint != "" {
			list = append(list, hint)
		}
		return list
	}
	for _, one := range joined.Unwrap() {
		for _, hint := range hints(one) {
			if !slices.Contains(list, hint) {
				list = append(list, hint)
			}
		}
	}
	return list
}

// tellAgain is how often the log repeats that no master can be reached.
const tellAgain = time.Minute

// tellUnreachable logs a failed round: the first one, then once a minute.
func (u *Uplink) tellUnreachable(err error, pause time.Duration) {
	level := slog.LevelDebug
	if u.rounds == 1 || time.Since(u.awayLogged) > tellAgain {
		level, u.awayLogged = slog.LevelWarn, time.Now()
		if lasting(err) {
			level = slog.LevelError
		}
	}
	text := "no master can be reached, trying again"
	if len(u.all.list) > 1 { // with several uplinks there are other messages
		text = "a master cannot be reached, trying again"
	}
	u.log.With(hinted(err)...).Log(context.Background(), level, text, "err", err, "pause", pause.Round(time.Millisecond))
}

// hinted are the attributes of the hint of err, where it has one.
func hinted(err error) []any {
	if hint := salt.Hint(err); hint != "" {
		return []any{"hint", hint}
	}
	return nil
}

// tryAll tries the masters of one round. It returns nil if one of them was in use, or is to be
// tried again at once; a refusal if all have refused; otherwise the latest error that is not a
// refusal.
func (u *Uplink) tryAll(ctx context.Context) error {
	var refused, failed error
	for _, name := range u.roster.round() {
		if u.rounds == 0 {
			u.tellChange(name)
		}
		s, err := u.open(ctx, name)
		if err == nil {
			err = u.serve(ctx, s)
		}
		switch {
		case err == nil, errors.Is(err, errAccepted), ctx.Err() != nil:
			return nil
		case errors.Is(err, errShort):
			failed = err // try the next one
		case isRefusal(err):
			refused = errors.Join(refused, fmt.Errorf("master %s: %w", name, err))
			u.tellRefused(ctx, name, err)
		default:
			failed = err
			if u.roster.several() {
				u.log.Info("Master "+name+" could not be reached, trying next master (if any)", "err", err)
			}
		}
	}
	if failed == nil {
		return refused
	}
	return failed
}

// tellRefused logs, at a limited rate, that a master is refused or refuses.
func (u *Uplink) tellRefused(ctx context.Context, name string, err error) {
	if !u.refusals.First(name, time.Now()) {
		return
	}
	if errors.Is(err, ErrMasterKey) || errors.Is(err, ErrSignature) {
		u.log.Log(ctx, logging.LevelCritical, "The Salt Master server's public key did not authenticate!")
	}
	if u.roster.several() || len(u.all.list) > 1 { // otherwise the minion logs this when it ends
		u.log.Error("master "+name+" is skipped", "err", err, "hint", salt.Hint(err))
	}
}

// tellChange logs that another master is tried than before.
func (u *Uplink) tellChange(name string) {
	if u.lastMaster != "" && u.lastMaster != name {
		u.log.Warn("Master ip address changed from " + u.lastMaster + " to " + name)
	}
	u.lastMaster = name
}

// open makes a session with a master that has accepted this minion. If the key is waiting to be
// accepted, it waits, too.
func (u *Uplink) open(ctx context.Context, name string) (*Session, error) {
	u.setWaiting("connecting to the master at " + name)
	l, err := u.dial(ctx, name)
	if err != nil {
		return nil, err
	}
	if !l.Ready() {
		defer l.Close()
		return nil, u.awaitAcceptance(ctx, l, name)
	}
	return u.greet(ctx, l, name)
}

// dialMaster makes one connection.
func (u *Uplink) dialMaster(ctx context.Context, name string) (*Connection, error) {
	u.log.Debug("Attempting to authenticate with the Salt Master at " + name)
	o := FromConfig(u.all.Config, u.all.Key, name, u.log)
	u.log.Debug("Loaded minion key: " + filepath.Join(u.all.Config.PKIDir, "minion.pem"))
	o.Version, o.AutosignGrains, o.Servers.Refused = u.all.Version, u.autosignGrains(ctx), &u.all.refused
	u.all.cluster.Trust(&o)
	return Connect(ctx, o)
}

// autosignGrains returns the grains for autosign_grains.
func (u *Uplink) autosignGrains(ctx context.Context) map[string]string {
	names := u.all.Config.AutosignGrains
	if len(names) == 0 {
		return nil
	}
	facts, _ := u.all.Daemon.Facts(ctx) // hello logs incomplete facts
	shown := map[string]string{}
	for _, name := range names {
		if v, ok := facts[name]; ok {
			shown[name] = fmt.Sprint(v)
		}
	}
	return shown
}

// awaitAcceptance returns errAccepted when the key was accepted: only a new connection has the
// rights.
func (u *Uplink) awaitAcceptance(ctx context.Context, l *Connection, name string) error {
	u.setWaiting("the master at " + name + " to accept this minion's key")
	switch l.State() {
	case protocol.KeyPending:
		u.log.Error("The Salt Master has cached the public key for this node, this salt minion will wait until it is accepted",
			"master", name, "fingerprint", u.all.Key.Public().SHA256())
	case protocol.KeyFull:
		return errFull
	}
	err := l.Wait(ctx)
	switch {
	case err == nil:
		return errAccepted
	case errors.Is(err, rpc.ErrLost):
		return fmt.Errorf("while waiting to be accepted: %w", err)
	}
	return err
}

// serve uses a session until it is lost, and then sessions that replace it when the minion
// fails back to the first master.
func (u *Uplink) serve(ctx context.Context, s *Session) error {
	for {
		began := time.Now()
		next := u.live(ctx, s)
		if next != nil && next.moved {
			u.linger(ctx, s)
			s = next
			continue
		}
		u.session.CompareAndSwap(s, nil)
		s.Close()
		switch {
		case next != nil:
			s = next
			continue
		case ctx.Err() != nil:
			return nil
		}
		u.lost(s, time.Since(began))
		if time.Since(began) < shortSession {
			return errShort
		}
		return nil
	}
}

// lost logs and announces the unwanted end of a session.
func (u *Uplink) lost(s *Session, lasted time.Duration) {
	u.log.Info("Connection to master " + s.Name + " lost")
	u.log.Debug("the connection was lost", "master", s.Name, "err", s.NC.LastError(), "after", lasted.Round(time.Millisecond))
	u.announce("disconnected", s.Name)
	u.setWaiting("the connection to the master at " + s.Name + ", which was lost")
	u.doubt(s, lasted)
	u.spread = u.all.cluster.spread()
	if u.roster.several() {
		u.log.Info("Trying to tune in to next master from master-list")
		u.log.Info("Removing possibly failed master " + s.Name + " from list of masters")
		u.roster.failed(s.Name)
	}
}

func (u *Uplink) setWaiting(text string) { u.waiting.Store(&text) }

// pythonList writes names as Salt's log does.
func pythonList(names []string) string { return "['" + strings.Join(names, "', '") + "']" }

// announce fires an event of the minion itself on its own bus.
func (u *Uplink) announce(what, master string) {
	u.all.Announce(event.MasterTag(what, master), map[string]any{"master": master})
}

// Session is the one in use, nil for none.
func (u *Uplink) Session() *Session { return u.session.Load() }

// Reconnects is how many sessions were made after the first one.
func (u *Uplink) Reconnects() uint64 { return max(u.made.Load(), 1) - 1 }

// Waiting is what the uplink waits for, while there is no session.
func (u *Uplink) Waiting() string {
	if w := u.waiting.Load(); w != nil {
		return *w
	}
	return ""
}

// Nudge ends the pause before the next attempt.
func (u *Uplink) Nudge() {
	select {
	case u.nudge <- struct{}{}:
	default:
	}
}

// Pillar is the latest pillar of the uplink's master, an empty map if there is none: each
// master has its own pillar data. It must not be changed.
func (u *Uplink) Pillar() map[string]any {
	if p := u.pillar.Load(); p != nil {
		return p.data
	}
	return map[string]any{}
}

// PillarErrors are the errors because of which the master sent no newer pillar.
func (u *Uplink) PillarErrors() []string {
	if p := u.pillar.Load(); p != nil {
		return p.errors
	}
	return nil
}

// pillar is the latest valid pillar of a master, and its errors since.
type pillar struct {
	data   map[string]any
	errors []string
}
