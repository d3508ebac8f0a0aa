package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Uplink keeps a connection to one master at a time: of a list, one after the
// other for failover; or, where the minion is connected to all masters of its
// list, always the same.
type Uplink struct {
	Number  int // of the minion's, from 0
	all     *Uplinks
	log     *slog.Logger
	roster  *roster
	session atomic.Pointer[Session] // in use, nil for none
	pillar  atomic.Pointer[pillar]
	waiting atomic.Pointer[string] // what for, when there is none
	nudge   chan struct{}          // ends the pause before the next attempt
	made    atomic.Uint64          // sessions since the start

	// The way to a master over the network: a connection, and a session on one that is ready.
	dial  func(ctx context.Context, name string) (*Connection, error)
	greet func(ctx context.Context, l *Connection, name string) (*Session, error)

	// Only the loop that links knows these.
	pauses     pauses
	rounds     int       // without a master, in a row
	nameless   int       // of those in which the name of the only master had no address
	lastMaster string    // the one that was in use last, or is tried in its place
	awayLogged time.Time // when the log last said that no master can be reached
	refusals   logging.Throttle
	doubts     int // how often the first master was lost soon after the minion came back to it
}

// Name is what the uplink is called in an answer: the master in use, or the first
// that it would try.
func (u *Uplink) Name() string {
	if s := u.session.Load(); s != nil {
		return s.Name
	}
	return u.roster.masters[0]
}

// shortSession is what a session must last for the next attempt to follow at
// once: a master that takes connections only to end them is left some peace.
const shortSession = time.Second

// Why a round ended without a master in use.
var (
	errShort    = errors.New("the connection ended as soon as it was made")
	errAccepted = errors.New("the key was accepted")
	errFull     = errors.New("the master has too many waiting keys")
)

// Keep keeps the connection for as long as ctx lasts. It returns an error when
// this minion is to end: masters that cannot be reached never are a reason.
func (u *Uplink) Keep(ctx context.Context) error {
	if u.roster.several() {
		u.log.Info("Got list of available master addresses: " + pythonList(u.roster.masters))
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

// pause returns when the pause is over, or nobody wants it any more; false when ctx has
// ended first.
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

// judge says what follows from a round without a master: a pause, or the end.
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
	case isRefusal(err), errors.Is(err, errFull):
		pause = u.pauses.refused()
		u.log.Error(fmt.Sprintf("the master does not take this minion now; waiting %s before the next attempt", pause), "err", err)
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

// givesUp says whether the name of the only master had no address as often as the
// configuration allows.
func (u *Uplink) givesUp() bool {
	most := u.all.Config.RetryDNSCount
	return most != nil && u.nameless > *most && len(u.all.list) == 1
}

// ends says whether a refusal by every master of this uplink is final. To a service
// none is: the right key may come back, and nobody is there to start it again.
func (u *Uplink) ends(err error) bool {
	return isRefusal(err) && !u.all.Service && !u.asksAgain(err)
}

// asksAgain says whether the configuration wants this refusal to be taken for one
// that may be over soon.
func (u *Uplink) asksAgain(err error) bool {
	return u.all.Config.AuthSafemode || u.all.Config.RejectedRetry && errors.Is(err, ErrRejected)
}

// tellBarred says each time what was seen, and what an operator can do.
func (u *Uplink) tellBarred(err error, pause time.Duration) {
	hint := salt.Hint(err)
	if errors.Is(err, ErrRejected) || errors.Is(err, ErrDenied) {
		u.log.Log(context.Background(), logging.LevelCritical, "The Salt Master has rejected this minion's public key!")
		hint = "delete the public key for this minion on the Salt Master, compare fingerprints, and accept it"
	}
	u.setWaiting("the next attempt at its master, after this: " + err.Error())
	u.log.Error("nothing is run for a master that is not trusted or refuses this minion; trying again",
		"pause", pause.Round(time.Millisecond), "err", err, "hint", hint)
}

// tellAgain is how often the log repeats that no master can be reached.
const tellAgain = time.Minute

// tellUnreachable logs a failed round: the first, then once a minute.
func (u *Uplink) tellUnreachable(err error, pause time.Duration) {
	level := slog.LevelDebug
	if u.rounds == 1 || time.Since(u.awayLogged) > tellAgain {
		level, u.awayLogged = slog.LevelWarn, time.Now()
	}
	text := "no master can be reached, trying again"
	if len(u.all.list) > 1 { // the others have their own words
		text = "a master cannot be reached, trying again"
	}
	u.log.Log(context.Background(), level, text, "err", err, "pause", pause.Round(time.Millisecond))
}

// tryAll tries the masters of one round. It returns nil when one of them was in
// use, or asks to be tried again at once; a refusal if all have refused; else what
// the last of those said that did not.
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
			failed = err // the next one may be better
		case isRefusal(err):
			refused = errors.Join(refused, err)
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

// tellRefused says loudly, and not all the time, that a master is refused or refuses.
func (u *Uplink) tellRefused(ctx context.Context, name string, err error) {
	if !u.refusals.First(name, time.Now()) {
		return
	}
	if errors.Is(err, ErrMasterKey) || errors.Is(err, ErrSignature) {
		u.log.Log(ctx, logging.LevelCritical, "The Salt Master server's public key did not authenticate!")
	}
	if u.roster.several() || len(u.all.list) > 1 { // or else these are the last words of the minion
		u.log.Error("master "+name+" is passed over", "err", err, "hint", salt.Hint(err))
	}
}

// tellChange tells that another master is tried than the last time.
func (u *Uplink) tellChange(name string) {
	if u.lastMaster != "" && u.lastMaster != name {
		u.log.Warn("Master ip address changed from " + u.lastMaster + " to " + name)
	}
	u.lastMaster = name
}

// open makes a session with a master that has accepted this minion. While the key
// waits to be accepted it waits too.
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
	o.Version, o.AutosignGrains = u.all.Version, u.autosignGrains(ctx)
	return Connect(ctx, o)
}

// autosignGrains are the facts that may have the key accepted.
func (u *Uplink) autosignGrains(ctx context.Context) map[string]string {
	names := u.all.Config.AutosignGrains
	if len(names) == 0 {
		return nil
	}
	facts, _ := u.all.Daemon.Facts(ctx) // incomplete facts are told by hello
	shown := map[string]string{}
	for _, name := range names {
		if v, ok := facts[name]; ok {
			shown[name] = fmt.Sprint(v)
		}
	}
	return shown
}

// awaitAcceptance returns errAccepted when the key was accepted: a new connection
// has the rights.
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

// serve lives with a session until it is lost, and with those that take its place
// when the minion goes back to the first master of its list.
func (u *Uplink) serve(ctx context.Context, s *Session) error {
	for {
		began := time.Now()
		next := u.live(ctx, s)
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

// lost tells of the end of a session that nobody wanted.
func (u *Uplink) lost(s *Session, lasted time.Duration) {
	u.log.Info("Connection to master " + s.Name + " lost")
	u.log.Debug("why the connection was lost", "master", s.Name, "err", s.NC.LastError(), "after", lasted.Round(time.Millisecond))
	u.announce("__master_disconnected", s.Name)
	u.setWaiting("the connection to the master at " + s.Name + ", which was lost")
	u.doubt(s, lasted)
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
func (u *Uplink) announce(tag, master string) {
	u.all.Announce(tag, map[string]any{"master": master})
}

// Session is the one in use, nil for none.
func (u *Uplink) Session() *Session { return u.session.Load() }

// Reconnects is how often a session was made beyond the first.
func (u *Uplink) Reconnects() uint64 { return max(u.made.Load(), 1) - 1 }

// Waiting says what the uplink waits for, while there is no session.
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

// Pillar is what the uplink's master gave last, an empty map for nothing: each master has
// pillar data of its own. It must not be changed.
func (u *Uplink) Pillar() map[string]any {
	if p := u.pillar.Load(); p != nil {
		return p.data
	}
	return map[string]any{}
}

// PillarErrors are the mistakes for which the uplink's master gave no newer pillar.
func (u *Uplink) PillarErrors() []string {
	if p := u.pillar.Load(); p != nil {
		return p.errors
	}
	return nil
}

// pillar is what a master gave last that was good, and the mistakes it has found since.
type pillar struct {
	data   map[string]any
	errors []string
}
