package journal

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/nats-io/nats.go/jetstream"
)

// maxInBlock is how many messages one block of the server's store has at most, of 8 MiB. Those
// at the head of a stream that leave whole blocks with them are not written down.
const maxInBlock = 8 << 20 / (2 * recordBytes)

// purge removes about so many messages from a stream, once the disk has room for what that
// writes: without it the server would never answer again.
func purge(ctx context.Context, store Store, s jetstream.Stream, messages uint64, which ...jetstream.StreamPurgeOpt) error {
	if err := store.Room(s.CachedInfo().Config.Name, messages); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	return s.Purge(ctx, which...)
}

// purgeHead removes all messages from first to before seq. On a full disk they go one by one, as
// many as there is room for: one record is written whole or not at all, and whole blocks make
// room.
func purgeHead(ctx context.Context, store Store, s jetstream.Stream, first, seq uint64) error {
	if first >= seq {
		return nil
	}
	err := purge(ctx, store, s, min(seq-first, maxInBlock), jetstream.WithPurgeSequence(seq))
	if !errors.Is(err, syscall.ENOSPC) || store.Err() != nil {
		return err
	}
	for ; first < seq; first++ {
		if err := s.DeleteMsg(ctx, first); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return fmt.Errorf("%w: %w", ErrStore, err)
		}
	}
	return nil
}
