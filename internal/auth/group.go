package auth

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// lookupTime bounds one question to the system's name service.
const lookupTime = 5 * time.Second

// maxGroups is how many groups of one user are looked at. Directories with
// nested groups give people hundreds.
const maxGroups = 4096

type cachedGroups struct {
	names []string
	until time.Time
}

// Groups returns the names of the groups that the user is in, of the system's
// name service, so that those of LDAP and Active Directory count. Of a user who
// is not known, or when the service does not answer, there are none: what hangs
// on a group is then refused. The slice must not be changed.
func (u *Users) Groups(ctx context.Context, name salt.UserName) []string {
	u.mu.Lock()
	c, ok := u.groups[name]
	u.mu.Unlock()
	if ok && time.Now().Before(c.until) {
		return c.names
	}
	names := systemGroups(ctx, string(name))
	if ctx.Err() != nil {
		return names // cut short: not to be remembered
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.groups == nil {
		u.groups = map[salt.UserName]cachedGroups{}
	}
	u.groups[name] = cachedGroups{names, time.Now().Add(cacheFor)}
	return names
}

// ID returns the number of a user, -1 of one whom the system does not know.
func (u *Users) ID(ctx context.Context, name salt.UserName) int {
	text := ""
	if x, err := user.Lookup(string(name)); err == nil {
		text = x.Uid
	} else if fields := strings.Split(ask(ctx, "getent", "passwd", "--", string(name)), ":"); len(fields) > 2 {
		text = fields[2]
	}
	uid, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return -1
	}
	return int(uid)
}

// Exists tells whether the system knows a user of this name.
func (u *Users) Exists(ctx context.Context, name salt.UserName) bool {
	if _, err := user.Lookup(string(name)); err == nil {
		return true
	}
	return len(ask(ctx, "getent", "passwd", string(name))) > 0
}

// systemGroups asks id, which knows the groups beyond /etc/group, and getent for
// their names: id would print names too, but some hold blanks.
func systemGroups(ctx context.Context, name string) []string {
	if strings.HasPrefix(name, "-") {
		return nil
	}
	ids := strings.Fields(ask(ctx, "id", "-G", name))
	if len(ids) == 0 {
		return nil
	}
	ids = ids[:min(len(ids), maxGroups)]
	var names []string
	for line := range strings.Lines(ask(ctx, "getent", append([]string{"group"}, ids...)...)) {
		if group, _, ok := strings.Cut(line, ":"); ok && group != "" {
			names = append(names, group)
		}
	}
	return names
}

// Shadow returns the password field of a user from the system's shadow database.
// It changes when the password is changed or locked. It is "" where the database
// has no such user or this process may not read it. It is never remembered.
func (u *Users) Shadow(ctx context.Context, name salt.UserName) (string, error) {
	if strings.HasPrefix(string(name), "-") {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "getent", "shadow", string(name)).Output()
	var ended *exec.ExitError
	if err != nil && (ctx.Err() != nil || !errors.As(err, &ended)) {
		return "", fmt.Errorf("look up the password entry of %s: %w", name, err)
	}
	_, rest, _ := strings.Cut(string(out), ":")
	field, _, _ := strings.Cut(rest, ":")
	return field, nil
}

// ask runs a program of the system and returns what it prints, also when it
// fails: getent does for one unknown group among many.
func ask(ctx context.Context, program string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	out, _ := exec.CommandContext(ctx, program, args...).Output()
	return string(out)
}
