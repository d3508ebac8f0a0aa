package module

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/value"
)

// systemdModule tells of systemd beyond its services.
var systemdModule = &Module{
	Name: "systemd",
	Doc:  "Functions of systemd beyond its services, which the module service manages.",
	Functions: []Function{
		{
			Name: "daemon_reload", Doc: "Let systemd read its units again.", Example: `salt '*' systemd.daemon_reload`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				_, err := c.systemctl(ctx, "daemon-reload")
				return done(err)
			},
		},
		{
			Name: "is_system_running", Doc: "Return the state of the machine: running, degraded, starting and others.", Example: `salt '*' systemd.is_system_running`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				if !c.systemdRuns() {
					return nil, unavailable("systemd")
				}
				e, err := tool(ctx, "systemctl", "is-system-running") // whose code is 1 unless the state is running
				return strings.TrimSpace(e.Stdout), err
			},
		},
		{
			Name: "journal", Doc: "Return the last lines that a unit has logged.", Example: `salt '*' systemd.journal ssh lines=20`,
			Params: []Param{serviceName, {Name: "lines", Kind: Int, Default: 50}},
			Run: func(ctx context.Context, c *Call) (any, error) {
				return output(ctx, "journalctl", "--no-pager", "-o", "short-iso", "-n", strconv.Itoa(c.Int("lines")), "-u", unitName(c.String("name")))
			},
		},
		{
			Name: "list_timers", Doc: "Return the timers, with when they are due.", Example: `salt '*' systemd.list_timers`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				return c.systemctlList(ctx, "list-timers", "--all")
			},
		},
		{
			Name: "list_units", Doc: "Return the units in memory: all, those of a shell pattern, those in a state such as failed.", Example: "salt '*' systemd.list_units 'ssh*'\nsalt '*' systemd.list_units state=failed",
			Params: []Param{{Name: "pattern", Kind: String}, {Name: "state", Kind: String}},
			Run: func(ctx context.Context, c *Call) (any, error) {
				args := []string{"list-units", "--all"}
				if c.Has("state") {
					args = append(args, "--state="+c.String("state"))
				}
				if c.Has("pattern") {
					args = append(args, "--", c.String("pattern"))
				}
				return c.systemctlList(ctx, args...)
			},
		},
	},
}

// systemctlList returns a list of systemctl as data.
func (c *Call) systemctlList(ctx context.Context, args ...string) (any, error) {
	text, err := c.systemctl(ctx, append([]string{"--no-pager", "--output=json"}, args...)...)
	if err != nil {
		return nil, err
	}
	v, err := value.Decode([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("this systemctl has no output in JSON: %w", err)
	}
	return v, nil
}
