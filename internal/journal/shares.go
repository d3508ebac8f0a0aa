package journal

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// The journal is one stream, so that everything in it has one order, and three classes, each
// below its own subject, so that one can be removed without the others:
//
// - events: below event.Root;
// - kept: the results of jobs and runners, below keptRoot;
// - over: what a sender stores beyond its share of one of those, below overRoot and a token for
// the sender. Nothing is promised for it: it is removed first.
//
// JetStream's own limit of bytes always removes the oldest message. It is set a little higher,
// for a journal without Tend.
type class int

const (
	classEvents class = iota
	classKept
	classOver
	classes
)

const (
	keptRoot = "salt.kept"
	overRoot = "salt.over"
)

// subjects are the subjects of the stream.
var subjects = []string{event.Root + ".>", keptRoot + ".>", overRoot + ".>"}

// Limits, as parts of the limit of the journal.
const (
	shareOf    = 16  // what one sender may have of a class before the rest is over: limit/16
	noticeAt   = 0.9 // a warning says what will be dropped
	dropTo     = 0.95
	waitAt     = 1.05 // writers wait until there is space
	streamOver = 8    // JetStream itself drops at limit + limit/8

	maxSegments = 128 // about
	maxOwners   = 15  // owners of a class counted by name in a segment: fewer than shareOf
)

// spaceWait is how long a writer waits for space: far longer than making space takes.
const spaceWait = 10 * time.Second

// shares counts what the journal holds, by class and sender. Its methods may be called
// concurrently.
type shares struct {
	limit int64 // 0 means no limit
	wake  chan struct{}
	full  atomic.Bool // writers wait

	mu       sync.Mutex
	tended   bool
	segments []*segment // the oldest first; the last one is being written
	written  int64      // bytes of the last one
	used     [classes]map[string]int64
	bytes    int64         // in the store
	sent     int64         // sent since the start
	wakeAt   int64         // bytes at which the tender checks
	made     chan struct{} // closed when there is space again
	dropped  Dropped
}

// Dropped is what was dropped because of size, before its age was reached, since the daemon
// began.
type Dropped struct {
	Messages, Bytes uint64
}

// segment is a range of the journal with the bytes of its owners. Only large owners are counted
// by name; the rest of a class counts for "", which has no share.
type segment struct {
	First   uint64                    `json:"first"`
	Last    uint64                    `json:"last"` // very large for the one being written
	Classes [classes]map[string]int64 `json:"rooms"`
}

func newSegment(first uint64) *segment {
	s := &segment{First: first, Last: math.MaxUint64}
	for i := range s.Classes {
		s.Classes[i] = map[string]int64{}
	}
	return s
}

func (s *segment) bytes() (n int64) {
	for _, owners := range s.Classes {
		for _, b := range owners {
			n += b
		}
	}
	return n
}

// fold counts small owners under "". Few owners are over their share.
func (s *segment) fold() {
	for _, owners := range s.Classes[:classOver] {
		names := slices.SortedFunc(maps.Keys(owners), func(a, b string) int { return cmp.Compare(owners[b], owners[a]) })
		kept := 0
		for _, name := range names {
			if name == "" {
				continue
			}
			if kept++; kept > maxOwners {
				owners[""] += owners[name]
				delete(owners, name)
			}
		}
	}
}

// join adds the next segment.
func (s *segment) join(next *segment) {
	s.Last = next.Last
	for i, owners := range next.Classes {
		for name, n := range owners {
			s.Classes[i][name] += n
		}
	}
	s.fold()
}

func newShares(limit int64) *shares {
	s := &shares{limit: max(limit, 0), wake: make(chan struct{}, 1), made: make(chan struct{}), segments: []*segment{newSegment(1)}}
	s.wakeAt = s.part(noticeAt)
	s.recount()
	return s
}

func (s *shares) part(p float64) int64 { return int64(p * float64(s.limit)) }

// add counts what owner stores of a class, after the sequence last. over is true if its share
// of that class is used up.
func (s *shares) add(c class, owner string, n int64, last uint64) (over bool) {
	if s.limit == 0 || n == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes, s.sent, s.written = s.bytes+n, s.sent+n, s.written+n
	s.segments[len(s.segments)-1].Classes[c][owner] += n
	s.used[c][owner] += n
	s.rotate(last)
	if s.tended && s.bytes > s.part(waitAt) {
		s.full.Store(true)
	}
	if s.bytes >= s.wakeAt || s.full.Load() {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return s.isOver(c, owner)
}

// over reports whether owner has used up its share of a class.
func (s *shares) over(c class, owner string) bool {
	if s.limit == 0 || owner == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isOver(c, owner)
}

func (s *shares) isOver(c class, owner string) bool {
	return owner != "" && c != classOver && s.used[c][owner] >= s.limit/shareOf
}

// rotate begins a new segment if the current one is large. The caller holds mu.
func (s *shares) rotate(last uint64) {
	now := s.segments[len(s.segments)-1]
	if s.written < s.limit/maxSegments || last < now.First {
		return
	}
	s.written = 0
	now.fold()
	now.Last = last
	s.segments = append(s.segments, newSegment(last+1))
	s.merge()
	s.recount()
}

// merge joins small neighbours while there are too many segments: most of what was in them has
// been removed.
func (s *shares) merge() {
	for len(s.segments) > 2*maxSegments {
		small, at := int64(math.MaxInt64), 0
		for i := range len(s.segments) - 2 { // never into the one being written
			if n := s.segments[i].bytes() + s.segments[i+1].bytes(); n < small {
				small, at = n, i
			}
		}
		s.segments[at].join(s.segments[at+1])
		s.segments = slices.Delete(s.segments, at+1, at+2)
	}
}

// recount sums up the bytes of each owner.
func (s *shares) recount() {
	for i := range s.used {
		s.used[i] = map[string]int64{}
		for _, g := range s.segments {
			for name, n := range g.Classes[i] {
				s.used[i][name] += n
			}
		}
	}
}

func (s *shares) total(c class) (n int64) {
	for _, b := range s.used[c] {
		n += b
	}
	return n
}

// look takes the state of the store into account, as of the time when sent bytes were sent.
func (s *shares) look(state jetstream.StreamState, sent int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes = int64(state.Bytes) + s.sent - sent
	for len(s.segments) > 1 && (s.segments[0].Last < state.FirstSeq || state.Msgs == 0) {
		s.segments = s.segments[1:] // removed by age
	}
	s.recount()
	s.wakeAt = max(s.part(noticeAt), s.bytes+s.limit/64)
	if s.bytes <= s.part(waitAt) && s.full.Load() {
		s.full.Store(false)
		close(s.made)
		s.made = make(chan struct{})
	}
}

// wait returns when there is space, or the journal is closed.
func (s *shares) wait(closed <-chan struct{}) {
	if !s.full.Load() {
		return
	}
	limit := time.NewTimer(spaceWait)
	defer limit.Stop()
	for s.full.Load() {
		s.mu.Lock()
		made := s.made
		s.mu.Unlock()
		if !s.full.Load() {
			return
		}
		select {
		case <-made:
		case <-limit.C:
			return
		case <-closed:
			return
		}
	}
}

// victim is what is removed next because of size.
type victim struct {
	class class
	owner string // of bytes over its share
	until uint64 // it is removed before this sequence
	bytes int64  // its bytes, about
}

// subject returns the subject of a victim.
func (v victim) subject() string {
	switch v.class {
	case classKept:
		return keptRoot + ".>"
	case classOver:
		return overRoot + "." + overToken(v.owner) + ".>"
	}
	return event.Root + ".>"
}

// what describes it for people.
func (v victim) what() string {
	switch {
	case v.class == classKept:
		return "returns and jobs"
	case v.class == classEvents:
		return "events"
	}
	return "what " + v.owner + " has stored beyond its share"
}

// next chooses what is removed next: from the owner with the most bytes over its shares,
// otherwise from the larger class.
func (s *shares) next() victim {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := victim{class: classEvents}
	for name, n := range s.used[classOver] {
		if n > 0 && (v.class != classOver || n > s.used[classOver][v.owner]) {
			v.class, v.owner = classOver, name
		}
	}
	if v.class == classEvents && s.total(classKept) > s.total(classEvents) {
		v.class = classKept
	}
	want := s.bytes - s.part(dropTo)
	for _, g := range s.segments {
		here := g.Classes[v.class][v.owner]
		if v.class != classOver {
			here = 0
			for _, n := range g.Classes[v.class] {
				here += n
			}
		}
		v.bytes += here
		if v.until = g.Last; v.bytes >= want {
			break
		}
	}
	if v.until != math.MaxUint64 {
		v.until++
	}
	return v
}

// gone records that a victim was dropped, and how much that was.
func (s *shares) gone(v victim, messages, bytes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.segments {
		switch {
		case g.Last >= v.until && v.until != math.MaxUint64:
		case v.class == classOver:
			delete(g.Classes[v.class], v.owner)
		default:
			clear(g.Classes[v.class])
		}
	}
	s.recount()
	s.dropped.Messages += messages
	s.dropped.Bytes += bytes
}

// classOf returns the class of an event whose sender has not used up its share: keptRoot holds
// the results of jobs and runners.
func classOf(subject string) class {
	for _, space := range []string{".salt.job.", ".salt.run.", ".salt.wheel."} {
		if strings.HasPrefix(subject[len(event.Root):], space) {
			return classKept
		}
	}
	return classEvents
}

// subjectIn moves a subject of event.Subject into a class.
func subjectIn(c class, subject, owner string) string {
	switch c {
	case classKept:
		return keptRoot + subject[len(event.Root):]
	case classOver:
		return overRoot + "." + overToken(owner) + subject[len(event.Root):]
	}
	return subject
}

// everywhere returns the subjects of event.Subject and similar functions in all classes.
func everywhere(list []string) []string {
	var all []string
	for _, s := range list {
		rest, ours := strings.CutPrefix(s, event.Root+".")
		if all = append(all, s); ours {
			all = append(all, keptRoot+"."+rest, overRoot+".*."+rest)
		}
	}
	return all
}

// overToken is a token for a sender that is no longer than any other.
func overToken(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:12])
}

// ownerOf returns whose share an event counts for: its sender, see Speaker of event.Head, or for events of the daemon
// about what a user did (their jobs, entries of the audit log with their targets) this user. ""
// is the daemon itself, which no user can make store much.
func ownerOf(d Draft) string {
	head, err := event.HeadOf(d.Text)
	if err != nil {
		return ""
	}
	if owner := head.Speaker(); owner != "" {
		return owner
	}
	var user string
	_ = value.Members(d.Text, func(key string, data []byte) error { // JSON of the daemon is valid
		if key != "data" {
			return nil
		}
		return value.Members(data, func(key string, v []byte) error {
			if key == "user" {
				return value.Text(v, &user)
			}
			return nil
		})
	})
	if user == "" {
		return ""
	}
	return salt.UserPrefix + user
}

// Tend makes space in the journal when it reaches its limit, until ctx ends: bytes over a
// sender's share go first, the oldest first. It warns before that, in the log and by events of
// event.JournalSpace. Without Tend the oldest go, whatever their sender.
func (j *Journal) Tend(ctx context.Context, log *slog.Logger) {
	s := j.shares
	if s.limit == 0 {
		return
	}
	t := tender{journal: j, log: log}
	s.mu.Lock()
	s.tended = true
	s.mu.Unlock()
	t.attempt(ctx)
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tended = false
		if s.full.Swap(false) {
			close(s.made)
			s.made = make(chan struct{})
		}
	}()
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	for {
		note := false
		var again <-chan time.Time
		if s.full.Load() { // messages on their way will be stored
			again = time.After(fullPause)
		}
		select {
		case <-s.wake:
		case <-again:
		case <-tick.C:
			note = true
		case <-ctx.Done():
			t.note(context.WithoutCancel(ctx))
			return
		}
		t.attempt(ctx)
		if note {
			t.note(ctx)
		}
	}
}

// noteEvery is how often the owners are recorded. What a kill makes it forget counts for no
// owner.
const noteEvery = 10 * time.Second

// fullPause is the pause between two checks while writers wait.
const fullPause = 10 * time.Millisecond

// tender makes space.
type tender struct {
	journal  *Journal
	log      *slog.Logger
	throttle logging.Throttle
	noticed  bool
	noted    int64     // bytes sent at the latest record
	misses   int       // victims that did not exist
	mute     time.Time // since when nobody answers; zero if somebody does
}

func (t *tender) attempt(ctx context.Context) {
	if err := t.look(ctx); ctx.Err() == nil {
		t.tell(err, time.Now())
	}
}

// tell logs that no space is made. That nobody answers for as long as an election takes is not a failure yet.
func (t *tender) tell(err error, now time.Time) {
	mute := t.journal.copies > 0 && (Unanswered(err) || isLeaderless(err) || errors.Is(err, context.DeadlineExceeded))
	switch {
	case !mute:
		t.mute = time.Time{}
	case t.mute.IsZero():
		t.mute = now
	}
	switch {
	case err == nil:
	case mute && now.Sub(t.mute) <= electionTime:
		if t.throttle.First("election", now) {
			t.log.Warn("the space of the journal is not managed at the moment", "reason", "no leader of the journal answers, as during an election", "err", err)
		}
	case t.throttle.First("look", now):
		t.log.Error("the space of the journal is not managed", "err", err)
	}
}

// look compares the store with its limit, and drops what is over it.
func (t *tender) look(ctx context.Context) error {
	s := t.journal.shares
	for ctx.Err() == nil {
		state, err := t.journal.measure(ctx)
		if err != nil {
			return err
		}
		bytes := int64(state.Bytes)
		switch {
		case bytes < s.part(noticeAt-0.05):
			t.noticed = false
		case bytes >= s.part(noticeAt) && !t.noticed:
			t.noticed = true
			t.warn(ctx, "filling", "the journal is nearly full: something will be dropped by size, earlier than by age", s.next(), bytes)
		}
		if bytes < s.limit {
			return nil
		}
		if err := t.drop(ctx, s.next(), state); err != nil {
			return err
		}
	}
	return nil
}

// measure asks the store how much it holds, without what is on its way there.
func (j *Journal) measure(ctx context.Context) (jetstream.StreamState, error) {
	j.shares.mu.Lock()
	sent := j.shares.sent
	j.shares.mu.Unlock()
	sent -= j.writer.underWay()
	info, err := leaderInfo(ctx, j.stream)
	if err != nil {
		return jetstream.StreamState{}, err
	}
	j.shares.look(info.State, sent)
	return info.State, nil
}

// drop removes a victim. If several did not exist, since the counts are wrong, it removes the
// oldest of all.
func (t *tender) drop(ctx context.Context, v victim, before jetstream.StreamState) error {
	j := t.journal
	if t.throttle.First(v.what(), time.Now()) {
		t.warn(ctx, "drop", "the journal is full: it drops by size, earlier than by age", v, int64(before.Bytes))
	}
	// What is not known to be stored yet stays: its writer looks for it there.
	o := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject(v.subject()), jetstream.WithPurgeSequence(min(v.until, j.writer.stored()+1))}
	if t.misses > 2 {
		o = []jetstream.StreamPurgeOpt{jetstream.WithPurgeSequence(min(before.FirstSeq+max(1, (before.LastSeq-before.FirstSeq)/shareOf), j.writer.stored()+1))}
	}
	if err := purge(ctx, j.writer.store, j.stream, v.messages(before), o...); err != nil {
		return err
	}
	after, err := j.measure(ctx)
	if err != nil {
		return err
	}
	messages, bytes := less(before.Msgs, after.Msgs), less(before.Bytes, after.Bytes)
	if t.misses++; bytes > 0 {
		t.misses = 0
	}
	j.shares.gone(v, messages, bytes)
	t.log.Debug("the journal has dropped by size", "what", v.what(), "messages", messages, "bytes", bytes)
	return nil
}

// messages estimates how many messages a victim has, from its share of the bytes; the result is
// rather too high.
func (v victim) messages(there jetstream.StreamState) uint64 {
	bytes := min(uint64(max(v.bytes, 0)), there.Bytes)
	return min(there.Msgs, uint64(2*float64(there.Msgs)*float64(bytes)/float64(max(there.Bytes, 1)))+there.Msgs/shareOf)
}

func less(before, after uint64) uint64 { return before - min(before, after) }

// warnTime limits how long a warning may take to be stored, since the space must be made.
const warnTime = 2 * time.Second

// warn says what will be dropped, before it is.
func (t *tender) warn(ctx context.Context, kind, text string, v victim, bytes int64) {
	s := t.journal.shares
	gone := t.journal.Dropped()
	t.log.Warn(text, "what", v.what(), "bytes", bytes, "limit", s.limit, "dropped", gone.Messages)
	data, err := json.Marshal(map[string]any{"what": v.what(), "from": v.owner, "bytes": bytes, "limit": s.limit, "dropped": gone.Messages})
	if err != nil {
		return // text and numbers always can be
	}
	e, err := event.New(event.JournalSpace+"/"+kind, data, "", time.Now())
	if err == nil {
		var p *Pending
		if p, err = t.journal.beginNow([]Batch{single(e, "")}); err == nil {
			ctx, cancel := context.WithTimeout(ctx, warnTime)
			defer cancel()
			_, err = p.Wait(ctx)
		}
	}
	if err != nil && ctx.Err() == nil {
		t.log.Error("event not stored", "tag", e.Tag, "err", err)
	}
}

// Dropped returns what was dropped because of size since the journal was opened.
func (j *Journal) Dropped() Dropped {
	j.shares.mu.Lock()
	defer j.shares.mu.Unlock()
	return j.shares.dropped
}

// sharesTable keeps the owners over a restart.
const sharesTable = "shares"

// note records the owners, if that can matter already.
func (t *tender) note(ctx context.Context) {
	s := t.journal.shares
	s.mu.Lock()
	sent, small := s.sent, s.bytes < s.limit/shareOf
	b, err := json.Marshal(s.segments)
	s.mu.Unlock()
	if small || sent == t.noted || err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	table, err := t.journal.OwnTable(ctx, sharesTable)
	if err == nil {
		err = table.Put(ctx, sharesTable, b)
	}
	if err != nil {
		if !errors.Is(err, context.Canceled) && t.throttle.First("note", time.Now()) {
			t.log.Error("the shares of senders in the journal are not recorded", "err", err)
		}
		return
	}
	t.noted = sent
}

// recall reads what was recorded. Everything else counts for no owner.
func (j *Journal) recall(ctx context.Context, state jetstream.StreamState) error {
	s := j.shares
	if s.limit == 0 {
		return nil
	}
	if int64(state.Bytes) >= s.limit/shareOf {
		if err := j.recallTable(ctx); err != nil {
			return err
		}
	}
	s.look(state, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	known := int64(0)
	for _, g := range s.segments {
		known += g.bytes()
	}
	if rest := s.bytes - known; rest > 0 {
		s.segments[len(s.segments)-1].Classes[classEvents][""] += rest
		s.written += rest
	}
	s.rotate(state.LastSeq)
	s.recount()
	return nil
}

func (j *Journal) recallTable(ctx context.Context) error {
	table, err := j.OwnTable(ctx, sharesTable)
	if err != nil {
		return err
	}
	b, err := table.Get(ctx, sharesTable)
	if err != nil || b == nil {
		return err
	}
	var list []*segment
	if json.Unmarshal(b, &list) != nil || len(list) == 0 || slices.Contains(list, nil) {
		return nil // everything counts for no owner
	}
	for _, g := range list {
		for i := range g.Classes {
			if g.Classes[i] == nil {
				g.Classes[i] = map[string]int64{}
			}
		}
	}
	list[len(list)-1].Last = math.MaxUint64
	j.shares.segments = list
	return nil
}
