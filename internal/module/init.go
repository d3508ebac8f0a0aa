package module

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/function"
)

// initSystem manages services without systemd. Its commands are argument vectors with the
// placeholders NAME and VERB.
type initSystem struct {
	program         string // that identifies it
	act             []string
	enable, disable []string
	// enabled reports whether a service starts at boot.
	enabled func(ctx context.Context, h *function.Host, name string) (bool, error)
}

// initSystems are the supported ones, in the order of detection. The last one can only start and
// stop services.
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

// fill replaces the placeholders in a command.
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

// setEnabled sets whether the service of the argument name starts at boot.
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

// isEnabled reports whether the service of the argument name starts at boot.
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
