package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/rpc"
)

// The body of Fire is lines: a byte that no JSON begins with, a line with everything but the
// events, and a line for each event. So thousands of events are written and read without
// parsing their data, which is checked once, where they are stored. A single JSON document can
// be read, too.
const fireLines = '\x1e'

// maxFireLines limits the events of one request: an empty line is one byte, but an event in
// memory is many.
const maxFireLines = 500_000

// fireHead is the first line.
type fireHead struct {
	ID     string   `json:"id,omitempty"`
	Form   FireForm `json:"form,omitempty"`
	Pretag *string  `json:"pretag,omitempty"`
	Live   bool     `json:"live,omitempty"`
	Series string   `json:"series,omitempty"`
	First  int      `json:"first,omitempty"`

	Waiting bool `json:"waiting,omitempty"`
}

// MarshalBinary is AppendBinary(nil).
func (f Fire) MarshalBinary() ([]byte, error) { return f.AppendBinary(nil) }

// AppendBinary appends the body of a request to b. The data of the events should be JSON: the
// reader checks it. Only data that could be taken for several events is an error here.
func (f Fire) AppendBinary(b []byte) ([]byte, error) {
	head, err := json.Marshal(fireHead{f.ID, f.Form, f.Pretag, f.Live, f.Series, f.First, f.Waiting})
	if err != nil {
		return nil, err
	}
	size := len(head) + 2
	for _, e := range f.Events {
		size += len(e.Tag) + len(e.Data) + 32
	}
	b = append(append(append(slices.Grow(b, size), fireLines), head...), '\n')
	for _, e := range f.Events {
		if len(e.Data) == 0 {
			line, err := json.Marshal(e)
			if err != nil {
				return nil, err
			}
			b = append(append(b, line...), '\n')
			continue
		}
		if bytes.IndexByte(e.Data, '\n') >= 0 && !json.Valid(e.Data) {
			return nil, fmt.Errorf("the data of event %q is not JSON", e.Tag)
		}
		b = append(event.Event{Tag: e.Tag, Data: e.Data}.Append(b), '\n')
	}
	return b, nil
}

// UnmarshalBinary reads the body of a request. The events refer to parts of b.
func (f *Fire) UnmarshalBinary(b []byte) error {
	if len(b) == 0 || b[0] != fireLines {
		if err := rpc.CheckBuilt(b); err != nil {
			return err
		}
		return json.Unmarshal(b, f)
	}
	count := bytes.Count(b, []byte("\n"))
	if count > maxFireLines {
		return fmt.Errorf("%d events at once: the limit is %d", count, maxFireLines)
	}
	var head fireHead
	line, rest, _ := bytes.Cut(b[1:], []byte("\n"))
	if err := json.Unmarshal(line, &head); err != nil {
		return err
	}
	*f = Fire{ID: head.ID, Form: head.Form, Pretag: head.Pretag, Live: head.Live, Series: head.Series, First: head.First, Waiting: head.Waiting, Events: make([]event.Item, 0, count)}
	like := ""
	for len(rest) > 0 {
		var ended bool
		if line, rest, ended = bytes.Cut(rest, []byte("\n")); !ended {
			return errors.New("the last line has no end")
		}
		var e event.Item
		if tag, data, ok := event.Split(line, like); ok {
			like, e = tag, event.Item{Tag: tag, Data: data}
		} else if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("event %d: %w", len(f.Events)+1, err)
		}
		f.Events = append(f.Events, e)
	}
	return nil
}
