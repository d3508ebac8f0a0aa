package module

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/value"
)

// systemdModule shows what systemd has besides services.
var systemdModule = &function.Module{
	Name: "systemd",
	Doc:  "Functions of systemd beyond its services, which the module service manages.",
	Functions: []function.Function{
		{
			Name: "daemon_reload", Doc: "Let systemd read its units again.", Example: `salt '*' systemd.daemon_reload`,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				_, err := systemctl(ctx, c, "daemon-reload")
				return done(err)
			},
		},
		{
			Name: "is_system_running", Doc: "Return the state of the machine: running, degraded, starting and others.", Example: `salt '*' systemd.is_system_running`,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				if !systemdRuns(c) {
					return nil, function.Unavailable("systemd")
				}
				e, err := tool(ctx, "systemctl", "is-system-running") // its code is 1 unless the state is running
				return strings.TrimSpace(e.Stdout), err
			},
		},
		{
			Name: "journal", Doc: "Return the last lines that a unit has logged.", Example: `salt '*' systemd.journal ssh lines=20`,
			Params: []function.Param{serviceName, {Name: "lines", Kind: function.Int, Default: 50}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return output(ctx, "journalctl", "--no-pager", "-o", "short-iso", "-n", strconv.Itoa(c.Int("lines")), "-u", unitName(c.String("name")))
			},
		},
		{
			Name: "list_timers", Doc: "Return the timers, with when they are due.", Example: `salt '*' systemd.list_timers`,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return systemctlList(ctx, c, "list-timers", "--all")
			},
		},
		{
			Name: "list_units", Doc: "Return the units in memory: all, those of a shell pattern, those in a state such as failed.", Example: "salt '*' systemd.list_units 'ssh*'\nsalt '*' systemd.list_units state=failed",
			Params: []function.Param{{Name: "pattern", Kind: function.String}, {Name: "state", Kind: function.String}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				args := []string{"list-units", "--all"}
				if c.Has("state") {
					args = append(args, "--state="+c.String("state"))
				}
				if c.Has("pattern") {
					args = append(args, "--", c.String("pattern"))
				}
				return systemctlList(ctx, c, args...)
			},
		},
	},
}

// systemctlList returns a list from systemctl as data.
func systemctlList(ctx context.Context, c *function.Call, args ...string) (any, error) {
	text, err := systemctl(ctx, c, append([]string{"--no-pager", "--output=json"}, args...)...)
	if err != nil {
		return nil, err
	}
	v, err := value.Decode([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("this systemctl has no output in JSON: %w", err)
	}
	return v, nil
}
