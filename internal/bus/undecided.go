package bus

import "strings"

// Undecided reports whether an error of the client library is about a server that has sent its first ping before it
// has let the client in: it asks a master about the client, and gets no answer. The error has no other sign, and its
// text says nothing about that.
func Undecided(err error) bool {
	return err != nil && strings.Contains(err.Error(), "expected 'PONG', got 'PING'")
}
