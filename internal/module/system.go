package module

import (
	"context"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/function"
)

// systemAt is the time of an action.
var systemAt = function.Param{Name: "at_time", Kind: function.String}

// systemModule manages the machine as a whole.
var systemModule = &function.Module{
	Name: "system",
	Doc:  "Functions that stop and restart the machine, and set its name and clock. Without a time the machine stops at once, and the return of such a job may not arrive.",
	Functions: []function.Function{
		{
			Name: "get_computer_name", Doc: "Return the name of the machine.", Example: `salt '*' system.get_computer_name`,
			Run: func(context.Context, *function.Call) (any, error) { return os.Hostname() },
		},
		{
			Name: "get_reboot_required_witnessed", Doc: "Return whether an update of the system asks for a restart of the machine.", Example: `salt '*' system.get_reboot_required_witnessed`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				_, err := os.Stat(c.Host.Path("/run/reboot-required"))
				return err == nil, nil
			},
		},
		{
			Name: "get_system_date", Doc: "Return the date, as 11/21/2026.", Example: `salt '*' system.get_system_date`,
			Run: func(context.Context, *function.Call) (any, error) { return time.Now().Format("01/02/2006"), nil },
		},
		{
			Name: "get_system_date_time", Doc: "Return date and time, as 2026-11-21 15:04:05.", Example: `salt '*' system.get_system_date_time`,
			Run: func(context.Context, *function.Call) (any, error) { return time.Now().Format(time.DateTime), nil },
		},
		{
			Name: "get_system_time", Doc: "Return the time, as 03:04:05 PM.", Example: `salt '*' system.get_system_time`,
			Run: func(context.Context, *function.Call) (any, error) { return time.Now().Format("03:04:05 PM"), nil },
		},
		{
			Name: "halt", Doc: "Stop the machine.", Example: `salt '*' system.halt`,
			Run: func(ctx context.Context, _ *function.Call) (any, error) {
				return toolDone(ctx, "shutdown", "-H", "now")
			},
		},
		{
			Name: "poweroff", Doc: "Stop the machine and switch it off.", Example: `salt '*' system.poweroff`,
			Run: func(ctx context.Context, _ *function.Call) (any, error) {
				return toolDone(ctx, "shutdown", "-P", "now")
			},
		},
		{
			Name: "reboot", Doc: "Restart the machine: now, in so many minutes, or at a time of day.", Example: "salt '*' system.reboot\nsalt '*' system.reboot at_time=5", Params: []function.Param{systemAt},
			Run: func(ctx context.Context, c *function.Call) (any, error) { return shutdownMachine(ctx, c, "-r") },
		},
		{
			Name: "set_computer_name", Doc: "Set the name of the machine.", Example: `salt '*' system.set_computer_name web1`, Params: []function.Param{{Name: "hostname", Kind: function.String, Required: true}}, Run: setComputerName,
		},
		{
			Name: "set_system_date_time", Doc: "Set the clock: a date and a time as 2026-11-21 15:04:05, in the zone of the machine.", Example: `salt '*' system.set_system_date_time '2026-11-21 15:04:05'`,
			Params: []function.Param{{Name: "newdatetime", Kind: function.String, Required: true}}, Run: setSystemTime,
		},
		{
			Name: "shutdown", Doc: "Stop the machine: now, in so many minutes, or at a time of day.", Example: "salt '*' system.shutdown\nsalt '*' system.shutdown at_time=23:30", Params: []function.Param{systemAt},
			Run: func(ctx context.Context, c *function.Call) (any, error) { return shutdownMachine(ctx, c, "-h") },
		},
	},
}

// toolDone runs a program of the system that must succeed, and returns True.
func toolDone(ctx context.Context, args ...string) (any, error) {
	_, err := output(ctx, args...)
	return done(err)
}

// The accepted texts.
func minutesFromNow() *regexp.Regexp { return regexp.MustCompile(`^\+?[0-9]{1,6}$`) }
func timeOfDay() *regexp.Regexp      { return regexp.MustCompile(`^([01]?[0-9]|2[0-3]):[0-5][0-9]$`) }
func hostName() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?$`)
}

func shutdownMachine(ctx context.Context, c *function.Call, how string) (any, error) {
	at := c.String("at_time")
	switch {
	case at == "" || at == "now":
		at = "now"
	case minutesFromNow().MatchString(at):
		at = "+" + strings.TrimPrefix(at, "+")
	case !timeOfDay().MatchString(at):
		return nil, function.Invalid("at_time is minutes from now, or a time of day such as 23:30, not %q", at)
	}
	return toolDone(ctx, "shutdown", how, at)
}

func setComputerName(ctx context.Context, c *function.Call) (any, error) {
	name := c.String("hostname")
	if !hostName().MatchString(name) {
		return nil, function.Invalid("%q is not the name of a machine", name)
	}
	if systemdRuns(c) && which("hostnamectl") != nil {
		return toolDone(ctx, "hostnamectl", "set-hostname", "--", name)
	}
	if err := replaceText(c.Host.Path("/etc/hostname"), name+"\n", 0o644); err != nil {
		return nil, err
	}
	return toolDone(ctx, "hostname", "--", name)
}

func setSystemTime(ctx context.Context, c *function.Call) (any, error) {
	zone, err := currentZone(c)
	if err != nil {
		return nil, err
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return nil, err
	}
	when, err := time.ParseInLocation(time.DateTime, c.String("newdatetime"), location)
	if err != nil {
		return nil, function.Invalid("%q is not a date and time such as 2026-11-21 15:04:05", c.String("newdatetime"))
	}
	return toolDone(ctx, "date", "-u", "-s", when.UTC().Format(time.DateTime))
}
