package journal

import (
	"strings"
	"sync/atomic"

	"github.com/brinebus/brine/internal/salt"
)

// origin is the kind of sender of an event.
type origin int

const (
	ofDaemon origin = iota
	ofUser
	ofClient
	ofMinion
	origins
)

// taken counts events by their origin.
type taken [origins]atomic.Uint64

// originOf returns the kind of an owner, see ownerOf.
func originOf(owner string) origin {
	switch {
	case owner == "":
		return ofDaemon
	case strings.HasPrefix(owner, salt.UserPrefix):
		return ofUser
	case strings.HasPrefix(owner, salt.ClientPrefix):
		return ofClient
	}
	return ofMinion
}

// Taken returns how many events were stored since the start, by kind of sender. Events of the
// daemon about what a user did count for this user.
func (j *Journal) Taken() map[string]uint64 {
	return map[string]uint64{
		"daemon": j.taken[ofDaemon].Load(), "user": j.taken[ofUser].Load(), "client": j.taken[ofClient].Load(), "minion": j.taken[ofMinion].Load(),
	}
}
