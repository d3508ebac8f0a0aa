package journal

import (
	"strings"
	"sync/atomic"

	"github.com/brinebus/brine/internal/salt"
)

// origin is the kind of who fired an event.
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

// originOf is the kind of an owner, see ownerOf.
func originOf(owner string) origin {
	switch {
	case owner == "":
		return ofDaemon
	case strings.HasPrefix(owner, "user:"):
		return ofUser
	case strings.HasPrefix(owner, salt.ClientPrefix):
		return ofClient
	}
	return ofMinion
}

// Taken is how many events were stored since the start, by the kind of who fired them or,
// of jobs and runners, of who started these.
func (j *Journal) Taken() map[string]uint64 {
	return map[string]uint64{
		"daemon": j.taken[ofDaemon].Load(), "user": j.taken[ofUser].Load(), "client": j.taken[ofClient].Load(), "minion": j.taken[ofMinion].Load(),
	}
}
