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

// Life is how a daemon lives that serves: until it is to end, or does not serve any more.
type Life struct {
	Name    string // master or minion
	Self    Self
	Every   time.Duration    // between two checks of Self; 0 is the usual one
	Stop    time.Duration    // in which it has to stop when it does not serve; 0 is the usual one
	Failed  <-chan error     // of its bus
	Refused <-chan error     // by others, so that it is to end; nil for never
	Hangups <-chan os.Signal // see Hangups
	Hangup  func()           // is called for each
	Log     *slog.Logger
}

// Self is the way of a daemon to itself.
type Self interface {
	Check(context.Context) error
	Close()
}

// Live tells the service manager that the daemon is ready. It returns nil once ctx has
// ended, and else why the daemon is to end. The goroutine of its checks ends with work and is
// one of group. The daemon that has stopped calls stopped: one that did not serve is ended
// where it hangs meanwhile.
func (l Life) Live(ctx, work context.Context, group *sync.WaitGroup) (stopped func(), err error) {
	if err := Ready(); err != nil {
		l.Log.Warn("systemd was not told", "err", err)
	}
	deaf := l.checkItself(work, group)
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
		case <-l.Hangups:
			l.Hangup()
		}
	}
}

// checkItself finds out whether the daemon serves, and tells when it does not.
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
