package module

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/function"
)

// initSystem starts services where systemd does not: its programs as argument
// vectors, in which NAME and VERB stand for themselves.
type initSystem struct {
	program         string // by which it is known
	act             []string
	enable, disable []string
	// enabled tells whether a service is started with the machine.
	enabled func(ctx context.Context, h *function.Host, name string) (bool, error)
}

// initSystems are those known, in the order in which they are looked for. The last
// can only act.
var initSystems = []initSystem{
	{
		program: "rc-service", act: []string{"rc-service", "NAME", "VERB"},
		enable: []string{"rc-update", "add", "NAME", "default"}, disable: []string{"rc-update", "del", "NAME", "default"},
		enabled: func(ctx context.Context, _ *function.Host, name string) (bool, error) {
			text, err := output(ctx, "rc-update", "show", "default")
			named := func(line string) bool {
				service, _, _ := strings.Cut(line, "|")
				return strings.TrimSpace(service) == name
			}
			return slices.ContainsFunc(lineList(text), named), err
		},
	},
	{
		program: "update-rc.d", act: []string{"service", "NAME", "VERB"},
		enable: []string{"update-rc.d", "NAME", "enable"}, disable: []string{"update-rc.d", "NAME", "disable"},
		enabled: func(_ context.Context, h *function.Host, name string) (bool, error) {
			links, err := filepath.Glob(h.Path("/etc/rc[2345].d/S[0-9][0-9]*"))
			same := func(link string) bool { return filepath.Base(link)[3:] == name }
			return slices.ContainsFunc(links, same), err
		},
	},
	{
		program: "chkconfig", act: []string{"service", "NAME", "VERB"},
		enable: []string{"chkconfig", "NAME", "on"}, disable: []string{"chkconfig", "NAME", "off"},
		enabled: func(ctx context.Context, _ *function.Host, name string) (bool, error) {
			e, err := tool(ctx, "chkconfig", name)
			return e.Code == 0, err
		},
	},
	{program: "service", act: []string{"service", "NAME", "VERB"}},
}

// findInit returns the init system of a machine without systemd.
func findInit() initSystem {
	for _, s := range initSystems {
		if which(s.program) != nil {
			return s
		}
	}
	return initSystems[len(initSystems)-1]
}

// fill puts a service and what is to be done with it into a command.
func fill(command []string, name, verb string) []string {
	args := slices.Clone(command)
	for i, word := range args {
		switch word {
		case "NAME":
			args[i] = name
		case "VERB":
			args[i] = verb
		}
	}
	return args
}

// setEnabled lets the service of the argument name be started with the machine, or
// not.
func setEnabled(ctx context.Context, c *function.Call, on bool) (any, error) {
	if systemdRuns(c) {
		return systemctlUnit(ctx, c, map[bool]string{true: "enable", false: "disable"}[on])
	}
	name, err := scriptName(c)
	if err != nil {
		return nil, err
	}
	command := findInit().disable
	if on {
		command = findInit().enable
	}
	if command == nil {
		return nil, function.Unavailable("way to enable services")
	}
	return toolDone(ctx, fill(command, name, "")...)
}

// isEnabled tells whether the service of the argument name is started with the
// machine.
func isEnabled(ctx context.Context, c *function.Call) (bool, error) {
	if systemdRuns(c) {
		return unitSays(ctx, c, "is-enabled")
	}
	name, err := scriptName(c)
	if err != nil {
		return false, err
	}
	s := findInit()
	if s.enabled == nil {
		return false, function.Unavailable("way to tell which services are enabled")
	}
	return s.enabled(ctx, c.Host, name)
}
