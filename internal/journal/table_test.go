package journal

import (
	"context"
	"errors"
	"syscall"
	"testing"
)

// broken is a store that turns out not to be writable.
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

// Who writes a table does not wait for an answer that the server does not give, since the
// store cannot be written: a daemon could not stop as long.
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
