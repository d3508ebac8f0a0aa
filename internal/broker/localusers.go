package broker

import (
	"errors"
	"fmt"
	"os"
	"sync"
)

// localUsers counts the connections of the local socket. Root and the daemon's own user could stop the
// daemon anyway and have no limit.
//
// A uid is not always a person: with subordinate uids an ordinary user can have thousands. So there is a
// limit for all ordinary users together, beside that of each uid. When half of that is used, the rest is
// for uids that have few connections: so a user with one uid leaves room for others. An account whose program
// logs others in, like that of salt-api, is not an ordinary user in this: it has its connections for many.
type localUsers struct {
	most   int                   // of all ordinary users
	brings func(uid uint32) bool // reports whether it is such an account; nil for none

	mu  sync.Mutex
	of  map[uint32]int
	all int // of ordinary users
}

// fewOfUser is how many connections of a uid are few.
const fewOfUser = 8

func newLocalUsers(most int, brings func(uint32) bool) *localUsers {
	return &localUsers{most: most, brings: brings, of: map[uint32]int{}}
}

func ordinary(uid uint32) bool { return uid != 0 && int(uid) != os.Geteuid() }

// enter counts a connection. The error is why it is not allowed.
func (l *localUsers) enter(uid uint32) error {
	err := l.count(uid, false)
	if errors.Is(err, errShared) && l.brings != nil && l.brings(uid) { // it is asked for only then: a lookup may take long
		err = l.count(uid, true)
	}
	return err
}

var errShared = errors.New("there are too many connections of users who are not operators")

// count counts a connection; apart is whether the limits of all together do not apply to it.
func (l *localUsers) count(uid uint32, apart bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ordinary(uid) {
		switch has := l.of[uid]; {
		case has >= maxPerUser:
			return fmt.Errorf("this user has %d connections, which is the limit", maxPerUser)
		case apart:
		case l.all >= l.most:
			return errShared
		case l.all >= l.most/2 && has >= fewOfUser:
			return fmt.Errorf("%w, and this user has %d", errShared, has)
		}
		l.all++
	}
	l.of[uid]++
	return nil
}

func (l *localUsers) leave(uid uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[uid]--; l.of[uid] <= 0 {
		delete(l.of, uid)
	}
	if ordinary(uid) {
		l.all--
	}
}
