package runner

import (
	"context"
	"time"

	"brine/internal/job"
	"brine/internal/module"
	"brine/internal/salt"
)

// manageModule tells which minions are there.
func manageModule(h *Host) *module.Module {
	m := manage{h}
	timeout := []module.Param{{Name: "timeout", Kind: module.Float, Default: 5.0}}
	return &module.Module{Name: "manage", Doc: "Which minions are up, down, or connected.", Functions: []module.Function{
		{Name: "down", Doc: "Return the ids of accepted minions that do not answer.", Example: "salt-run manage.down", Params: timeout,
			Run: func(ctx context.Context, c *module.Call) (any, error) {
				_, down, err := m.ask(ctx, c)
				return down, err
			}},
		{Name: "not_present", Doc: "Return the ids of accepted minions that are not connected.", Example: "salt-run manage.not_present",
			Run: func(context.Context, *module.Call) (any, error) { _, away := m.present(); return away, nil }},
		{Name: "present", Doc: "Return the ids of the minions that are connected.", Example: "salt-run manage.present",
			Run: func(context.Context, *module.Call) (any, error) { there, _ := m.present(); return there, nil }},
		{Name: "status", Doc: "Return the ids of accepted minions by whether they answer.", Example: "salt-run manage.status", Params: timeout,
			Run: func(ctx context.Context, c *module.Call) (any, error) {
				up, down, err := m.ask(ctx, c)
				return map[string]any{"up": up, "down": down}, err
			}},
		{Name: "up", Doc: "Return the ids of the minions that answer.", Example: "salt-run manage.up", Params: timeout,
			Run: func(ctx context.Context, c *module.Call) (any, error) { up, _, err := m.ask(ctx, c); return up, err }},
		{Name: "versions", Doc: "Return the minions by how their version compares with the master's.", Example: "salt-run manage.versions",
			Run: func(context.Context, *module.Call) (any, error) { return m.versions(), nil }},
	}}
}

type manage struct{ *Host }

// ask pings every accepted minion. Those that are not connected are down at
// once; only a silent one costs the timeout.
func (m manage) ask(ctx context.Context, c *module.Call) (up, down []any, err error) {
	up, down = []any{}, []any{}
	if len(m.Accepted()) == 0 {
		return up, down, nil
	}
	updates, err := m.Execute(ctx, Execute{
		Target: "*", TargetType: "glob", Command: job.Command{Function: "test.ping"},
		Timeout: time.Duration(c.Float("timeout") * float64(time.Second)),
	})
	if err != nil {
		return up, down, err
	}
	answered := map[salt.MinionID]bool{}
	for _, u := range updates {
		answered[u.ID] = answered[u.ID] || u.State.Returned()
	}
	for _, id := range m.Accepted() {
		if answered[id] {
			up = append(up, string(id))
		} else {
			down = append(down, string(id))
		}
	}
	return up, down, nil
}

func (m manage) present() (there, away []any) {
	there, away = []any{}, []any{}
	for _, id := range m.Accepted() {
		if ok, _ := m.Presence(id); ok {
			there = append(there, string(id))
		} else {
			away = append(away, string(id))
		}
	}
	return there, away
}

func (m manage) versions() any {
	groups := map[string]any{"Master": m.Version}
	add := func(group, id, version string) {
		list, _ := groups[group].(map[string]any)
		if list == nil {
			list = map[string]any{}
			groups[group] = list
		}
		list[id] = version
	}
	for _, id := range m.Accepted() {
		version, _ := m.Grains(id)["saltversion"].(string)
		switch there, _ := m.Presence(id); {
		case !there:
			add("Minion offline", string(id), version)
		case version == m.Version:
			add("Up to date", string(id), version)
		default:
			add("Minion of another version", string(id), version)
		}
	}
	return groups
}
