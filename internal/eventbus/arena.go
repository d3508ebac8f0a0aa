package eventbus

import (
	"github.com/brinebus/brine/internal/event"
)

// arena is memory for the texts of a batch, a few pieces for all of them: one for each
// costs the collector more than the texts. A piece stays while one of its texts does.
type arena struct {
	left int // bytes that are still to come, about
	free []byte
}

// arenaBytes is a piece.
const arenaBytes = 32 << 10

// arenaFor is for the texts of new events.
func arenaFor(events []event.Item, origin event.Origin) arena {
	var s arena
	for _, e := range events {
		s.left += origin.Size(e.Tag, e.Data)
	}
	return s
}

// next is where a text of n bytes is to be appended to, and keep takes it.
func (s *arena) next(n int) []byte {
	if cap(s.free) < n {
		s.free = make([]byte, 0, max(n, min(s.left, arenaBytes)))
	}
	s.left -= n
	return s.free
}

func (s *arena) keep(text []byte) []byte {
	s.free = text[len(text):]
	return text[:len(text):len(text)]
}
