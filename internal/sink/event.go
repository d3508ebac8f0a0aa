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
	Line []byte // its text, one line of JSON without a line end, as listeners get it
}

// parseEvent reads the line of a listener.
func parseEvent(line []byte) (Event, error) {
	e := Event{Line: line}
	if err := json.Unmarshal(line, &e.Event); err != nil {
		return Event{}, fmt.Errorf("unreadable event: %w", err)
	}
	return e, nil
}

// Digest tells events of the same place apart that come from different journals:
// of two masters, or of one whose journal was begun anew. Place and digest
// together name an event; an event that comes again has the same.
func (e Event) Digest() int64 {
	sum := sha256.Sum256(e.Line)
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

const stampKey = `"_stamp":"`

// Stamp is the moment when the event was fired, in UTC. Data that is no object
// carries none: ok is false then.
func (e Event) Stamp() (t time.Time, ok bool) {
	text := stampText(e.Data)
	if text == "" {
		return time.Time{}, false
	}
	t, err := time.Parse(event.StampLayout, text)
	return t, err == nil
}

// stampText takes the stamp from the end of the data, where events have it, and
// else from wherever it is.
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
