package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// target is a destination as it is configured.
type target interface {
	// String returns its name for messages, without anything secret.
	String() string
	// open connects and creates what is missing. It logs only about this destination to log.
	open(ctx context.Context, log *slog.Logger) (destination, error)
	// check tests the destination and changes nothing.
	check(ctx context.Context) error
}

// destination is an open target. It is used by one goroutine.
type destination interface {
	// write returns after the destination has stored all events. It may be called again with events
	// that are already stored.
	write(ctx context.Context, events []Event) error
	close()
}

// single is a destination that may send each event by itself. It then gets them one by one, so that
// none is sent again because a later one has failed.
type single interface{ single() bool }

// rotator is a destination that can start a new file.
type rotator interface{ rotate() }

// errRefused is wrapped by an error of write about the events, not about the destination: a retry
// will not help.
var errRefused = errors.New("the destination refuses it")

func refused(err error) error { return fmt.Errorf("%w: %w", errRefused, err) }
