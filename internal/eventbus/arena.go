package eventbus

import (
	"github.com/brinebus/brine/internal/event"
)

// arena is memory for the texts of a batch, in a few large pieces: one allocation for each text
// would cost the garbage collector more than the texts do. A piece is kept as long as one of
// its texts is used.
type arena struct {
	left int // about how many bytes are still to come
	free []byte
}

// arenaBytes is the size of a piece.
const arenaBytes = 32 << 10

// arenaFor returns an arena for the texts of new events.
func arenaFor(events []event.Item, origin event.Origin) arena {
	var s arena
	for _, e := range events {
		s.left += origin.Size(e.Tag, e.Data)
	}
	return s
}

// next returns where a text of n bytes can be appended; keep then takes it.
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
