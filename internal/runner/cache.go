package runner

import (
	"context"
	"fmt"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
)

// cacheModule shows what the master knows of minions without asking them.
func cacheModule(h *Host) *function.Module {
	s := stored{h}
	params := []function.Param{{Name: "tgt", Kind: function.String, Default: "*"}, {Name: "tgt_type", Kind: function.String, Default: "glob"}}
	return &function.Module{Name: "cache", Doc: "What the master knows of minions, without asking them.", Functions: []function.Function{
		{Name: "grains", Class: function.Shared, Doc: "Return the grains that minions last reported.", Example: "salt-run cache.grains 'web*'", Params: params,
			Run: s.each(func(h *Host, id salt.MinionID) (map[string]any, error) { return h.Grains(id), nil })},
		{Name: "mine", Class: function.Secret, Doc: "Return what minions keep in the mine, also what they keep from other minions.", Example: "salt-run cache.mine 'web*'", Params: params,
			Run: s.each(func(h *Host, id salt.MinionID) (map[string]any, error) { return h.Mine(id) })},
		{Name: "pillar", Class: function.Secret, Doc: "Return the pillar of minions, as they would get it now.", Example: "salt-run cache.pillar web1", Params: params,
			Run: s.each(func(h *Host, id salt.MinionID) (map[string]any, error) { return h.Pillar(id, "", nil) })},
	}}
}

type stored struct{ *Host }

// each makes a function that returns something of each minion that is meant.
func (s stored) each(of func(*Host, salt.MinionID) (map[string]any, error)) func(context.Context, *function.Call) (any, error) {
	return func(_ context.Context, c *function.Call) (any, error) {
		ids, err := s.Resolve(c.String("tgt"), c.String("tgt_type"))
		if err != nil {
			return nil, err
		}
		out := map[string]any{}
		for _, id := range ids {
			v, err := of(s.Host, id)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", id, err)
			}
			if v != nil {
				out[string(id)] = v
			}
		}
		return out, nil
	}
}

// pillarModule shows pillars.
func pillarModule(h *Host) *function.Module {
	return &function.Module{Name: "pillar", Doc: "The data that minions get.", Functions: []function.Function{
		{Name: "show_pillar", Class: function.Secret, Doc: "Return the pillar that a minion gets. Without a minion, what one without grains would get. Keywords are grains to suppose.",
			Example: "salt-run pillar.show_pillar web1\nsalt-run pillar.show_pillar web1 pillarenv=dev\nsalt-run pillar.show_pillar os=Debian",
			Params:  []function.Param{{Name: "minion", Kind: function.String, Default: "*"}, {Name: "pillarenv", Kind: function.String}}, Kwargs: true,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				id := salt.MinionID("")
				if name := c.String("minion"); name != "*" {
					var err error
					if id, err = salt.ParseMinionID(name); err != nil {
						return nil, err
					}
				}
				data, err := h.Pillar(id, c.String("pillarenv"), c.Extra())
				return data, err
			}},
	}}
}
