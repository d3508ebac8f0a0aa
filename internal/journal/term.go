package journal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/uptime"
)

// A term is a time in which a member writes its journal. Another member ends it before it relies on
// what is stored there: the member may be cut off or stopped only, and have messages under way that
// would be stored later.
//
// The subjects of the stream contain the name of the term, so the server stores nothing of a term
// that has ended, wherever it was on its way. Whoever ends a term writes a mark behind it: when that
// is stored, it is decided of everything before it. The member begins a new term when it notices
// that, also with a mark, and sends what was under way again, but not what is bound to its term
// (Batch.Term): that may be stored elsewhere by now.

// The names of terms begin with one of these.
const (
	openTerm  = "open-"
	endedTerm = "ended-"
	firstTerm = openTerm + "first" // the first one of a journal
)

// Labels of messages that belong to no event. They look like the middle of a long event whose
// beginning is missing, which readers ignore.
const (
	markLabel = "term/1/3" // the mark of a term
	voidLabel = "void/1/3" // in place of what is bound to a term that has ended
)

// termHeader has the prefix of its term in each mark: the subject under which it is stored does not
// name the term.
const termHeader = "Salt-Term"

// errTerm means that another member has ended the term before a message was stored.
var errTerm = fmt.Errorf("%w: another member relies on what was stored before", ErrStore)

// Term returns the number of the current term, for Batch.Term; 0 for a single master, whose term
// nobody ends.
func (j *Journal) Term() uint64 {
	w := j.writer
	if w.fence == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fence.term
}

// termPrefix is the prefix of the subjects of a stream, with the name of its term.
func termPrefix(c jetstream.StreamConfig) string {
	if len(c.Subjects) != 1 {
		return ""
	}
	return strings.TrimSuffix(c.Subjects[0], ">")
}

// hasEnded reports whether the term with this prefix has ended.
func hasEnded(prefix string) bool {
	parts := strings.Split(prefix, ".")
	return strings.HasPrefix(parts[max(0, len(parts)-2)], endedTerm)
}

// setTerm makes the settings of the stream of a member's journal: its subjects begin with prefix,
// which ends with the name of the term.
//
// The transform is the same in each term. The server applies it when it takes a message from the log
// of the group, with the settings of that moment: a member that has been away takes messages of
// earlier terms with the settings of the latest one.
func setTerm(c *jetstream.StreamConfig, prefix string) {
	root := prefix[:strings.LastIndexByte(strings.TrimSuffix(prefix, "."), '.')+1]
	c.Subjects = []string{prefix + ">"}
	c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: root + "*.>", Destination: plainPrefix + ">"}
}

// renewTerm gives the settings of a stream whose term is open a new one. The settings that were read
// may be older than the latest change of the term: written back, they would open an ended term again.
func renewTerm(c *jetstream.StreamConfig) {
	prefix := termPrefix(*c)
	if at := strings.LastIndex(prefix, "."+openTerm); at >= 0 {
		setTerm(c, prefix[:at+1]+openTerm+bus.NewNonce()+".")
	}
}

// change begins a term or ends the current one: the stream gets subjects with a new name of that
// kind, and a mark. root begins all subjects of this journal; more are headers of the mark.
func change(ctx context.Context, js jetstream.JetStream, c jetstream.StreamConfig, root, kind string, more nats.Header) (prefix string, at uint64, err error) {
	prefix = root + kind + bus.NewNonce() + "."
	setTerm(&c, prefix)
	if _, err := js.UpdateStream(ctx, c); err != nil {
		return "", 0, err
	}
	at, err = mark(ctx, js.Conn(), prefix, more)
	return prefix, at, err
}

// markSubject is the subject of marks, without a term.
const markSubject = event.Root + ".salt.journal.term"

// mark stores a mark and returns its sequence. It fails if the term with this prefix is not the
// current one.
func mark(ctx context.Context, nc *nats.Conn, prefix string, more nats.Header) (uint64, error) {
	m := &nats.Msg{Subject: prefix + strings.TrimPrefix(markSubject, plainPrefix), Data: []byte{partMark}, Header: nats.Header{partHeader: {markLabel}, termHeader: {prefix}}}
	maps.Copy(m.Header, more)
	answer, err := nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return 0, err
	}
	return acknowledged(answer)
}

// Ended is a term that another member has ended.
type Ended struct {
	Mark   uint64 // the sequence of its mark
	prefix string
	at     uptime.Moment // when the mark was stored
}

// freshTime is for how long a mark shows that nothing was stored behind it, if its term is still the
// latest one: shorter than it takes to elect another leader. After that, the answer may come from a
// member that was cut off and believes that it is the leader.
const freshTime = time.Second

// EndTerm makes sure that nothing is stored any more of what the member has under way. Everything
// that is stored comes before the mark. before is what EndTerm returned before; it is returned again
// if nothing was stored since.
func (m *Mirror) EndTerm(ctx context.Context, before Ended) (e Ended, err error) {
	err = m.ask(ctx, func(ctx context.Context) error {
		info, err := leaderInfo(ctx, m.stream)
		if err != nil {
			return err
		}
		begun := uptime.Now()
		e.prefix = termPrefix(info.Config)
		switch {
		case e.prefix == before.prefix && !before.at.IsZero() && begun.Sub(before.at) < freshTime:
			e = before
			return nil
		case hasEnded(e.prefix):
			e.Mark, err = mark(ctx, m.js.Conn(), e.prefix, nil)
		default:
			e.prefix, e.Mark, err = change(ctx, m.js, info.Config, Options{Name: m.Name}.root(), endedTerm, nil)
		}
		e.at = begun
		return err
	})
	if err != nil {
		return Ended{}, fmt.Errorf("end the term of %s: %w", m.Name, err)
	}
	return e, nil
}

// open begins a term if the current one has ended: the daemon has just started. last is the end of
// the stream as a server has told it, and the result the end as it is. That server may have led before, and lack
// what the daemon stored last before it was killed, which then would be stored again when it is sent again. So
// a mark is stored unless the stream is new: where it is stored is the end.
func (f *fence) open(ctx context.Context, delays Delays, last uint64) (uint64, error) {
	err := insist(ctx, delays, "begin a term of the journal", func(ctx context.Context) error {
		old, err := f.behind(ctx, f.prefix, last)
		if err != nil {
			return err
		}
		if !old && !hasEnded(f.prefix) {
			if f.prefix == "" || last == 0 {
				return nil
			}
			at, err := f.mark(ctx, f.prefix)
			if err == nil {
				last = at
			} else if end, prefix, bad := f.last(ctx); bad == nil { // its term may be an earlier one
				last, f.prefix = end, prefix
			}
			if code := codeOf(err); errors.Is(err, nats.ErrNoResponders) || code == notLeader || code == notStored { // nobody leads, or in another term, or a leader is stopping
				err = errNoLeader
			}
			return err
		}
		prefix, at, err := f.begin(ctx)
		if err == nil { // otherwise it is looked at again what is to be done
			f.prefix, last = prefix, at
		}
		return err
	})
	return last, err
}

// behind reports whether a leader has a stream with the mark of a later term than that of its
// settings, with this prefix. The settings reach the members apart from the messages: a member that
// has just begun to lead may have the mark already and still accept what belongs to an earlier term.
// last is the end of the stream: nothing of an earlier term is stored behind a mark.
func (f *fence) behind(ctx context.Context, prefix string, last uint64) (bool, error) {
	if prefix == "" || last == 0 {
		return false, nil
	}
	m, err := f.readAt(ctx, last)
	if err != nil || m == nil {
		return false, err
	}
	return isMark(m.Header) && m.Header.Get(termHeader) != prefix, nil
}

// enter goes on in the term with this prefix, in which nothing may be stored that is bound to an
// earlier one. The caller holds the writer and settling.
func (w *writer) enter(prefix string) {
	f := w.fence
	f.prefix = prefix
	f.term++
	for i, m := range f.window {
		if m.p == nil || m.p.term == 0 {
			continue
		}
		for p := m.p; p != nil; p = p.of {
			p.err = errTerm
		}
		void := &nats.Msg{Reply: m.Reply, Data: []byte{partMark}, Header: nats.Header{partHeader: {voidLabel}}}
		w.done.bytes += uint64(len(m.Data) - len(void.Data)) // otherwise what is less would count as under way for ever
		f.window[i].Msg = void
		w.tap.flight[i] = inFlight{part: voidLabel}
		w.doubts = true
	}
}
