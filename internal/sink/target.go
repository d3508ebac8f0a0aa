package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// target is a destination as it is configured.
type target interface {
	// String names it for people, without anything secret.
	String() string
	// open connects, and makes what is missing there. What it logs through log is
	// about the destination only.
	open(ctx context.Context, log *slog.Logger) (destination, error)
	// check tries it and changes nothing.
	check(ctx context.Context) error
}

// destination is a target that is open. It is used by one goroutine.
type destination interface {
	// write returns when the destination has all events for good. It may be called
	// with events that it has already.
	write(ctx context.Context, events []Event) error
	close()
}

// rotator is a destination that can begin anew.
type rotator interface{ rotate() }

// errRefused is wrapped by an error of write that is about the events and not
// about the destination: trying again will not help.
var errRefused = errors.New("the destination refuses it")

func refused(err error) error { return fmt.Errorf("%w: %w", errRefused, err) }
