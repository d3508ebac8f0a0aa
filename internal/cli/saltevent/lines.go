package saltevent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/salt"
)

// Limits of what is sent at once. While one batch is stored the next is read, so a slow source
// is sent line by line and a fast one in large batches.
const (
	batchEvents = 5000
	batchBytes  = 4 << 20
)

// fireBatch is a number of lines on their way.
type fireBatch struct {
	events  []brine.Event
	first   int // number of the first event in the input, from 0
	bytes   int
	numbers []int // of their lines, from 1
	err     error // what follows these lines: a bad line, or io.EOF
}

// fireLines fires the lines of standard input.
func fireLines(ctx context.Context, env *cli.Env, opts *urcli.Context, words []string) error {
	if len(words) > 1 || opts.IsSet("file") {
		return cli.Usagef("with --stdin there is at most a tag; DATA comes from standard input")
	}
	r := lineReader{in: bufio.NewReaderSize(env.Stdin, 1<<20), text: opts.Bool("text")}
	if len(words) == 1 {
		r.tag = words[0]
		if err := event.CheckTag(r.tag); err != nil {
			return cli.Fail(cli.Usage, err)
		}
	} else if r.text {
		return cli.Usagef("plain text needs a tag")
	}
	limit, err := patienceOf(opts)
	if err != nil {
		return err
	}
	s, err := awaitSession(ctx, env, opts, newConnector(withoutInput(env), opts), limit)
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return newDelivery(s, opts, limit).batches(ctx, newProgress(env), r.batches(ctx))
}

// batches delivers one batch after the other, in order.
func (d *delivery) batches(ctx context.Context, p *progress, batches <-chan fireBatch) error {
	defer p.end()
	d.reason, d.tell = new(atomic.Pointer[string]), p.waits
	stored := 0
	for {
		var l fireBatch
		select {
		case l = <-batches:
		case <-ctx.Done():
			return d.partly(stored, context.Cause(ctx))
		}
		n, err := d.batch(ctx, l)
		stored += n
		if err != nil {
			return d.partly(stored, err)
		}
		if n > 0 {
			p.tell(stored, d.done)
		}
		switch {
		case errors.Is(l.err, io.EOF):
			return d.passedOver(stored)
		case errors.Is(l.err, errBadLine) && d.skip:
			d.pass(l.err)
		case l.err != nil:
			return d.partly(stored, l.err)
		}
	}
}

// batch delivers the lines of l and returns how many it has delivered. To skip a line that the
// daemon refuses, it is searched by bisection: of a refused request nothing was stored.
func (d *delivery) batch(ctx context.Context, l fireBatch) (stored int, err error) {
	if len(l.events) == 0 {
		return 0, nil
	}
	err = d.deliver(ctx, l.events, l.first)
	switch {
	case err == nil:
		return len(l.events), nil
	case !d.skip || cli.Code(err) != cli.Usage:
		return 0, salt.WithHint(fmt.Errorf("%s: %w", linesOf(l), err), salt.Hint(err))
	case len(l.events) == 1:
		d.pass(salt.WithHint(fmt.Errorf("%s: %w", linesOf(l), err), salt.Hint(err)))
		return 0, nil
	}
	half := len(l.events) / 2
	stored, err = d.batch(ctx, fireBatch{events: l.events[:half], first: l.first, numbers: l.numbers[:half]})
	if err != nil {
		return stored, err
	}
	more, err := d.batch(ctx, fireBatch{events: l.events[half:], first: l.first + half, numbers: l.numbers[half:]})
	return stored + more, err
}

func linesOf(l fireBatch) string {
	first, last := l.numbers[0], l.numbers[len(l.numbers)-1]
	if first == last {
		return fmt.Sprintf("line %d", first)
	}
	return fmt.Sprintf("lines %d to %d", first, last)
}

// pass reports a skipped line.
func (d *delivery) pass(err error) {
	d.skipped++
	d.session.env.Warn(err)
}

// passedOver returns an error if lines were skipped.
func (d *delivery) passedOver(stored int) error {
	if d.skipped == 0 {
		return nil
	}
	return fmt.Errorf("%s %s, %s passed over", salt.Count(stored, "event"), d.done, salt.Count(d.skipped, "line"))
}

// errBadLine is wrapped by the error of a line after which reading can go on.
var errBadLine = errors.New("this line was not fired")

// partly adds to err how many events were stored before.
func (d *delivery) partly(stored int, err error) error {
	if stored == 0 {
		return err
	}
	return cli.Fail(cli.Code(err), salt.WithHint(fmt.Errorf("%s %s, then: %w", salt.Count(stored, "event"), d.done, err), salt.Hint(err)))
}

// lineReader makes events of lines.
type lineReader struct {
	in     *bufio.Reader
	tag    string // "" if each line has its own
	text   bool
	number int
}

// batches reads in the background until the input or ctx ends. A batch is sent as soon as the
// previous one was taken.
func (r *lineReader) batches(ctx context.Context) <-chan fireBatch {
	single := make(chan readLine, 256)
	go func() {
		for {
			l := r.next()
			select {
			case single <- l:
			case <-ctx.Done():
				return
			}
			if l.err != nil && !errors.Is(l.err, errBadLine) {
				return
			}
		}
	}()
	batches := make(chan fireBatch)
	go gather(ctx, single, batches)
	return batches
}

// gather collects lines until the batch is full or requested.
func gather(ctx context.Context, single <-chan readLine, batches chan<- fireBatch) {
	begun := 0 // events put into batches so far
	for {
		l := fireBatch{first: begun}
		for !l.full() {
			out := batches
			if len(l.events) == 0 {
				out = nil
			}
			select {
			case one := <-single:
				l.add(one)
				continue
			default:
			}
			select {
			case one := <-single:
				l.add(one)
				continue
			case out <- l:
				begun += len(l.events)
				l = fireBatch{first: begun}
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case batches <- l:
			begun += len(l.events)
		case <-ctx.Done():
			return
		}
		if l.err != nil && !errors.Is(l.err, errBadLine) {
			return
		}
	}
}

func (l *fireBatch) full() bool {
	return l.err != nil || len(l.events) >= batchEvents || l.bytes >= batchBytes
}

func (l *fireBatch) add(one readLine) {
	if l.err = one.err; one.err != nil {
		return
	}
	l.numbers = append(l.numbers, one.number)
	l.events = append(l.events, one.event)
	l.bytes += len(one.event.Data)
}

// readLine is one line, or why there is none.
type readLine struct {
	event  brine.Event
	number int
	err    error
}

// next reads one line; empty ones are skipped.
func (r *lineReader) next() readLine {
	for {
		r.number++
		raw, err := readLimited(r.in, maxData)
		if errors.Is(err, errBadLine) {
			return readLine{err: fmt.Errorf("line %d: %w", r.number, err)}
		}
		raw = bytes.TrimRight(raw, "\r\n")
		if len(raw) == 0 && err == nil {
			continue
		}
		if len(raw) == 0 {
			return readLine{err: err}
		}
		e, bad := r.event(raw)
		if bad != nil {
			return readLine{err: badLine(fmt.Errorf("line %d: %w", r.number, bad), salt.Hint(bad))}
		}
		return readLine{event: e, number: r.number}
	}
}

// badLine makes err the error of a line: a usage error after which reading can go on.
func badLine(err error, hint string) error {
	if hint == "" {
		hint = "--skip-bad passes over such lines; without it nothing of this line and the lines behind it is fired"
	}
	return cli.Fail(cli.Usage, salt.WithHint(lineError{err}, hint))
}

// lineError is an errBadLine with its own text.
type lineError struct{ error }

func (e lineError) Is(target error) bool { return target == errBadLine }

func (e lineError) Unwrap() error { return e.error }

// readLimited reads a line of at most limit bytes. The rest of a longer line is read and
// dropped, so that the next call begins after it.
func readLimited(in *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	size := 0
	for {
		part, err := in.ReadSlice('\n')
		size += len(part)
		if size <= limit {
			line = append(line, part...)
		} else {
			line = nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case size > limit && (err == nil || errors.Is(err, io.EOF)):
			return nil, badLine(fmt.Errorf("the line is too large: it has %d bytes, the limit is %d", size, limit), "")
		default:
			return line, err
		}
	}
}

func (r *lineReader) event(raw []byte) (brine.Event, error) {
	if err := salt.CheckUTF8(raw); err != nil {
		return brine.Event{}, err
	}
	if r.text {
		data, err := json.Marshal(map[string]string{"message": string(raw)})
		return brine.Event{Tag: r.tag, Data: data}, err
	}
	if r.tag != "" {
		if !json.Valid(raw) {
			return brine.Event{}, errors.New("the data is not JSON: " + jsonMistake(raw))
		}
		return brine.Event{Tag: r.tag, Data: raw}, nil
	}
	var e event.Item
	if err := json.Unmarshal(raw, &e); err != nil {
		return brine.Event{}, errors.New(`want an object with "tag" and "data": ` + jsonMistake(raw))
	}
	return brine.Event{Tag: e.Tag, Data: e.Data}, event.CheckTag(e.Tag)
}

// progress is the progress line for people.
type progress struct {
	env   *cli.Env
	begun time.Time
	shown time.Time
}

func newProgress(env *cli.Env) *progress { return &progress{env: env, begun: time.Now()} }

// tell shows the number of events, a few times a second, on a terminal or with
// --progress.
func (p *progress) tell(n int, done string) {
	if !p.env.Talks() || time.Since(p.shown) < 100*time.Millisecond {
		return
	}
	p.shown = time.Now()
	rate := float64(n) / max(time.Since(p.begun).Seconds(), 0.001)
	fmt.Fprintf(p.env.Stderr, "\r%s: %s %s, %.0f a second \x1b[K", p.env.Name, salt.Count(n, "event"), done, rate)
}

// waits shows in place of the line what the events wait for; nothing is counted meanwhile.
func (p *progress) waits(what string) {
	p.end()
	p.env.Waits(what)
}

// end clears the line.
func (p *progress) end() {
	if !p.shown.IsZero() {
		fmt.Fprint(p.env.Stderr, "\r\x1b[K")
	}
}
