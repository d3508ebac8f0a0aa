package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// mayMakeUsers says whether users and PAM services of the machine can be made.
var mayMakeUsers = sync.OnceValue(func() bool {
	if os.Geteuid() != 0 {
		return false
	}
	for _, program := range []string{"useradd", "userdel", "groupadd", "chpasswd"} {
		if _, err := exec.LookPath(program); err != nil {
			return false
		}
	}
	info, err := os.Stat("/etc/pam.d")
	return err == nil && info.IsDir()
})

// mayUnshare tries out whether an ordinary user can make a user namespace.
var mayUnshare = sync.OnceValue(func() bool {
	c := exec.Command("unshare", "-U", "true")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return os.Geteuid() == 0 && c.Run() == nil
})

// made counts what was made on the machine, for names of its own.
var made atomic.Int64

// machineName is one that nothing on this machine has. Names of users are short.
func machineName() string { return fmt.Sprintf("brt%dx%d", os.Getpid(), made.Add(1)) }

// accounts keeps two of these programs from running at a time: they lock the
// files of users and do not wait for each other.
var accounts sync.Mutex

// manage runs a program that changes the files of users. Another test may hold
// their lock.
func manage(program string, args ...string) error {
	accounts.Lock()
	defer accounts.Unlock()
	deadline := time.Now().Add(time.Minute)
	for {
		out, err := exec.Command(program, args...).CombinedOutput()
		if err == nil {
			return nil
		}
		var ended *exec.ExitError
		const cantLock = 10 // of useradd and its like: can't update the file; 1 where it is locked
		if !errors.As(err, &ended) || ended.ExitCode() != 1 && ended.ExitCode() != cantLock || time.Now().After(deadline) {
			return fmt.Errorf("%s %v: %w: %s", program, args, err, out)
		}
	}
}

// unixGroup makes a group of the machine, which goes with the script, and puts
// its name into a variable.
func unixGroup(_ *system, ts *testscript.TestScript, args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	name := machineName()
	ts.Setenv(args[0], name)
	ts.Defer(func() { _ = exec.Command("groupdel", name).Run() })
	return manage("groupadd", name)
}

// unixUser makes a user of the machine with a password, in the groups, likewise.
func unixUser(_ *system, ts *testscript.TestScript, args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	name := machineName()
	ts.Setenv(args[0], name)
	ts.Defer(func() { _ = manage("sh", "-c", `! id "$0" >/dev/null 2>&1 || userdel "$0"`, name) })
	line := []string{"-M", "-d", ts.MkAbs("."), "-s", "/bin/sh"}
	for _, group := range args[2:] {
		line = append(line, "-G", group)
	}
	if err := manage("useradd", append(line, name)...); err != nil {
		return err
	}
	return manage("sh", "-c", `printf '%s:%s\n' "$0" "$1" | chpasswd`, name, args[1])
}

// account changes a user by a program such as usermod.
func account(_ *system, _ *testscript.TestScript, args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	return manage(args[0], args[1:]...)
}

// pamService makes a PAM service from a file of the script, which goes with it,
// and puts its name into a variable.
func pamService(_ *system, ts *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	name := machineName()
	path := filepath.Join("/etc/pam.d", name)
	ts.Setenv(args[0], name)
	ts.Defer(func() { _ = os.Remove(path) })
	return os.WriteFile(path, []byte(ts.ReadFile(args[1])), 0o644)
}
