package runner

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// manageModule shows which minions are connected.
func manageModule(h *Host) *function.Module {
	m := manage{h}
	ask := []function.Param{{Name: "tgt", Kind: function.String, Default: "*"}, {Name: "tgt_type", Kind: function.String, Default: "glob"}, {Name: "timeout", Kind: function.Float, Default: 5.0}}
	functions := []function.Function{
		{Name: "down", Class: function.Changes, Doc: "Return the ids of accepted minions that do not answer. With removekeys their keys are deleted, which needs the right to use the wheel function key.delete, too.", Example: "salt-run manage.down\nsalt-run manage.down tgt='web*'",
			Params: append([]function.Param{{Name: "removekeys", Kind: function.Bool, Default: false}}, ask...), Calls: &function.Calls{Read: removedKeys, Run: m.down}},
		{Name: "safe_accept", Class: function.Changes, Doc: "Accept the waiting key of a minion if it has the given fingerprint, which 'salt-call --local key.finger' shows on its machine. This needs the right to use the wheel function key.accept, too.",
			Example: "salt-run manage.safe_accept web1 0f:5b:13:aa:0c:...", Params: []function.Param{{Name: "target", Kind: function.String, Required: true}, {Name: "fingerprint", Kind: function.String, Required: true}}, Calls: &function.Calls{Read: acceptedKey, Run: m.safeAccept}},
		{Name: "status", Class: function.Shared, Doc: "Return the ids of accepted minions by whether they answer, and, under config, if the latest configuration is not in force.", Example: "salt-run manage.status", Params: ask,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				up, down, err := m.ask(ctx, c)
				status := map[string]any{"up": up, "down": down}
				if why := m.Unreloaded(); why != "" {
					status["config"] = why
				}
				return status, err
			}},
		{Name: "up", Class: function.Shared, Doc: "Return the ids of the minions that answer.", Example: "salt-run manage.up", Params: ask,
			Run: func(ctx context.Context, c *function.Call) (any, error) { up, _, err := m.ask(ctx, c); return up, err }},
		{Name: "versions", Class: function.Shared, Doc: "Return the versions of minions: of those that have the version of the master, of those that have another one, and of those that are not connected.", Example: "salt-run manage.versions",
			Run: func(context.Context, *function.Call) (any, error) { return m.versions(), nil }},
	}
	functions = append(functions, m.presenceFunctions()...)
	slices.SortFunc(functions, func(a, b function.Function) int { return strings.Compare(a.Name, b.Name) })
	return &function.Module{Name: "manage", Doc: "Which minions are up, down, or connected.", Functions: functions}
}

type manage struct{ *Host }

// presenceFunctions look only at connections and contact no minion. Salt has a name for each state
// that some of its transports could tell; here a connection means all of them.
func (m manage) presenceFunctions() []function.Function {
	params := []function.Param{{Name: "subset", Kind: function.Words}}
	var list []function.Function
	for _, name := range []string{"alived", "allowed", "joined", "list_state", "present", "reaped"} {
		not := "not_" + name
		if name == "list_state" {
			not = "list_not_state"
		}
		list = append(list,
			function.Function{Name: name, Class: function.Shared, Doc: "Return the ids of the minions that are connected, of subset if it is given.", Example: "salt-run manage." + name, Params: params,
				Run: func(_ context.Context, c *function.Call) (any, error) { there, _ := m.present(c); return there, nil }},
			function.Function{Name: not, Class: function.Shared, Doc: "Return the ids of accepted minions that are not connected, of subset if it is given.", Example: "salt-run manage." + not, Params: params,
				Run: func(_ context.Context, c *function.Call) (any, error) { _, away := m.present(c); return away, nil }})
	}
	return list
}

// ask pings the accepted minions that match. Those without a connection are down at once; only an
// unresponsive one costs the timeout.
func (m manage) ask(ctx context.Context, c *function.Call) (up, down []any, err error) {
	up, down = []any{}, []any{}
	ids, err := m.Resolve(c.String("tgt"), c.String("tgt_type"))
	if err != nil || len(ids) == 0 {
		return up, down, err
	}
	updates, err := m.Ping(ctx, c.String("tgt"), c.String("tgt_type"), time.Duration(c.Float("timeout")*float64(time.Second)))
	if err != nil {
		return up, down, err
	}
	answered := map[salt.MinionID]bool{}
	for _, u := range updates {
		answered[u.ID] = answered[u.ID] || u.State.Returned()
	}
	for _, id := range ids {
		if answered[id] {
			up = append(up, string(id))
		} else {
			down = append(down, string(id))
		}
	}
	return up, down, nil
}

// removedKeys reads the wheel function that manage.down calls.
func removedKeys(a *function.Arguments) function.Reading {
	if !a.Bool("removekeys") {
		return function.Reading{}
	}
	c := salt.Command{Function: "key.delete", Args: []any{a.String("tgt")}}
	// A rule for key.delete cannot be compared with other targets.
	return function.Reading{Inner: []function.Inner{{Way: function.Wheel, Command: c}}, Hidden: a.String("tgt_type") != "glob"}
}

// acceptedKey reads the wheel function that manage.safe_accept calls.
func acceptedKey(a *function.Arguments) function.Reading {
	return function.Reading{Inner: []function.Inner{{Way: function.Wheel, Command: salt.Command{Function: "key.accept", Args: []any{a.String("target")}}}}}
}

func (m manage) down(ctx context.Context, c *function.Call, _ *function.Caller) (any, error) {
	_, down, err := m.ask(ctx, c)
	if err != nil || !c.Bool("removekeys") {
		return down, err
	}
	for _, id := range down {
		chosen, err := keys(m).pick(id.(string), []pki.State{pki.Accepted})
		if err != nil {
			return nil, err
		}
		if _, err := keys(m).carryOut(deleteKeys, chosen); err != nil {
			return nil, err
		}
	}
	return down, nil
}

// safeAccept accepts the one key that has the fingerprint. Salt fetches the fingerprint over ssh;
// here the user supplies it.
func (m manage) safeAccept(_ context.Context, c *function.Call, _ *function.Caller) (any, error) {
	id, err := salt.ParseMinionID(c.String("target"))
	if err != nil {
		return nil, err
	}
	chosen, err := keys(m).pick(string(id)+"@SHA256:"+c.String("fingerprint"), []pki.State{pki.Pending})
	if err != nil {
		return nil, err
	}
	return keys(m).carryOut(acceptKeys, chosen)
}

func (m manage) present(c *function.Call) (there, away []any) {
	there, away = []any{}, []any{}
	subset := c.Words("subset")
	for _, id := range m.IDs() {
		switch ok, _ := m.Connected(id); {
		case subset != nil && !slices.Contains(subset, string(id)):
		case ok:
			there = append(there, string(id))
		default:
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
	for _, id := range m.IDs() {
		version, _ := m.Grains(id)["saltversion"].(string)
		switch there, _ := m.Connected(id); {
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
