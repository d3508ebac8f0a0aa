package output

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"syscall"

	"github.com/brinebus/brine/internal/value"
)

// ErrReaderGone is wrapped by the error of a Writer whose reader has closed the pipe: nobody reads
// the output, so there is nothing to report.
var ErrReaderGone = errors.New("the reader of the output is gone")

// Return is the return of one minion.
type Return struct {
	ID    string
	Value any
	// Hint is the outputter that the function suggests, "" for none. It is used if the user named
	// no outputter; an unknown one is ignored.
	Hint string
	// Failed means that the function failed; nested shows it in red.
	Failed bool
}

// Writer prints returns as they arrive, each in one write. With json all of them are one object,
// {"web1": true, "web2": true}, which Close completes; with jsonl each one is an object on its own
// line.
//
// With Options.Static nothing is printed before Close, which then prints everything sorted by id. A
// Writer is not safe for concurrent use. After an error all further calls return that error.
type Writer struct {
	out  io.Writer
	name string // of the outputter that the user chose, "" for none
	row  row    // of that outputter, or the standard one
	opt  Options
	err  error

	members int      // returns printed into the json object
	whole   bool     // Whole was called: there is no object to complete
	kept    []Return // with Static
}

// NewWriter returns a Writer for the outputter with that name; "" lets each return choose. An
// unknown name is an error, as in New.
func NewWriter(out io.Writer, name string, opt Options) (*Writer, error) {
	if _, err := New(name, opt); err != nil {
		return nil, err
	}
	return &Writer{out: out, name: name, row: rowOf(name), opt: opt}, nil
}

// Return prints the return of one minion. Each id should come once: a second return would be a
// duplicate member of the json object.
func (w *Writer) Return(r Return) error {
	switch {
	case w.err != nil:
	case w.opt.Static:
		w.kept = append(w.kept, r)
	case w.row.object:
		w.member(r)
	default:
		w.print(w.outputter(r), map[string]any{r.ID: r.Value})
	}
	return w.err
}

// Whole prints one value that is not the return of a minion: the return of a runner, or all output
// of salt-call.
func (w *Writer) Whole(data any, hint string) error {
	if w.err == nil {
		w.whole = true
		w.print(w.outputter(Return{Hint: hint}), data)
	}
	return w.err
}

// Close prints delayed returns and completes the json object, which is {} if nothing was returned.
// It does not close the underlying writer.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	if w.opt.Static && !w.whole {
		w.printKept()
	}
	if w.err == nil && w.row.object && !w.whole {
		w.whole = true
		w.write(w.objectEnd())
	}
	return w.err
}

// outputter returns the outputter for r.
func (w *Writer) outputter(r Return) Outputter {
	opt := w.opt
	opt.Failed = opt.Failed || r.Failed
	name := w.name
	if name == "" {
		name = r.Hint
	}
	o, err := New(name, opt)
	if err != nil {
		o, _ = New(standard, opt)
	}
	return o
}

// print writes data and ends the line; if the text is empty it writes nothing.
func (w *Writer) print(o Outputter, data any) {
	text, err := o.Format(data)
	switch {
	case err != nil:
		w.err = err
	case text != "":
		w.write(text + "\n")
	}
}

// printKept prints the returns that Static delayed. For formats in which one map of all returns
// differs from a map for each, such as raw, it prints one map.
func (w *Writer) printKept() {
	all := make(map[string]any, len(w.kept))
	last := make(map[string]Return, len(w.kept))
	for _, r := range w.kept {
		all[r.ID], last[r.ID] = r.Value, r
	}
	w.kept = nil
	switch {
	case w.row.each:
		for _, id := range slices.Sorted(maps.Keys(all)) {
			if w.err == nil {
				w.print(w.outputter(last[id]), map[string]any{id: all[id]})
			}
		}
	default:
		w.whole = true
		if len(all) > 0 || w.row.object {
			w.print(w.outputter(Return{}), all)
		}
	}
}

// member prints r as the next member of the json object.
func (w *Writer) member(r Return) {
	v, err := value.Exactly(r.Value)
	if err != nil {
		w.err = fmt.Errorf("format the return of %s as json: %w", r.ID, err)
		return
	}
	w.write(string(w.opt.json().appendMember(nil, w.members, r.ID, v, 0)))
	w.members++
}

func (w *Writer) objectEnd() string {
	if w.members == 0 {
		return "{}\n"
	}
	return string(w.opt.json().appendBreak(nil, 0)) + "}\n"
}

func (w *Writer) write(text string) {
	_, err := io.WriteString(w.out, text)
	switch {
	case errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		w.err = fmt.Errorf("%w: %w", ErrReaderGone, err)
	case err != nil:
		w.err = fmt.Errorf("write the output: %w", err)
	}
}
