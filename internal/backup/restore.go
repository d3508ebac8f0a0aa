package backup

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/journal"
)

// Target is the store that a backup is restored into.
type Target struct {
	Member  string   // the name of this member of a cluster; "" for a single master
	Cluster string   // its cluster_id
	Members []string // the names of all members, this one included
	Copies  int      // of each stream, in a cluster
	Hosted  bool     // it is in the JetStream of NATS servers that others run
	// From is the member of the cluster of the backup whose place this master takes; "" is the one
	// with the same name, or for a single master the one that wrote the backup.
	From string
	// Entry returns what an entry of a table becomes that is about the journal of the member from,
	// which becomes that of the member to; "" is that of a single master. nil changes nothing.
	Entry func(table, key string, value []byte, from, to string) (string, []byte)
	// Renamed returns what an entry of a table becomes if it says something about the journal of another one, from, which has
	// the name to from now on; nil changes nothing.
	Renamed func(table, key string, value []byte, from, to string) (string, []byte)
	// Unconfirmed returns what an entry of a table becomes that may have been removed before the backup, see Manifest; nil changes nothing.
	Unconfirmed func(table string, value []byte) []byte
	// Outdated reports whether an entry of a table that all members share is older than what is known
	// elsewhere, and must not come back; nil keeps all.
	Outdated func(table, key string, value []byte) bool
	// Follow changes what the master keeps elsewhere of what was restored; nil changes nothing. CarryOut calls it before the order is
	// removed, and again at the next start where this one is killed meanwhile: it must be able to find its work done already.
	Follow func(*Restored) error
	Log    *slog.Logger
}

// Restored is what Restore has done.
type Restored struct {
	Streams []string // that are as they were, by their new names
	Merged  []string // shared tables of a cluster: they got what they lacked
	Left    []string // streams of the backup that belong to nobody here
	// There is how many entries of the backup are not in a shared table, since the members had such an entry or had deleted it, by the name
	// of the stream. What an attempt that failed has added counts, too.
	There map[string]int
	// Renamed are the new names of those whose journals or audit logs are kept, by their names in the backup, where these differ.
	Renamed map[string]string
}

// Progress is how far a restore has come, so that it can go on after a kill.
type Progress struct {
	Begun []string `json:"begun,omitempty"` // streams of this master that may be there in part
	Done  []string `json:"done,omitempty"`
}

// restorer restores one backup.
type restorer struct {
	nc          *nats.Conn
	dir         string
	from        string // the member of the backup whose place to takes
	unconfirmed bool   // see Manifest
	to          Target
	at          *Progress
	note        func() error // stores at

	renamed map[string]string // see Restored
	there   map[string]int    // see Restored
}

// move is what becomes of a stream.
type move struct {
	Stream
	from, to journal.Place
}

// Restore restores the backup in dir, which Verify has checked, into the store that nc is
// connected to. A stream of this master that is there already, unless an earlier attempt has begun
// it, is an error that wraps errExists; then nothing is changed. note stores progress before and
// after each stream.
func Restore(ctx context.Context, nc *nats.Conn, m *Manifest, dir string, to Target, at *Progress, note func() error) (*Restored, error) {
	from, err := m.whose(to)
	if err != nil {
		return nil, err
	}
	r := &restorer{nc: nc, dir: dir, from: from, unconfirmed: m.Unconfirmed, to: to, at: at, note: note, renamed: m.former(to), there: map[string]int{}}
	maps.DeleteFunc(r.renamed, func(from, to string) bool { return from == to })
	moves, left, err := m.plan(to)
	if err != nil {
		return nil, err
	}
	moves, there, err := r.vacant(ctx, moves)
	if err != nil {
		return nil, err
	}
	did := &Restored{Left: append(left, there...), Renamed: r.renamed, There: r.there}
	for _, one := range moves {
		merged, err := r.move(ctx, one)
		if err != nil {
			return nil, fmt.Errorf("restore the stream %s: %w", one.to.Stream(), err)
		}
		if merged {
			did.Merged = append(did.Merged, one.to.Stream())
		} else {
			did.Streams = append(did.Streams, one.to.Stream())
		}
	}
	return did, nil
}

// vacant makes sure that no stream would be replaced that no earlier attempt has begun. It is called
// before anything is begun: what is begun may be deleted by the next attempt. It returns the moves without
// those of streams that belong to no member and are there already: they stay as they are.
func (r *restorer) vacant(ctx context.Context, moves []move) (rest []move, there []string, err error) {
	var names []string
	err = r.early(ctx, true, func(ctx context.Context) (err error) {
		names, err = streamNames(ctx, r.nc)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	for _, m := range moves {
		name := m.to.Stream()
		switch taken := !r.merges(m) && contains(names, name) && !contains(r.at.Begun, name) && !contains(r.at.Done, name); {
		case taken && m.to.Member == r.to.Member:
			return nil, nil, fmt.Errorf("restore the stream %s: %w", name, errExists)
		case taken:
			r.to.Log.Info("a stream that belongs to no member is there already, and stays as it is", "stream", name)
			there = append(there, m.Name)
		default:
			rest = append(rest, m)
		}
	}
	return rest, there, nil
}

// merges reports whether a stream gets only what it lacks.
func (r *restorer) merges(m move) bool { return !m.to.Own && r.to.Member != "" }

// move restores one stream. A shared table of a cluster is made, or is there already, and gets
// what it lacks: the others open it at the same time, and a stream that is restored and made at
// once is not usable for a while.
func (r *restorer) move(ctx context.Context, m move) (merged bool, err error) {
	name := m.to.Stream()
	merged = r.merges(m)
	if contains(r.at.Done, name) {
		return merged, nil
	}
	begun := time.Now()
	if merged {
		err = r.merge(ctx, m)
	} else {
		err = r.replace(ctx, m)
	}
	if err != nil {
		return merged, err
	}
	r.to.Log.Info("a stream was restored", "stream", name, "messages", m.Messages, "last", m.Last, "merged", merged, "took", time.Since(begun).Round(time.Millisecond))
	r.at.Done = append(r.at.Done, name)
	return merged, r.note()
}

// replace restores a stream of this master. What an earlier attempt has begun is begun again.
func (r *restorer) replace(ctx context.Context, m move) error {
	name := m.to.Stream()
	if contains(r.at.Begun, name) {
		if err := r.remove(ctx, name); err != nil {
			return err
		}
	} else {
		r.at.Begun = append(r.at.Begun, name)
		if err := r.note(); err != nil {
			return err
		}
	}
	found, err := r.sendAgain(ctx, m)
	if found { // somebody has made it since vacant looked: the next start must not take it for what this one has begun
		r.at.Begun = slices.DeleteFunc(r.at.Begun, func(one string) bool { return one == name })
		return errors.Join(err, r.note())
	}
	return err
}

// send restores a stream that is not there.
func (r *restorer) send(ctx context.Context, m move) error {
	settings, err := m.to.Configure(m.Settings, r.to.Copies)
	if err != nil {
		return err
	}
	var begun struct {
		Deliver string `json:"deliver_subject"`
	}
	question := map[string]any{"config": json.RawMessage(settings), "state": map[string]uint64{"messages": m.Messages, "first_seq": m.First, "last_seq": m.Last}}
	err = r.early(ctx, false, func(ctx context.Context) error {
		return ask(ctx, r.nc, "STREAM.RESTORE."+m.to.Stream(), question, &begun)
	})
	if err != nil {
		return err
	}
	f, err := m.open(r.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	snapshot, done := r.changed(m, f)
	got, err := r.upload(ctx, begun.Deliver, snapshot)
	done()
	if err != nil {
		return err
	}
	if got.Last != m.Last {
		return fmt.Errorf("it ends with %d, not %d", got.Last, m.Last)
	}
	if r.to.Copies <= 1 {
		return nil
	}
	r.to.Log.Debug("a stream has one copy, and the others follow", "stream", m.to.Stream())
	return r.copied(ctx, m.to.Stream(), m.Last)
}

// Limits of early.
const (
	beginTime  = time.Minute
	beginPause = 250 * time.Millisecond
)

// early repeats a request that came too early, and if it may be carried out twice also one without an answer.
func (r *restorer) early(ctx context.Context, twice bool, request func(context.Context) error) error {
	once, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	for {
		err := request(once)
		if !early(err) && !(twice && errors.Is(err, errUnanswered)) || !backoff.Sleep(once, beginPause) {
			return unanswered(ctx, err, beginTime)
		}
	}
}

// changed returns the snapshot as its new stream has it, and what ends the reading of f.
func (r *restorer) changed(m move, f io.Reader) (snapshot io.Reader, done func()) {
	if m.to.Kind != journal.QueueKind && m.to.Kind != journal.TableKind {
		return f, func() {}
	}
	out, in := io.Pipe()
	var running sync.WaitGroup
	running.Go(func() {
		in.CloseWithError(rewrite(in, f, func(h *archive.Header, body []byte) []byte { return r.change(m, h, body) }))
	})
	return out, func() {
		out.Close()
		running.Wait()
	}
}

// change gives a message of a queue or a table the subject that it has in its new stream, and the
// entry of a table the content.
func (r *restorer) change(m move, h *archive.Header, body []byte) []byte {
	h.Name = m.from.Subject(h.Name, m.to)
	key, ok := m.to.Entry(h.Name)
	if !ok || h.PayloadSize == 0 { // the mark of a deleted one is empty
		return body
	}
	value := body[h.HeaderSize:]
	if r.unconfirmed && r.to.Unconfirmed != nil {
		value = r.to.Unconfirmed(m.to.Name, value)
	}
	if r.to.Entry != nil {
		key, value = r.to.Entry(m.to.Name, key, value, r.from, r.to.Member)
	}
	if r.to.Renamed != nil {
		for from, to := range r.renamed {
			key, value = r.to.Renamed(m.to.Name, key, value, from, to)
		}
	}
	h.Name, h.PayloadSize = m.to.EntrySubject(key), int64(len(value))
	return append(bytes.Clone(body[:h.HeaderSize]), value...)
}

// upload sends a snapshot, with some pieces under way, and returns what the server has of it.
func (r *restorer) upload(ctx context.Context, to string, snapshot io.Reader) (state, error) {
	inbox := r.nc.NewInbox()
	sub, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		return state{}, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // it ends with the connection at the latest
	underway, piece := 0, make([]byte, chunkSize)
	for {
		n, err := io.ReadFull(snapshot, piece)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return state{}, err // the server gives up when no more comes
		}
		if err := r.nc.PublishRequest(to, inbox, piece[:n]); err != nil {
			return state{}, unsent(err)
		}
		for underway++; underway >= windowSize/chunkSize; underway-- {
			if err := confirmed(ctx, sub); err != nil {
				return state{}, err
			}
		}
	}
	for ; underway > 0; underway-- {
		if err := confirmed(ctx, sub); err != nil {
			return state{}, err
		}
	}
	return r.finish(ctx, to, inbox, sub)
}

// confirmed waits for the confirmation of a piece.
func confirmed(ctx context.Context, sub *nats.Subscription) error {
	m, err := next(ctx, sub, answerTime)
	if err != nil || len(m.Data) == 0 {
		return ended(err)
	}
	return cmp.Or(answered(m.Data, nil), errEnded)
}

// ended says what it means that nobody takes pieces any more: the server has given up, or is out of
// reach.
func ended(err error) error {
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%w: %w", errEnded, err)
	}
	return err
}

// unsent says what it means that a piece cannot be sent. A connection that has ended is made again, unless
// it was closed here.
func unsent(err error) error {
	if errors.Is(err, nats.ErrConnectionClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", errEnded, err)
}

// finish marks the end, and returns the state of the new stream.
func (r *restorer) finish(ctx context.Context, to, inbox string, sub *nats.Subscription) (state, error) {
	if err := r.nc.PublishRequest(to, inbox, nil); err != nil {
		return state{}, unsent(err)
	}
	m, err := next(ctx, sub, answerTime)
	if err != nil {
		return state{}, ended(err)
	}
	var made struct {
		State state `json:"state"`
	}
	return made.State, answered(m.Data, &made)
}
