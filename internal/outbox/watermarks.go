package outbox

import (
	"context"
	"encoding/json"
	"errors"
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

// watermarks remember which messages of each minion's outbox are stored, so that a duplicate is
// recognised however late it comes: the journal itself remembers a limited number of names.
//
// They are in memory, with a checkpoint in a table of the journal now and then. When the daemon
// starts, messages stored after the checkpoint are read from their names in the journal, so a
// kill at any time loses nothing.
type watermarks struct {
	journal *journal.Journal
	table   *journal.Table
	mu      sync.Mutex
	senders map[salt.MinionID]*sender
	written uint64       // sequence of the latest checkpoint
	durable func() error // returns when stored messages are on the disk
}

// sender is what the watermarks know about one minion. Its turn is held while messages of the
// minion are stored: a minion that was cut may send them again before its first request has
// ended.
type sender struct {
	all      *watermarks
	asking   chan struct{} // taken by whoever asks other members, before the turn
	turn     chan struct{} // taken by whoever has put something into it; guards the next fields
	term     uint64        // in which what is being stored may be stored
	known    connection    // the one for which it is known what other members have stored; zero for none
	answered uint64        // how often another member was answered what is stored here
	doubt    bool          // something may be stored, or be stored yet, that marks lack
	since    uint64        // with doubt: it comes after this sequence
	marks    []Watermark   // what is stored here, the latest last; guarded by all, as are the next fields
	learned  []Watermark   // what other members have stored, as they said last
	busy     bool
	start    uint64 // while busy: what is being stored comes after this sequence
	dirty    bool
	keyless  time.Time // since when the minion is known to have no key; zero if it has one
	gone     bool      // it was removed from senders: whoever waits for its turn takes another one
}

// connection is one of a minion, in one term of the journal.
type connection struct {
	inbox string
	term  uint64
}

// Watermark is how far an epoch of a minion's outbox is stored: all messages before N, and of N
// the events up to Item.
type Watermark struct {
	Epoch string `json:"epoch"`
	N     uint64 `json:"n"`
	Item  int    `json:"item"`
}

// maxMarks is how many epochs of one minion are remembered; a start of its daemon begins one, and with several outboxes
// one for those that have the same messages. Only stored but unconfirmed messages come again, and those of the other
// outboxes, so it must be more than one request may contain.
//
// What other members have stored is kept apart: only this member knows in which order it has stored its own epochs, and so which
// are the oldest.
const maxMarks = 64

// outboxes is the name of the table of checkpoints.
const outboxes = "outboxes"

// positionKey is the key of the checkpoint's sequence; no minion id begins with a dot.
const positionKey = ".position"

func openWatermarks(ctx context.Context, j *journal.Journal, durable func() error) (*watermarks, error) {
	table, err := j.OwnTable(ctx, outboxes) // its position is one in the own journal
	if err != nil {
		return nil, err
	}
	w := &watermarks{journal: j, durable: durable, table: table, senders: map[salt.MinionID]*sender{}}
	w.written, err = readCheckpoint(ctx, table, func(id salt.MinionID, marks []Watermark) { w.sender(id).marks = marks })
	if err != nil {
		return nil, err
	}
	return w, w.catchUp(ctx)
}

// readCheckpoint calls f for each minion, and returns the sequence of the journal up to which that
// is complete.
func readCheckpoint(ctx context.Context, table *journal.Table, f func(salt.MinionID, []Watermark)) (position uint64, err error) {
	var bad error
	err = table.Each(ctx, func(key string, value []byte) {
		var marks []Watermark
		if key == positionKey {
			bad = errors.Join(bad, json.Unmarshal(value, &position))
		} else if err := json.Unmarshal(value, &marks); err != nil {
			bad = errors.Join(bad, err)
		} else {
			f(salt.MinionID(key), marks)
		}
	})
	if err = errors.Join(err, bad); err != nil {
		return 0, fmt.Errorf("read what is stored of the minions' outboxes: %w", err)
	}
	return position, nil
}

// catchUp takes into account what was stored after the checkpoint. The end is known: the leader that is asked
// for it may be one no more, and lack the newest messages.
func (w *watermarks) catchUp(ctx context.Context) error {
	end := w.journal.Stored()
	if w.written >= end {
		return nil
	}
	return w.readNames(ctx, w.written+1, end)
}

// readNames reads which messages are stored from the sequence seq on, up to least at least.
func (w *watermarks) readNames(ctx context.Context, seq, least uint64) error {
	return w.journal.Names(ctx, seq, least, func(_ uint64, name string, item int) {
		if minion, epoch, n, ok := parseMessageName(name); ok {
			w.sender(minion).set(Watermark{epoch, n, item})
		}
	})
}

func (w *watermarks) sender(id salt.MinionID) *sender {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.senders[id]
	if s == nil {
		s = &sender{all: w, asking: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
		w.senders[id] = s
	}
	return s
}

// met reports whether anything was stored here for a minion, or a turn has begun.
func (w *watermarks) met(id salt.MinionID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.senders[id] != nil
}

// begin waits for the minion's turn to store messages; end releases it.
func (w *watermarks) begin(id salt.MinionID) *sender {
	for {
		s := w.sender(id)
		s.turn <- struct{}{}
		if s.begin() {
			return s
		}
	}
}

// beginBefore is begin that waits no longer than ctx.
func (w *watermarks) beginBefore(ctx context.Context, id salt.MinionID) (*sender, error) {
	for {
		s := w.sender(id)
		select {
		case s.turn <- struct{}{}:
			if s.begin() {
				return s, nil
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryBegin is begin without waiting; it returns nil if the turn is taken.
func (w *watermarks) tryBegin(id salt.MinionID) *sender {
	s := w.sender(id)
	select {
	case s.turn <- struct{}{}:
		if s.begin() {
			return s
		}
	default:
	}
	return nil
}

// begin follows when the turn is taken. It gives it back, and returns false, if the sender was removed.
func (s *sender) begin() bool {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.gone {
		<-s.turn
		return false
	}
	s.busy, s.start = true, s.all.journal.Stored()
	return true
}

func (s *sender) end() {
	s.all.mu.Lock()
	s.busy = false
	s.all.mu.Unlock()
	<-s.turn
}

// has reports whether an event of a message is stored.
func (s *sender) has(epoch string, n uint64, item int) bool {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	one := Watermark{epoch, n, item}
	return covers(s.marks, one) || covers(s.learned, one)
}

// covers reports whether what one stands for is among what is stored.
func covers(marks []Watermark, one Watermark) bool {
	i := find(marks, one.Epoch)
	return i >= 0 && (one.N < marks[i].N || one.N == marks[i].N && one.Item <= marks[i].Item)
}

func find(marks []Watermark, epoch string) int {
	return slices.IndexFunc(marks, func(m Watermark) bool { return m.Epoch == epoch })
}

// set records that the events of a message up to that one are stored here.
func (s *sender) set(m Watermark) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if covers(s.marks, m) {
		return
	}
	if i := find(s.marks, m.Epoch); i >= 0 {
		s.marks = slices.Delete(s.marks, i, i+1)
	}
	s.marks = append(s.marks, m)
	s.marks = s.marks[max(0, len(s.marks)-maxMarks):]
	s.dirty = true
}

// learn records what other members have stored.
func (s *sender) learn(marks []Watermark) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.learned = marks
}

// stored returns how far each epoch is stored here, the latest last.
func (s *sender) stored() []Watermark {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	return slices.Clone(s.marks)
}

// fails records that it is not known what of this turn is stored. When the minion sends it again, the
// journal recognises its names.
func (s *sender) fails() {
	if !s.doubt {
		s.doubt, s.since = true, s.start
	}
}

// resolve finds out what is stored after fails. The caller has the turn.
func (s *sender) resolve(ctx context.Context) error {
	if !s.doubt {
		return nil
	}
	if err := s.all.journal.Resolve(ctx); err != nil {
		return err
	}
	// The end is known: the leader that is asked for it may be one no more, and lack the newest messages.
	if err := s.all.readNames(ctx, s.since+1, s.all.journal.Stored()); err != nil {
		return err
	}
	s.doubt = false
	return nil
}

// checkpoint records what has changed, and then up to which sequence of the journal that is
// complete. What it does not record is recorded by the next one.
func (w *watermarks) checkpoint(ctx context.Context) error {
	position, changed := w.changes()
	recorded := false
	defer func() {
		if !recorded {
			w.changedStill(changed)
		}
	}()
	if position == w.written { // storing a part of a message moves it, too
		return nil
	}
	if err := w.durable(); err != nil { // otherwise it could be on the disk before the messages
		return err
	}
	for id, marks := range changed {
		b, err := json.Marshal(marks)
		if err == nil {
			err = w.table.Put(ctx, string(id), b)
		}
		if err != nil {
			return err
		}
	}
	if err := w.table.Put(ctx, positionKey, strconv.AppendUint(nil, position, 10)); err != nil {
		return err
	}
	w.written, recorded = position, true
	return nil
}

// changes returns the marks that were not recorded yet, and the sequence up to which they are
// complete: before one where messages are being stored now.
func (w *watermarks) changes() (position uint64, changed map[salt.MinionID][]Watermark) {
	w.mu.Lock()
	defer w.mu.Unlock()
	position, changed = w.journal.Stored(), map[salt.MinionID][]Watermark{}
	for id, s := range w.senders {
		if s.busy {
			position = min(position, s.start)
		}
		if s.dirty {
			changed[id], s.dirty = slices.Clone(s.marks), false
		}
	}
	return position, changed
}

// changedStill takes back that changes are recorded.
func (w *watermarks) changedStill(changed map[salt.MinionID][]Watermark) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range changed {
		w.senders[id].dirty = true
	}
}

// These limit how much of the journal is read at the next start after a kill: a checkpoint is
// written that often, and sooner when that many messages were stored.
const (
	checkpointEvery = 10 * time.Second
	checkpointAfter = 50_000
	checkpointLook  = 250 * time.Millisecond
)

// keep writes checkpoints until ctx ends, and then a last one. A failed one only makes the next
// start slower, and only if all later ones fail, too. It forgets minions without a key.
func (w *watermarks) keep(ctx context.Context, keys Keys, log *slog.Logger) {
	tick := time.NewTicker(checkpointLook)
	defer tick.Stop()
	latest, forgot := time.Now(), time.Now()
	for ctx.Err() == nil {
		if keys != nil && time.Since(forgot) >= forgetEvery {
			forgot = time.Now()
			if err := w.forget(ctx, keys, forgetAfter); err != nil {
				log.Warn("what is stored of the outboxes of deleted minions is not forgotten yet", "err", err)
			}
		}
		select {
		case <-tick.C:
			if time.Since(latest) < checkpointEvery && w.journal.Stored() < w.written+checkpointAfter {
				continue
			}
		case <-ctx.Done():
		}
		latest = time.Now()
		write, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
		if err := w.checkpoint(write); err != nil {
			log.Error("the watermarks of the minions' outboxes are not stored", "err", err)
		}
		cancel()
	}
}

// messageName is the name of a message in the journal. Other messages stored for a minion have
// no dot there.
func messageName(id salt.MinionID, epoch string, n uint64) string {
	return event.Escape(string(id)) + "/" + event.Escape(epoch) + "." + strconv.FormatUint(n, 10)
}

func parseMessageName(s string) (id salt.MinionID, epoch string, n uint64, ok bool) {
	minion, message, slash := strings.Cut(s, "/")
	escaped, number, dot := strings.Cut(message, ".")
	minion, okMinion := event.Unescape(minion)
	epoch, okEpoch := event.Unescape(escaped)
	n, err := strconv.ParseUint(number, 10, 64)
	return salt.MinionID(minion), epoch, n, slash && dot && okMinion && okEpoch && err == nil
}
