package eventbus

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/lease"
	"github.com/brinebus/brine/internal/protocol"
)

// MoveEntry returns what an entry of a table of positions or dead letters becomes when the journal
// of the member from becomes that of the member to; "" is that of a single master. Entries of other
// tables, and unreadable ones, stay as they are.
func MoveEntry(table, key string, value []byte, from, to string) (string, []byte) {
	switch table {
	case "positions":
		return movePosition(key, value, from, to)
	case "dead":
		return moveLetter(key, value, from, to)
	}
	return key, value
}

// handlers returns the owner of positions of the daemon's handlers for a journal.
func handlers(journal string) string { return (&Handled{name: journal}).owner() + "/" }

func movePosition(key string, value []byte, from, to string) (string, []byte) {
	var s stored
	if json.Unmarshal(value, &s) != nil {
		return key, value
	}
	s.Holder = lease.Holder{}
	switch {
	case strings.HasPrefix(key, handlers(from)):
		key = handlers(to) + strings.TrimPrefix(key, handlers(from))
	case strings.HasPrefix(key, daemonOwner): // for the journal of another member
	default:
		all := s.in(from)
		if from == "" {
			all = maps.Clone(s.At)
			if all == nil {
				all = event.Position{}
			}
			all[""] = s.Seq
		}
		own := all[from]
		delete(all, from)
		s.Seq, s.At = own, all
		if to != "" {
			all[to] = own
		}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return key, value
	}
	return key, b
}

func moveLetter(key string, value []byte, from, to string) (string, []byte) {
	var l protocol.DeadLetter
	if json.Unmarshal(value, &l) != nil || l.Journal != from {
		return key, value
	}
	owner, _, _ := strings.Cut(key, "/")
	l.Journal = to
	b, err := json.Marshal(l)
	if err != nil {
		return key, value
	}
	return letterKey(owner, l.Name, l.Journal, l.Seq), b
}

// RenameEntry returns what an entry of a table of positions or dead letters becomes when the journal of another one than this
// master, from, gets the name to. Entries of other tables, and unreadable ones, stay as they are.
func RenameEntry(table, key string, value []byte, from, to string) (string, []byte) {
	switch table {
	case "positions":
		return renamePosition(key, value, from, to)
	case "dead":
		return moveLetter(key, value, from, to)
	}
	return key, value
}

func renamePosition(key string, value []byte, from, to string) (string, []byte) {
	if rest, is := strings.CutPrefix(key, handlers(from)); is {
		return handlers(to) + rest, value
	}
	var s stored
	if strings.HasPrefix(key, daemonOwner) || json.Unmarshal(value, &s) != nil || s.At[from] == 0 {
		return key, value
	}
	s.At[to] = s.At[from]
	delete(s.At, from)
	b, err := json.Marshal(s)
	if err != nil {
		return key, value
	}
	return key, b
}
