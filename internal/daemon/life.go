package daemon

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"sync"
	"time"
)

// deafStop is how long a daemon that does not serve may take to stop.
const deafStop = 20 * time.Second

// Life runs a daemon until it should end or no longer serves.
type Life struct {
	Name    string // master or minion
	Self    Self
	Every   time.Duration    // between two checks of Self; 0 is the default
	Stop    time.Duration    // time to stop if it does not serve; 0 is the default
	Failed  <-chan error     // of its bus
	Refused <-chan error     // by others, so that it must end; nil for never
	Hangups <-chan os.Signal // see Hangups
	Hangup  func()           // is called for each SIGHUP, one after the other; it ends with work
	Log     *slog.Logger
}

// Self sends the daemon a request from itself.
type Self interface {
	Check(context.Context) error
	Close()
}

// Live notifies the service manager that the daemon is ready. It returns nil when ctx has ended,
// otherwise the reason why the daemon must end. The goroutines of its checks and of Hangup end with work and
// belong to group. The caller calls stopped when the daemon has stopped: if the daemon did not
// serve and hangs, it is killed.
func (l Life) Live(ctx, work context.Context, group *sync.WaitGroup) (stopped func(), err error) {
	if err := Ready(); err != nil {
		l.Log.Warn("cannot notify systemd", "err", err)
	}
	deaf := l.checkItself(work, group)
	hangups, done := l.Hangups, make(chan struct{}, 1)
	for {
		select {
		case <-ctx.Done():
			_ = Notify("STOPPING=1")
			return func() {}, nil
		case err := <-l.Refused:
			return func() {}, err
		case err := <-l.Failed:
			return EndWithin(cmp.Or(l.Stop, deafStop)), err
		case err := <-deaf:
			l.Log.Error("the "+l.Name+" runs and does not serve: it ends, so that it is started again", "err", err)
			return EndWithin(cmp.Or(l.Stop, deafStop)), err
		case <-hangups: // what it does may take long, or hang: the daemon can be stopped meanwhile
			hangups = nil
			group.Go(func() { l.Hangup(); done <- struct{}{} })
		case <-done:
			hangups = l.Hangups
		}
	}
}

// checkItself checks whether the daemon serves, and sends an error if it does not.
func (l Life) checkItself(ctx context.Context, group *sync.WaitGroup) <-chan error {
	deaf := make(chan error, 1)
	group.Go(func() {
		defer l.Self.Close()
		if err := (SelfCheck{Check: l.Self.Check, Every: l.Every, Log: l.Log}).Run(ctx); err != nil {
			deaf <- err
		}
	})
	return deaf
}
