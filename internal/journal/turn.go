package journal

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/salt"
)

// Turn is the turn of this process to write a journal that other processes open, too. The one
// that has opened it last is the only one that writes: opening begins a new term, with an event by
// which an earlier process learns of it.
type Turn struct {
	// Alone is called when no earlier process can write events any more, before anything is read.
	// It ends what these may still have under way in tables.
	Alone func(ctx context.Context) error
	// Lost is called once, when another process has opened the journal. It does not block.
	Lost func(error)

	id     string // of this process, in each message
	losing sync.Once
}

// NewTurn returns a turn for one Open.
func NewTurn(alone func(context.Context) error, lost func(error)) *Turn {
	return &Turn{Alone: alone, Lost: lost, id: rand.Text()}
}

// writerHeader has the id of the process that has sent a message.
const writerHeader = "Salt-Writer"

// ErrTaken means that another process has opened the journal since. This one writes nothing any
// more.
var ErrTaken = salt.WithHint(errors.New("another master has opened the journal: this one writes nothing any more"), "start it again: it waits until that one has ended")

// ErrAway is why nothing is stored by servers that others run.
var ErrAway = salt.WithHint(salt.Unanswered("the NATS servers have stored nothing for too long"), "see whether these servers run, have a leader for JetStream, and have space: 'nats server report jetstream' shows it")

// Remote is a Store behind a connection that may be lost and come back.
type Remote interface {
	Store
	// Usable returns when the connection may be used: it is there, and since it was made again it
	// is known that no other process has opened the journal. Its error is that of ctx, or final.
	Usable(ctx context.Context) error
}

// wrote reports whether this process has sent the message with this header, as far as it can tell.
func (t *Turn) wrote(h nats.Header) bool { return t == nil || h.Get(writerHeader) == t.id }

// lose records that the turn is over.
func (t *Turn) lose() error {
	t.losing.Do(func() {
		if t.Lost != nil {
			t.Lost(ErrTaken)
		}
	})
	return ErrTaken
}

// openedTag is the tag of the event that opening stores.
const openedTag = "salt/journal/opened"

// takePause is the pause before it is tried again to store that event, after another process has
// stored something.
const takePause = 50 * time.Millisecond

// take begins a term, so that nothing is stored any more of what an earlier process has under way,
// and stores the event, as the last one of the stream. Without the term, the event would replace one
// message of the other process, and the one behind that would be stored. It returns the prefix of the
// term and the sequence of the event.
func (t *Turn) take(ctx context.Context, w *writer, s jetstream.Stream, js jetstream.JetStream, o Options) (prefix string, last uint64, err error) {
	e, err := event.New(openedTag, json.RawMessage(`{"writer":"`+t.id+`"}`), "", time.Now())
	if err != nil {
		return "", 0, err
	}
	for {
		err = insist(ctx, w.store, "open the stream "+o.stream(), func(ctx context.Context) error {
			info, err := leaderInfo(ctx, s)
			if err != nil {
				return err
			}
			var at uint64
			if prefix, at, err = change(ctx, js, info.Config, o.root(), openTerm, nil); err != nil {
				return err
			}
			m := &nats.Msg{Subject: prefix + strings.TrimPrefix(event.Subject(openedTag), plainPrefix), Data: e.Text(), Header: nats.Header{
				jetstream.ExpectedLastSeqHeader: {strconv.FormatUint(at, 10)}, writerHeader: {t.id},
				batchHeader: {label{}.String()}, // it ends a batch of which an earlier process has stored a part
			}}
			answer, err := w.nc.RequestMsgWithContext(ctx, m)
			if err == nil {
				last, err = acknowledged(answer)
			}
			return err
		})
		if !isSequence(err) {
			break
		}
		select {
		case <-time.After(takePause):
		case <-ctx.Done():
			return "", 0, context.Cause(ctx)
		}
	}
	if err != nil {
		return "", 0, fmt.Errorf("%w: %w", ErrStore, err)
	}
	if t.Alone != nil {
		if err := t.Alone(ctx); err != nil {
			return "", 0, err
		}
	}
	err = insist(ctx, w.store, "open the stream "+o.stream(), func(ctx context.Context) error {
		_, err := leaderInfo(ctx, s) // for CachedInfo
		return err
	})
	return prefix, last, err
}

// isSequence reports whether a message was refused since another one is the last one of the
// stream than the one that it names.
func isSequence(err error) bool {
	const (
		wrongLast     = 10071 // err_code of JSStreamWrongLastSequenceErrF
		wrongLastStay = 10164 // and of the one without the sequence, of a leader that has one under way
	)
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == wrongLast || api.ErrorCode == wrongLastStay)
}

// Held returns nil if no other process has opened the journal since this one did, ErrTaken if one
// has, and another error if that is not known now.
func (j *Journal) Held(ctx context.Context) error {
	f := j.writer.fence
	j.writer.mu.Lock()
	known, before := j.writer.tap.seq, f.prefix
	j.writer.mu.Unlock()
	last, prefix, err := f.last(ctx)
	if err != nil {
		return err
	}
	taken, err := j.writer.taken(ctx, before, prefix, last)
	if err == nil && !taken && last > known {
		var m *jetstream.RawStreamMsg
		if m, err = f.read(ctx, last); err == nil { // it may have been removed, to make space
			taken = !f.turn.wrote(m.Header)
		}
	}
	if err != nil {
		return err
	}
	if !taken {
		return nil
	}
	j.writer.patient.end(ErrTaken)
	return f.turn.lose()
}

// taken reports whether another process has begun a term: the leader has settings with the prefix
// there, instead of ours, and the stream ends with the sequence last. Settings reach the servers apart
// from messages. So if the last message is of this process, either the leader has older settings, or
// another process has just changed them and has stored nothing yet; and a server that led before, and lacks
// the newest messages, proves nothing. The error is errNoLeader until that is decided; a process that was
// killed between the two has taken the journal nevertheless.
func (w *writer) taken(ctx context.Context, ours, there string, last uint64) (bool, error) {
	f := w.fence
	w.mu.Lock()
	known := w.tap.seq
	if there == ours {
		f.strange = time.Time{}
	}
	w.mu.Unlock()
	switch {
	case there == ours:
		return false, nil
	case last < known:
		return false, errNoLeader
	case last > known:
		m, err := f.readAt(ctx, last)
		if err != nil {
			return false, err
		}
		if m != nil && !f.turn.wrote(m.Header) {
			return true, nil
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.strange.IsZero() {
		f.strange = time.Now()
	}
	if time.Since(f.strange) > electionTime {
		return true, nil
	}
	return false, errNoLeader
}

// TryPut writes an entry to find out whether anything can be stored, also while the store is said to
// fail. A leader that has lost the others still answers questions for some seconds.
func (t *Table) TryPut(ctx context.Context, key string) error {
	_, err := t.kv.Put(ctx, kvKey(key), []byte(time.Now().UTC().Format(time.RFC3339)))
	return err
}

// probeTime is how long Probe waits, and absentTime how long for servers that say that they have no
// JetStream, which some say at their start.
const (
	probeTime  = 30 * time.Second
	absentTime = 5 * time.Second
)

var errNoJetStream = salt.WithHint(errors.New("JetStream does not answer in the account of the journal"), "each server needs 'jetstream {store_dir: ...}', and what 'salt-master --nats-config' prints, in its configuration; most of them must run")

// Probe returns when the JetStream that nc is connected to can be used. Right after a start the
// servers have no leader yet.
func Probe(ctx context.Context, nc *nats.Conn) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for begun := time.Now(); ; {
		once, end := context.WithTimeout(ctx, askTime)
		_, err := js.AccountInfo(once)
		end()
		if err == nil {
			return nil
		}
		absent := errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
		if absent && time.Since(begun) > absentTime {
			return fmt.Errorf("%w: %w", errNoJetStream, err)
		}
		select {
		case <-time.After(leaderPause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errNoJetStream, err)
		}
	}
}
