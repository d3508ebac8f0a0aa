package journal

import (
	"context"
	"errors"
	"syscall"
	"testing"
)

// broken is a store that cannot be written.
type broken struct {
	Store
	failed chan struct{}
}

func (b *broken) Failed() <-chan struct{} { return b.failed }

func (b *broken) Err() error {
	select {
	case <-b.failed:
		return syscall.EROFS
	default:
		return nil
	}
}

// A write to a table returns when the store cannot be written, instead of waiting for the
// server's answer, which never comes: otherwise the daemon could not stop.
func TestATableOfAStoreThatCannotBeWritten(t *testing.T) {
	store := &broken{failed: make(chan struct{})}
	table := &Table{store: store}
	err := table.write(t.Context(), func(ctx context.Context) error {
		close(store.failed)
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, ErrStore) || !errors.Is(err, syscall.EROFS) {
		t.Errorf("while it fails: %v", err)
	}
	err = table.write(t.Context(), func(context.Context) error {
		t.Error("it is tried")
		return nil
	})
	if !errors.Is(err, ErrStore) || !errors.Is(err, syscall.EROFS) {
		t.Errorf("once it has failed: %v", err)
	}
}
