package journal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
)

// Draft is an event on its way into the journal.
type Draft struct {
	Tag  string
	Text []byte // as event.Event.Append writes it, without a sequence
}

// Batch is events that are stored one behind the other.
//
// Its name says which they are: a second batch of the same name is a repetition, of
// which only that is stored which the first one lacks. That is known of each sender for
// some thousand names and some minutes, over a kill of the daemon, too: the name is
// stored with the first event of a batch alone, and what follows that one is known by its
// sequence, see batchHeader.
type Batch struct {
	Name   string // "" is never a repetition. Its sender stands before the first slash
	First  int    // what number the first draft has in the batch, from 0: those before it are stored
	Count  int    // of the drafts
	Drafts iter.Seq[Draft]
}

// batchHeader is in the first message of a batch: name/number/count. Nobody else writes to
// the stream, and a batch goes there at one go, so as many messages without a header as
// count says are of the same batch. A long event gives way to others between its pieces, each
// of which has a header of its own, and so has what follows on it in a batch with a name. One
// that was not stored whole, since the daemon was
// killed or the disk full, is cut off by a header: the first message after that always
// has one, if need be without a name.
const batchHeader = "Salt-Lot"

// Append stores e and returns its sequence. name is that of a batch, see Batch: a second event
// of the same name is not stored and returns the sequence of the first.
func (j *Journal) Append(ctx context.Context, e event.Event, name string) (uint64, error) {
	p, err := j.Begin(e, name)
	if err != nil {
		return 0, err
	}
	return p.Wait(ctx)
}

// Begin starts to store e, in the order of the calls, without waiting.
func (j *Journal) Begin(e event.Event, name string) (*Pending, error) {
	return j.BeginAll(single(e, name))
}

// single is a batch of one event.
func single(e event.Event, name string) Batch {
	e.Seq = 0 // the store gives it
	d := Draft{e.Tag, e.Text()}
	return Batch{Name: name, Count: 1, Drafts: func(yield func(Draft) bool) { yield(d) }}
}

// BeginAll is Begin for several events, which costs less than one call for each: they
// are stored while the next ones are made. The word of the Pending is for all of them,
// its sequence that of the last. There must be one.
func (j *Journal) BeginAll(l Batch) (*Pending, error) { return j.BeginEach([]Batch{l}) }

// BeginEach is BeginAll for batches of several names, which many senders have sent: the
// word of the Pending is for all of them, its sequence that of the last that was not stored
// before.
func (j *Journal) BeginEach(batches []Batch) (*Pending, error) {
	j.shares.wait(j.closed)
	return j.beginNow(batches)
}

// beginNow is BeginEach, whether there is room or not.
func (j *Journal) beginNow(batches []Batch) (*Pending, error) {
	w := j.writer
	w.order.Lock()
	defer w.order.Unlock()
	p, err := w.begin()
	if err != nil {
		return nil, err
	}
	if w.doubted() {
		j.cut = true
	}
	batches, skip, err := j.lacking(batches, p)
	switch {
	case err != nil:
		return nil, fmt.Errorf("store the event: %w", err)
	case len(batches) == 0:
		return p.repetition(), nil
	}
	p.names = j.names
	for i, l := range batches {
		last := i == len(batches)-1
		if last { // what was sent is known to p before somebody could tell of it
			p.stores(l, 0)
		}
		if err = j.send(l, skip[i], p, last); err != nil {
			w.doubt()
			return p, err
		}
		if !last {
			p.stores(l, w.number())
		}
	}
	return p, nil
}

// lacking returns the batches of which not all is stored, with how many of their drafts
// are. p is told of the others, and the names of what it is to store.
func (j *Journal) lacking(batches []Batch, p *Pending) (todo []Batch, skip []int, err error) {
	named := map[string]bool{}
	for _, l := range batches {
		known, err := j.known(l.Name)
		if err != nil {
			return nil, nil, err
		}
		if known.n >= l.First+l.Count {
			p.repeats = append(p.repeats, known)
			continue
		}
		if l.Name != "" && named[l.Name] {
			continue // it is the same one twice
		}
		named[l.Name] = true
		todo, skip = append(todo, l), append(skip, max(0, known.n-l.First))
	}
	for _, l := range todo {
		if l.Name != "" {
			j.names.begin(l.Name, flight{p: p, n: l.First + l.Count, from: p.writer.stored()})
		}
	}
	return todo, skip, nil
}

// send sends a batch without its first drafts. final says that it is the last one of p.
func (j *Journal) send(l Batch, skip int, p *Pending, final bool) error {
	write := batchWriter{journal: j, batch: l, number: l.First}
	defer write.charge()
	end := l.First + l.Count
	for d := range l.Drafts {
		if skip > 0 {
			skip--
			write.number++
			continue
		}
		last := final && write.number == end-1
		j.Recent.add(d.Tag)
		if len(d.Text) > maxPart {
			count, piece := write.pieces(d)
			if err := write.sendLong(count, piece, p, last); err != nil {
				return err
			}
			continue
		}
		if err := j.writer.put(write.message(d), p, last); err != nil {
			return err
		}
	}
	return nil
}

// piecesAhead is how many pieces of a long event are under way beside the one that is sent.
// What others store meanwhile waits for these, and not for sixty megabytes.
const piecesAhead = 2

// sendLong sends the pieces of a long event, between which what others store may come. When
// it is the last of its batch their sequences may be asked for.
func (w *batchWriter) sendLong(count int, piece func(n int) *nats.Msg, p *Pending, last bool) error {
	var before []*Pending
	for n := range count - 1 {
		one := &Pending{writer: p.writer, failed: p.failed, done: make(chan struct{}), of: p}
		if err := w.journal.writer.put(piece(n), one, true); err != nil {
			return err
		}
		before = append(before, one)
		if n < piecesAhead {
			continue
		}
		if err := w.giveWay(before[n-piecesAhead]); err != nil {
			return fmt.Errorf("store the event: %w", err)
		}
	}
	if last {
		p.before = before
	}
	return w.journal.writer.put(piece(count-1), p, last)
}

// errBroken says that it was found out what is stored while a long event was not whole: its
// name is not known any more to be on its way.
var errBroken = fmt.Errorf("%w: what is stored was found out meanwhile", ErrStore)

// giveWay lets others have the order of the writer until the piece one is stored.
func (w *batchWriter) giveWay(one *Pending) error {
	j, before := w.journal, w.journal.reconciled
	ctx, cancel := context.WithTimeoutCause(context.Background(), stallWait, errMute)
	defer cancel()
	j.writer.order.Unlock()
	err := one.wait(ctx)
	j.writer.order.Lock()
	switch {
	case errors.Is(err, errMute):
		j.writer.forget()
	case err == nil && j.reconciled != before:
		return errBroken
	}
	return err
}

// batchWriter makes the messages of a batch.
type batchWriter struct {
	journal *Journal
	batch   Batch
	number  int        // of the next event
	inside  bool       // the message before has the header, or is known by its sequence
	tag     string     // of the message before
	plain   string     // the subject of that tag
	subject string     // where it lies: in which class
	class   class      // that one
	owner   string     // whose share it takes
	origin  origin     // what kind of sender that is
	owed    int64      // bytes that are not counted yet
	spare   []nats.Msg // for the next messages: one allocation for many
}

// chargeEvery is how many bytes of one tag are counted at a time.
const chargeEvery = 64 << 10

// turn finds out where events of the tag of d lie.
func (w *batchWriter) turn(d Draft) {
	w.charge()
	w.tag, w.plain = d.Tag, event.Subject(d.Tag)
	w.class = classOf(w.plain)
	w.owner = ownerOf(d, w.class)
	w.origin = originOf(w.owner)
	w.move(w.journal.shares.over(w.class, w.owner))
}

// move puts what follows beyond the share of its owner, if that is used up.
func (w *batchWriter) move(over bool) {
	if over {
		w.class = classOver
	}
	w.subject = subjectIn(w.class, w.plain, w.owner)
}

// charge counts what was sent.
func (w *batchWriter) charge() {
	if w.owed > 0 {
		w.move(w.journal.shares.add(w.class, w.owner, w.owed, w.journal.writer.latest()))
		w.owed = 0
	}
}

// maxSpare is how many messages are allocated at once, at most.
const maxSpare = 128

func (w *batchWriter) next(d Draft) *nats.Msg {
	if len(w.spare) == 0 {
		w.spare = make([]nats.Msg, min(maxSpare, w.batch.First+w.batch.Count-w.number))
	}
	m := &w.spare[0]
	w.spare = w.spare[1:]
	if w.subject == "" || d.Tag != w.tag {
		w.turn(d)
	} else if w.owed >= chargeEvery {
		w.charge()
	}
	w.owed += int64(len(d.Text) + len(w.subject) + recordBytes)
	m.Subject, m.Data = w.subject, d.Text
	w.journal.taken[w.origin].Add(1)
	w.number++
	return m
}

func (w *batchWriter) message(d Draft) *nats.Msg {
	number := w.number
	m := w.next(d)
	switch {
	case w.batch.Name != "" && !w.inside:
		m.Header = nats.Header{batchHeader: {label{w.batch.Name, number, w.batch.First + w.batch.Count - number}.String()}}
		w.inside = true
	case w.journal.cut:
		m.Header = nats.Header{batchHeader: {label{}.String()}}
	}
	w.journal.cut = false
	return m
}

// pieces cuts a long event into messages, each of which is a copy that is made when it is sent:
// of all at once a large return would be in memory twice.
func (w *batchWriter) pieces(d Draft) (count int, piece func(n int) *nats.Msg) {
	id := nats.NewInbox()
	if w.batch.Name != "" {
		id = w.batch.Name + "/" + strconv.Itoa(w.number)
	}
	m := w.next(d)
	body := m.Data
	subject := m.Subject
	count = (len(body) + maxPart - 1) / maxPart
	w.inside, w.journal.cut = false, false
	return count, func(n int) *nats.Msg {
		return &nats.Msg{
			Subject: subject, Data: append([]byte{partMark}, body[n*maxPart:min((n+1)*maxPart, len(body))]...),
			Header: nats.Header{partHeader: {label{id, n, count}.String()}},
		}
	}
}

// label is what a header says: a name, a number, and how many there are.
type label struct {
	name     string
	n, count int
}

func (l label) String() string {
	return l.name + "/" + strconv.Itoa(l.n) + "/" + strconv.Itoa(l.count)
}

// readLabel returns the zero value for anything else.
func readLabel(text string) label {
	rest, behind, _ := cutLast(text)
	name, number, ok := cutLast(rest)
	n, err := strconv.Atoi(number)
	count, errCount := strconv.Atoi(behind)
	if !ok || err != nil || errCount != nil || n < 0 || count < 0 {
		return label{}
	}
	return label{name, n, count}
}

// cutLast cuts s at its last slash.
func cutLast(s string) (before, behind string, ok bool) {
	at := strings.LastIndexByte(s, '/')
	if at < 0 {
		return "", "", false
	}
	return s[:at], s[at+1:], true
}

// Names calls f for each event from the sequence seq on that belongs to a batch with a name,
// with its number there, in the order of the journal, until the end of what was stored
// when it began. It reads no data, so that a daemon which starts can find out what it
// has stored. seq is a sequence where no batch is cut in two.
func (j *Journal) Names(ctx context.Context, seq uint64, f func(seq uint64, name string, number int)) error {
	return j.readNames(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(seq, 1)}, f)
}

func (j *Journal) readNames(ctx context.Context, from jetstream.OrderedConsumerConfig, f func(seq uint64, name string, number int)) error {
	from.HeadersOnly = true
	consumer, err := j.stream.OrderedConsumer(ctx, from)
	if err != nil {
		return fmt.Errorf("read the journal's names: %w", err)
	}
	defer j.release(&Cursor{consumer: consumer})
	reader := batchReader{tell: f}
	for left := consumer.CachedInfo().NumPending; left > 0; {
		batch, err := consumer.FetchNoWait(int(min(left, 4096)))
		if err != nil {
			return fmt.Errorf("read the journal's names: %w", err)
		}
		got := uint64(0)
		for m := range batch.Messages() {
			got++
			if at, err := whereabouts(m); err == nil {
				reader.read(at.seq, m.Headers())
			}
		}
		if err := batch.Error(); err != nil {
			return fmt.Errorf("read the journal's names: %w", err)
		}
		if got == 0 {
			return nil // the rest was discarded, by age or size, since it began
		}
		left -= min(got, left)
	}
	return ctx.Err()
}

// batchReader finds out from headers which messages belong to which batch.
type batchReader struct {
	tell  func(seq uint64, name string, number int)
	batch label  // the latest
	at    uint64 // the sequence of its first message
}

func (r *batchReader) read(seq uint64, h nats.Header) {
	if part, _ := piece(h, nil); part != "" {
		r.batch = label{}
		r.readPart(seq, part)
		return
	}
	if text := h.Get(batchHeader); text != "" {
		r.batch, r.at = readLabel(text), seq
	} else if id := h.Get(jetstream.MsgIDHeader); id != "" { // an older daemon gave each event one
		r.batch = label{}
		r.readID(seq, id)
		return
	}
	if behind := seq - r.at; r.batch.name != "" && behind < uint64(r.batch.count) {
		r.tell(seq, r.batch.name, r.batch.n+int(behind))
	}
}

// readPart tells of a long event at the last of its pieces.
func (r *batchReader) readPart(seq uint64, part string) {
	if id, n, count, ok := splitPart(part); ok && n == count-1 {
		r.readID(seq, id)
	}
}

// readID tells of the event name/number.
func (r *batchReader) readID(seq uint64, id string) {
	if name, number, ok := cutLast(id); ok {
		if n, err := strconv.Atoi(number); err == nil && n >= 0 {
			r.tell(seq, name, n)
		}
	}
}
