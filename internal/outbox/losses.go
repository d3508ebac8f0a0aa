package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// losses count what the outbox had to drop. It lives in a file.
type losses struct {
	path   string
	Total  uint64 `json:"total"`  // events and returns, ever
	Untold uint64 `json:"untold"` // of those, what the master was not told yet
}

func readLosses(path string) (losses, error) {
	l := losses{path: path}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &l)
	}
	if err != nil {
		return l, fmt.Errorf("read what the outbox has lost: %w", err)
	}
	return l, nil
}

// change stores the counters after f.
func (b *Box) change(f func(l *losses)) {
	b.mu.Lock()
	f(&b.lost)
	l := b.lost
	b.mu.Unlock()
	text, err := json.Marshal(l)
	if err == nil {
		err = atomicfile.Write(l.path, append(text, '\n'), 0o600)
	}
	if err != nil {
		b.log.Error("the count of what the outbox has lost is not stored", "err", err)
	}
}

// Lost is how many events and returns the outbox had to drop, ever.
func (b *Box) Lost() uint64 { return b.losses().Total }

func (b *Box) losses() losses {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost
}

// lostTag is the event by which the master is told what an outbox has lost.
const lostTag = "/outbox/lost"

// tellLosses lets the master know, behind what waits now, how much the outbox has
// dropped since it was told last.
func (b *Box) tellLosses(ctx context.Context) error {
	l := b.losses()
	if l.Untold == 0 {
		return nil
	}
	data := json.RawMessage(fmt.Sprintf(`{"lost":%d,"total":%d}`, l.Untold, l.Total))
	f := protocol.Fire{Form: protocol.FormSingle, Events: []protocol.FireEvent{{Tag: b.own + lostTag, Data: data}}}
	if _, err := b.put(ctx, Outgoing{Op: protocol.OpFire, Body: f, Events: 1}, false); err != nil {
		return err
	}
	b.change(func(now *losses) { now.Untold -= l.Untold })
	return nil
}

// slack is the part of the limit that is freed at least when the outbox is full,
// so that not every message that comes then costs a removal.
const slack = 64

// makeSpace drops the oldest messages until size bytes more fit. What is just being
// delivered is waited for.
func (b *Box) makeSpace(ctx context.Context, size int64) error {
	if size > b.limit {
		return rpc.Errorf(rpc.Usage, "%d bytes are more than the outbox may hold: %d", size, b.limit).
			WithHint("outbox_max_bytes in the minion's configuration is the limit")
	}
	if b.over(size) <= 0 {
		return nil
	}
	b.head.Lock()
	defer b.head.Unlock()
	need := b.over(size)
	if need <= 0 {
		return nil
	}
	need = max(need, min(b.limit/slack, b.limit-size))
	return b.drop(ctx, "the outbox is full", func(m queued) bool {
		enough := need <= 0
		need -= m.takes()
		return !enough
	})
}

// over is by how many bytes the outbox would exceed its limit with size more.
func (b *Box) over(size int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.span.Bytes + size - b.limit
}

// dropOld drops what is older than outbox_max_age, looking now and then. Its caller
// holds the head.
func (b *Box) dropOld(ctx context.Context) error {
	now := time.Now()
	if b.age <= 0 || now.Sub(b.looked) < lookEvery || b.Waiting() == 0 {
		return nil
	}
	b.looked = now
	return b.drop(ctx, "they are older than outbox_max_age", func(m queued) bool { return now.Sub(m.entry.Stored) > b.age })
}

// drop takes messages from the head as long as gone says so, and counts them. Its
// caller holds the head.
func (b *Box) drop(ctx context.Context, why string, gone func(queued) bool) error {
	lost := uint64(0)
	defer func() {
		if lost > 0 {
			b.clearNow(ctx)
			b.change(func(l *losses) { l.Total += lost; l.Untold += lost })
			b.log.Warn("events and returns in the outbox are lost: "+why, "count", lost, "total", b.losses().Total)
		}
	}()
	for {
		batch, err := b.batch(ctx)
		if err != nil {
			return err
		}
		n := 0
		for n < len(batch) && gone(batch[n]) {
			n++
		}
		if n == 0 {
			return nil
		}
		b.remove(batch[:n])
		for _, m := range batch[:n] {
			lost += uint64(max(m.Events, 1))
			b.tell(m.kept, Delivery{Refused: rpc.Errorf(rpc.Unavailable, "it was dropped: %s", why)})
		}
		if n < len(batch) {
			return nil
		}
	}
}
