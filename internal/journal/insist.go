package journal

import (
	"context"
	"errors"
	"time"
)

// What the store is asked is answered within milliseconds. A store that is opened anew may leave
// what is asked in that moment without an answer, and on a machine with too much to do one may
// take many seconds: it is asked again after askTime, and waited for twice as long each time,
// so that an answer that takes long is not missed for ever. It is given up after askTimes, two
// minutes in all.
const (
	askTime  = 2 * time.Second
	askTimes = 6
)

// insist asks, again where no answer comes, until ctx ends; the store tells the log that none has.
// It is for what may be asked twice.
func insist(ctx context.Context, store Store, what string, ask func(context.Context) error) (err error) {
	begun, patience := time.Now(), askTime
	for range askTimes {
		once, cancel := context.WithTimeout(ctx, patience)
		err = ask(once)
		cancel()
		if ctx.Err() != nil && err != nil {
			return context.Cause(ctx)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		store.Late(what, time.Since(begun))
		patience *= 2
	}
	return err
}
