package module

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/value"
)

// minionModule manages the minion itself.
var minionModule = &function.Module{
	Name: "minion",
	Doc:  "Functions that end or restart the minion itself.",
	Functions: []function.Function{
		{
			Name: "kill", Doc: "End the minion, a moment after it has answered, and return its process. Its service manager may start it again.", Example: `salt '*' minion.kill`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				pid, err := minionProcess(c)
				if err != nil {
					return nil, err
				}
				time.AfterFunc(leaveTime, func() { _ = posix.Kill(pid, syscall.SIGTERM) }) // it may have ended by itself
				if pid != os.Getpid() {
					err = posix.Kill(pid, syscall.SIGTERM) // this process ends before the delay is over
				}
				return map[string]any{"killed": pid, "retcode": 0, "comment": []string{}}, err
			},
		},
		{
			Name: "restart", Doc: "End the minion, a moment after it has answered, start it again, and return its process. The setting minion_restart_command names the program for that; without it systemd does so, where the minion is its service, or else the minion is started as it was, in the background.",
			Example: `salt '*' minion.restart`,
			Run:     restartMinion,
		},
	},
}

// leaveTime is how long the minion has to deliver its return before it ends.
const leaveTime = time.Second

// restartMinion restarts the minion through its service manager, the configured command or its own
// command line.
func restartMinion(ctx context.Context, c *function.Call) (any, error) {
	pid, err := minionProcess(c)
	if err != nil {
		return nil, err
	}
	answer := func(how string, err error) (any, error) {
		return map[string]any{"killed": pid, "restart": map[string]any{}, "retcode": 0, "comment": []string{how}}, err
	}
	if command := restartCommand(c); len(command) > 0 {
		return answer("by minion_restart_command", startAfter(pid, command, ""))
	}
	if isUnit(pid) {
		_, err := systemctl(ctx, c, "--no-block", "restart", "--", minionUnit)
		return answer("by systemd", err)
	}
	command, dir, err := commandLine(pid)
	if err != nil {
		return nil, err
	}
	return answer("by its own command line", startAfter(pid, command, dir))
}

// restartCommand is the setting minion_restart_command.
func restartCommand(c *function.Call) []string {
	list, _ := c.Host.Config["minion_restart_command"].([]any)
	var words []string
	for _, word := range list {
		words = append(words, value.Str(word))
	}
	return words
}

// minionUnit is the service of the minion.
const minionUnit = "salt-minion.service"

// isUnit reports whether systemd has started the process as its service.
func isUnit(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && strings.Contains(string(text), "/"+minionUnit)
}

// commandLine returns the command line and the directory of the minion's start; it goes into the
// background by itself when it is started in this way again.
func commandLine(pid int) (words []string, dir string, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil, "", err
	}
	if dir, err = os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil {
		return nil, "", err
	}
	words = strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
	if program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil {
		words[0] = strings.TrimSuffix(program, " (deleted)") // an upgrade has replaced it
	}
	if !slices.Contains(words, "-d") && !slices.Contains(words, "--daemon") {
		words = append(words, "-d")
	}
	return words, dir, nil
}

// restartScript gives the minion, whose pid is $0, a moment to deliver its return, ends it, waits
// for its end and then executes the program that starts it again. Its arguments are words that no
// shell parses.
const restartScript = `sleep 1
kill "$0"
for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
	for part in 1 2 3 4 5 6 7 8 9 10; do
		kill -0 "$0" 2>/dev/null || exec "$@"
		sleep 0.1
	done
done`

// startAfter runs a program, independent of this one, after the process has ended.
func startAfter(pid int, command []string, dir string) error {
	p := process.Program{Args: append([]string{"sh", "-c", restartScript, strconv.Itoa(pid)}, command...), Dir: dir, Env: process.Environ(false)}
	_, err := p.Detach()
	return err
}

// minionProcess returns the pid of the daemon: this process, or the one in its pid file.
func minionProcess(c *function.Call) (int, error) {
	if services(c.Host).Jobs != nil {
		return os.Getpid(), nil
	}
	if c.Host.PIDFile == "" {
		return 0, function.Unavailable("minion's daemon")
	}
	text, err := os.ReadFile(c.Host.PIDFile)
	if err != nil {
		return 0, fmt.Errorf("the minion's daemon is not running: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 2 || posix.Gone(pid) {
		return 0, fmt.Errorf("the minion's daemon is not running: %s names no process", c.Host.PIDFile)
	}
	return pid, nil
}
