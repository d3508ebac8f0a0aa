package module

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/value"
)

var dataKey = function.Param{Name: "key", Kind: function.String, Required: true}

// dataModule is a small data store on the minion.
var dataModule = &function.Module{
	Name: "data",
	Doc:  "Functions that keep values in a file of the minion, in its cachedir.",
	Functions: []function.Function{
		{
			Name: "cas", Doc: "Set a value if it is old_value now. Returns whether it was.", Example: `salt '*' data.cas key new_value old_value`,
			Params: []function.Param{dataKey, {Name: "value", Required: true}, {Name: "old_value", Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return changeData(c, func(all map[string]any) any {
					old, ok := all[c.String("key")]
					if !ok || !reflect.DeepEqual(old, c.Any("old_value")) {
						return false
					}
					all[c.String("key")] = c.Any("value")
					return true
				})
			},
		},
		{
			Name: "clear", Doc: "Forget all values.", Example: `salt '*' data.clear`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return changeData(c, func(all map[string]any) any { clear(all); return true })
			},
		},
		{
			Name: "dump", Doc: "Replace all values by those of a dictionary.", Example: `salt '*' data.dump '{eggs: spam}'`,
			Params: []function.Param{{Name: "new_data", Kind: function.Map, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return changeData(c, func(all map[string]any) any {
					clear(all)
					maps.Copy(all, c.Map("new_data"))
					return true
				})
			},
		},
		{
			Name: "get", Doc: "Return a value, or the values of several keys as a dictionary.", Example: `salt '*' data.get key`,
			Params: []function.Param{{Name: "key", Required: true}, {Name: "default"}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				all, err := readData(c)
				if keys, ok := c.Any("key").([]any); ok {
					found := map[string]any{}
					for _, k := range keys {
						if v, ok := all[value.Str(k)]; ok {
							found[value.Str(k)] = v
						}
					}
					return found, err
				}
				if v, ok := all[value.Str(c.Any("key"))]; ok {
					return v, err
				}
				return c.Any("default"), err
			},
		},
		{
			Name: "has_key", Doc: "Return whether there is a value.", Example: `salt '*' data.has_key key`, Params: []function.Param{dataKey},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				all, err := readData(c)
				_, ok := all[c.String("key")]
				return ok, err
			},
		},
		{
			Name: "items", Doc: "Return all values by key.", Example: `salt '*' data.items`,
			Run: func(_ context.Context, c *function.Call) (any, error) { return readData(c) },
		},
		{
			Name: "keys", Doc: "Return all keys.", Example: `salt '*' data.keys`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				all, err := readData(c)
				return slices.AppendSeq([]string{}, slices.Values(slices.Sorted(maps.Keys(all)))), err
			},
		},
		{
			Name: "load", Doc: "Return all values by key.", Example: `salt '*' data.load`,
			Run: func(_ context.Context, c *function.Call) (any, error) { return readData(c) },
		},
		{
			Name: "pop", Doc: "Forget a value and return it, or the default.", Example: `salt '*' data.pop key`, Params: []function.Param{dataKey, {Name: "default"}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return changeData(c, func(all map[string]any) any {
					v, ok := all[c.String("key")]
					if !ok {
						v = c.Any("default")
					}
					delete(all, c.String("key"))
					return v
				})
			},
		},
		{
			Name: "update", Doc: "Set a value.", Example: `salt '*' data.update key value`, Params: []function.Param{dataKey, {Name: "value", Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return changeData(c, func(all map[string]any) any { all[c.String("key")] = c.Any("value"); return true })
			},
		},
		{
			Name: "values", Doc: "Return all values, in the order of their keys.", Example: `salt '*' data.values`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				all, err := readData(c)
				list := []any{}
				for _, k := range slices.Sorted(maps.Keys(all)) {
					list = append(list, all[k])
				}
				return list, err
			},
		},
	},
}

// dataLock serialises changes within one process.
var dataLock sync.Mutex

func dataFile(c *function.Call) (string, error) { return cachePath(c, "data", "datastore.json") }

// cachePath returns a path below cachedir; what names its purpose in the error. No other directory
// would be safe: one such as /tmp could be controlled by another user first.
func cachePath(c *function.Call, what string, names ...string) (string, error) {
	if c.Host.CacheDir == "" {
		return "", function.Unavailable("directory for " + what)
	}
	return filepath.Join(c.Host.CacheDir, filepath.Join(names...)), nil
}

// readData returns the stored data, an empty map for none.
func readData(c *function.Call) (map[string]any, error) {
	file, err := dataFile(c)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]any{}, nil
	}
	if err != nil {
		return nil, err
	}
	v, err := value.Decode(b)
	all, ok := v.(map[string]any)
	if err == nil && !ok {
		err = errors.New("it is not a dictionary")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return all, nil
}

// changeData changes the stored data and returns the result of change.
func changeData(c *function.Call, change func(map[string]any) any) (any, error) {
	dataLock.Lock()
	defer dataLock.Unlock()
	all, err := readData(c)
	if err != nil {
		return nil, err
	}
	answer := change(all)
	b, err := value.Encode(all)
	if err != nil {
		return nil, err
	}
	file, err := dataFile(c)
	if err != nil {
		return nil, err
	}
	return answer, atomicfile.Write(file, b, 0o600)
}
