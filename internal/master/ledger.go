package master

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
)

// ledger remembers which letters of each minion's outbox are stored, so that a
// repetition is recognised however late it comes: the journal's own memory of
// names is bounded.
//
// It lives in memory, with a checkpoint in a table of the journal now and then.
// What was stored after the checkpoint is read from the names in the journal
// when the daemon starts, so a kill at any moment loses nothing of it.
type ledger struct {
	journal *journal.Journal
	table   *journal.Table
	mu      sync.Mutex
	boxes   map[salt.MinionID]*box
	written uint64       // the place of the latest checkpoint
	durable func() error // returns when what is stored is on the disk
}

// box is what the ledger knows of one minion. Its turn is held while letters of
// the minion are stored: a minion that was cut off may send them again before its
// first request has ended.
type box struct {
	ledger *ledger
	turn   sync.Mutex
	marks  []mark // the latest at the end; guarded, as what follows, by the ledger
	busy   bool
	start  uint64 // while busy: what is being stored comes behind this place
	dirty  bool
}

// mark says how far an epoch of a minion's outbox is stored: all letters before N,
// and of N the events up to Item.
type mark struct {
	Epoch string `json:"epoch"`
	N     uint64 `json:"n"`
	Item  int    `json:"item"`
}

// maxMarks is how many epochs of one minion are remembered, each a start of its
// daemon. Only letters that were stored and not confirmed come again, so it must
// be more than one request may hold.
const maxMarks = 64

// positionKey is the key of the checkpoint's place; no minion id begins with a dot.
const positionKey = ".position"

func openLedger(ctx context.Context, j *journal.Journal, durable func() error) (*ledger, error) {
	table, err := j.Table(ctx, "outboxes")
	if err != nil {
		return nil, err
	}
	l := &ledger{journal: j, durable: durable, table: table, boxes: map[salt.MinionID]*box{}}
	var bad error
	err = table.Each(ctx, func(key string, value []byte) {
		if key == positionKey {
			bad = json.Unmarshal(value, &l.written)
			return
		}
		var marks []mark
		if bad = json.Unmarshal(value, &marks); bad == nil {
			l.boxes[salt.MinionID(key)] = &box{ledger: l, marks: marks}
		}
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return nil, fmt.Errorf("read what is stored of the minions' outboxes: %w", err)
	}
	return l, l.catchUp(ctx)
}

// catchUp accounts for what was stored since the checkpoint.
func (l *ledger) catchUp(ctx context.Context) error {
	if l.written >= l.journal.Stored() {
		return nil
	}
	return l.journal.Names(ctx, l.written+1, func(_ uint64, name string, item int) {
		if minion, epoch, n, ok := parseLetterName(name); ok {
			l.box(minion).set(mark{epoch, n, item})
		}
	})
}

func (l *ledger) box(id salt.MinionID) *box {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.boxes[id]
	if b == nil {
		b = &box{ledger: l}
		l.boxes[id] = b
	}
	return b
}

// begin waits for the minion's turn to store letters; end gives it back.
func (l *ledger) begin(id salt.MinionID) *box {
	b := l.box(id)
	b.turn.Lock()
	b.begin()
	return b
}

// tryBegin is begin if it is nobody's turn, else nil.
func (l *ledger) tryBegin(id salt.MinionID) *box {
	b := l.box(id)
	if !b.turn.TryLock() {
		return nil
	}
	b.begin()
	return b
}

func (b *box) begin() {
	b.ledger.mu.Lock()
	defer b.ledger.mu.Unlock()
	b.busy, b.start = true, b.ledger.journal.Stored()
}

func (b *box) end() {
	b.ledger.mu.Lock()
	b.busy = false
	b.ledger.mu.Unlock()
	b.turn.Unlock()
}

// has says whether an event of a letter is stored.
func (b *box) has(epoch string, n uint64, item int) bool {
	b.ledger.mu.Lock()
	defer b.ledger.mu.Unlock()
	i := b.find(epoch)
	return i >= 0 && (n < b.marks[i].N || n == b.marks[i].N && item <= b.marks[i].Item)
}

func (b *box) find(epoch string) int {
	return slices.IndexFunc(b.marks, func(m mark) bool { return m.Epoch == epoch })
}

// set notes that the events of a letter up to that one are stored.
func (b *box) set(m mark) {
	b.ledger.mu.Lock()
	defer b.ledger.mu.Unlock()
	if i := b.find(m.Epoch); i >= 0 {
		if old := b.marks[i]; m.N < old.N || m.N == old.N && m.Item <= old.Item {
			return
		}
		b.marks = slices.Delete(b.marks, i, i+1)
	}
	b.marks = append(b.marks, m)
	b.marks = b.marks[max(0, len(b.marks)-maxMarks):]
	b.dirty = true
}

// checkpoint writes down what has changed, and then the place up to which that
// accounts for the journal.
func (l *ledger) checkpoint(ctx context.Context) error {
	position, changed := l.changes()
	if position == l.written { // whatever is stored of a letter moves it
		return nil
	}
	if err := l.durable(); err != nil { // else it could be on the disk before what it tells of
		return err
	}
	for id, marks := range changed {
		b, err := json.Marshal(marks)
		if err == nil {
			err = l.table.Put(ctx, string(id), b)
		}
		if err != nil {
			return err
		}
	}
	if err := l.table.Put(ctx, positionKey, strconv.AppendUint(nil, position, 10)); err != nil {
		return err
	}
	l.written = position
	return nil
}

// changes takes the marks that were not written down yet, and the place that they
// reach to: not beyond one where letters are being stored now.
func (l *ledger) changes() (position uint64, changed map[salt.MinionID][]mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	position, changed = l.journal.Stored(), map[salt.MinionID][]mark{}
	for id, b := range l.boxes {
		if b.busy {
			position = min(position, b.start)
		}
		if b.dirty {
			changed[id], b.dirty = slices.Clone(b.marks), false
		}
	}
	return position, changed
}

// Both bound how much of the journal is read at the next start, where one is killed: a
// checkpoint is written that often, and sooner when that many messages were stored.
const (
	checkpointEvery = 10 * time.Second
	checkpointAfter = 50_000
	checkpointLook  = 250 * time.Millisecond
)

// keep writes checkpoints until ctx ends, and a last one then. One that fails
// costs time at the next start only if all later ones fail too.
func (l *ledger) keep(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(checkpointLook)
	defer tick.Stop()
	latest := time.Now()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			if time.Since(latest) < checkpointEvery && l.journal.Stored() < l.written+checkpointAfter {
				continue
			}
		case <-ctx.Done():
		}
		latest = time.Now()
		write, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
		if err := l.checkpoint(write); err != nil {
			log.Error("what is stored of the minions' outboxes is not written down", "err", err)
		}
		cancel()
	}
}

// letterName names a letter in the journal. What else is stored for a minion has no dot
// there.
func letterName(id salt.MinionID, epoch string, n uint64) string {
	return event.Escape(string(id)) + "/" + event.Escape(epoch) + "." + strconv.FormatUint(n, 10)
}

func parseLetterName(s string) (id salt.MinionID, epoch string, n uint64, ok bool) {
	minion, letter, slash := strings.Cut(s, "/")
	escaped, number, dot := strings.Cut(letter, ".")
	minion, okMinion := event.Unescape(minion)
	epoch, okEpoch := event.Unescape(escaped)
	n, err := strconv.ParseUint(number, 10, 64)
	return salt.MinionID(minion), epoch, n, slash && dot && okMinion && okEpoch && err == nil
}
