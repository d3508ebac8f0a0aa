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

// Waiting prints "NAME: waiting for TEXT" once, to whom Talks lets it, when after has passed without a
// call of stop and ctx has not ended. The text is asked for at that moment, from
// another goroutine. When stop returns, nothing more is printed; it may be called
// more than once, and must be called.
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
			fmt.Fprintf(e.Stderr, "%s: waiting for %s\n", e.Name, logging.Escape(text()))
		case <-ctx.Done():
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}
