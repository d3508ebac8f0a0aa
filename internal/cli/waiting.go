package cli

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/logging"
)

// Patience is how long a command may be silent before it says what it waits for.
const Patience = time.Second

// Waiting prints "NAME: waiting for TEXT" once, if Talks is true, when after has passed before
// stop is called or ctx ends. text is called at that time, in another goroutine. Nothing is
// printed once stop has returned. stop must be called, and may be called more than once.
//
//	defer env.Waiting(ctx, cli.Patience, func() string { return "the master at " + addr })()
func (e *Env) Waiting(ctx context.Context, after time.Duration, text func() string) (stop func()) {
	if !e.Talks() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-timer.C:
			e.Waits(text())
		case <-ctx.Done():
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// Waits prints "NAME: waiting for TEXT" at once, if Talks is true.
func (e *Env) Waits(text string) {
	if e.Talks() {
		fmt.Fprintf(e.Stderr, "%s: waiting for %s\n", e.Name, logging.Escape(text))
	}
}
