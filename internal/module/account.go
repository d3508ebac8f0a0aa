package module

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/posix"
)

// account is a user of the operating system.
type account struct {
	name, comment, home, shell string
	uid, gid                   int
}

// group is a group of the operating system.
type group struct {
	name    string
	gid     int
	members []string
}

// findAccount finds a user by name, or by number if there is no such name: first in /etc/passwd,
// then through the system's name service, for example in a directory.
func findAccount(ctx context.Context, name string) (*account, error) {
	all, err := localAccounts()
	if err != nil {
		return nil, err
	}
	for _, match := range []func(account) bool{
		func(a account) bool { return a.name == name },
		func(a account) bool { return strconv.Itoa(a.uid) == name },
	} {
		if i := slices.IndexFunc(all, match); i >= 0 {
			return &all[i], nil
		}
	}
	if line, err := output(ctx, "getent", "passwd", "--", name); err == nil {
		if a, ok := parseAccount(strings.TrimSpace(line)); ok {
			return &a, nil
		}
	}
	return nil, fmt.Errorf("user %q does not exist", name)
}

// findGroup finds a group, as findAccount finds a user.
func findGroup(ctx context.Context, name string) (*group, error) {
	all, err := localGroups()
	if err != nil {
		return nil, err
	}
	for _, match := range []func(group) bool{
		func(g group) bool { return g.name == name },
		func(g group) bool { return strconv.Itoa(g.gid) == name },
	} {
		if i := slices.IndexFunc(all, match); i >= 0 {
			return &all[i], nil
		}
	}
	if line, err := output(ctx, "getent", "group", "--", name); err == nil {
		if g, ok := parseGroup(strings.TrimSpace(line)); ok {
			return &g, nil
		}
	}
	return nil, fmt.Errorf("group %q does not exist", name)
}

// localAccounts reads /etc/passwd. Invalid lines are skipped.
func localAccounts() ([]account, error) { return readEntries("/etc/passwd", parseAccount) }

// localGroups reads /etc/group.
func localGroups() ([]group, error) { return readEntries("/etc/group", parseGroup) }

func readEntries[T any](path string, parse func(string) (T, bool)) ([]T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []T
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20) // a group can have thousands of members
	for lines.Scan() {
		if entry, ok := parse(lines.Text()); ok {
			all = append(all, entry)
		}
	}
	return all, lines.Err()
}

func parseAccount(line string) (account, bool) {
	f := strings.Split(line, ":")
	if len(f) != 7 || f[0] == "" {
		return account{}, false
	}
	uid, uidErr := strconv.ParseUint(f[2], 10, 32)
	gid, gidErr := strconv.ParseUint(f[3], 10, 32)
	return account{name: f[0], uid: int(uid), gid: int(gid), comment: f[4], home: f[5], shell: f[6]}, uidErr == nil && gidErr == nil
}

func parseGroup(line string) (group, bool) {
	f := strings.Split(line, ":")
	if len(f) != 4 || f[0] == "" {
		return group{}, false
	}
	gid, err := strconv.ParseUint(f[2], 10, 32)
	return group{name: f[0], gid: int(gid), members: function.SplitWords(f[3])}, err == nil
}

// groups returns the groups of the user, the primary one first.
func (a *account) groups(ctx context.Context) ([]group, error) {
	all, err := localGroups()
	if err != nil {
		return nil, err
	}
	primary := group{name: strconv.Itoa(a.gid), gid: a.gid}
	var others []group
	for _, g := range all {
		switch {
		case g.gid == a.gid:
			primary = g
		case slices.Contains(g.members, a.name):
			others = append(others, g)
		}
	}
	return append([]group{primary}, append(others, a.remoteGroups(ctx, others)...)...), nil
}

// remoteGroups returns the groups that only the system's directory knows. A user in /etc/passwd has
// none, and then no program is run.
func (a *account) remoteGroups(ctx context.Context, known []group) []group {
	local, err := localAccounts()
	if err != nil || slices.ContainsFunc(local, func(l account) bool { return l.name == a.name }) {
		return nil
	}
	out, err := output(ctx, "id", "-G", "--", a.name)
	if err != nil {
		return nil
	}
	var more []group
	for word := range strings.FieldsSeq(out) {
		gid, err := strconv.Atoi(word)
		same := func(g group) bool { return g.gid == gid }
		if err == nil && gid != a.gid && !slices.ContainsFunc(known, same) {
			more = append(more, group{name: word, gid: gid})
		}
	}
	return more
}

// identity is a user as which a program runs.
type identity struct {
	account
	supplementary []uint32
}

// findIdentity returns the user with that name; groupName replaces the primary group unless it is
// "".
func findIdentity(ctx context.Context, user, groupName string) (*identity, error) {
	if user == "" {
		user = strconv.Itoa(os.Geteuid())
	}
	a, err := findAccount(ctx, user)
	if err != nil {
		return nil, err
	}
	groups, err := a.groups(ctx)
	if err != nil {
		return nil, err
	}
	id := &identity{account: *a}
	for _, g := range groups {
		id.supplementary = append(id.supplementary, uint32(g.gid))
	}
	if groupName != "" {
		g, err := findGroup(ctx, groupName)
		if err != nil {
			return nil, err
		}
		id.gid = g.gid
	}
	if !id.isSelf() && os.Geteuid() != 0 {
		return nil, fmt.Errorf("run as %s: only a minion that runs as root can change the user", a.name)
	}
	return id, nil
}

// isSelf reports whether the minion already runs as that user.
func (id *identity) isSelf() bool { return id.uid == os.Geteuid() && id.gid == os.Getegid() }

// credential returns the credential for a process of that user, nil if no change is needed.
func (id *identity) credential() *posix.Credential {
	if id.isSelf() {
		return nil
	}
	return &posix.Credential{UID: uint32(id.uid), GID: uint32(id.gid), Groups: id.supplementary}
}

// environ returns the environment of a new session of the user. It uses nothing from the minion's
// environment, which may contain secrets.
func (id *identity) environ() []string {
	path := "/usr/local/bin:/usr/bin:/bin"
	if id.uid == 0 {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	return []string{"PATH=" + path, "HOME=" + id.home, "USER=" + id.name, "LOGNAME=" + id.name, "SHELL=" + id.shell}
}
