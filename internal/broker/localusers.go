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
// for uids that have few connections: so a user with one uid leaves room for others.
type localUsers struct {
	most int // of all ordinary users

	mu  sync.Mutex
	of  map[uint32]int
	all int // of ordinary users
}

// fewOfUser is how many connections of a uid are few.
const fewOfUser = 8

func newLocalUsers(most int) *localUsers { return &localUsers{most: most, of: map[uint32]int{}} }

func ordinary(uid uint32) bool { return uid != 0 && int(uid) != os.Geteuid() }

// enter counts a connection. The error is why it is not allowed.
func (l *localUsers) enter(uid uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ordinary(uid) {
		switch has := l.of[uid]; {
		case has >= maxPerUser:
			return fmt.Errorf("this user has %d connections, which is the limit", maxPerUser)
		case l.all >= l.most:
			return errors.New("there are too many connections of users who are not operators")
		case l.all >= l.most/2 && has >= fewOfUser:
			return fmt.Errorf("there are many connections of users who are not operators, and this user has %d", has)
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
