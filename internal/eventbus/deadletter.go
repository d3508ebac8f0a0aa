package eventbus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// Limits of the dead letters. One is stored as a single message.
const (
	maxLetter  = 900 << 10 // bytes of one; a larger event is kept by its sequence only
	maxLetters = 10_000    // of one user

	// Bytes of one user, and of all users together. An event for which there is no space is
	// kept by its sequence only, while that fits.
	maxOfUser  = 16 << 20
	maxOfUsers = 128 << 20
	// The daemon's own handlers have a limit apart: no user may make the reactor stop.
	maxOfDaemon = 64 << 20
	// maxWords limits a dead letter without its event: what the handler printed.
	maxWords = 64 << 10
)

// DeadLetters are the events that handlers have failed to handle. The exported methods are for
// the daemon's own handlers.
type DeadLetters struct {
	tables   *tables
	member   *Member // nil for a single master
	log      *slog.Logger
	throttle logging.Throttle // of dead letters that gave way, by sender
	gaveWay  atomic.Uint64    // how many did, since the start

	synced chan struct{} // closed once watch has read them all; nil for a single master

	mu    sync.Mutex            // held while dead letters are counted and stored
	known map[string]letterHead // by key; nil until they were read
	// dropped are those that were dropped here and of which watch has not heard that yet, with their revisions: what it hears
	// of them until then is older. Nil for a single master.
	dropped map[string]uint64
	taken   map[string]bool  // those that are handled again here, by key
	holds   map[heldBy]*hold // those of them that programs handle
}

// DeadLetters returns those of this bus.
func (r *Bus) DeadLetters() *DeadLetters { return r.dead }

// letterKey is the key of a dead letter. Each journal of a cluster has its own sequences.
func letterKey(owner, name, journal string, seq uint64) string {
	key := fmt.Sprintf("%s/%s/%020d", owner, name, seq)
	if journal != "" {
		key += "@" + journal
	}
	return key
}

// Dead stores, lists and drops the dead letters of the calling user.
func (r *Bus) Dead(ctx context.Context, req *rpc.Request, who eventacl.Principal) error {
	var q protocol.Dead
	if err := req.Decode(&q); err != nil {
		return err
	}
	if err := req.Decide(r.rules.Heard(who)); err != nil {
		return err
	}
	switch q.Do {
	case protocol.DeadPut:
		return r.dead.addFor(ctx, who, q.Letter)
	case protocol.DeadList, protocol.DeadDrop:
		return r.dead.send(ctx, req, who, q)
	case protocol.DeadTake:
		return r.dead.hold(ctx, req, who, q)
	case protocol.DeadHandled, protocol.DeadRelease:
		return r.dead.endHold(ctx, req.Inbox(), q)
	}
	return rpc.Errorf(rpc.Usage, "%q is not a command for dead letters", q.Do)
}

func (s *DeadLetters) addFor(ctx context.Context, who eventacl.Principal, l *protocol.DeadLetter) error {
	if l == nil || l.Seq == 0 {
		return rpc.Errorf(rpc.Usage, "there is no dead letter to store")
	}
	if err := checkName(l.Name); err != nil {
		return err
	}
	if l.Journal == "" && s.member != nil {
		l.Journal = s.member.opts.Name
	}
	if l.Journal != "" && bus.CheckJournalName(l.Journal) != nil {
		return rpc.Errorf(rpc.Usage, "%.80q is not the name of a journal", l.Journal)
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		have, err := s.of(ctx, who.Owner)
		if err != nil {
			return err
		}
		full := rpc.Errorf(rpc.Busy, "user %s has %d dead letters: that is the limit", who.Name(), len(have)).
			WithHint("'salt-event dead list' shows them; retry or drop some")
		err = full
		weight, share := one, maxOfSender
		if _, again := s.known[letterKey(who.Owner, l.Name, l.Journal, l.Seq)]; again || len(have) < maxLetters {
			err = s.keepShared(ctx, who.Owner, l, have, full)
			weight, share = letterHead.bytes, maxBytesOfSender/4
		}
		if !errors.Is(err, full) {
			return err
		}
		// The handlers of a user would stop for all senders because of one.
		oldest, most := oldestOfMost(slices.DeleteFunc(have, func(p letterHead) bool { return p.speaker == "" }), weight)
		if most <= share {
			return full
		}
		if err := s.giveWay(ctx, oldest, share); err != nil {
			return err
		}
	}
}

// keepShared stores a dead letter of a user. Its sender has a share of the space for events; the
// sequence is kept beyond it. have are those of the user. The caller holds mu.
func (s *DeadLetters) keepShared(ctx context.Context, owner string, l *protocol.DeadLetter, have []letterHead, full error) error {
	most := s.allowance(owner, l)
	speaker := headOf(owner, l, 0).speaker
	if speaker == "" {
		return s.keep(ctx, owner, l, most, full)
	}
	left := maxBytesOfSender
	for _, p := range have {
		if p.speaker == speaker {
			left -= p.size
		}
	}
	if err := s.keep(ctx, owner, l, min(most, left), full); !errors.Is(err, full) {
		return err
	}
	return s.keep(ctx, owner, l, most, full) // without its event
}

// allowance is how many bytes a dead letter of an owner may have. The caller holds mu and has
// counted.
func (s *DeadLetters) allowance(owner string, l *protocol.DeadLetter) int {
	own, all := 0, 0
	for _, p := range s.known {
		if p.owner == owner {
			own += p.size
		}
		if p.owner != daemonOwner {
			all += p.size
		}
	}
	if old, again := s.known[letterKey(owner, l.Name, l.Journal, l.Seq)]; again {
		own, all = own-old.size, all-old.size
	}
	if owner == daemonOwner {
		return maxOfDaemon - own
	}
	return min(maxOfUser-own, maxOfUsers-all)
}

// letterHead is what is known of a dead letter without reading it: reading all of them at each
// addition would take longer each time.
type letterHead struct {
	owner   string
	name    string // of the handler
	speaker string // who fired the event
	journal string // of the event, see protocol.DeadLetter
	seq     uint64
	size    int // bytes
	// revision is that of its entry: the order in which dead letters were stored, whatever the clocks of members say. The
	// sequences of different journals have no order.
	revision uint64
}

func (p letterHead) bytes() int { return p.size }

func one(letterHead) int { return 1 }

func headOf(owner string, l *protocol.DeadLetter, size int) letterHead {
	return letterHead{owner: owner, name: l.Name, speaker: event.Head{Tag: l.Tag, From: l.From}.Speaker(), journal: l.Journal, seq: l.Seq, size: size}
}

// of returns the dead letters of an owner, the one that was stored first first. The caller holds mu.
func (s *DeadLetters) of(ctx context.Context, owner string) ([]letterHead, error) {
	if s.known == nil {
		dead := map[string]letterHead{}
		err := s.scan(ctx, func(string) bool { return true }, func(l owned) {
			head := headOf(l.owner, &l.DeadLetter, l.size)
			head.revision = l.revision
			dead[letterKey(l.owner, l.Name, l.Journal, l.Seq)] = head
		})
		if err != nil {
			return nil, err
		}
		s.known = dead
	}
	var list []letterHead
	for _, p := range s.known {
		if p.owner == owner {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b letterHead) int {
		return cmp.Or(cmp.Compare(a.revision, b.revision), cmp.Compare(a.seq, b.seq))
	})
	return list, nil
}

// keep stores a dead letter of at most most bytes: whole, or with the sequence of its event
// only. It returns full if not even that fits. The caller holds mu.
func (s *DeadLetters) keep(ctx context.Context, owner string, l *protocol.DeadLetter, most int, full error) error {
	t, err := s.tables.get(ctx, "dead")
	if err != nil {
		return err
	}
	l.Time = time.Now().UTC()
	b, err := json.Marshal(l)
	if err == nil && len(b) > min(maxLetter, most) {
		l.Event = nil
		b, err = json.Marshal(l)
	}
	if err != nil {
		return err
	}
	if words := len(b) - len(l.Event); words > maxWords {
		return rpc.Errorf(rpc.Usage, "the dead letter has %d bytes besides its event: the limit is %d", words, maxWords)
	}
	if len(b) > most {
		return full
	}
	key := letterKey(owner, l.Name, l.Journal, l.Seq)
	revision, err := t.Store(ctx, key, b)
	if err != nil {
		return err
	}
	if head := headOf(owner, l, len(b)); s.known != nil {
		head.revision = revision
		s.known[key] = head
	}
	return nil
}

// drop deletes a dead letter. The caller holds mu.
func (s *DeadLetters) drop(ctx context.Context, l letterHead) error {
	t, err := s.tables.get(ctx, "dead")
	if err != nil {
		return err
	}
	key := letterKey(l.owner, l.name, l.journal, l.seq)
	if err := t.Delete(ctx, key); err != nil {
		return err
	}
	s.gone(key, s.known[key].revision)
	return nil
}

// gone records that a dead letter was deleted here, at that revision or a newer one. The caller holds mu.
func (s *DeadLetters) gone(key string, revision uint64) {
	delete(s.known, key)
	if s.dropped != nil {
		s.dropped[key] = max(s.dropped[key], revision)
	}
}

// send sends the dead letters that q names, and deletes them if q says so.
func (s *DeadLetters) send(ctx context.Context, req *rpc.Request, who eventacl.Principal, q protocol.Dead) error {
	return s.each(ctx, who, q, func(l owned) error {
		if q.Do == protocol.DeadDrop {
			if err := s.forget(ctx, l.owner, l.DeadLetter); err != nil {
				return err
			}
		}
		return req.Send(ctx, l.DeadLetter)
	})
}

func (s *DeadLetters) forget(ctx context.Context, owner string, l protocol.DeadLetter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop(ctx, headOf(owner, &l, 0))
}

// owned is a dead letter with its owner and its size in the store, in bytes.
type owned struct {
	protocol.DeadLetter
	owner    string
	size     int
	revision uint64
}

// letters returns the dead letters of who that q names, in the order of the journal. Operators
// also see those of the daemon's own handlers.
func (s *DeadLetters) letters(ctx context.Context, who eventacl.Principal, q protocol.Dead) (list []owned, err error) {
	err = s.each(ctx, who, q, func(l owned) error {
		list = append(list, l)
		return nil
	})
	return list, err
}

// each calls f for each requested dead letter, in order. It reads one at a time, so a caller
// that reads slowly holds only one in memory.
func (s *DeadLetters) each(ctx context.Context, who eventacl.Principal, q protocol.Dead, f func(owned) error) error {
	heads, err := s.matching(ctx, who, q)
	if err != nil {
		return err
	}
	t, err := s.tables.get(ctx, "dead")
	if err != nil {
		return err
	}
	for _, p := range heads {
		key := letterKey(p.owner, p.name, p.journal, p.seq)
		b, err := t.Get(ctx, key)
		if err != nil {
			return err
		}
		if b == nil {
			continue // it has been dropped since
		}
		l := owned{owner: p.owner, size: len(b)}
		if err := json.Unmarshal(b, &l.DeadLetter); err != nil {
			s.log.Error("unreadable dead letter skipped", "key", key, "err", err)
			continue
		}
		if err := f(l); err != nil {
			return err
		}
	}
	return nil
}

// matching returns the heads of the requested dead letters.
func (s *DeadLetters) matching(ctx context.Context, who eventacl.Principal, q protocol.Dead) ([]letterHead, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list, err := s.of(ctx, who.Owner)
	if err == nil && who.Operator() && who.Owner != daemonOwner {
		var own []letterHead
		own, err = s.of(ctx, daemonOwner)
		list = append(list, own...)
	}
	list = slices.DeleteFunc(list, func(p letterHead) bool {
		return q.Name != "" && q.Name != p.name || q.Seq != 0 && q.Seq != p.seq || q.Journal != "" && q.Journal != p.journal
	})
	slices.SortStableFunc(list, func(a, b letterHead) int { return cmp.Compare(a.seq, b.seq) })
	return list, err
}

// join makes them those of a member of a cluster.
func (s *DeadLetters) join(m *Member) {
	s.member, s.synced, s.known, s.dropped = m, make(chan struct{}), map[string]letterHead{}, map[string]uint64{}
}

// ready waits until the dead letters are known.
func (s *DeadLetters) ready(ctx context.Context) error {
	if s.synced == nil {
		return nil
	}
	select {
	case <-s.synced:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watch follows what the members of a cluster do with dead letters, until ctx ends.
func (s *DeadLetters) watch(ctx context.Context) {
	synced := sync.OnceFunc(func() { close(s.synced) })
	reader := s.reader(synced)
	for ; ctx.Err() == nil; backoff.Sleep(ctx, rewatch) {
		t, err := s.tables.get(ctx, "dead")
		if err == nil {
			reader.Table = t
			err = reader.Follow(ctx)
		}
		if ctx.Err() == nil {
			s.log.Warn("the dead letters of the other members are not followed for the moment", "err", err)
		}
	}
}

// rewatch is the pause before the table is watched again.
const rewatch = time.Second

// reader is what follows the table; synced is called when all that is stored is known.
func (s *DeadLetters) reader(synced func()) *journal.TableReader {
	return &journal.TableReader{Known: s.keys, Hear: func(e *journal.TableEntry) {
		if e == nil {
			synced()
			return
		}
		s.learn(e)
	}}
}

// keys returns the keys of the dead letters that are known.
func (s *DeadLetters) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.known))
}

// learn records a dead letter that was stored or deleted, perhaps by another member.
func (s *DeadLetters) learn(e *journal.TableEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Revision < s.known[e.Key].revision || e.Value != nil && e.Revision <= s.dropped[e.Key] {
		return // it is late: more has been done with it here since
	}
	delete(s.dropped, e.Key)
	if e.Value == nil {
		delete(s.known, e.Key)
		return
	}
	var l protocol.DeadLetter
	if err := json.Unmarshal(e.Value, &l); err != nil {
		s.log.Error("unreadable dead letter skipped", "key", e.Key, "err", err)
		return
	}
	owner, _, _ := strings.Cut(e.Key, "/")
	head := headOf(owner, &l, len(e.Value))
	head.revision = e.Revision
	s.known[e.Key] = head
}

// scan reads the dead letters of the matching owners.
func (s *DeadLetters) scan(ctx context.Context, of func(owner string) bool, f func(owned)) error {
	t, err := s.tables.get(ctx, "dead")
	if err != nil {
		return err
	}
	_, err = t.Entries(ctx, func(e journal.TableEntry) {
		l := owned{size: len(e.Value), revision: e.Revision}
		if l.owner, _, _ = strings.Cut(e.Key, "/"); !of(l.owner) {
			return
		}
		if err := json.Unmarshal(e.Value, &l.DeadLetter); err != nil {
			s.log.Error("unreadable dead letter skipped", "key", e.Key, "err", err)
			return
		}
		f(l)
	})
	return err
}

// maxOfSender is how many dead letters the events of one sender may leave behind with the
// daemon's handlers; with those of a user, when the user's space is full. A minion that fires what no handler can handle must not fill the space of
// all, since the handlers would then stop.
const (
	maxOfSender      = 500
	maxBytesOfSender = 4 << 20 // beyond it the events are kept by their sequence only
)

// maxReason limits the reason of a dead letter of the daemon, which may show data of its event.
const maxReason = 4 << 10

// Add stores a dead letter of the daemon's own handler. It never fails because there are too many, since
// the handlers of all would then stop: an older one gives way, see giveWay. A return counts for its minion.
// The daemon's own events have no share.
func (s *DeadLetters) Add(ctx context.Context, l *protocol.DeadLetter) error {
	if len(l.Reason) > maxReason {
		l.Reason = strings.ToValidUTF8(l.Reason[:maxReason], "") + "..."
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have, err := s.of(ctx, daemonOwner)
	if err != nil {
		return err
	}
	speaker := headOf(daemonOwner, l, 0).speaker
	same := slices.DeleteFunc(slices.Clone(have), func(p letterHead) bool { return p.speaker != speaker })
	if _, again := s.known[letterKey(daemonOwner, l.Name, l.Journal, l.Seq)]; !again {
		switch {
		case speaker != "" && len(same) >= maxOfSender:
			err = s.giveWay(ctx, same[0], maxOfSender)
		case len(have) >= maxLetters:
			oldest, _ := oldestOfMost(have, one)
			err = s.giveWay(ctx, oldest, maxLetters)
		}
		if err != nil {
			return err
		}
	}
	most := s.allowance(daemonOwner, l)
	if speaker != "" {
		sum := 0
		for _, p := range same {
			sum += p.size
		}
		most = min(most, maxBytesOfSender-sum)
	}
	return s.keepOwn(ctx, l, most)
}

// giveWayLines is how many lines a minute the log has about dead letters of one sender that give way.
const giveWayLines = 20

// giveWay deletes a dead letter for a newer one, and says which. Its event stays in the journal.
func (s *DeadLetters) giveWay(ctx context.Context, old letterHead, limit int) error {
	if err := s.drop(ctx, old); err != nil {
		return err
	}
	s.gaveWay.Add(1)
	args := []any{"from", old.speaker, "handler", old.name, "seq", old.seq, "limit", limit}
	if old.journal != "" {
		args = append(args, "journal", old.journal)
	}
	s.throttle.Log(s.log, slog.LevelError, old.speaker, giveWayLines, "a dead letter was dropped, since there are too many", args...)
	return nil
}

// oldestOfMost returns the oldest dead letter of the sender with the most, and how much that is by
// weight. So those of others stay when many senders fill the space together.
func oldestOfMost(have []letterHead, weight func(letterHead) int) (oldest letterHead, most int) {
	sum := map[string]int{}
	for _, p := range have {
		sum[p.speaker] += weight(p)
	}
	for _, p := range have {
		if sum[p.speaker] > most {
			oldest, most = p, sum[p.speaker]
		}
	}
	return oldest, most
}

// keepOwn stores a dead letter of the daemon. Where it does not fit, at least its sequence is
// kept, which is small and bounded by the number of dead letters.
func (s *DeadLetters) keepOwn(ctx context.Context, l *protocol.DeadLetter, most int) error {
	if err := s.keep(ctx, daemonOwner, l, most, errFull); !errors.Is(err, errFull) {
		return err
	}
	l.Stderr = ""
	return s.keep(ctx, daemonOwner, l, maxWords, errFull)
}

var errFull = errors.New("there is no space for the dead letter")

// List returns the dead letters of the daemon's handler of that name: the one with that
// sequence, or all with seq 0.
func (s *DeadLetters) List(ctx context.Context, name string, seq uint64) ([]protocol.DeadLetter, error) {
	list, err := s.letters(ctx, eventacl.Principal{Owner: daemonOwner}, protocol.Dead{Name: name, Seq: seq})
	letters := make([]protocol.DeadLetter, len(list))
	for i, l := range list {
		letters[i] = l.DeadLetter
	}
	return letters, err
}
