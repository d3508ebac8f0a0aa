package daemon

import (
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// Switched reports whether this process was started by root and runs as another user since, see SwitchUser.
func Switched() bool { return posix.Became() }

// SwitchUser makes this process run as the named user, with its groups. An empty name, or the
// current user, changes nothing; another user needs root.
func SwitchUser(name string) error {
	if name == "" {
		return nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return salt.WithHint(fmt.Errorf("configured to run as user %q: %w", name, err), "create the user, or correct the setting user")
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	if uid == os.Geteuid() {
		return nil
	}
	if os.Geteuid() != 0 {
		return salt.WithHint(fmt.Errorf("configured to run as user %q, which only root can switch to", name), "start it as root or as that user")
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	ids, err := u.GroupIds()
	if err != nil {
		return err
	}
	groups := make([]int, 0, len(ids))
	for _, id := range ids {
		if n, err := strconv.Atoi(id); err == nil {
			groups = append(groups, n)
		}
	}
	if err := posix.Become(uid, gid, groups); err != nil {
		return fmt.Errorf("become user %q: %w", name, err)
	}
	return nil
}
