package module

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// minionModule manages the minion itself.
var minionModule = &Module{
	Name: "minion",
	Doc:  "Functions that end or restart the minion itself.",
	Functions: []Function{
		{
			Name: "kill", Doc: "Let the minion end, a moment after it has answered, and return its process. Its service manager may start it again.", Example: `salt '*' minion.kill`,
			Run: func(_ context.Context, c *Call) (any, error) {
				pid, err := c.minionProcess()
				if err != nil {
					return nil, err
				}
				time.AfterFunc(leaveTime, func() { _ = syscall.Kill(pid, syscall.SIGTERM) }) // it may have ended by itself
				if pid != os.Getpid() {
					err = syscall.Kill(pid, syscall.SIGTERM) // this process ends before the moment has passed
				}
				return map[string]any{"killed": pid, "retcode": 0, "comment": []string{}}, err
			},
		},
		{
			Name: "restart", Doc: "Let systemd restart the minion and return its process.", Example: `salt '*' minion.restart`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				pid, err := c.minionProcess()
				if err != nil {
					return nil, err
				}
				if _, err := c.systemctl(ctx, "--no-block", "restart", "--", "salt-minion.service"); err != nil {
					return nil, err
				}
				return map[string]any{"killed": pid, "restart": map[string]any{}, "retcode": 0, "comment": []string{}}, nil
			},
		},
	},
}

// leaveTime is what the minion gets to deliver its return before it ends.
const leaveTime = time.Second

// minionProcess is the number of the daemon's process: this one, or the one that
// its file names.
func (c *Call) minionProcess() (int, error) {
	if c.Host.Jobs != nil {
		return os.Getpid(), nil
	}
	if c.Host.PIDFile == "" {
		return 0, unavailable("minion's daemon")
	}
	text, err := os.ReadFile(c.Host.PIDFile)
	if err != nil {
		return 0, fmt.Errorf("the minion's daemon is not running: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 2 || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return 0, fmt.Errorf("the minion's daemon is not running: %s names no process", c.Host.PIDFile)
	}
	return pid, nil
}
