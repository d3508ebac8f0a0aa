package eventbus

import (
	"github.com/brinebus/brine/internal/blockfile"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
)

// Store is the store of the journal.
type Store interface {
	// Lost returns what was found to be lost at this start, and at any start.
	Lost() (now, all []blockfile.Lost)
}

// Gaps returns what is lost of the events of a store.
func Gaps(s Store) (gaps []journal.Gap) {
	_, all := s.Lost()
	for _, l := range all {
		if l.Stream == journal.Stream {
			gaps = append(gaps, journal.Gap{From: l.From, To: l.To})
		}
	}
	return gaps
}

// Found informs listeners of losses that were found.
type Found func([]blockfile.Lost)

// TellLost informs listeners of what this start has found to be lost of a store. Found does the
// same with what is found later.
func (r *Bus) TellLost(s Store) Found {
	found := func(lost []blockfile.Lost) {
		r.SetLost(Gaps(s))
		for _, l := range lost {
			r.Announce(event.JournalLost, l.Map())
		}
	}
	now, _ := s.Lost()
	found(now)
	return found
}
