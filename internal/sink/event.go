package sink

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/brinebus/brine/internal/event"
)

// Event is one event on its way to a destination.
type Event struct {
	event.Event
	Line []byte // the event as listeners get it: one line of JSON without a line end
	// Journal is the name of its journal, in a cluster: each has its own sequences. Line has it,
	// too.
	Journal string
}

// parseEvent parses one line of a listener.
func parseEvent(line []byte) (Event, error) {
	e := Event{Line: line, Journal: event.MasterOf(line)}
	if err := json.Unmarshal(line, &e.Event); err != nil {
		return Event{}, fmt.Errorf("unreadable event: %w", err)
	}
	return e, nil
}

// Digest distinguishes events with the same sequence from different journals: of two masters, or of
// one master that started a new journal. Sequence and digest together identify an event; a repeated
// event has the same digest.
func (e Event) Digest() int64 {
	sum := sha256.Sum256(e.Line)
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

const stampKey = `"_stamp":"`

// Stamp returns the time when the event was fired, in UTC. If the data is not an object, it has no
// stamp and ok is false.
func (e Event) Stamp() (t time.Time, ok bool) {
	text := stampText(e.Data)
	if text == "" {
		return time.Time{}, false
	}
	t, err := time.Parse(event.StampLayout, text)
	return t, err == nil
}

// stampText reads the stamp from the end of the data, where it normally is, and otherwise from
// anywhere in the data.
func stampText(data []byte) string {
	tail := len(data) - len(stampKey) - len(event.StampLayout) - len(`"}`)
	if tail >= 0 {
		if rest, ok := bytes.CutPrefix(data[tail:], []byte(stampKey)); ok {
			return string(rest[:len(event.StampLayout)])
		}
	}
	var o struct {
		Stamp string `json:"_stamp"`
	}
	if len(data) == 0 || data[0] != '{' || json.Unmarshal(data, &o) != nil {
		return ""
	}
	return o.Stamp
}
