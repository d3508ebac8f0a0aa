package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/salt"
)

// Draft is an event on its way into the journal.
type Draft struct {
	Tag  string
	Text []byte // as event.Event.Append writes it, without a sequence
}

// Batch is a number of events that are stored one after the other.
//
// A second batch with the same name is a duplicate: of it only those events are stored that the
// first one lacks. The journal remembers some thousand names of each sender for some minutes,
// also over a kill of the daemon: the name is stored with the first event of a batch; the
// following ones are recognised by their sequence, see batchHeader.
type Batch struct {
	Name   string // "" is never a duplicate. The part before the first slash is the sender
	Also   string // a second name of a batch of one event, of the same sender; "" for none. It is not found in the journal after a kill
	Owner  string // whose share it counts for, see Speaker of event.Head; "" is decided for each draft
	Term   uint64 // the one in which it may be stored, see Journal.Term; 0 for any
	First  int    // number of the first draft in the batch, from 0: those before it are stored
	Count  int    // number of drafts
	Drafts iter.Seq[Draft]
}

// batchHeader is in the first message of a batch: name/number/count. The journal alone writes
// to the stream, and sends a batch at one go, so the count says how many messages without a
// header belong to the same batch. Between the pieces of a long event others may be stored, so
// each piece has its own header, and so has what follows it in a batch with a name. If the
// daemon was killed or the disk full in the middle of a batch, the next message always has a
// header, if need be without a name, which ends the incomplete batch.
const batchHeader = "Salt-Lot"

// Append stores e and returns its sequence. name is that of a batch, see Batch: a second event
// with the same name is not stored, and the sequence of the first is returned.
func (j *Journal) Append(ctx context.Context, e event.Event, name string) (uint64, error) {
	p, err := j.Begin(e, name)
	if err != nil {
		return 0, err
	}
	return p.Wait(ctx)
}

// Begin starts to store e without waiting. Events are stored in the order of the calls.
func (j *Journal) Begin(e event.Event, name string) (*Pending, error) {
	return j.BeginAll(single(e, name))
}

// Single is a batch of one event, which may be stored in that term only.
func Single(e event.Event, name string, term uint64) Batch {
	l := single(e, name)
	l.Term = term
	return l
}

// single is a batch of one event.
func single(e event.Event, name string) Batch {
	e.Seq = 0 // the store assigns it
	d := Draft{e.Tag, e.Text()}
	return Batch{Name: name, Count: 1, Drafts: func(yield func(Draft) bool) { yield(d) }}
}

// BeginFor is Begin for an event of the daemon that a user has caused; it counts for that
// user's share. "" is the daemon itself.
func (j *Journal) BeginFor(e event.Event, user string) (*Pending, error) {
	l := single(e, "")
	if user != "" {
		l.Owner = salt.UserPrefix + user
	}
	return j.BeginAll(l)
}

// BeginAll is Begin for several events, at least one, which costs less than one call for each:
// they are stored while the next ones are made. The Pending is for all of them, its sequence
// that of the last.
func (j *Journal) BeginAll(l Batch) (*Pending, error) { return j.BeginEach([]Batch{l}) }

// BeginEach is BeginAll for several batches from many senders. The Pending is for all of them,
// its sequence that of the last event that was not stored before.
func (j *Journal) BeginEach(batches []Batch) (*Pending, error) {
	j.shares.wait(j.closed)
	return j.beginNow(batches)
}

// beginNow is BeginEach without waiting for space.
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
	p.names, p.term = j.names, termOf(batches)
	for i, l := range batches {
		last := i == len(batches)-1
		if last { // p knows what was sent before anybody can report about it
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

// termOf returns the term in which all of these may be stored.
func termOf(batches []Batch) (term uint64) {
	for _, l := range batches {
		if l.Term != 0 && (term == 0 || l.Term < term) {
			term = l.Term
		}
	}
	return term
}

// lacking returns the batches that are not stored completely, with the number of their drafts
// that are. p is given the others, and the names of what it is to store.
func (j *Journal) lacking(batches []Batch, p *Pending) (todo []Batch, skip []int, err error) {
	named := map[string]bool{}
	for _, l := range batches {
		known, err := j.known(l.Name)
		if err != nil {
			return nil, nil, err
		}
		if also := j.names.find(l.Also); l.Also != "" && also.n > 0 {
			known = also
		}
		if known.n >= l.First+l.Count {
			p.repeats = append(p.repeats, known)
			continue
		}
		if l.Name != "" && named[l.Name] || l.Also != "" && named[l.Also] {
			continue // the same batch twice
		}
		named[l.Name], named[l.Also] = true, true
		todo, skip = append(todo, l), append(skip, max(0, known.n-l.First))
	}
	for _, l := range todo {
		for _, name := range []string{l.Name, l.Also} {
			if name != "" {
				j.names.begin(name, flight{p: p, n: l.First + l.Count, from: p.writer.stored()})
			}
		}
	}
	return todo, skip, nil
}

// send sends a batch without its first skip drafts. final is true for the last batch of p.
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
			if err := write.sendLong(write.pieces(d), p, last); err != nil {
				return err
			}
			continue
		}
		if err := j.writer.put(write.message(d), inFlight{text: d.Text}, p, last); err != nil {
			return err
		}
	}
	return nil
}

// piecesAhead is how many pieces of a long event are under way beside the one being sent.
// Others wait for these pieces only, not for the whole event of up to sixty megabytes.
const piecesAhead = 2

// sendLong sends the pieces of a long event; events of others may be stored between them. If it
// is the last of its batch, p can return their sequences.
func (w *batchWriter) sendLong(l pieces, p *Pending, last bool) error {
	var before []*Pending
	for n := range l.count - 1 {
		one := &Pending{writer: p.writer, failed: p.failed, done: make(chan struct{}), of: p, term: p.term}
		if err := w.journal.writer.put(l.message(n), l.flight(n), one, true); err != nil {
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
	return w.journal.writer.put(l.message(l.count-1), l.flight(l.count-1), p, last)
}

// errBroken means that a long event was incomplete when the journal was reconciled: its name is
// no longer among those being stored.
var errBroken = fmt.Errorf("%w: what is stored was found out meanwhile", ErrStore)

// giveWay releases the order of the writer until the piece one is stored.
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
	inside  bool       // the previous message has the header, or is known by its sequence
	tag     string     // of the previous message
	plain   string     // the subject of that tag
	subject string     // where it is stored, by class
	class   class      // of the subject
	owner   string     // whose share it counts for
	origin  origin     // what kind of sender that is
	owed    int64      // bytes that are not counted yet
	spare   []nats.Msg // for the next messages: one allocation for many
}

// chargeEvery is how many bytes of one tag are counted at once.
const chargeEvery = 64 << 10

// turn determines where events with the tag of d are stored.
func (w *batchWriter) turn(d Draft) {
	w.charge()
	w.tag, w.plain = d.Tag, event.Subject(d.Tag)
	w.class = classOf(w.plain)
	w.owner = cmp.Or(w.batch.Owner, ownerOf(d))
	w.origin = originOf(w.owner)
	w.move(w.journal.shares.over(w.class, w.owner))
}

// move puts what follows among what exceeds the share of its owner, if over is true.
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

// pieces are the parts of a long event being sent, in messages of maxPart.
type pieces struct {
	id, subject string
	text        []byte
	count       int
	buffer      []byte // of the message being sent
}

// pieces splits a long event without a second copy of it: all pieces use the same buffer, which
// the connection has copied when send returns.
func (w *batchWriter) pieces(d Draft) pieces {
	id := nats.NewInbox()
	if w.batch.Name != "" {
		id = w.batch.Name + "/" + strconv.Itoa(w.number)
	}
	m := w.next(d)
	w.inside, w.journal.cut = false, false
	return pieces{id, m.Subject, m.Data, (len(m.Data) + maxPart - 1) / maxPart, make([]byte, 0, 1+maxPart)}
}

func (l *pieces) label(n int) string { return label{l.id, n, l.count}.String() }

// message returns piece n; it is valid until the next call.
func (l *pieces) message(n int) *nats.Msg {
	data := append(append(l.buffer[:0], partMark), l.text[n*maxPart:min((n+1)*maxPart, len(l.text))]...)
	return &nats.Msg{Subject: l.subject, Data: data, Header: nats.Header{partHeader: {l.label(n)}}}
}

// flight returns what a tap gets of piece n: the whole event with the last piece, nothing
// before.
func (l *pieces) flight(n int) inFlight {
	f := inFlight{part: l.label(n)}
	if n == l.count-1 {
		f.text = l.text
	}
	return f
}

// label is the content of a header: a name, a number, and a count.
type label struct {
	name     string
	n, count int
}

func (l label) String() string {
	return l.name + "/" + strconv.Itoa(l.n) + "/" + strconv.Itoa(l.count)
}

// readLabel parses a header; anything else gives the zero value.
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
// with its number in it, in the order of the journal, up to what was stored when it began, and
// up to least, which is stored; 0 for nothing. It reads no data, so it is quick enough for a start to
// find out what is stored. No batch may be split at seq.
func (j *source) Names(ctx context.Context, seq, least uint64, f func(seq uint64, name string, number int)) error {
	return j.readNames(ctx, Query{FromSeq: max(seq, 1), least: least}, f)
}

func (j *source) readNames(ctx context.Context, q Query, f func(seq uint64, name string, number int)) error {
	reader := batchReader{tell: f}
	q.bare = true
	return j.For("", nil).messages(ctx, q, func(m jetstream.Msg, seq uint64) error {
		reader.read(seq, m.Headers())
		return nil
	})
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
	} else if id := h.Get(jetstream.MsgIDHeader); id != "" { // older daemons gave each event one
		r.batch = label{}
		r.readID(seq, id)
		return
	}
	if behind := seq - r.at; r.batch.name != "" && behind < uint64(r.batch.count) {
		r.tell(seq, r.batch.name, r.batch.n+int(behind))
	}
}

// readPart reports a long event at the last of its pieces.
func (r *batchReader) readPart(seq uint64, part string) {
	if id, n, count, ok := splitPart(part); ok && n == count-1 {
		r.readID(seq, id)
	}
}

// readID reports the event name/number.
func (r *batchReader) readID(seq uint64, id string) {
	if name, number, ok := cutLast(id); ok {
		if n, err := strconv.Atoi(number); err == nil && n >= 0 {
			r.tell(seq, name, n)
		}
	}
}
