package saltevent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	urcli "github.com/urfave/cli/v2"

	"brine/internal/cli"
	"brine/internal/event"
	"brine/internal/protocol"
	"brine/internal/salt"
)

// Bounds of what is sent at once. While one lot is stored the next is read, so a
// slow source is sent line by line and a fast one in large lots.
const (
	lotEvents = 5000
	lotBytes  = 4 << 20
)

// lot is a number of lines on their way.
type lot struct {
	events []protocol.FireEvent
	bytes  int
	first  int   // the number of its first line, from 1
	err    error // what ended the reading behind these lines; io.EOF at the end
}

// fireLines fires what standard input has, a line each.
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
	s, err := openSession(env, opts)
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return newDelivery(s, opts).lots(ctx, newProgress(env), r.lots(ctx))
}

// lots delivers one lot after the other, in order.
func (d *delivery) lots(ctx context.Context, p *progress, lots <-chan lot) error {
	defer p.end()
	stored := 0
	for {
		var l lot
		select {
		case l = <-lots:
		case <-ctx.Done():
			return d.partly(stored, context.Cause(ctx))
		}
		if len(l.events) > 0 {
			if err := d.deliver(ctx, l.events); err != nil {
				return d.partly(stored, salt.WithHint(fmt.Errorf("lines %d to %d: %w", l.first, l.first+len(l.events)-1, err), salt.Hint(err)))
			}
			stored += len(l.events)
			p.tell(stored, d.done)
		}
		if l.err != nil {
			if errors.Is(l.err, io.EOF) {
				return nil
			}
			return d.partly(stored, l.err)
		}
	}
}

// partly says how many events had been stored when err ended the rest.
func (d *delivery) partly(stored int, err error) error {
	if stored == 0 {
		return err
	}
	return cli.Fail(cli.Code(err), salt.WithHint(fmt.Errorf("%s %s, then: %w", salt.Count(stored, "event"), d.done, err), salt.Hint(err)))
}

// lineReader makes events of lines.
type lineReader struct {
	in     *bufio.Reader
	tag    string // "" where each line has its own
	text   bool
	number int
}

// lots reads in the background until the input ends or ctx does. A lot leaves as
// soon as the one before has been taken.
func (r *lineReader) lots(ctx context.Context) <-chan lot {
	single := make(chan readLine, 256)
	go func() {
		for {
			l := r.next()
			select {
			case single <- l:
			case <-ctx.Done():
				return
			}
			if l.err != nil {
				return
			}
		}
	}()
	lots := make(chan lot)
	go gather(ctx, single, lots)
	return lots
}

// gather puts lines together until the lot is full or is asked for.
func gather(ctx context.Context, single <-chan readLine, lots chan<- lot) {
	for {
		var l lot
		for !l.full() {
			out := lots
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
				l = lot{}
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case lots <- l:
		case <-ctx.Done():
			return
		}
		if l.err != nil {
			return
		}
	}
}

func (l *lot) full() bool { return l.err != nil || len(l.events) >= lotEvents || l.bytes >= lotBytes }

func (l *lot) add(one readLine) {
	if l.err = one.err; one.err != nil {
		return
	}
	if len(l.events) == 0 {
		l.first = one.number
	}
	l.events = append(l.events, one.event)
	l.bytes += len(one.event.Data)
}

// readLine is one line that was read, or why there is none.
type readLine struct {
	event  protocol.FireEvent
	number int
	err    error
}

// next reads one line; empty ones are passed over.
func (r *lineReader) next() readLine {
	for {
		r.number++
		raw, err := readLimited(r.in)
		raw = bytes.TrimRight(raw, "\r\n")
		if len(raw) == 0 && err == nil {
			continue
		}
		if len(raw) == 0 {
			return readLine{err: err}
		}
		e, bad := r.event(raw)
		if bad != nil {
			return readLine{err: salt.WithHint(cli.Fail(cli.Usage, fmt.Errorf("line %d: %w", r.number, bad)), "nothing of this line and the lines behind it was fired")}
		}
		return readLine{event: e, number: r.number}
	}
}

// readLimited reads a line of at most maxData bytes.
func readLimited(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxData {
			return nil, fmt.Errorf("a line has more than %d bytes", maxData)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

func (r *lineReader) event(raw []byte) (protocol.FireEvent, error) {
	if r.text {
		data, err := json.Marshal(map[string]string{"message": string(raw)})
		return protocol.FireEvent{Tag: r.tag, Data: data}, err
	}
	if r.tag != "" {
		if !json.Valid(raw) {
			return protocol.FireEvent{}, errors.New("the data is no JSON: " + jsonMistake(raw))
		}
		return protocol.FireEvent{Tag: r.tag, Data: raw}, nil
	}
	var e protocol.FireEvent
	if err := json.Unmarshal(raw, &e); err != nil {
		return e, errors.New(`want an object with "tag" and "data": ` + jsonMistake(raw))
	}
	return e, event.CheckTag(e.Tag)
}

// progress is the line that shows a person how far it is.
type progress struct {
	env   *cli.Env
	begun time.Time
	told  time.Time
}

func newProgress(env *cli.Env) *progress { return &progress{env: env, begun: time.Now()} }

// tell shows the number of events, a few times a second, on a terminal only.
func (p *progress) tell(n int, done string) {
	if !p.env.StderrTTY || time.Since(p.told) < 100*time.Millisecond {
		return
	}
	p.told = time.Now()
	rate := float64(n) / max(time.Since(p.begun).Seconds(), 0.001)
	fmt.Fprintf(p.env.Stderr, "\r%s: %d events %s, %.0f a second \x1b[K", p.env.Name, n, done, rate)
}

// end clears the line.
func (p *progress) end() {
	if !p.told.IsZero() {
		fmt.Fprint(p.env.Stderr, "\r\x1b[K")
	}
}
