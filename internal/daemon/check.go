package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/brinebus/brine/internal/posix"
)

// ErrDeaf is wrapped by the error of a daemon that runs and does not serve.
var ErrDeaf = errors.New("the daemon does not serve its own requests")

// SelfCheck finds out, again and again, whether the daemon serves. A daemon that runs and
// does not is worse than one that has ended, which is started again.
type SelfCheck struct {
	// Check makes a request of the daemon to itself. Its context bounds the wait.
	Check func(context.Context) error
	// Every is the pause between two checks; 0 is the usual one. A check may take
	// three times as long.
	Every time.Duration
	Log   *slog.Logger
}

const (
	usualCheck  = 5 * time.Second
	checkTime   = 3 // times the pause: a machine that is busy is no daemon that is deaf
	checkMisses = 3 // failures in a row that end the daemon
)

// Run checks until ctx ends, and then returns nil; or until three checks in a row have
// failed. Each success is told to systemd's watchdog, which ends, with WatchdogSec, a
// daemon in which not even this works any more.
func (s SelfCheck) Run(ctx context.Context) error {
	every := s.Every
	if every == 0 {
		every = usualCheck
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for misses := 0; ; {
		err := s.once(ctx, every*checkTime)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			misses = 0
			s.alive()
		} else {
			misses++
			s.Log.Error("the daemon does not serve its own request", "err", err, "failures", misses, "limit", checkMisses)
		}
		if misses == checkMisses {
			return fmt.Errorf("%w: %w", ErrDeaf, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (s SelfCheck) once(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.Check(ctx)
}

// alive tells the watchdog, where there is one.
func (s SelfCheck) alive() {
	if os.Getenv("WATCHDOG_USEC") == "" {
		return
	}
	if err := Notify("WATCHDOG=1"); err != nil {
		s.Log.Warn("systemd's watchdog was not told", "err", err)
	}
}

// EndWithin sees to it that a daemon that no longer serves ends, even where its inside
// hangs so that it cannot stop: after limit the process gets the signal that systemd's
// watchdog would send, with which it prints what it hangs on. The daemon that has
// stopped calls done.
func EndWithin(limit time.Duration) (done func()) {
	t := time.AfterFunc(limit, func() { _ = posix.Kill(os.Getpid(), syscall.SIGABRT) })
	return func() { t.Stop() }
}
