package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
)

// cacheModule shows what the master knows of minions without contacting them.
func cacheModule(h *Host) *function.Module {
	s := stored{h}
	params := []function.Param{{Name: "tgt", Kind: function.String, Default: "*"}, {Name: "tgt_type", Kind: function.String, Default: "glob"}}
	return &function.Module{Name: "cache", Doc: "What the master knows about minions, without asking them.", Functions: []function.Function{
		{Name: "clear_all", Class: function.Changes, Doc: "Forget the grains, pillar and mine entries of minions, and return the ids of these. A minion sends its grains and its mine again when it connects, or when it is asked to.", Example: "salt-run cache.clear_all 'web*'", Params: params,
			Run: s.clear(func(ctx context.Context, h *Host, id salt.MinionID) (any, error) {
				return true, errors.Join(h.DropPillar(ctx, id), h.DropGrains(ctx, id), h.DropMine(ctx, id, ""))
			})},
		{Name: "clear_grains", Class: function.Changes, Doc: "Forget the latest grains of minions. Targets by grains do not match them until saltutil.refresh_grains, or their next connection.", Example: "salt-run cache.clear_grains web1", Params: params,
			Run: s.clear(func(ctx context.Context, h *Host, id salt.MinionID) (any, error) {
				return true, h.DropGrains(ctx, id)
			})},
		{Name: "clear_mine", Class: function.Changes, Doc: "Delete all entries of minions in the mine.", Example: "salt-run cache.clear_mine web1", Params: params,
			Run: s.clear(func(ctx context.Context, h *Host, id salt.MinionID) (any, error) {
				return true, h.DropMine(ctx, id, "")
			})},
		{Name: "clear_mine_func", Class: function.Changes, Doc: "Delete one entry of minions in the mine.", Example: "salt-run cache.clear_mine_func web1 network.ip_addrs",
			Params: []function.Param{params[0], {Name: "clear_mine_func_flag", Kind: function.String, Required: true}, params[1]},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				entry := c.String("clear_mine_func_flag")
				if entry == "" {
					return nil, function.Invalid("which entry is meant? cache.clear_mine forgets all")
				}
				return s.clear(func(ctx context.Context, h *Host, id salt.MinionID) (any, error) {
					return true, h.DropMine(ctx, id, entry)
				})(ctx, c)
			}},
		{Name: "clear_pillar", Class: function.Changes, Doc: "Forget the pillar that targets match minions by; the master has it again when the minion next requests it.", Example: "salt-run cache.clear_pillar web1", Params: params,
			Run: s.clear(func(ctx context.Context, h *Host, id salt.MinionID) (any, error) {
				return true, h.DropPillar(ctx, id)
			})},
		{Name: "grains", Class: function.Shared, Doc: "Return the grains that minions last reported.", Example: "salt-run cache.grains 'web*'", Params: params,
			Run: s.each(func(_ context.Context, h *Host, id salt.MinionID) (any, error) { return something(h.Grains(id)), nil })},
		{Name: "mine", Class: function.Secret, Doc: "Return the entries of minions in the mine, including those that other minions may not read.", Example: "salt-run cache.mine 'web*'", Params: params,
			Run: s.each(func(_ context.Context, h *Host, id salt.MinionID) (any, error) {
				v, err := h.Mine(id)
				return something(v), err
			})},
		{Name: "pillar", Class: function.Secret, Doc: "Return the pillar of minions as they would get it now.", Example: "salt-run cache.pillar web1", Params: params,
			Run: s.each(func(_ context.Context, h *Host, id salt.MinionID) (any, error) {
				v, err := h.CompilePillar(id, "", nil)
				return something(v), err
			})},
	}}
}

type stored struct{ *Host }

// something returns m, or an untyped nil for a nil map: then the minion has no answer.
func something(m map[string]any) any {
	if m == nil {
		return nil
	}
	return m
}

// mineModule reads data that minions keep for each other.
func mineModule(h *Host) *function.Module {
	s := stored{h}
	return &function.Module{Name: "mine", Doc: "Data that minions share with each other.", Functions: []function.Function{
		{Name: "get", Class: function.Secret, Doc: "Return entries of the mine, by minion; for several functions, by function and minion. Entries that other minions may not read are included.", Example: "salt-run mine.get 'web*' network.ip_addrs",
			Params: []function.Param{{Name: "tgt", Kind: function.String, Required: true}, {Name: "fun", Kind: function.Words, Required: true}, {Name: "tgt_type", Kind: function.String, Default: "glob"}},
			Run:    s.mined},
	}}
}

func (s stored) mined(ctx context.Context, c *function.Call) (any, error) {
	all := map[string]any{}
	names := c.Words("fun")
	for _, name := range names {
		one, err := s.each(func(_ context.Context, h *Host, id salt.MinionID) (any, error) {
			entries, err := h.Mine(id)
			return entries[name], err
		})(ctx, c)
		if err != nil || len(names) == 1 {
			return one, err
		}
		all[name] = one
	}
	return all, nil
}

// each makes a function that returns a value for each matched minion.
func (s stored) each(of func(context.Context, *Host, salt.MinionID) (any, error)) func(context.Context, *function.Call) (any, error) {
	return func(ctx context.Context, c *function.Call) (any, error) {
		ids, err := s.Resolve(c.String("tgt"), c.String("tgt_type"))
		if err != nil {
			return nil, err
		}
		out := map[string]any{}
		for _, id := range ids {
			v, err := of(ctx, s.Host, id)
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

// clear is each for functions that delete something: if no minion matches, that is an error.
func (s stored) clear(of func(context.Context, *Host, salt.MinionID) (any, error)) func(context.Context, *function.Call) (any, error) {
	return func(ctx context.Context, c *function.Call) (any, error) {
		done, err := s.each(of)(ctx, c)
		if all, _ := done.(map[string]any); err == nil && len(all) == 0 {
			err = salt.WithHint(fmt.Errorf("no accepted minion is meant by %q: nothing was forgotten", c.String("tgt")), "'salt-key -L' lists the accepted minions")
		}
		return done, err
	}
}

// pillarModule shows pillars.
func pillarModule(h *Host) *function.Module {
	return &function.Module{Name: "pillar", Doc: "The data that minions get.", Functions: []function.Function{
		{Name: "show_pillar", Class: function.Secret, Doc: "Return the pillar that a minion gets. Without a minion, return what one without grains would get. Keyword arguments are additional grains.",
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
				data, err := h.CompilePillar(id, c.String("pillarenv"), c.Extra())
				return data, err
			}},
	}}
}
