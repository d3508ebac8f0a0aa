package module

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

var (
	serviceName  = Param{Name: "name", Kind: String, Required: true}
	serviceNames = []Param{serviceName}
)

// serviceModule manages services.
var serviceModule = &Module{
	Name: "service",
	Doc: "Functions that manage the services of the machine: units of systemd where it runs the machine, " +
		"else of OpenRC, or scripts by the programs service and update-rc.d or chkconfig.",
	Functions: []Function{
		{
			Name:    "available",
			Doc:     "Return whether there is such a service.",
			Example: `salt '*' service.available sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *Call) (any, error) { return c.serviceExists(ctx) },
		},
		{
			Name:    "disable",
			Doc:     "Let a service not be started with the machine.",
			Example: `salt '*' service.disable sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *Call) (any, error) { return c.setEnabled(ctx, false) },
		},
		{
			Name:    "disabled",
			Doc:     "Return whether a service is not started with the machine.",
			Example: `salt '*' service.disabled sshd`,
			Params:  serviceNames,
			Run: func(ctx context.Context, c *Call) (any, error) {
				enabled, err := c.isEnabled(ctx)
				return !enabled, err
			},
		},
		{
			Name:    "enable",
			Doc:     "Let a service be started with the machine.",
			Example: `salt '*' service.enable sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *Call) (any, error) { return c.setEnabled(ctx, true) },
		},
		{
			Name:    "enabled",
			Doc:     "Return whether a service is started with the machine.",
			Example: `salt '*' service.enabled sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *Call) (any, error) { return c.isEnabled(ctx) },
		},
		{
			Name:    "force_reload",
			Doc:     "Let a service read its configuration again, by a restart if it can not otherwise.",
			Example: `salt '*' service.force_reload sshd`,
			Params:  serviceNames,
			Run: func(ctx context.Context, c *Call) (any, error) {
				return c.act(ctx, "reload-or-restart", "force-reload")
			},
		},
		{
			Name:    "get_all",
			Doc:     "Return the names of all services.",
			Example: `salt '*' service.get_all`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				if !c.systemdRuns() {
					return initScripts()
				}
				return c.unitFiles(ctx, "")
			},
		},
		{
			Name:    "get_disabled",
			Doc:     "Return the names of the services that are not started with the machine.",
			Example: `salt '*' service.get_disabled`,
			Run:     func(ctx context.Context, c *Call) (any, error) { return c.unitFiles(ctx, "disabled") },
		},
		{
			Name:    "get_enabled",
			Doc:     "Return the names of the services that are started with the machine.",
			Example: `salt '*' service.get_enabled`,
			Run:     func(ctx context.Context, c *Call) (any, error) { return c.unitFiles(ctx, "enabled") },
		},
		{
			Name:    "get_running",
			Doc:     "Return the names of the running services.",
			Example: `salt '*' service.get_running`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				return c.unitList(ctx, "list-units", "--state=running")
			},
		},
		{
			Name:    "get_static",
			Doc:     "Return the names of the services that others start.",
			Example: `salt '*' service.get_static`,
			Run:     func(ctx context.Context, c *Call) (any, error) { return c.unitFiles(ctx, "static") },
		},
		{
			Name:    "mask",
			Doc:     "Let a service not be started at all.",
			Example: `salt '*' service.mask sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *Call) (any, error) { return c.unit(ctx, "mask") },
		},
		{
			Name:    "masked",
			Doc:     "Return whether a service is masked.",
			Example: `salt '*' service.masked sshd`,
			Params:  serviceNames,
			Run: func(ctx context.Context, c *Call) (any, error) {
				properties, err := c.unitProperties(ctx)
				return properties["LoadState"] == "masked", err
			},
		},
		{
			Name:    "missing",
			Doc:     "Return whether there is no such service.",
			Example: `salt '*' service.missing sshd`,
			Params:  serviceNames,
			Run: func(ctx context.Context, c *Call) (any, error) {
				exists, err := c.serviceExists(ctx)
				return !exists, err
			},
		},
		{
			Name:    "reload",
			Doc:     "Let a service read its configuration again.",
			Example: `salt '*' service.reload sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *Call) (any, error) { return c.act(ctx, "reload", "reload") },
		},
		{
			Name:    "restart",
			Doc:     "Restart a service.",
			Example: `salt '*' service.restart sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *Call) (any, error) { return c.act(ctx, "restart", "restart") },
		},
		{
			Name:    "show",
			Doc:     "Return the properties of a service as systemd knows them.",
			Example: `salt '*' service.show sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *Call) (any, error) { return c.unitProperties(ctx) },
		},
		{
			Name:    "start",
			Doc:     "Start a service.",
			Example: `salt '*' service.start sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *Call) (any, error) { return c.act(ctx, "start", "start") },
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
			Run:     func(ctx context.Context, c *Call) (any, error) { return c.act(ctx, "stop", "stop") },
		},
		{
			Name:    "systemctl_reload",
			Doc:     "Let systemd read its units again.",
			Example: `salt '*' service.systemctl_reload`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				_, err := c.systemctl(ctx, "daemon-reload")
				return done(err)
			},
		},
		{
			Name:    "unmask",
			Doc:     "Let a masked service be started again.",
			Example: `salt '*' service.unmask sshd`,
			Params:  serviceNames,
			Run:     func(ctx context.Context, c *Call) (any, error) { return c.unit(ctx, "unmask") },
		},
	},
}

// systemdRuns says whether systemd runs the machine: the grain init tells, else
// the folder that exists just then, where sd_booted(3) looks too.
func (c *Call) systemdRuns() bool {
	if init, ok := c.Host.grains()["init"].(string); ok {
		return init == "systemd"
	}
	info, err := os.Stat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// unitName is the name of a unit: a service if no type is given.
func unitName(name string) string {
	for _, kind := range []string{".service", ".socket", ".target", ".timer", ".mount", ".automount", ".path", ".slice", ".scope", ".swap", ".device"} {
		if strings.HasSuffix(name, kind) {
			return name
		}
	}
	return name + ".service"
}

// systemctl runs systemctl where systemd runs the machine.
func (c *Call) systemctl(ctx context.Context, args ...string) (string, error) {
	if !c.systemdRuns() {
		return "", unavailable("systemd")
	}
	return output(ctx, append([]string{"systemctl"}, args...)...)
}

// unit does something to the unit of the argument name that only systemd can.
func (c *Call) unit(ctx context.Context, verb string) (any, error) {
	_, err := c.systemctl(ctx, verb, "--", unitName(c.String("name")))
	return done(err)
}

// act does something to the service of the argument name.
func (c *Call) act(ctx context.Context, verb, scriptVerb string) (any, error) {
	if c.systemdRuns() {
		return c.unit(ctx, verb)
	}
	name, err := c.scriptName()
	if err != nil {
		return nil, err
	}
	return toolDone(ctx, fill(findInit().act, name, scriptVerb)...)
}

// scriptName is the argument name as the program service takes it, which has no
// way to tell a name from an option.
func (c *Call) scriptName() (string, error) {
	name := c.String("name")
	if name == "" || strings.HasPrefix(name, "-") || strings.Contains(name, "/") {
		return "", invalid("%q is not the name of a service", name)
	}
	return name, nil
}

// unitSays asks systemctl a question that it answers by its exit code.
func (c *Call) unitSays(ctx context.Context, question string) (bool, error) {
	if !c.systemdRuns() {
		return false, unavailable("systemd")
	}
	e, err := tool(ctx, "systemctl", question, "--quiet", "--", unitName(c.String("name")))
	return e.Code == 0, err
}

func (c *Call) unitProperties(ctx context.Context) (map[string]any, error) {
	text, err := c.systemctl(ctx, "show", "--", unitName(c.String("name")))
	properties := map[string]any{}
	for line := range strings.Lines(text) {
		if name, v, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			properties[name] = v
		}
	}
	return properties, err
}

func (c *Call) serviceExists(ctx context.Context) (bool, error) {
	if !c.systemdRuns() {
		scripts, err := initScripts()
		return slices.Contains(scripts, c.String("name")), err
	}
	properties, err := c.unitProperties(ctx)
	return err == nil && properties["LoadState"] != "not-found", err
}

func serviceStatus(ctx context.Context, c *Call) (any, error) {
	name := c.String("name")
	if !strings.ContainsAny(name, "*?[") {
		return c.serviceRuns(ctx, name)
	}
	if !c.systemdRuns() {
		return nil, unavailable("status of several services without systemd")
	}
	all, err := c.unitFiles(ctx, "")
	if err != nil {
		return nil, err
	}
	states := map[string]any{}
	for _, service := range all {
		if !globMatch(name, service) {
			continue
		}
		if states[service], err = c.serviceRuns(ctx, service); err != nil {
			return nil, err
		}
	}
	return states, nil
}

func (c *Call) serviceRuns(ctx context.Context, name string) (bool, error) {
	args := []string{"systemctl", "is-active", "--quiet", "--", unitName(name)}
	if !c.systemdRuns() {
		if _, err := c.scriptName(); err != nil {
			return false, err
		}
		args = fill(findInit().act, name, "status")
	}
	e, err := tool(ctx, args...)
	return err == nil && e.Code == 0, err
}

// unitFiles returns the names of the services whose file has the state, all for
// "".
func (c *Call) unitFiles(ctx context.Context, state string) ([]string, error) {
	args := []string{"list-unit-files"}
	if state != "" {
		args = append(args, "--state="+state)
	}
	return c.unitList(ctx, args...)
}

// unitList returns the names of the services that a listing of systemctl shows.
func (c *Call) unitList(ctx context.Context, args ...string) ([]string, error) {
	text, err := c.systemctl(ctx, append(args, "--type=service", "--no-legend", "--no-pager", "--plain", "--full")...)
	names := []string{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 {
			names = append(names, strings.TrimSuffix(f[0], ".service"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// initScripts returns the names of the services that /etc/init.d holds.
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
