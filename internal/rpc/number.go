package rpc

import (
	"maps"
	"strconv"

	"github.com/nats-io/nats.go"
)

// Between a daemon's own broker and its peers only the whole connection can be lost. Servers
// that others run may lose single messages, for example while they are disconnected from each
// other for a moment. With these, messages that belong together are numbered from 1, so that a
// missing one is noticed.
const headerNumber = "Brine-N"

// numbered adds the number to a message.
func numbered(m *nats.Msg, n int) *nats.Msg {
	own := nats.Header{headerNumber: {strconv.Itoa(n)}}
	maps.Copy(own, m.Header) // messages share the original
	m.Header = own
	return m
}

// numberOf returns the number of a message, 0 for none. An invalid one never follows another
// one.
func numberOf(m *nats.Msg) int {
	text := m.Header.Get(headerNumber)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return -1
	}
	return n
}

// follows reports whether a message comes directly after the previous one, whose number is
// last; messages without a number always do.
func follows(m *nats.Msg, last int) bool { return comesNext(numberOf(m), last) }

func comesNext(n, last int) bool { return n == 0 || n == last+1 }

// errGap is the error of a message of which a piece is missing.
var errGap = Errorf(Busy, "a piece of the message was lost on the way: send it again")

// Numbers makes the connection number the pieces of requests, see headerNumber. It is called
// before the first request.
func (c *Conn) Numbers() { c.numbers = true }
