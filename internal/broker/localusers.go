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
// logs others in, like that of salt-api, is not an ordinary user in this: it has its connections for many, and they
// are counted apart, so that neither takes the place of the other.
type localUsers struct {
	most   int                   // of ordinary users together
	apart  int                   // of accounts that log others in together; beyond that they count as ordinary users
	brings func(uid uint32) bool // reports whether it is such an account; nil for none

	mu       sync.Mutex
	of       map[uint32]places
	all      int // of ordinary users
	allApart int
}

// places is what one user has.
type places struct {
	all   int
	apart int // of those, the ones that do not count as those of an ordinary user
}

// fewOfUser is how many connections of a uid are few.
const fewOfUser = 8

func newLocalUsers(d descriptors, brings func(uint32) bool) *localUsers {
	return &localUsers{most: d.local, apart: d.apart, brings: brings, of: map[uint32]places{}}
}

func ordinary(uid uint32) bool { return uid != 0 && int(uid) != os.Geteuid() }

var errShared = errors.New("there are too many connections of users who are not operators")

// enter counts a connection. The error is why it is not allowed.
func (l *localUsers) enter(uid uint32) error {
	apart := ordinary(uid) && l.brings != nil && l.brings(uid)
	l.mu.Lock()
	defer l.mu.Unlock()
	has := l.of[uid]
	if apart = apart && l.allApart < l.apart; ordinary(uid) {
		switch counted := has.all - has.apart; {
		case has.all >= maxPerUser:
			return fmt.Errorf("this user has %d connections, which is the limit", maxPerUser)
		case apart:
			has.apart++
			l.allApart++
		case l.all >= l.most:
			return errShared
		case l.all >= l.most/2 && counted >= fewOfUser:
			return fmt.Errorf("%w, and this user has %d", errShared, counted)
		default:
			l.all++
		}
	}
	has.all++
	l.of[uid] = has
	return nil
}

// leave counts the end of a connection. Of an account that has both kinds of places, those that others may need come first.
func (l *localUsers) leave(uid uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	has := l.of[uid]
	switch {
	case !ordinary(uid):
	case has.all > has.apart:
		l.all--
	default:
		has.apart--
		l.allApart--
	}
	if has.all--; has.all <= 0 {
		delete(l.of, uid)
		return
	}
	l.of[uid] = has
}
