package member

import (
	"errors"
	"time"
)

// ErrUnread is why Judge refuses everybody while the list of removed keys cannot be read.
var ErrUnread = errors.New("it is not known which members were removed")

// UnreadTime is how long links that were accepted stay while the list of removed keys cannot be read, for
// example since there are no descriptors: by the list as it was read before, their members are not
// removed. New ones are refused meanwhile.
const UnreadTime = 10 * time.Second

// Unread knows since when the list of removed keys cannot be read. The zero value has read it.
type Unread struct{ since time.Time }

// Short reports whether the list cannot be read, which err says, and that not for too long yet.
func (u *Unread) Short(err error) bool {
	switch {
	case err == nil:
		u.since = time.Time{}
		return false
	case u.since.IsZero():
		u.since = time.Now()
	}
	return time.Since(u.since) < UnreadTime
}

// Stays reports whether a link stays about which Judge has said this. One with a key that is on the list does not, nor
// one with anything else that Judge refuses; only a list that cannot be read ends it later.
func (u *Unread) Stays(err error) bool {
	if errors.Is(err, ErrUnread) {
		return u.Short(err)
	}
	u.Short(nil)
	return err == nil
}
