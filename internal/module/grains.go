package module

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/target/fnmatch"
)

var (
	grainKey       = function.Param{Name: "key", Kind: function.String, Required: true}
	grainDelimiter = function.Param{Name: "delimiter", Kind: function.String, Default: ":"}
)

// grainsModule reads the minion's grains and changes those in its file.
var grainsModule = &function.Module{
	Name: "grains",
	Doc:  "Functions that read the grains of the minion and change those that its grains file holds.",
	Functions: []function.Function{
		{
			Name:    "append",
			Doc:     "Append a value to a list in the grains file and return the grain. With convert, a grain that is not a list becomes one.",
			Example: `salt '*' grains.append roles web`,
			Params:  []function.Param{grainKey, {Name: "val", Required: true}, {Name: "convert", Kind: function.Bool, Default: false}, grainDelimiter},
			Run:     grainsAppend,
		},
		{
			Name:    "delkey",
			Doc:     "Remove a grain from the grains file. With force, also one that holds a list or a dictionary.",
			Example: `salt '*' grains.delkey roles force=True`,
			Params:  []function.Param{grainKey, {Name: "force", Kind: function.Bool, Default: false}, grainDelimiter},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return storeGrain(ctx, c, c.String("key"), nil, c.Bool("force"), true)
			},
		},
		{
			Name:    "delval",
			Doc:     "Set a grain of the grains file to None; with destructive, remove it.",
			Example: `salt '*' grains.delval roles destructive=True`,
			Params:  []function.Param{grainKey, {Name: "destructive", Kind: function.Bool, Default: false}, grainDelimiter},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return storeGrain(ctx, c, c.String("key"), nil, true, c.Bool("destructive"))
			},
		},
		{
			Name:    "equals",
			Doc:     "Return whether the grain has that value.",
			Example: `salt '*' grains.equals fqdn web1.example.com`,
			Params:  []function.Param{grainKey, {Name: "value", Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				v, _ := target.Lookup(c.Host.Facts(), c.String("key"), ":")
				s, err := function.ToString(v)
				want, wantErr := function.ToString(c.Any("value"))
				return reflect.DeepEqual(v, c.Any("value")) || err == nil && wantErr == nil && s == want, nil
			},
		},
		{
			Name: "filter_by",
			Doc: "Return the entry of a dictionary whose key, which may be a glob, matches a grain; else the default entry. " +
				"It is merged over the entry base, and merge over the result.",
			Example: `salt '*' grains.filter_by '{Debian: apt, RedHat: dnf}' grain=os_family default=Debian`,
			Params: []function.Param{
				{Name: "lookup_dict", Kind: function.Map, Required: true},
				{Name: "grain", Kind: function.String, Default: "os_family"},
				{Name: "merge", Kind: function.Map},
				{Name: "default", Kind: function.String, Default: "default"},
				{Name: "base", Kind: function.String},
			},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return filterBy(c, c.Host.Facts(), c.String("grain"))
			},
		},
		{
			Name:    "get",
			Doc:     "Return a grain, which may lie within nested ones, else the default.",
			Example: `salt '*' grains.get pkg:apache`,
			Params:  []function.Param{grainKey, {Name: "default", Default: ""}, grainDelimiter},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				if v, ok := target.Lookup(c.Host.Facts(), c.String("key"), c.String("delimiter")); ok {
					return v, nil
				}
				return c.Any("default"), nil
			},
		},
		{
			Name:    "has_value",
			Doc:     "Return whether the grain exists and counts as true.",
			Example: `salt '*' grains.has_value pkg:apache`,
			Params:  []function.Param{grainKey},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				v, _ := target.Lookup(c.Host.Facts(), c.String("key"), ":")
				return truthy(v), nil
			},
		},
		{
			Name:    "item",
			Doc:     "Return the named grains.",
			Example: "salt '*' grains.item os osrelease oscodename\nsalt '*' grains.item host sanitize=True",
			Params:  []function.Param{{Name: "sanitize", Kind: function.Bool, Default: false}},
			Varargs: true,
			Run:     grainsItem,
		},
		{
			Name:    "items",
			Doc:     "Return all grains. With sanitize, those that identify the machine are hidden.",
			Example: "salt '*' grains.items\nsalt '*' grains.items sanitize=True",
			Params:  []function.Param{{Name: "sanitize", Kind: function.Bool, Default: false}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return sanitized(c, c.Host.Facts()), nil
			},
		},
		{
			Name:    "ls",
			Doc:     "Return the names of all grains.",
			Example: `salt '*' grains.ls`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return slices.Sorted(maps.Keys(c.Host.Facts())), nil
			},
		},
		{
			Name:    "remove",
			Doc:     "Remove a value from a list in the grains file and return the grain.",
			Example: `salt '*' grains.remove roles web`,
			Params:  []function.Param{grainKey, {Name: "val", Required: true}, grainDelimiter},
			Run:     grainsRemove,
		},
		{
			Name:    "set",
			Doc:     "Set a grain in the grains file, which may lie within nested ones. A list or dictionary is replaced, or a value by one, only with force.",
			Example: `salt '*' grains.set apps:myApp:port 2209`,
			Params:  []function.Param{grainKey, {Name: "val", Default: ""}, {Name: "force", Kind: function.Bool, Default: false}, {Name: "destructive", Kind: function.Bool, Default: false}, grainDelimiter},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return storeGrain(ctx, c, c.String("key"), c.Any("val"), c.Bool("force"), c.Bool("destructive"))
			},
		},
		{
			Name:    "setval",
			Doc:     "Set a grain in the grains file. With destructive, None removes it. The key is not split.",
			Example: "salt '*' grains.setval key val\nsalt '*' grains.setval key '{sub-key: val, sub-key2: val2}'",
			Params:  []function.Param{grainKey, {Name: "val", Required: true}, {Name: "destructive", Kind: function.Bool, Default: false}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				values := map[string]any{c.String("key"): c.Any("val")}
				return values, storeGrains(ctx, c, values, c.Bool("destructive"))
			},
		},
		{
			Name:    "setvals",
			Doc:     "Set several grains in the grains file. With destructive, None removes one.",
			Example: `salt '*' grains.setvals '{key1: val1, key2: val2}'`,
			Params:  []function.Param{{Name: "grains", Kind: function.Map, Required: true}, {Name: "destructive", Kind: function.Bool, Default: false}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return c.Map("grains"), storeGrains(ctx, c, c.Map("grains"), c.Bool("destructive"))
			},
		},
	},
}

func grainsItem(_ context.Context, c *function.Call) (any, error) {
	found := map[string]any{}
	for _, v := range c.Varargs() {
		name, err := function.ToString(v)
		if err != nil {
			return nil, err
		}
		if grain, ok := target.Lookup(c.Host.Facts(), name, ":"); ok {
			found[name] = grain
		}
	}
	return sanitized(c, found), nil
}

// sanitized returns the grains, without those that identify the machine if the call requests that.
func sanitized(c *function.Call, grains map[string]any) map[string]any {
	if !c.Bool("sanitize") {
		return grains
	}
	clean := maps.Clone(grains)
	for name, replacement := range map[string]string{
		"domain": "DOMAINNAME", "fqdn": "MINION.DOMAINNAME", "id": "MINION.DOMAINNAME",
		"host": "MINION", "localhost": "MINION", "nodename": "MINION",
	} {
		if _, ok := clean[name]; ok {
			clean[name] = replacement
		}
	}
	if serial, ok := clean["serialnumber"].(string); ok {
		keep := len(serial) * 3 / 4
		clean["serialnumber"] = serial[:keep] + strings.Repeat("X", len(serial)-keep)
	}
	return clean
}

func grainsAppend(ctx context.Context, c *function.Call) (any, error) {
	list, err := grainList(c, c.Bool("convert"))
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(list, func(v any) bool { return reflect.DeepEqual(v, c.Any("val")) }) {
		return nil, fmt.Errorf("the grain %s already holds %s", c.String("key"), repr(c.Any("val")))
	}
	return storeGrain(ctx, c, c.String("key"), append(slices.Clone(list), c.Any("val")), true, false)
}

func grainsRemove(ctx context.Context, c *function.Call) (any, error) {
	list, err := grainList(c, false)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(v any) bool { return reflect.DeepEqual(v, c.Any("val")) })
	if i < 0 {
		return nil, fmt.Errorf("the grain %s does not hold %s", c.String("key"), repr(c.Any("val")))
	}
	return storeGrain(ctx, c, c.String("key"), slices.Delete(slices.Clone(list), i, i+1), true, false)
}

// grainList returns the list in the grain of the argument key, an empty list if there is no such
// grain.
func grainList(c *function.Call, convert bool) ([]any, error) {
	v, ok := target.Lookup(c.Host.Facts(), c.String("key"), c.String("delimiter"))
	list, isList := v.([]any)
	switch {
	case !ok, isList:
		return list, nil
	case convert:
		return []any{v}, nil
	}
	return nil, fmt.Errorf("the grain %s is not a list", c.String("key"))
}

// storeGrain sets the grain at a path of nested names and returns the new value of the top-level
// grain. The file contains the whole top-level grain.
func storeGrain(ctx context.Context, c *function.Call, key string, val any, force, destructive bool) (any, error) {
	path := strings.Split(key, c.String("delimiter"))
	if old, ok := target.Lookup(c.Host.Facts(), key, c.String("delimiter")); ok && !force && (isNested(old) || isNested(val)) {
		return nil, salt.WithHint(fmt.Errorf("the grain %s exists and it or the new value is a list or a dictionary", key), "force=True replaces it")
	}
	remove := destructive && val == nil
	top, err := replaceWithin(c.Host.Facts()[path[0]], path[1:], val, remove)
	if err != nil {
		return nil, fmt.Errorf("set grain %s: %w", key, err)
	}
	values := map[string]any{path[0]: top}
	return values, storeGrains(ctx, c, values, remove && len(path) == 1)
}

func isNested(v any) bool {
	switch v.(type) {
	case []any, map[string]any:
		return true
	}
	return false
}

// replaceWithin returns a copy of data in which the value at path is val, or is removed. Missing
// dictionaries in the path are created.
func replaceWithin(data any, path []string, val any, remove bool) (any, error) {
	if len(path) == 0 {
		return val, nil
	}
	m, ok := data.(map[string]any)
	if !ok && data != nil {
		return nil, errors.New("a part of the path is not a dictionary")
	}
	if m = maps.Clone(m); m == nil {
		m = map[string]any{}
	}
	if remove && len(path) == 1 {
		delete(m, path[0])
		return m, nil
	}
	inner, err := replaceWithin(m[path[0]], path[1:], val, remove)
	m[path[0]] = inner
	return m, err
}

// storeGrains writes grains to the file and refreshes the grains. With destructive, None removes a
// grain.
func storeGrains(ctx context.Context, c *function.Call, values map[string]any, destructive bool) error {
	if c.Host.GrainsFile == "" {
		return function.Unavailable("grains file")
	}
	if err := updateGrainsFile(c.Host.GrainsFile, values, destructive); err != nil {
		return err
	}
	facts := services(c.Host).Facts
	if facts == nil {
		return nil
	}
	return facts.RefreshGrains(ctx)
}

// filterBy selects a value from the argument lookup_dict by a value of data, as documented for
// grains.filter_by.
func filterBy(c *function.Call, data map[string]any, key string) (any, error) {
	lookup := c.Map("lookup_dict")
	chosen, ok := selectByGlob(lookup, data, key)
	if !ok {
		chosen = lookup[c.String("default")]
	}
	if base, ok := lookup[c.String("base")]; ok && c.Has("base") {
		merged, err := merge(base, chosen)
		if err != nil {
			return nil, function.Invalid("filter_by: %w", err)
		}
		chosen = merged
	}
	if !c.Has("merge") {
		return chosen, nil
	}
	merged, err := merge(chosen, c.Map("merge"))
	if err != nil {
		return nil, function.Invalid("filter_by: %w", err)
	}
	return merged, nil
}

// selectByGlob returns the entry of lookup whose key matches the value at key, or one of the values
// there.
func selectByGlob(lookup, data map[string]any, key string) (any, bool) {
	found, _ := target.Lookup(data, key, ":")
	words, err := function.ToWords(found)
	if text, ok := found.(string); ok {
		words = []string{text} // a value with a comma is one value
	}
	if err != nil {
		return nil, false
	}
	for _, pattern := range slices.Sorted(maps.Keys(lookup)) {
		if slices.ContainsFunc(words, func(w string) bool { return w == pattern || fnmatch.Match(pattern, w) }) {
			return lookup[pattern], true
		}
	}
	return nil, false
}

// merge returns base updated with over, recursively for dictionaries; if one is nil it returns the
// other. Neither is changed.
func merge(base, over any) (any, error) {
	if base == nil {
		return over, nil
	}
	if over == nil {
		return base, nil
	}
	b, okBase := base.(map[string]any)
	o, okOver := over.(map[string]any)
	if !okBase || !okOver {
		return nil, errors.New("only dictionaries can be merged")
	}
	merged := maps.Clone(b)
	for k, v := range o {
		if inner, err := merge(merged[k], v); err == nil && isNested(v) {
			v = inner
		}
		merged[k] = v
	}
	return merged, nil
}
