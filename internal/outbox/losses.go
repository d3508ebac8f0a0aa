package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// losses counts what the outbox had to drop. It is stored in a file.
type losses struct {
	path       string
	Total      uint64 `json:"total"`  // events and returns, in all
	Unreported uint64 `json:"untold"` // of those, not reported to the master yet
	// Damage lists unreadable messages that the master was not told about yet.
	Damage []Damage `json:"damage,omitempty"`
}

// Damage is a run of unreadable messages. Their content is unknown; each counts as one loss.
type Damage struct {
	From   uint64    `json:"from"` // sequences in the outbox
	To     uint64    `json:"to"`
	After  time.Time `json:"after,omitzero"` // when the messages around them were stored
	Before time.Time `json:"before,omitzero"`
}

// maxDamage is how many runs are reported separately; further ones extend the last run, so that
// nothing is left out.
const maxDamage = 64

// damaged counts a run of messages. One that directly follows another run extends it.
func (l *losses) damaged(d Damage) {
	n := d.To - d.From + 1
	l.Total += n
	l.Unreported += n
	if last := len(l.Damage) - 1; last >= 0 && (d.From == l.Damage[last].To+1 || last+1 >= maxDamage) {
		d.From, d.After = l.Damage[last].From, l.Damage[last].After
		l.Damage = l.Damage[:last:last] // the old slice may be on its way to the master
	}
	l.Damage = append(l.Damage, d)
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

// Lost returns how many events and returns the outbox had to drop, in all.
func (b *Box) Lost() uint64 { return b.losses().Total }

func (b *Box) losses() losses {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost
}

// lostTag is the event about what an outbox has lost.
const lostTag = "/outbox/lost"

// tellLosses queues an event for the master, after the waiting messages, about how much the
// outbox has dropped since the previous one.
func (b *Box) tellLosses(ctx context.Context) error {
	l := b.losses()
	if l.Unreported == 0 {
		return nil
	}
	data, err := json.Marshal(struct {
		Lost    uint64   `json:"lost"`
		Total   uint64   `json:"total"`
		Damaged []Damage `json:"damaged,omitempty"`
	}{l.Unreported, l.Total, l.Damage})
	if err != nil {
		return err
	}
	f := protocol.Fire{Form: protocol.FormSingle, Events: []event.Item{{Tag: b.own + lostTag, Data: data}}}
	if _, err := b.put(ctx, Outgoing{Op: protocol.OpFire, Body: f, Events: 1, generation: b.generation()}, false); err != nil {
		return err
	}
	b.change(func(now *losses) {
		now.Unreported -= l.Unreported
		now.Damage = slices.DeleteFunc(slices.Clone(now.Damage), func(d Damage) bool { return slices.Contains(l.Damage, d) })
	})
	return nil
}

// slack is the part of the limit that is freed at least when the outbox is full, so that not
// every further message needs a removal.
const slack = 64

// makeSpace drops the oldest messages until size more bytes fit. It waits for messages that are
// just being delivered, but no longer than limit: a master may take minutes for them, and when they are
// delivered nothing has to be dropped.
func (b *Box) makeSpace(ctx context.Context, limit time.Duration, size int64) error {
	if size > b.limit {
		return rpc.Errorf(rpc.Usage, "%d bytes are more than the outbox may hold: %d", size, b.limit).
			WithHint("outbox_max_bytes in the minion's configuration is the limit")
	}
	if b.over(size) <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if !b.head.lockWithin(ctx) {
		return rpc.Errorf(rpc.Unavailable, "the outbox is full, and its oldest messages are on their way to the master")
	}
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

// over returns by how many bytes the outbox would exceed its limit with size more.
func (b *Box) over(size int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.span.Bytes + size - b.limit
}

// dropOld drops messages older than outbox_max_age; it checks every lookEvery. The caller holds
// head.
func (b *Box) dropOld(ctx context.Context) error {
	now := time.Now()
	if b.age <= 0 || now.Sub(b.looked) < lookEvery || b.Waiting() == 0 {
		return nil
	}
	b.looked = now
	if now.Sub(b.ran.kept) >= keepRuntime {
		b.keepRuntime()
	}
	return b.drop(ctx, "they are older than outbox_max_age", func(m queued) bool { return b.ran.age(m, m.entry.Seq > b.begun) > b.age })
}

// keepRuntime writes the runtime. The caller holds head.
func (b *Box) keepRuntime() {
	if err := b.ran.keep(); err != nil {
		b.log.Warn("the age of messages in the outbox is not stored: they may stay longer", "err", err)
	}
}

// dropUnreadable drops messages at the head that cannot be read. The caller holds head.
func (b *Box) dropUnreadable(ctx context.Context, run []queued) {
	d := Damage{From: run[0].entry.Seq, To: run[len(run)-1].entry.Seq, After: run[0].entry.Stored, Before: run[len(run)-1].entry.Stored}
	b.change(func(l *losses) { l.damaged(d) }) // first: after a kill it may be reported twice, but never not at all
	b.remove(run)
	b.clearNow(ctx)
	b.log.Error("messages in the outbox cannot be read and are lost", "from", d.From, "to", d.To, "err", run[0].unreadable)
}

// drop drops messages from the head while gone is true for them, and counts them. The caller
// holds head.
func (b *Box) drop(ctx context.Context, why string, gone func(queued) bool) error {
	lost := uint64(0)
	defer func() {
		if lost > 0 {
			b.clearNow(ctx)
			b.change(func(l *losses) { l.Total += lost; l.Unreported += lost })
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
