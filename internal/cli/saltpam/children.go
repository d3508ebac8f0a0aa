package saltpam

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of all that its children leave behind: some
// modules start programs in sessions of their own, out of the reach of a signal
// to the process group.
func adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// killChildren ends everything that the modules have started, and waits for it.
func killChildren() {
	for list := children(); len(list) > 0; list = children() {
		for _, pid := range list {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		for _, pid := range list {
			_, _ = syscall.Wait4(pid, nil, 0, nil) // a module may have done so
		}
	}
}

// children are the processes whose parent this one is, of whichever thread.
func children() []int {
	files, _ := filepath.Glob("/proc/self/task/*/children") // the pattern is valid
	var list []int
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		for word := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(word); err == nil {
				list = append(list, pid)
			}
		}
	}
	return list
}
