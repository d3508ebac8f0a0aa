package journal

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/uptime"
)

// PeersBy is Peers with this JetStream, at a store without delays.
func PeersBy(ctx context.Context, js jetstream.JetStream) ([]*Mirror, error) {
	return peers(ctx, js, sound{}, func(string) bool { return false })
}

// Doubt marks messages that were sent as possibly not stored.
func (j *Journal) Doubt() { j.writer.doubt() }

// ReadsAt returns the member where the server has placed the consumer of a cursor.
func (c *Cursor) ReadsAt() string { return (*c.consumer.Load()).CachedInfo().Cluster.Leader }

// Pause makes the consumer of a cursor bring nothing for an hour, as that of a copy that does not catch
// up. It is not lost.
func (c *Cursor) Pause(ctx context.Context) error {
	j := c.reader.journal
	_, err := j.stream.PauseConsumer(ctx, (*c.consumer.Load()).CachedInfo().Name, time.Now().Add(time.Hour))
	return err
}

// Blind gives a cursor a consumer that has nothing to bring, as that of a copy that has stopped.
func (c *Cursor) Blind(ctx context.Context) error {
	cfg := c.settings
	cfg.FilterSubjects = []string{plainPrefix + "nothing"}
	consumer, err := c.reader.journal.stream.CreateConsumer(ctx, cfg)
	if err == nil {
		c.consumer.Store(&consumer)
	}
	return err
}

// Lose removes the consumer of a cursor from the server.
func (j *Journal) Lose(ctx context.Context, c *Cursor) error {
	return j.stream.DeleteConsumer(ctx, (*c.consumer.Load()).CachedInfo().Name)
}

// DropAnswers makes the answers to what is sent from now on reach nobody, until restore is called.
func (j *Journal) DropAnswers() (restore func()) {
	w := j.writer
	set := func(to string) (was string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		was, w.inbox = w.inbox, to
		return was
	}
	was := set(w.nc.NewInbox() + ".")
	return func() { set(was) }
}

// MissFor makes a leader that lacks the newest messages answer questions about single ones, for that
// time.
func (j *Journal) MissFor(d time.Duration) { j.writer.missFor(d) }

func (w *writer) missFor(d time.Duration) {
	f, until := w.fence, time.Now().Add(d)
	f.line.Lock()
	defer f.line.Unlock()
	read := f.read
	f.read = func(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
		if time.Now().Before(until) {
			return nil, jetstream.ErrMsgNotFound
		}
		return read(ctx, seq)
	}
}

// earlier is a table where a server answers that led it before.
type earlier struct {
	jetstream.KeyValue
	entry jetstream.KeyValueEntry
}

func (e earlier) Get(context.Context, string) (jetstream.KeyValueEntry, error) { return e.entry, nil }

// Freeze makes the table show an entry as it is now, as a server does that led the table before.
func (t *Table) Freeze(ctx context.Context, key string) error {
	e, err := t.kv.Get(ctx, kvKey(key))
	t.kv = earlier{t.kv, e}
	return err
}

// refusing is a table that a server refuses to change that led it before; lost means that the leader has
// changed it, and its answer was lost.
type refusing struct {
	jetstream.KeyValue
	times int
	lost  bool
}

func (r *refusing) Purge(ctx context.Context, key string, opts ...jetstream.KVDeleteOpt) error {
	if r.times == 0 {
		return r.KeyValue.Purge(ctx, key, opts...)
	}
	r.times--
	if r.lost {
		if err := r.KeyValue.Purge(ctx, key, opts...); err != nil {
			return err
		}
	}
	return jetstream.ErrKeyExists
}

// Refuse has the next deletion refused by a server that led the table before, lost after the leader has
// stored it.
func (t *Table) Refuse(lost bool) { t.kv = &refusing{t.kv, 1, lost} }

// Lack has the table answered by a server that led it before an entry was stored, and refuses this many changes
// of it. The last time the leader tells what is there.
func (t *Table) Lack(revision uint64, times int) {
	lacks := &lacking{t.kv, revision, times}
	t.kv, t.all = lacks, lacksStream{t.all, lacks}
}

type lacking struct {
	jetstream.KeyValue
	revision uint64
	times    int
}

func (l *lacking) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if l.times--; l.times >= 0 {
		return 0, jetstream.ErrKeyExists
	}
	return l.KeyValue.Update(ctx, key, value, revision)
}

func (l *lacking) Purge(ctx context.Context, key string, opts ...jetstream.KVDeleteOpt) error {
	if l.times--; l.times >= 0 {
		return jetstream.ErrKeyExists
	}
	return l.KeyValue.Purge(ctx, key, opts...)
}

type lacksStream struct {
	jetstream.Stream
	of *lacking
}

func (s lacksStream) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	if s.of.times >= 0 {
		return nil, jetstream.ErrMsgNotFound
	}
	return s.Stream.GetLastMsgForSubject(ctx, subject)
}

func (s lacksStream) Info(ctx context.Context, opts ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	info, err := s.Stream.Info(ctx, opts...)
	if err == nil && s.of.times > 0 { // at last another server answers
		info.State.LastSeq, info.State.Subjects = s.of.revision-1, nil
	}
	return info, err
}

// Behind is what SequenceAt does when it finds nothing.
func (j *Journal) Behind(ctx context.Context, t time.Time, last uint64) (uint64, error) {
	return j.behind(ctx, t, last)
}

// Shorten makes a server answer for the queue that led it before and lacks what is behind last, for that time.
func (q *Queue) Shorten(last uint64, d time.Duration) {
	q.writer.missFor(d)
	q.stream = &shorter{q.stream, last, time.Now().Add(d)}
}

// shorter is a stream as a server has it that led before.
type shorter struct {
	jetstream.Stream
	last  uint64
	until time.Time
}

func (s *shorter) Info(ctx context.Context, opts ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	info, err := s.Stream.Info(ctx, opts...)
	if err == nil && time.Now().Before(s.until) {
		info.State.LastSeq = s.last
	}
	return info, err
}

func (s *shorter) GetMsg(ctx context.Context, seq uint64, opts ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	m, err := s.Stream.GetMsg(ctx, seq, opts...)
	return s.shown(m, err)
}

func (s *shorter) shown(m *jetstream.RawStreamMsg, err error) (*jetstream.RawStreamMsg, error) {
	if err == nil && m.Sequence > s.last && time.Now().Before(s.until) {
		return nil, jetstream.ErrMsgNotFound
	}
	return m, err
}

func (s *shorter) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	if time.Now().Before(s.until) {
		return s.Stream.GetMsg(ctx, s.last)
	}
	return s.Stream.GetLastMsgForSubject(ctx, subject)
}

// Slow makes the server answer only some questions about messages of the queue before end is called.
func (q *Queue) Slow(answers int, end func()) { q.stream = &slow{q.stream, answers, end} }

// slow is a stream whose server does not answer in time.
type slow struct {
	jetstream.Stream
	answers int
	end     func()
}

func (s *slow) GetMsg(ctx context.Context, seq uint64, opts ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	if s.answers == 0 {
		s.end()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s.answers--
	return s.Stream.GetMsg(ctx, seq, opts...)
}

// Relearn learns the names of what is stored anew, as a start does that was told the state of the stream that
// the handle has.
func (j *Journal) Relearn(ctx context.Context, told jetstream.Stream) error {
	j.names, j.stream = newNames(), told
	return j.openNames(ctx, "", nil, j.writer.stored())
}

// TellNames writes the file of names of a journal that is closed: it is complete up to the sequence at, where a batch
// of this name was stored.
func (j *Journal) TellNames(path, name string, at uint64) error {
	l := nameLog{path: path, created: j.stream.CachedInfo().Created}
	defer l.close()
	return l.begin(at, []shelved{{time.Now(), []named{{senderOf(name), keyOf(name), reach{at, 1}}}}})
}

// Clock sets the clock by which the table knows how old an answer is.
func (t *ConfirmedTable) Clock(up func() uptime.Moment) { t.up = up }

// Miss makes a reader read the table again after this time without an answer.
func (r *TableReader) Miss(after time.Duration) { r.miss = after }

// Follow stores a message behind the newest one of the own journal, or does nothing while something is being stored;
// FollowPeer stores one in that of another member.
func (j *Journal) Follow(ctx context.Context) error {
	return j.followNow(ctx, j.name, newestKeeper{j}.follow)
}

func (j *Journal) FollowPeer(ctx context.Context, member string) error {
	return j.followNow(ctx, memberPrefix+member, newestKeeper{j}.followPeer)
}

func (j *Journal) followNow(ctx context.Context, stream string, follow func(context.Context, jetstream.Stream) error) error {
	s, err := j.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	if !byLeader(s.CachedInfo().Cluster) {
		return errNoLeader
	}
	return follow(ctx, s)
}

// UnderWay returns about how many bytes were sent and are not known to be stored.
func (j *Journal) UnderWay() int64 { return j.writer.underWay() }
