// Package eventhandler passes events to event handlers: events of one sender in order, those of
// several in parallel, with retries, and with dead letters for events that cannot be handled.
// It reports the sequence up to which all are handled, so that each event is handled at least
// once.
//
// It does not know where events come from, or where dead letters are stored.
package eventhandler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
)

// maxBackoff is the longest pause before a retry.
const maxBackoff = time.Minute

// Item is one event for a handler.
type Item struct {
	Event event.Event
	Line  []byte // its text, one line of JSON without a line end
	// Journal is the name of the journal that it is from, in a cluster: each has its own
	// sequences. It is "" for a single master.
	Journal string
}

// ReadItem parses a line sent to a listener. journal is the name of the journal of events that do
// not name one. The text of the item is the same, whichever master has sent it.
func ReadItem(line []byte, journal string) (Item, error) {
	i := Item{Line: line, Journal: journal}
	if plain, master := event.CutMaster(line); master != "" {
		i.Line, i.Journal = plain, master
	}
	line = i.Line
	if err := json.Unmarshal(line, &i.Event); err != nil {
		return Item{}, fmt.Errorf("unreadable event: %w", err)
	}
	return i, nil
}

func (i Item) head() event.Head { return event.Head{Tag: i.Event.Tag, From: i.Event.From} }

// ID identifies the event: an event that is handled again has the same, also at another member of
// a cluster. It is computed from the event, so it stays the same if the journal is restored.
func (i Item) ID() string {
	text := i.Line
	if i.Journal != "" {
		text = fmt.Appendf(nil, "%s\n%s", i.Journal, i.Line)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Vars returns the properties of an event as environment variables of a program; bus is where
// the event was, handler the name of the handler.
func (i Item) Vars(bus, handler string, attempt int) []string {
	var stamp struct {
		At string `json:"_stamp"`
	}
	_ = json.Unmarshal(i.Event.Data, &stamp) // data other than an object has none
	vars := []string{
		"SALT_EVENT_TAG=" + i.Event.Tag, "SALT_EVENT_FROM=" + i.Event.From, "SALT_EVENT_SEQ=" + strconv.FormatUint(i.Event.Seq, 10),
		"SALT_EVENT_ID=" + i.ID(), "SALT_EVENT_STAMP=" + stamp.At, "SALT_EVENT_ATTEMPT=" + strconv.Itoa(attempt),
		"SALT_EVENT_BUS=" + bus, "SALT_EVENT_HANDLER=" + handler,
	}
	if i.Journal != "" {
		vars = append(vars, "SALT_EVENT_JOURNAL="+i.Journal)
	}
	return vars
}

// Stdin is the input of a program: the event's data and a line end.
func (i Item) Stdin() []byte {
	return append(i.Event.Data[:len(i.Event.Data):len(i.Event.Data)], '\n')
}

// Failure is an event that could not be handled in any attempt.
type Failure struct {
	Item
	Attempts int
	Stderr   string // the end of what the last attempt printed
	Err      error  // of the last attempt
}

// Letter is the dead letter of the failure: name is that of the handler, command tries it
// again.
func (f Failure) Letter(name string, command []string) *protocol.DeadLetter {
	return &protocol.DeadLetter{
		Name: name, Seq: f.Event.Seq, Journal: f.Journal, Tag: f.Event.Tag, From: f.Event.From, Event: f.Line, Command: command,
		Attempts: f.Attempts, Reason: f.Err.Error(), Stderr: f.Stderr,
	}
}

// retryProgram begins the command of a dead letter that the master itself must handle.
var retryProgram = []string{"salt-run", "reactor.retry"}

// RetryCommand is the command that has the master pass a dead letter of the reactor to its handler
// again.
func RetryCommand(name string, seq uint64) []string {
	return append(slices.Clone(retryProgram), name, strconv.FormatUint(seq, 10))
}

// IsRetry reports whether a command is such a one: it takes the dead letter itself.
func IsRetry(command []string) bool {
	return len(command) > len(retryProgram) && slices.Equal(command[:len(retryProgram)], retryProgram)
}

// Handler is how events are handled. Its functions are called concurrently.
type Handler struct {
	Parallel int // events at once, at least 1
	Retries  int
	Backoff  time.Duration // before the first retry, doubled for each further one
	// Do handles an event once. It returns the end of its output, for a dead letter.
	Do func(ctx context.Context, i Item, attempt int) (stderr string, err error)
	// KeepDead stores an event that could not be handled. Its error ends the handler, since
	// otherwise the event would be lost.
	KeepDead func(ctx context.Context, f Failure) error
	// Again reads an event once more by its sequence; false means that it no longer exists.
	// With it, each sender has a share of the memory for waiting events, and events of others
	// pass those beyond it. Without it (nil), all senders share the memory. It is for events of one
	// journal.
	Again func(ctx context.Context, seq uint64) (Item, bool, error)
	// Gone is called for an event that Again did not find and that is skipped.
	Gone func(seq uint64)
	// Done is called when everything up to this sequence is done, in the journal of this name. It
	// must not block.
	Done func(journal string, seq uint64)
	// Passed is called in place of Done when there was nothing to do up to this sequence; nil calls
	// Done.
	Passed func(journal string, seq uint64)
}

// Run is a running handler.
type Run struct {
	h     *Handler
	ctx   context.Context
	fail  context.CancelCauseFunc
	queue *keyedQueue

	mu         sync.Mutex
	watermarks map[string]*watermark // by journal
}

// watermark returns that of a journal.
func (r *Run) watermark(journal string) *watermark {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.watermarks[journal]
	if w == nil {
		w = &watermark{}
		r.watermarks[journal] = w
	}
	return w
}

// Begin starts to handle events. The end of ctx ends what is under way.
func (h *Handler) Begin(ctx context.Context) *Run {
	r := &Run{h: h, watermarks: map[string]*watermark{}}
	r.ctx, r.fail = context.WithCancelCause(ctx)
	r.queue = newKeyedQueue(h.Parallel, func(ctx context.Context, slots chan struct{}, i Item) {
		if err := r.handle(ctx, slots, i); err != nil {
			r.fail(err)
			return
		}
		h.Done(i.Journal, r.watermark(i.Journal).finish(i.Event.Seq))
	})
	r.queue.again, r.queue.gone = h.Again, r.gone
	return r
}

// gone skips an event that no longer exists; one that cannot be read ends the handler, which
// later starts with it again.
func (r *Run) gone(journal string, seq uint64, err error) {
	if err != nil {
		r.fail(err)
		return
	}
	if r.h.Gone != nil {
		r.h.Gone(seq)
	}
	r.h.Done(journal, r.watermark(journal).finish(seq))
}

// Put adds an event. It waits while too many are under way. The sequences of a journal must grow
// from call to call. An error is why nothing is handled any more.
func (r *Run) Put(i Item) error {
	r.watermark(i.Journal).begin(i.Event.Seq)
	if !r.queue.put(r.ctx, i) {
		return context.Cause(r.ctx)
	}
	return nil
}

// Pass records that there is nothing else to handle up to seq in a journal.
func (r *Run) Pass(journal string, seq uint64) {
	done := r.watermark(journal).pass(seq)
	if r.h.Passed != nil {
		r.h.Passed(journal, done)
		return
	}
	r.h.Done(journal, done)
}

// Context ends when the handler has failed, or with the context of Begin.
func (r *Run) Context() context.Context { return r.ctx }

// End waits until everything added is handled, or the handler has ended, and returns why it
// has, or nil.
func (r *Run) End() error {
	r.queue.wait()
	err := context.Cause(r.ctx)
	r.fail(nil)
	return err
}

// handle handles one event until it is done. It returns an error only if it is not done.
func (r *Run) handle(ctx context.Context, slots chan struct{}, i Item) error {
	var pauses backoff.Pauses
	for attempt := 1; ; attempt++ {
		stderr, err := r.attempt(ctx, slots, i, attempt)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if attempt > r.h.Retries || permanent(err) {
			return r.h.KeepDead(ctx, Failure{i, attempt, stderr, err})
		}
		if !backoff.Sleep(ctx, pauses.Next(r.h.Backoff, maxBackoff)) {
			return context.Cause(ctx)
		}
	}
}

// permanent reports whether err would be returned at every attempt: something is not allowed,
// or invalid.
func permanent(err error) bool {
	var e interface {
		error
		Permanent() bool
	}
	return errors.As(err, &e) && e.Permanent()
}

func (r *Run) attempt(ctx context.Context, slots chan struct{}, i Item, attempt int) (stderr string, err error) {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { <-slots }()
	return r.h.Do(ctx, i, attempt)
}
