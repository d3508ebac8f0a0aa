package minion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	wire "github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// losses counts what the outbox had to drop. It lives in a file.
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
func (o *outbox) change(f func(l *losses)) {
	o.mu.Lock()
	f(&o.lost)
	l := o.lost
	o.mu.Unlock()
	b, err := json.Marshal(l)
	if err == nil {
		err = atomicfile.Write(l.path, append(b, '\n'), 0o600)
	}
	if err != nil {
		o.log.Error("the count of what the outbox has lost is not stored", "err", err)
	}
}

func (o *outbox) losses() losses {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost
}

// lostTag is the event by which the master is told what an outbox has lost.
const lostTag = "/outbox/lost"

// tellLosses lets the master know, behind what waits now, how much the outbox has
// dropped since it was told last.
func (o *outbox) tellLosses(ctx context.Context) error {
	l := o.losses()
	if l.Untold == 0 {
		return nil
	}
	data := json.RawMessage(fmt.Sprintf(`{"lost":%d,"total":%d}`, l.Untold, l.Total))
	f := protocol.Fire{Form: protocol.FormSingle, Events: []protocol.FireEvent{{Tag: o.own + lostTag, Data: data}}}
	if _, err := o.put(ctx, outgoing{op: protocol.OpFire, body: f, events: 1}, false); err != nil {
		return err
	}
	o.change(func(now *losses) { now.Untold -= l.Untold })
	return nil
}

// slack is the part of the limit that is freed at least when the outbox is full,
// so that not every letter that comes then costs a removal.
const slack = 64

// makeRoom drops the oldest letters until size bytes more fit. What is just being
// delivered is waited for.
func (o *outbox) makeRoom(ctx context.Context, size int64) error {
	if size > o.limit {
		return rpc.Errorf(rpc.Usage, "%d bytes are more than the outbox may hold: %d", size, o.limit).
			WithHint("outbox_max_bytes in the minion's configuration is the limit")
	}
	if o.over(size) <= 0 {
		return nil
	}
	o.head.Lock()
	defer o.head.Unlock()
	need := o.over(size)
	if need <= 0 {
		return nil
	}
	need = max(need, min(o.limit/slack, o.limit-size))
	return o.drop(ctx, "the outbox is full", func(l waitingLetter) bool {
		enough := need <= 0
		need -= l.takes()
		return !enough
	})
}

// over is by how many bytes the outbox would exceed its limit with size more.
func (o *outbox) over(size int64) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.span.Bytes + size - o.limit
}

// dropOld drops what is older than outbox_max_age, looking now and then. Its caller
// holds the head.
func (o *outbox) dropOld(ctx context.Context) error {
	now := time.Now()
	if o.age <= 0 || now.Sub(o.looked) < lookEvery || o.waiting() == 0 {
		return nil
	}
	o.looked = now
	return o.drop(ctx, "they are older than outbox_max_age", func(l waitingLetter) bool { return now.Sub(l.entry.Stored) > o.age })
}

// drop takes letters from the head as long as gone says so, and counts them. Its
// caller holds the head.
func (o *outbox) drop(ctx context.Context, why string, gone func(waitingLetter) bool) error {
	lost := uint64(0)
	defer func() {
		if lost > 0 {
			o.clear(ctx)
			o.change(func(l *losses) { l.Total += lost; l.Untold += lost })
			o.log.Warn("events and returns in the outbox are lost: "+why, "count", lost, "total", o.losses().Total)
		}
	}()
	for {
		batch, err := o.batch(ctx)
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
		o.leave(batch[:n])
		for _, l := range batch[:n] {
			lost += uint64(max(l.Events, 1))
			o.tell(l.letter, wire.Delivery{Refused: rpc.Errorf(rpc.Unavailable, "it was dropped: %s", why)})
		}
		if n < len(batch) {
			return nil
		}
	}
}
