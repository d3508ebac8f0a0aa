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

// ErrDeaf is wrapped by the error of a daemon that runs but does not serve.
var ErrDeaf = errors.New("the daemon does not serve its own requests")

// SelfCheck checks periodically whether the daemon serves requests. A daemon that runs but does not
// serve is worse than one that has ended, which is restarted.
type SelfCheck struct {
	// Check sends a request from the daemon to itself. Its context limits the wait.
	Check func(context.Context) error
	// Every is the pause between two checks; 0 is the default. A check may take three times as
	// long.
	Every time.Duration
	Log   *slog.Logger
}

const (
	usualCheck  = 5 * time.Second
	checkTime   = 3 // times the pause: a busy machine must not look like a hanging daemon
	checkMisses = 3 // failures in a row that end the daemon
)

// Run checks until ctx ends, and then returns nil; or until three checks in a row have failed. Each
// success is reported to systemd's watchdog, which ends, with WatchdogSec, a daemon in which not
// even this works any more.
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

// alive notifies the watchdog, if there is one.
func (s SelfCheck) alive() {
	if os.Getenv("WATCHDOG_USEC") == "" {
		return
	}
	if err := Notify("WATCHDOG=1"); err != nil {
		s.Log.Warn("cannot notify systemd's watchdog", "err", err)
	}
}

// EndWithin makes sure that a daemon that no longer serves ends, even if it hangs and cannot stop:
// after limit the process gets the signal that systemd's watchdog would send, and prints its
// goroutines. A daemon that has stopped calls done.
func EndWithin(limit time.Duration) (done func()) {
	t := time.AfterFunc(limit, func() { _ = posix.Kill(os.Getpid(), syscall.SIGABRT) })
	return func() { t.Stop() }
}
