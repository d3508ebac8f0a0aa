package module

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target/fnmatch"
)

var (
	serviceName  = function.Param{Name: "name", Kind: function.String, Required: true}
	serviceNames = []function.Param{serviceName}
)

// serviceModule manages services.
var serviceModule = &function.Module{
	Name: "service",
	Doc: "Functions that manage the services of the machine: units of systemd where it runs the machine, " +
		"else of OpenRC, or scripts by the programs service and update-rc.d or chkconfig.",
	Functions: []function.Function{
		{
			Name:    "available",
			Doc:     "Return whether there is such a service.",
			Example: `salt '*' service.available sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *function.Call) (any, error) { return serviceExists(ctx, c) },
		},
		{
			Name:    "disable",
			Doc:     "Disable a service: it is not started with the machine any more.",
			Example: `salt '*' service.disable sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *function.Call) (any, error) { return setEnabled(ctx, c, false) },
		},
		{
			Name:    "disabled",
			Doc:     "Return whether a service is not started with the machine.",
			Example: `salt '*' service.disabled sshd`,
			Params:  serviceNames,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				enabled, err := isEnabled(ctx, c)
				return !enabled, err
			},
		},
		{
			Name:    "enable",
			Doc:     "Enable a service: it is started with the machine.",
			Example: `salt '*' service.enable sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *function.Call) (any, error) { return setEnabled(ctx, c, true) },
		},
		{
			Name:    "enabled",
			Doc:     "Return whether a service is started with the machine.",
			Example: `salt '*' service.enabled sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *function.Call) (any, error) { return isEnabled(ctx, c) },
		},
		{
			Name:    "force_reload",
			Doc:     "Make a service read its configuration again, by a restart if it has no other way.",
			Example: `salt '*' service.force_reload sshd`,
			Params:  serviceNames,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return actOnService(ctx, c, "reload-or-restart", "force-reload")
			},
		},
		{
			Name:    "get_all",
			Doc:     "Return the names of all services.",
			Example: `salt '*' service.get_all`,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				if !systemdRuns(c) {
					return initScripts()
				}
				return unitFiles(ctx, c, "")
			},
		},
		{
			Name:    "get_disabled",
			Doc:     "Return the names of the services that are not started with the machine.",
			Example: `salt '*' service.get_disabled`,
			Run:     func(ctx context.Context, c *function.Call) (any, error) { return unitFiles(ctx, c, "disabled") },
		},
		{
			Name:    "get_enabled",
			Doc:     "Return the names of the services that are started with the machine.",
			Example: `salt '*' service.get_enabled`,
			Run:     func(ctx context.Context, c *function.Call) (any, error) { return unitFiles(ctx, c, "enabled") },
		},
		{
			Name:    "get_running",
			Doc:     "Return the names of the running services.",
			Example: `salt '*' service.get_running`,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return unitList(ctx, c, "list-units", "--state=running")
			},
		},
		{
			Name:    "get_static",
			Doc:     "Return the names of the services that others start.",
			Example: `salt '*' service.get_static`,
			Run:     func(ctx context.Context, c *function.Call) (any, error) { return unitFiles(ctx, c, "static") },
		},
		{
			Name:    "mask",
			Doc:     "Mask a service: it cannot be started at all.",
			Example: `salt '*' service.mask sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *function.Call) (any, error) { return systemctlUnit(ctx, c, "mask") },
		},
		{
			Name:    "masked",
			Doc:     "Return whether a service is masked.",
			Example: `salt '*' service.masked sshd`,
			Params:  serviceNames,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				properties, err := unitProperties(ctx, c)
				return properties["LoadState"] == "masked", err
			},
		},
		{
			Name:    "missing",
			Doc:     "Return whether there is no such service.",
			Example: `salt '*' service.missing sshd`,
			Params:  serviceNames,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				exists, err := serviceExists(ctx, c)
				return !exists, err
			},
		},
		{
			Name:    "reload",
			Doc:     "Make a service read its configuration again.",
			Example: `salt '*' service.reload sshd`,
			Params:  serviceNames,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return actOnService(ctx, c, "reload", "reload")
			},
		},
		{
			Name:    "restart",
			Doc:     "Restart a service.",
			Example: `salt '*' service.restart sshd`,
			Params:  serviceNames,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return actOnService(ctx, c, "restart", "restart")
			},
		},
		{
			Name:    "show",
			Doc:     "Return the properties of a service as systemd knows them.",
			Example: `salt '*' service.show sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *function.Call) (any, error) { return unitProperties(ctx, c) },
		},
		{
			Name:    "start",
			Doc:     "Start a service.",
			Example: `salt '*' service.start sshd`,
			Params:  serviceNames,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return actOnService(ctx, c, "start", "start")
			},
		},
		{
			Name:    "status",
			Doc:     "Return whether a service runs; of a glob, that of each service whose name matches.",
			Example: "salt '*' service.status sshd\nsalt '*' service.status 'ssh*'",
			Params:  serviceNames,
			Run:     serviceStatus,
		},
		{
			Name:    "stop",
			Doc:     "Stop a service.",
			Example: `salt '*' service.stop sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *function.Call) (any, error) { return actOnService(ctx, c, "stop", "stop") },
		},
		{
			Name:    "systemctl_reload",
			Doc:     "Let systemd read its units again.",
			Example: `salt '*' service.systemctl_reload`,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				_, err := systemctl(ctx, c, "daemon-reload")
				return done(err)
			},
		},
		{
			Name:    "unmask",
			Doc:     "Unmask a service: it can be started again.",
			Example: `salt '*' service.unmask sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *function.Call) (any, error) { return systemctlUnit(ctx, c, "unmask") },
		},
	},
}

// systemdRuns reports whether systemd runs the machine: according to the grain init, otherwise to
// the directory that sd_booted(3) checks too.
func systemdRuns(c *function.Call) bool {
	if init, ok := c.Host.Facts()["init"].(string); ok {
		return init == "systemd"
	}
	info, err := os.Stat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// unitName returns the name of a unit, by default a service.
func unitName(name string) string {
	for _, kind := range []string{".service", ".socket", ".target", ".timer", ".mount", ".automount", ".path", ".slice", ".scope", ".swap", ".device"} {
		if strings.HasSuffix(name, kind) {
			return name
		}
	}
	return name + ".service"
}

// systemctl runs systemctl if systemd runs the machine.
func systemctl(ctx context.Context, c *function.Call, args ...string) (string, error) {
	if !systemdRuns(c) {
		return "", function.Unavailable("systemd")
	}
	return output(ctx, append([]string{"systemctl"}, args...)...)
}

// systemctlUnit runs a verb that only systemd has on the unit of the argument name.
func systemctlUnit(ctx context.Context, c *function.Call, verb string) (any, error) {
	_, err := systemctl(ctx, c, verb, "--", unitName(c.String("name")))
	return done(err)
}

// actOnService runs a verb on the service of the argument name.
func actOnService(ctx context.Context, c *function.Call, verb, scriptVerb string) (any, error) {
	if systemdRuns(c) {
		return systemctlUnit(ctx, c, verb)
	}
	name, err := scriptName(c)
	if err != nil {
		return nil, err
	}
	return toolDone(ctx, fill(findInit().act, name, scriptVerb)...)
}

// scriptName returns the argument name for the program service, which cannot distinguish a name
// from an option.
func scriptName(c *function.Call) (string, error) {
	name := c.String("name")
	if err := salt.CheckService(name); err != nil {
		return "", function.Invalid("%v", err)
	}
	return name, nil
}

// unitSays asks systemctl a question that its exit code answers.
func unitSays(ctx context.Context, c *function.Call, question string) (bool, error) {
	if !systemdRuns(c) {
		return false, function.Unavailable("systemd")
	}
	e, err := tool(ctx, "systemctl", question, "--quiet", "--", unitName(c.String("name")))
	return e.Code == 0, err
}

func unitProperties(ctx context.Context, c *function.Call) (map[string]any, error) {
	text, err := systemctl(ctx, c, "show", "--", unitName(c.String("name")))
	properties := map[string]any{}
	for line := range strings.Lines(text) {
		if name, v, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			properties[name] = v
		}
	}
	return properties, err
}

func serviceExists(ctx context.Context, c *function.Call) (bool, error) {
	if !systemdRuns(c) {
		scripts, err := initScripts()
		return slices.Contains(scripts, c.String("name")), err
	}
	properties, err := unitProperties(ctx, c)
	return err == nil && properties["LoadState"] != "not-found", err
}

func serviceStatus(ctx context.Context, c *function.Call) (any, error) {
	name := c.String("name")
	if !strings.ContainsAny(name, "*?[") {
		return serviceRuns(ctx, c, name)
	}
	if !systemdRuns(c) {
		return nil, function.Unavailable("status of several services without systemd")
	}
	all, err := unitFiles(ctx, c, "")
	if err != nil {
		return nil, err
	}
	states := map[string]any{}
	for _, service := range all {
		if !fnmatch.Match(name, service) {
			continue
		}
		if states[service], err = serviceRuns(ctx, c, service); err != nil {
			return nil, err
		}
	}
	return states, nil
}

func serviceRuns(ctx context.Context, c *function.Call, name string) (bool, error) {
	args := []string{"systemctl", "is-active", "--quiet", "--", unitName(name)}
	if !systemdRuns(c) {
		if _, err := scriptName(c); err != nil {
			return false, err
		}
		args = fill(findInit().act, name, "status")
	}
	e, err := tool(ctx, args...)
	return err == nil && e.Code == 0, err
}

// unitFiles returns the names of the services whose file has the state, all for "".
func unitFiles(ctx context.Context, c *function.Call, state string) ([]string, error) {
	args := []string{"list-unit-files"}
	if state != "" {
		args = append(args, "--state="+state)
	}
	return unitList(ctx, c, args...)
}

// unitList returns the names of the services in a listing of systemctl.
func unitList(ctx context.Context, c *function.Call, args ...string) ([]string, error) {
	text, err := systemctl(ctx, c, append(args, "--type=service", "--no-legend", "--no-pager", "--plain", "--full")...)
	names := []string{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 {
			names = append(names, strings.TrimSuffix(f[0], ".service"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// initScripts returns the names of the services in /etc/init.d.
func initScripts() ([]string, error) {
	paths, err := filepath.Glob("/etc/init.d/*")
	names := []string{}
	for _, p := range paths {
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			names = append(names, filepath.Base(p))
		}
	}
	return names, err
}
