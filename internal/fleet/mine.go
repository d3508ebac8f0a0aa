package fleet

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
	"time"
	"unicode/utf8"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/mine"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/value"
)

// Limits of one minion's entries in the mine, which the master holds in memory.
const (
	maxMine     = 768 << 10 // bytes: all of it is one message of the journal
	maxMineName = 256       // bytes of one name
	maxMineRead = 100       // names in one request
)

// mines is what minions share with each other. It is stored in the journal and held in memory,
// encoded, since entries are read far more often than changed.
type mines struct {
	table  *journal.Table
	shared bool // other masters write the table
	reader *journal.TableReader
	void   *deletions
	mu     sync.RWMutex
	byID   map[salt.MinionID]*mined
}

// mined is the entries of one minion. The map is replaced, never changed.
type mined struct {
	change   sync.Mutex // one change at a time
	entries  map[string]mineEntry
	revision uint64 // of the table, 0 if it is not known
}

type mineEntry struct {
	Data      json.RawMessage `json:"data"`
	Allow     string          `json:"allow_tgt,omitempty"`
	AllowType target.Kind     `json:"allow_tgt_type,omitempty"`
}

func openMine(ctx context.Context, j *journal.Journal, shared bool) (*mines, error) {
	table, err := j.Table(ctx, "mine")
	if err != nil {
		return nil, err
	}
	m := &mines{table: table, shared: shared, void: newDeletions(table), byID: map[salt.MinionID]*mined{}}
	m.void.reread = m.reread
	m.reader = &journal.TableReader{Table: table, Known: m.stored, Hear: func(e *journal.TableEntry) {
		if e != nil {
			m.hear(*e)
		}
	}}
	return m, m.reader.Read(ctx)
}

// stored returns the minions that have entries.
func (m *mines) stored() (ids []string) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for id, own := range m.byID {
		if own.entries != nil {
			ids = append(ids, string(id))
		}
	}
	return ids
}

// of returns the entries of id. The map must not be changed.
func (m *mines) of(id salt.MinionID) map[string]mineEntry {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if own := m.byID[id]; own != nil {
		return own.entries
	}
	return nil
}

// mineTries is how often a change is begun that others overtake: the minion is connected elsewhere, too.
const mineTries = 5

// watchPause is the pause before the table is watched again.
const watchPause = time.Second

// follow takes over what other members store and delete, until ctx ends.
func (m *mines) follow(ctx context.Context, log *slog.Logger) {
	for ; ctx.Err() == nil; sleep(ctx, watchPause) {
		err := m.reader.Follow(ctx)
		if ctx.Err() == nil {
			log.Warn("the mine of the other members is not followed for the moment", "err", err)
		}
	}
}

// hear takes over an entry of the table, unless a newer one is known. One that cannot be read is none.
func (m *mines) hear(e journal.TableEntry) {
	id, err := salt.ParseMinionID(e.Key)
	if err != nil {
		return
	}
	var entries map[string]mineEntry
	there := e.Value != nil && len(e.Value) <= maxMine && json.Unmarshal(e.Value, &entries) == nil
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.byID[id]
	switch {
	case own != nil && e.Revision < own.revision:
	case there && own == nil:
		m.byID[id] = &mined{entries: entries, revision: e.Revision}
	case there:
		own.entries, own.revision = entries, e.Revision
	case own != nil:
		own.entries, own.revision = nil, e.Revision
	}
}

// reread reads the entries of id from the table where they were forgotten.
func (m *mines) reread(ctx context.Context, id salt.MinionID) error {
	e, err := m.table.Entry(ctx, string(id))
	if err == nil && e.Value != nil {
		m.hear(e)
	}
	return err
}

// shown returns the entries of id, decoded; nil if there are none.
func (m *mines) shown(id salt.MinionID) (map[string]any, error) {
	entries := m.of(id)
	if len(entries) == 0 {
		return nil, nil
	}
	out := map[string]any{}
	for name, e := range entries {
		v, err := value.Decode(e.Data)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

// ids returns the minions that have entries, or had some.
func (m *mines) ids() []salt.MinionID {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Collect(maps.Keys(m.byID))
}

func (m *mines) own(id salt.MinionID) *mined {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byID[id] == nil {
		m.byID[id] = &mined{}
	}
	return m.byID[id]
}

// change changes the entries of id. Where other masters write the table, what is stored counts, not what
// is known here.
func (m *mines) change(ctx context.Context, id salt.MinionID, q mine.Change) error {
	own := m.own(id)
	own.change.Lock()
	defer own.change.Unlock()
	if err := m.void.deleteNow(ctx, id); err != nil {
		return err
	}
	if !m.shared {
		next, b, err := changed(m.of(id), q)
		if err == nil {
			err = m.table.Put(ctx, string(id), b)
		}
		if err == nil {
			m.set(id, own, next, 0)
		}
		return err
	}
	for range mineTries {
		err := m.update(ctx, id, own, q)
		if !errors.Is(err, journal.ErrChanged) {
			return err
		}
	}
	return rpc.Errorf(rpc.Busy, "the mine of %s is being changed by others", id)
}

// update changes the entries of id as they are stored; the error is journal.ErrChanged if somebody else
// does so at the same time.
func (m *mines) update(ctx context.Context, id salt.MinionID, own *mined, q mine.Change) error {
	e, err := m.table.Entry(ctx, string(id))
	if err != nil {
		return err
	}
	var now map[string]mineEntry
	if e.Value != nil {
		_ = json.Unmarshal(e.Value, &now) // what cannot be read is replaced
	} else if len(q.Put) == 0 {
		return nil // there is nothing to delete
	}
	next, b, err := changed(now, q)
	if err != nil {
		return err
	}
	revision, err := m.table.Update(ctx, string(id), b, e.Revision)
	if err == nil {
		m.set(id, own, next, revision)
	}
	return err
}

// set takes stored entries into memory, even if the minion was forgotten meanwhile: memory matches the
// journal. Those of a later revision stay; that of a write is known only where others write, too.
func (m *mines) set(id salt.MinionID, own *mined, entries map[string]mineEntry, revision uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.byID[id]; m.shared && now != nil && now.revision > revision {
		return
	}
	own.entries, own.revision = entries, revision
	m.byID[id] = own
}

// changed returns entries after a change, and their text.
func changed(entries map[string]mineEntry, q mine.Change) (next map[string]mineEntry, text []byte, err error) {
	next = map[string]mineEntry{}
	if !q.Clear {
		maps.Copy(next, entries)
	}
	for _, name := range q.Delete {
		delete(next, name)
	}
	for name, e := range q.Put {
		if next[name], err = newMineEntry(name, e); err != nil {
			return nil, nil, err
		}
	}
	if text, err = json.Marshal(next); err != nil {
		return nil, nil, err
	}
	if len(text) > maxMine {
		return nil, nil, rpc.Errorf(rpc.Usage, "the mine takes %d bytes of a minion, and these would be %d", maxMine, len(text))
	}
	return next, text, nil
}

// newMineEntry checks a new entry, but for its target, see mayKeep.
func newMineEntry(name string, e mine.Entry) (mineEntry, error) {
	if err := checkMineName(name); err != nil {
		return mineEntry{}, err
	}
	data, err := value.Encode(e.Data.V)
	if err != nil {
		return mineEntry{}, rpc.Errorf(rpc.Usage, "entry %q: %v", name, err)
	}
	kept := mineEntry{Data: data, Allow: e.Allow}
	if e.Allow == "" {
		return kept, nil
	}
	kept.AllowType = target.Glob
	if e.AllowType != "" {
		if kept.AllowType, err = target.ParseKind(e.AllowType); err != nil {
			return mineEntry{}, rpc.Errorf(rpc.Usage, "entry %q: allow_tgt_type: %w", name, err)
		}
	}
	return kept, nil
}

// checkMineName checks the name of an entry. Commands that read entries split names at commas.
func checkMineName(name string) error {
	if name == "" || len(name) > maxMineName || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == ',' || r == 0x7f }) {
		return rpc.Errorf(rpc.Usage, "%.40q is not a valid name in the mine: it has up to %d bytes of text without commas", name, maxMineName)
	}
	return nil
}

// forget drops the entries of id, and has them deleted in the table.
func (m *mines) forget(id salt.MinionID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if own, known := m.byID[id]; known {
		delete(m.byID, id)
		m.void.add(id, own.revision)
	}
}

// ChangeMine changes the entries of the minion that sends the request, and only those, since
// the message names no minion.
func (f *Fleet) ChangeMine(ctx context.Context, r *rpc.Request) error {
	var q mine.Change
	if err := r.Decode(&q); err != nil {
		return err
	}
	id := salt.MinionID(r.From.Name)
	err := f.mayKeep(ctx, r.From, q)
	if err == nil {
		err = f.mine.change(ctx, id, q)
	}
	if err != nil {
		if rpc.CodeOf(err) == rpc.Usage {
			f.warned.Log(f.Log, slog.LevelWarn, "mine "+string(id), 1, "mine not changed", "minion", id, "err", err)
		}
		return err
	}
	if _, accepted := slices.BinarySearch(f.Keys.IDs(), id); !accepted {
		f.Forget(id) // its key was deleted meanwhile
	}
	f.Log.Debug("mine changed", "minion", id, "put", len(q.Put), "deleted", len(q.Delete), "clear", q.Clear)
	return nil
}

// mayKeep refuses entries for minions that are matched by pillar, unless the rules let their
// owner use such targets: asking which minions may read the entries would reveal pillar data. It also
// refuses a target that cannot be parsed, since later nobody would learn why the entry cannot be read,
// and one that takes long: each reader would have to wait for it. Many are parsed when it is the
// owner's turn.
func (f *Fleet) mayKeep(ctx context.Context, owner bus.Identity, q mine.Change) error {
	size := 0
	for name, e := range q.Put {
		if kind, err := target.ParseKind(cmp.Or(e.AllowType, string(target.Glob))); err == nil && takesLong(e.Allow, kind) {
			return dearAllow(name)
		}
		size += len(e.Allow)
	}
	if size > maxMine {
		return rpc.Errorf(rpc.Usage, "the mine takes %d bytes of a minion, and the targets of these have %d", maxMine, size)
	}
	if size > longPattern {
		end, err := f.evaluations.Acquire(ctx, owner.String())
		if err != nil {
			return err
		}
		defer end()
	}
	work, groups := newEvaluation(), f.Nodegroups()
	for name, e := range q.Put {
		kind, err := target.ParseKind(cmp.Or(e.AllowType, string(target.Glob)))
		if e.Allow == "" || err != nil {
			continue // change returns the error
		}
		if err := work.next(); err != nil {
			return err
		}
		t, err := target.Parse(e.Allow, kind, target.Options{Nodegroups: groups})
		switch {
		case errors.Is(err, target.ErrNodegroup): // the groups at the time of reading count
		case err != nil:
			return rpc.Errorf(rpc.Usage, "entry %q: allow_tgt: %w", name, err)
		case backtracks(t, e.Allow, kind, groups):
			return dearAllow(name)
		case !f.MayTarget(salt.MinionID(owner.Name), t):
			return f.Refused(salt.MinionID(owner.Name), name, e.Allow)
		}
	}
	return nil
}

func dearAllow(name string) error {
	return rpc.Errorf(rpc.Usage, "entry %q: allow_tgt takes long to match", name).
		WithHint("a pattern has at most %d bytes, and neither a lookaround nor a reference to a group; other targets but lists have at most %d bytes", longPattern, longTarget)
}

// backtracks reports whether a parsed target needs the backtracking engine because of its own text.
// What is in nodegroups is the master's own.
func backtracks(t *target.Target, text string, kind target.Kind, groups map[string]any) bool {
	if !t.Backtracks() {
		return false
	}
	plain := map[string]any{}
	for name := range groups {
		plain[name] = "*"
	}
	own, err := target.Parse(text, kind, target.Options{Nodegroups: plain})
	return err != nil || own.Backtracks()
}

// ReadMine answers with the named entries of each minion of a target that the requesting minion
// may read: as far as mine_get allows, and the owner has not restricted them.
func (f *Fleet) ReadMine(ctx context.Context, r *rpc.Request) error {
	var q mine.Query
	if err := r.Decode(&q); err != nil {
		return err
	}
	if len(q.Names) == 0 || len(q.Names) > maxMineRead {
		return rpc.Errorf(rpc.Usage, "%d names of the mine at once: there may be 1 to %d", len(q.Names), maxMineRead)
	}
	for _, name := range q.Names {
		if err := checkMineName(name); err != nil {
			return err
		}
	}
	principal := r.From.String()
	t, mistake := f.ParseTarget(ctx, principal, protocol.Publish{Target: q.Target, TargetType: q.TargetType})
	if err := r.Decide(f.MayReadMine(ctx, r.From, t, q.Target, q.TargetType, q.Names)); err != nil {
		return err
	}
	if mistake != nil {
		return mistake
	}
	return f.sendMine(ctx, t, q.Names, f.newMineReader(r.From), r.Send)
}

// sendMine sends those of the named entries that the requesting minion may have. The reader's turn ends
// before that: sending waits for the minion, for which others should not have to wait.
func (f *Fleet) sendMine(ctx context.Context, t *target.Target, names []string, reader *mineReader, send func(context.Context, any) error) error {
	found, err := f.findMine(ctx, t, names, reader)
	if err != nil {
		return err
	}
	for _, m := range found {
		for _, n := range m.which {
			if err := send(ctx, mineItem{m.id, names[n], m.entries[names[n]].Data}); err != nil {
				return err
			}
		}
	}
	return nil
}

// foundMine is what a reader may have of one minion. It is kept of all minions of a target at once, and
// therefore small.
type foundMine struct {
	id      salt.MinionID
	entries map[string]mineEntry
	which   []uint8 // of the names that were asked for
}

// findMine finds those of the named entries that the requesting minion may have.
func (f *Fleet) findMine(ctx context.Context, t *target.Target, names []string, reader *mineReader) ([]foundMine, error) {
	defer reader.end()
	if f.takesTurn(t) {
		if err := reader.begin(ctx); err != nil {
			return nil, err
		}
	}
	var found []foundMine
	for _, id := range f.named(t) {
		entries := f.mine.of(id)
		which, err := reader.items(ctx, id, entries, names)
		if err != nil {
			return nil, err
		}
		if len(which) == 0 {
			continue // minions without entries for the reader are skipped
		}
		if err := reader.work.next(); err != nil {
			return nil, err
		}
		ok, err := f.means(id, t, nil)
		if err != nil {
			return nil, rpc.Errorf(rpc.Usage, "target: %v", err)
		}
		if ok {
			found = append(found, foundMine{id, entries, which})
		}
	}
	return found, nil
}

// mineItem is a mine.Item with encoded data.
type mineItem struct {
	ID   salt.MinionID   `json:"id"`
	Name string          `json:"name"`
	Data json.RawMessage `json:"data"`
}

// mineReader decides whether one minion is among those that the owners of entries allow. Most
// entries have the same target; many different ones are read when it is the reader's turn.
type mineReader struct {
	facts  target.Facts
	groups map[string]any
	may    func(owner salt.MinionID, t *target.Target) bool
	known  map[string]allowed
	work   *evaluation
	read   int // bytes of the targets

	acquire func(context.Context) (func(), error)
	release func() // nil before the turn
}

// allowed is whether a target of entries matches the reader.
type allowed struct {
	target *target.Target
	means  bool
}

func (f *Fleet) newMineReader(reader bus.Identity) *mineReader {
	return &mineReader{
		facts: f.Facts(salt.MinionID(reader.Name)), groups: f.Nodegroups(), may: f.MayTarget, known: map[string]allowed{}, work: newEvaluation(),
		acquire: func(ctx context.Context) (func(), error) { return f.evaluations.Acquire(ctx, reader.String()) },
	}
}

// begin waits for the reader's turn, unless it has come. The wait is not time of the evaluation: others
// would use that up.
func (r *mineReader) begin(ctx context.Context) (err error) {
	if r.release == nil {
		asked := time.Now()
		r.release, err = r.acquire(ctx)
		r.work.end = r.work.end.Add(time.Since(asked))
	}
	return err
}

// end ends the turn, if there was one.
func (r *mineReader) end() {
	if r.release != nil {
		r.release()
		r.release = nil
	}
}

// items returns which of the entries with these names of id the reader may have.
func (r *mineReader) items(ctx context.Context, id salt.MinionID, entries map[string]mineEntry, names []string) ([]uint8, error) {
	var which []uint8
	for n, name := range names {
		e, ok := entries[name]
		if !ok {
			continue
		}
		ok, err := r.reads(ctx, id, e)
		if err != nil {
			return nil, err
		}
		if ok {
			which = append(which, uint8(n)) // there are at most maxMineRead names
		}
	}
	return which, nil
}

// reads is false in doubt: also for a target that cannot be evaluated or takes long, and for one that
// matches by pillar if its owner may not use that. The present rules count, not those of the time of
// storing.
func (r *mineReader) reads(ctx context.Context, owner salt.MinionID, e mineEntry) (bool, error) {
	if e.Allow == "" {
		return true, nil
	}
	key := fmt.Sprintf("%s\x00%s", e.AllowType, e.Allow)
	a, known := r.known[key]
	if !known {
		if r.read += len(e.Allow); r.read > longPattern {
			if err := r.begin(ctx); err != nil {
				return false, err
			}
		}
		if err := r.work.next(); err != nil {
			return false, err
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		a = r.judge(e)
		r.known[key] = a
	}
	return a.means && r.may(owner, a.target), nil
}

func (r *mineReader) judge(e mineEntry) (a allowed) {
	if takesLong(e.Allow, e.AllowType) {
		return a
	}
	t, err := target.Parse(e.Allow, e.AllowType, target.Options{Nodegroups: r.groups})
	if err != nil || backtracks(t, e.Allow, e.AllowType, r.groups) || t.NeedsGrains() && r.facts.Grains == nil || t.NeedsPillar() && r.facts.Pillar == nil {
		return a
	}
	ok, err := t.Match(r.facts)
	return allowed{t, ok && err == nil}
}
