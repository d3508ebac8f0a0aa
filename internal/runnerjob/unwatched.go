package runnerjob

import (
	"sync"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/rpc"
)

// unwatched counts the runners that nobody waits for, by principal: there is no open request
// whose limit would apply to them.
type unwatched struct {
	mu sync.Mutex
	by map[string]int
}

// maxUnwatched is how many runners that nobody waits for one principal may have running.
const maxUnwatched = 100

// begin counts one more for who, until end is called. Operators have no limit.
func (u *unwatched) begin(who authz.Principal) (end func(), err error) {
	if who.Operator() {
		return func() {}, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by == nil {
		u.by = map[string]int{}
	}
	key := who.Key()
	if u.by[key] >= maxUnwatched {
		return func() {}, rpc.Errorf(rpc.Busy, "%d runners of %s are running that nobody waits for: that is the limit", maxUnwatched, who.Name())
	}
	u.by[key]++
	return func() { u.end(key) }, nil
}

func (u *unwatched) end(key string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by[key]--; u.by[key] == 0 {
		delete(u.by, key)
	}
}
