package journal

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/nats-io/nats.go/jetstream"
)

// maxInBlock is how many messages one block (8 MiB) of the server's store has at most. If whole
// blocks at the head of a stream are removed, nothing is written for their messages.
const maxInBlock = 8 << 20 / (2 * recordBytes)

// purge removes about that many messages from a stream, once the disk has room for the record
// of the removal: without room the server would never answer again.
func purge(ctx context.Context, store Store, s jetstream.Stream, messages uint64, which ...jetstream.StreamPurgeOpt) error {
	if err := store.Room(s.CachedInfo().Config.Name, messages); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	return s.Purge(ctx, which...)
}

// purgeHead removes all messages from first to before seq. On a full disk it removes them one
// by one, as many as there is room for: one record is written whole or not at all, and removing
// whole blocks makes room.
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
