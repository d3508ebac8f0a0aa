// Package auth says who is asking: which user a process belongs to, by the
// kernel's word and the system's databases. What that user may do is package
// acl.
package auth

import (
	"context"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// User is a local user.
type User struct {
	UID      int
	Name     salt.UserName // the uid in digits where the system has no name for it
	Operator bool          // root, or the user that this daemon runs as
}

// cacheFor bounds how long a name is remembered: a directory server may be slow,
// and a renamed account is rare.
const cacheFor = time.Minute

// Users looks up local users. The zero value is ready; it is safe for concurrent
// use.
type Users struct {
	mu     sync.Mutex
	names  map[int]cached
	groups map[salt.UserName]cachedGroups
}

type cached struct {
	name  salt.UserName
	until time.Time
}

// Lookup returns the user with this number. It always has an answer: rights
// hang on the number, the name is for people and for rules.
func (u *Users) Lookup(ctx context.Context, uid int) User {
	return User{UID: uid, Name: u.name(ctx, uid), Operator: uid == 0 || uid == os.Geteuid()}
}

func (u *Users) name(ctx context.Context, uid int) salt.UserName {
	u.mu.Lock()
	c, ok := u.names[uid]
	u.mu.Unlock()
	if ok && time.Now().Before(c.until) {
		return c.name
	}
	name := salt.UserName(strconv.Itoa(uid))
	if n, err := salt.ParseUserName(systemName(ctx, uid)); err == nil {
		name = n
	}
	if ctx.Err() != nil {
		return name // cut short: not to be remembered
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.names == nil {
		u.names = map[int]cached{}
	}
	u.names[uid] = cached{name, time.Now().Add(cacheFor)}
	return name
}

// systemName asks /etc/passwd, then the whole of the system's name service,
// which has the users of LDAP and Active Directory.
func systemName(ctx context.Context, uid int) string {
	if x, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return x.Username
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "getent", "passwd", strconv.Itoa(uid)).Output()
	if err != nil {
		return ""
	}
	name, _, _ := strings.Cut(string(out), ":")
	return name
}
