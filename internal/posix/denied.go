package posix

import (
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
)

// became says that Become has changed the user of this process.
var became atomic.Bool

// Became reports whether Become has changed the user of this process.
func Became() bool { return became.Load() }

// DeniedHint returns a hint about a file or directory that this process may not use. That is otherwise for a user for
// whom another one may be the right one: root, the owner and a process that has given root up get a hint of their own,
// since for them another user is not what is missing.
func DeniedHint(path, otherwise string) string {
	d := denied{euid: os.Geteuid(), became: became.Load(), owner: -1}
	if info, err := os.Stat(path); err == nil {
		if uid, mode, err := Owner(path, info); err == nil {
			d.owner, d.mode = uid, mode.Perm()
		}
	}
	return d.hint(path, otherwise)
}

// denied is what is known of such a process and its file.
type denied struct {
	euid   int
	became bool
	owner  int // -1 if it is not known, as in a directory that the process may not enter
	mode   fs.FileMode
}

// deniedRoot is the hint for root, who may read every file that the system itself lets anybody read.
const deniedRoot = "this is root already: look at the file system (NFS, FUSE), at the capabilities of a container, or at SELinux or AppArmor"

func (d denied) hint(path, otherwise string) string {
	switch {
	case d.euid == 0:
		return deniedRoot
	case d.owner >= 0 && d.owner == d.euid && d.mode&0o400 == 0:
		return "chmod u+r " + path
	case d.owner >= 0 && d.owner == d.euid:
		return "it belongs to the user of this process: look at the directories above it, and at SELinux or AppArmor"
	case d.became && d.owner < 0:
		return fmt.Sprintf("this runs as the user with uid %d, by the setting user: let it enter the directories above %s", d.euid, path)
	case d.became:
		return fmt.Sprintf("this runs as the user with uid %d, by the setting user: chown %d %s", d.euid, d.euid, path)
	}
	return otherwise
}
