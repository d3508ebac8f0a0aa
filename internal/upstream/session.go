package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Session is a connection to a master that has accepted this minion.
type Session struct {
	*Connection
	Up    *Uplink
	Name  string        // of the master, as the configuration has it
	Asked []salt.JID    // unfinished jobs that the master asks about
	Clock job.Steady    // the master's
	first bool          // made by failing back to the first master of the list
	begun chan struct{} // closed when it is the one in use
	moved bool          // made to replace one with another member of the cluster
	leave chan struct{} // closed when the master asks the minion to use another member
	asked sync.Once     // closes it
	early bool          // of protocol.Welcome

	naming  sync.Mutex // held while the master's list of members is learned
	named   bool       // the master has named them anew since the session was made
	learned bool       // something was learned from the master
}

// TakesEarly implements outbox.Master.
func (s *Session) TakesEarly() bool { return s.early }

// Gone is closed when the connection has ended.
func (s *Session) Gone() <-chan struct{} { return s.Closed }

// Begun is closed when the session is the one in use.
func (s *Session) Begun() <-chan struct{} { return s.begun }

// greetMaster makes a session of a connection: it tells the master that the minion accepts
// jobs. After an error the connection is closed.
func (u *Uplink) greetMaster(ctx context.Context, l *Connection, name string) (*Session, error) {
	s := &Session{Connection: l, Up: u, Name: name, begun: make(chan struct{}), leave: make(chan struct{})}
	if err := s.prepare(ctx); err != nil {
		l.Close()
		return nil, err
	}
	return s, nil
}

// prepare subscribes to jobs before the master is told, so that none is missed. A job that
// arrives at once waits until the session can be used: before that, the master's time is not
// known, and the daemon does not know the session.
func (s *Session) prepare(ctx context.Context) error {
	all := s.Up.all
	asm := rpc.Assembler{Framed: s.Framed()}
	sub, err := s.NC.Subscribe(bus.JobSubject(all.Config.ID), func(msg *nats.Msg) {
		if body, whole := s.piece(&asm, msg); whole && s.wait() {
			all.Daemon.Job(s, body)
		}
	})
	if err != nil {
		return err
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	if all.hearsMembers() {
		if _, err := s.NC.Subscribe(bus.ControlSubject(s.Inbox()), func(msg *nats.Msg) { s.said(msg.Data) }); err != nil {
			return err
		}
	}
	if err := s.hello(ctx); err != nil {
		return err
	}
	if err := s.fetchPillar(ctx); err != nil {
		all.Log.Error("pillar not loaded, the old one stays", "err", err)
	}
	return nil
}

// maxUnreadable is how many lines a minute the log has about unreadable jobs: through NATS servers anything
// may come, and as often as others like.
const maxUnreadable = 10

// piece takes a message with a job or a piece of one. whole means that body is a job.
func (s *Session) piece(asm *rpc.Assembler, msg *nats.Msg) (body []byte, whole bool) {
	body, done, err := asm.Add(msg)
	if err != nil {
		s.Up.unreadable.Log(s.Up.all.Log, slog.LevelError, "", maxUnreadable, "unreadable job", "err", err)
		return nil, false
	}
	return body, done
}

// wait returns true when the session is in use, false if it never will be.
func (s *Session) wait() bool {
	select {
	case <-s.begun:
		return true
	case <-s.Closed:
		return false
	}
}

// live uses a session until it ends. It returns the session that replaces it, nil if it was
// lost or ctx has ended.
func (u *Uplink) live(ctx context.Context, s *Session) *Session {
	u.tune(s)
	u.session.Store(s)
	u.made.Add(1)
	close(s.begun)
	u.setWaiting("")
	u.log.Info("Authentication with master successful!")
	u.log.Info("Minion is ready to receive requests!")
	u.log.Debug("the master in use", "master", s.Name, "address", s.NC.ConnectedAddr(), "fingerprint", s.Master.SHA256())
	ctx, stop := context.WithCancel(ctx)
	back := make(chan *Session)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { u.watchFirst(ctx, s, back) })
	wg.Go(func() { u.watchHome(ctx, s, back) })
	wg.Go(func() { u.watchLeave(ctx, s, back) })
	wg.Go(func() { u.ping(ctx, s) })
	wg.Go(func() { u.all.Daemon.Attend(ctx, s) })
	select {
	case <-ctx.Done():
	case next := <-back:
		if next.moved {
			u.log.Info("moving to another member of the cluster", "master", next.Name, "from", s.Name)
			return next
		}
		u.announce("failback", next.Name)
		u.log.Info("failing back to "+next.Name, "from", s.Name)
		return next
	case <-s.Closed:
	}
	return nil
}

// tune logs and announces the master that is now in use.
func (u *Uplink) tune(s *Session) {
	u.tellChange(s.Name)
	u.announce("connected", s.Name)
}

// hello tells the master that the minion accepts jobs, and gets its time.
func (s *Session) hello(ctx context.Context) error {
	all := s.Up.all
	facts, err := all.Daemon.Facts(ctx)
	if err != nil {
		all.Log.Warn("facts are incomplete", "err", err)
	}
	ctx, cancel := context.WithTimeout(ctx, all.Config.AuthTimeout)
	defer cancel()
	var w protocol.Welcome
	asked := time.Now()
	if err := s.Ask(ctx, protocol.OpHello, protocol.Hello{Grains: value.Value{V: facts}, Version: all.Version, Moves: all.hearsMembers(), Process: all.process}, &w); err != nil {
		return fmt.Errorf("tell the master at %s that this minion is ready: %w", s.Name, err)
	}
	s.welcomed(w.Cluster)
	s.Asked, s.early = w.Jobs, w.Early
	s.Clock = job.NewSteady(w.Time.Add(time.Since(asked) / 2))
	if offset := time.Until(w.Time); offset.Abs() > time.Minute {
		all.Log.Warn("the clocks of master and minion differ; jobs are judged by the master's", "offset", offset.Round(time.Second))
	}
	return nil
}

// answerTime limits how long a master may take for one request.
const answerTime = 10 * time.Second

// fetchPillar asks the master for this minion's pillar. After an error the old pillar stays,
// and the master's errors are stored beside it.
func (s *Session) fetchPillar(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var p protocol.Pillar
	if err := s.Ask(ctx, protocol.OpPillar, nil, &p); err != nil {
		return fmt.Errorf("ask the master at %s for the pillar: %w", s.Name, err)
	}
	if len(p.Errors) > 0 {
		s.Up.pillar.Store(&pillar{data: s.Up.Pillar(), errors: p.Errors})
		return errors.New(strings.Join(p.Errors, "\n"))
	}
	data, ok := p.Data.V.(map[string]any)
	if !ok {
		return errors.New("the pillar that the master sent is not a map")
	}
	s.Up.pillar.Store(&pillar{data: data})
	return nil
}
