package minion

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/link"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// uplink keeps a connection to one master at a time: of a list, one after the
// other for failover; or, where the minion is connected to all masters of its
// list, always the same. It has what belongs to that: an outbox and a pillar.
type uplink struct {
	m       *Minion
	log     *slog.Logger
	roster  *roster
	outbox  *outbox.Box
	session atomic.Pointer[session] // in use, nil for none
	pillar  atomic.Pointer[map[string]any]
	waiting atomic.Pointer[string] // what for, when there is none
	linked  chan struct{}          // signals that a session was made
	nudge   chan struct{}          // ends the pause before the next attempt

	// Only the loop that links knows these.
	pauses     pauses
	rounds     int       // without a master, in a row
	nameless   int       // of those in which the name of the only master had no address
	lastMaster string    // the one that was in use last, or is tried in its place
	toldAway   time.Time // when the log last said that no master can be reached
	started    bool      // the start was announced
	told       logging.Throttle
	doubts     int // how often the first master was lost soon after the minion came back to it
}

func newUplink(m *Minion, r *roster) *uplink {
	return &uplink{m: m, log: m.log, roster: r, pauses: pauses{cfg: m.cfg}, linked: make(chan struct{}, 1), nudge: make(chan struct{})}
}

// name is what the uplink is called in an answer: the master in use, or the first
// that it would try.
func (u *uplink) name() string {
	if s := u.session.Load(); s != nil {
		return s.name
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

// keep keeps the connection for as long as ctx lasts. It returns an error when
// this minion is to end: masters that can not be reached never are a reason.
func (u *uplink) keep(ctx context.Context) error {
	if u.roster.several() {
		u.log.Info("Got list of available master addresses: " + pythonList(u.roster.masters))
	}
	if most := u.m.cfg.RandomStartupDelay; most > 0 && !sleep(ctx, rand.N(most)) {
		return nil
	}
	for ctx.Err() == nil {
		err := u.tryAll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			u.m.verdicts.clear(u)
			u.pauses.reset()
			u.rounds, u.nameless = 0, 0
			continue
		}
		pause, err := u.judge(err)
		if err != nil {
			return err
		}
		if !u.rest(ctx, pause) {
			return nil
		}
	}
	return nil
}

// rest returns when the pause is over, or nobody wants it any more; false when ctx has
// ended first.
func (u *uplink) rest(ctx context.Context, pause time.Duration) bool {
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
func (u *uplink) judge(err error) (time.Duration, error) {
	if u.rounds++; u.rounds == u.m.cfg.MasterTries {
		u.log.Error("no master was found in as many rounds as master_tries says; the minion goes on trying", "rounds", u.rounds)
	}
	if u.ends(err) {
		if end := u.m.verdicts.refused(u, err); end != nil {
			return 0, end
		}
		return u.pauses.refused(), nil
	}
	u.m.verdicts.clear(u)
	var pause time.Duration
	switch {
	case refusal(err) && !u.asksAgain(err):
		pause = u.pauses.barred()
		u.tellBarred(err, pause)
		return pause, nil
	case refusal(err), errors.Is(err, errFull):
		pause = u.pauses.refused()
		u.log.Error(fmt.Sprintf("the master does not take this minion now; waiting %s before the next attempt", pause), "err", err)
		return pause, nil
	case errors.Is(err, link.ErrNoAddress) && !u.roster.several() && u.m.cfg.RetryDNS > 0:
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
func (u *uplink) givesUp() bool {
	most := u.m.cfg.RetryDNSCount
	return most != nil && u.nameless > *most && len(u.m.uplinks) == 1
}

// ends says whether a refusal by every master of this uplink is final. To a service
// none is: the right key may come back, and nobody is there to start it again.
func (u *uplink) ends(err error) bool {
	return refusal(err) && !u.m.service && !u.asksAgain(err)
}

// asksAgain says whether the configuration wants this refusal to be taken for one
// that may be over soon.
func (u *uplink) asksAgain(err error) bool {
	return u.m.cfg.AuthSafemode || u.m.cfg.RejectedRetry && errors.Is(err, link.ErrRejected)
}

// tellBarred says each time what was seen, and what an operator can do.
func (u *uplink) tellBarred(err error, pause time.Duration) {
	hint := salt.Hint(err)
	if errors.Is(err, link.ErrRejected) || errors.Is(err, link.ErrDenied) {
		u.log.Log(u.m.ctx, logging.LevelCritical, "The Salt Master has rejected this minion's public key!")
		hint = "delete the public key for this minion on the Salt Master, compare fingerprints, and accept it"
	}
	u.setWaiting("the next attempt at its master, after this: " + err.Error())
	u.log.Error("nothing is run for a master that is not trusted or refuses this minion; trying again",
		"pause", pause.Round(time.Millisecond), "err", err, "hint", hint)
}

// tellAgain is how often the log repeats that no master can be reached.
const tellAgain = time.Minute

// tellUnreachable logs a failed round: the first, then once a minute.
func (u *uplink) tellUnreachable(err error, pause time.Duration) {
	level := slog.LevelDebug
	if u.rounds == 1 || time.Since(u.toldAway) > tellAgain {
		level, u.toldAway = slog.LevelWarn, time.Now()
	}
	text := "no master can be reached, trying again"
	if len(u.m.uplinks) > 1 { // the others have their own words
		text = "a master can not be reached, trying again"
	}
	u.log.Log(u.m.ctx, level, text, "err", err, "pause", pause.Round(time.Millisecond))
}

// tryAll tries the masters of one round. It returns nil when one of them was in
// use, or asks to be tried again at once; a refusal if all have refused; else what
// the last of those said that did not.
func (u *uplink) tryAll(ctx context.Context) error {
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
		case refusal(err):
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
func (u *uplink) tellRefused(ctx context.Context, name string, err error) {
	if !u.told.First(name, time.Now()) {
		return
	}
	if errors.Is(err, link.ErrMasterKey) || errors.Is(err, link.ErrSignature) {
		u.log.Log(ctx, logging.LevelCritical, "The Salt Master server's public key did not authenticate!")
	}
	if u.roster.several() || len(u.m.uplinks) > 1 { // or else these are the last words of the minion
		u.log.Error("master "+name+" is passed over", "err", err, "hint", salt.Hint(err))
	}
}

// tellChange tells that another master is tried than the last time.
func (u *uplink) tellChange(name string) {
	if u.lastMaster != "" && u.lastMaster != name {
		u.log.Warn("Master ip address changed from " + u.lastMaster + " to " + name)
	}
	u.lastMaster = name
}

func refusal(err error) bool {
	for _, refused := range []error{link.ErrMasterKey, link.ErrSignature, link.ErrRejected, link.ErrDenied} {
		if errors.Is(err, refused) {
			return true
		}
	}
	return false
}

// open makes a session with a master that has accepted this minion. While the key
// waits to be accepted it waits too.
func (u *uplink) open(ctx context.Context, name string) (*session, error) {
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

// dial makes one connection.
func (u *uplink) dial(ctx context.Context, name string) (*link.Link, error) {
	m := u.m
	u.log.Debug("Attempting to authenticate with the Salt Master at " + name)
	o := link.FromConfig(m.cfg, m.key, name, u.log)
	u.log.Debug("Loaded minion key: " + m.keyFile())
	o.Version, o.AutosignGrains = m.version, m.autosignGrains(ctx)
	return link.Connect(ctx, o)
}

// awaitAcceptance returns errAccepted when the key was accepted: a new connection
// has the rights.
func (u *uplink) awaitAcceptance(ctx context.Context, l *link.Link, name string) error {
	u.setWaiting("the master at " + name + " to accept this minion's key")
	switch l.State() {
	case protocol.KeyPending:
		u.log.Error("The Salt Master has cached the public key for this node, this salt minion will wait until it is accepted",
			"master", name, "fingerprint", u.m.key.Public().SHA256())
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
func (u *uplink) serve(ctx context.Context, s *session) error {
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
func (u *uplink) lost(s *session, lasted time.Duration) {
	u.log.Info("Connection to master " + s.name + " lost")
	u.log.Debug("why the connection was lost", "master", s.name, "err", s.NC.LastError(), "after", lasted.Round(time.Millisecond))
	u.m.localEvent("__master_disconnected", s.name)
	u.setWaiting("the connection to the master at " + s.name + ", which was lost")
	u.doubt(s, lasted)
	if u.roster.several() {
		u.log.Info("Trying to tune in to next master from master-list")
		u.log.Info("Removing possibly failed master " + s.name + " from list of masters")
		u.roster.failed(s.name)
	}
}

func (u *uplink) setWaiting(text string) { u.waiting.Store(&text) }

// pythonList writes names as Salt's log does.
func pythonList(names []string) string { return "['" + strings.Join(names, "', '") + "']" }

// verdicts remembers which uplinks were refused by all of their masters. The
// minion ends when every one was.
type verdicts struct {
	mu      sync.Mutex
	uplinks int
	errs    map[*uplink]error
}

// refused notes a refusal. It returns an error when no uplink is left.
func (v *verdicts) refused(u *uplink, err error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.uplinks == 1 {
		return err
	}
	if v.errs == nil {
		v.errs = map[*uplink]error{}
	}
	v.errs[u] = err
	if len(v.errs) < v.uplinks {
		return nil
	}
	var all error
	for _, err := range v.errs {
		all = errors.Join(all, err)
	}
	return all
}

// clear notes that an uplink is not refused, or not any more.
func (v *verdicts) clear(u *uplink) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.errs, u)
}
