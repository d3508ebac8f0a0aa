package module

import (
	"context"
	"fmt"
	"maps"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/yamlfile"
)

// Beacons manages the beacons of the minion.
type Beacons interface {
	// Beacons returns a copy of the setting in force.
	Beacons() map[string]any
	// ChangeBeacons replaces it, until the next start, by what change makes of a copy, if that is valid;
	// change returns why it cannot, and then nothing is changed. Nobody else changes it meanwhile.
	ChangeBeacons(change func(all map[string]any) (why string)) (why string, err error)
	// SaveBeacons saves it for the next start, and returns the path of the file.
	SaveBeacons() (path string, err error)
	// ResetBeacons activates the configured beacons and deletes the saved ones.
	ResetBeacons() error
}

// beaconName is the parameter that names a beacon.
var beaconName = function.Param{Name: "name", Kind: function.String, Required: true}

// beaconData is the parameter with the settings of a beacon: a list of them, or a dictionary.
var beaconData = function.Param{Name: "beacon_data", Required: true}

// beaconsModule shows and changes the beacons of this minion.
var beaconsModule = &function.Module{
	Name: "beacons",
	Doc:  "Functions that show and change what this minion watches on its machine and reports by events below salt/beacon/. A change is in force until the next start, or permanently after beacons.save. A beacon that runs a program is added in the configuration only.",
	Functions: []function.Function{
		{
			Name: "add", Doc: "Add a beacon.", Example: `salt '*' beacons.add load '[{averages: {1m: [0.0, 4.0]}}]'`,
			Params: []function.Param{beaconName, beaconData},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return changeBeacons(c, "Added beacon: %s.", func(all map[string]any, name string) string {
					if _, ok := all[name]; ok {
						return fmt.Sprintf("Beacon %s is already configured.", name)
					}
					all[name] = c.Any("beacon_data")
					return ""
				})
			},
		},
		{
			Name: "delete", Doc: "Delete a beacon.", Example: `salt '*' beacons.delete load`, Params: []function.Param{beaconName},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return changeBeacons(c, "Deleted beacon: %s.", func(all map[string]any, name string) string {
					if _, ok := all[name]; !ok {
						return noBeacon(name)
					}
					delete(all, name)
					return ""
				})
			},
		},
		{
			Name: "disable", Doc: "Disable all beacons.", Example: `salt '*' beacons.disable`,
			Run: func(_ context.Context, c *function.Call) (any, error) { return switchBeacons(c, false) },
		},
		{
			Name: "disable_beacon", Doc: "Disable a beacon.", Example: `salt '*' beacons.disable_beacon load`, Params: []function.Param{beaconName},
			Run: func(_ context.Context, c *function.Call) (any, error) { return switchBeacon(c, false) },
		},
		{
			Name: "enable", Doc: "Enable the beacons.", Example: `salt '*' beacons.enable`,
			Run: func(_ context.Context, c *function.Call) (any, error) { return switchBeacons(c, true) },
		},
		{
			Name: "enable_beacon", Doc: "Enable a beacon.", Example: `salt '*' beacons.enable_beacon load`, Params: []function.Param{beaconName},
			Run: func(_ context.Context, c *function.Call) (any, error) { return switchBeacon(c, true) },
		},
		{
			Name: "list", Doc: "Return the beacons with their settings; as YAML text unless return_yaml=False.", Example: `salt '*' beacons.list`,
			Params: []function.Param{{Name: "return_yaml", Kind: function.Bool, Default: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				b, err := beaconsOf(c)
				if err != nil {
					return nil, err
				}
				return asYAML(c, b.Beacons())
			},
		},
		{
			Name: "list_available", Doc: "Return the names of what can be watched; as YAML text unless return_yaml=False.", Example: `salt '*' beacons.list_available`,
			Params: []function.Param{{Name: "return_yaml", Kind: function.Bool, Default: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				kinds := services(c.Host).BeaconKinds
				if kinds == nil {
					return nil, function.Unavailable("list of beacons")
				}
				var names []any
				for _, k := range kinds() {
					names = append(names, k)
				}
				return asYAML(c, names)
			},
		},
		{
			Name: "modify", Doc: "Give a beacon other settings.", Example: `salt '*' beacons.modify load '[{averages: {1m: [0.0, 8.0]}}]'`,
			Params: []function.Param{beaconName, beaconData},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return changeBeacons(c, "Modified beacon: %s.", func(all map[string]any, name string) string {
					if _, ok := all[name]; !ok {
						return noBeacon(name)
					}
					all[name] = c.Any("beacon_data")
					return ""
				})
			},
		},
		{
			Name: "reset", Doc: "Put the beacons of the configuration in force, and forget what functions have changed and saved.", Example: `salt '*' beacons.reset`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				b, err := beaconsOf(c)
				if err == nil {
					err = b.ResetBeacons()
				}
				return outcome("Beacon configuration reset.", err)
			},
		},
		{
			Name: "save", Doc: "Save what functions have changed, so that it stays over a restart.", Example: `salt '*' beacons.save`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				b, err := beaconsOf(c)
				if err != nil {
					return nil, err
				}
				path, err := b.SaveBeacons()
				return outcome("Beacons saved to "+path+".", err)
			},
		},
	},
}

func beaconsOf(c *function.Call) (Beacons, error) {
	if s := services(c.Host); s.Beacons != nil {
		return s.Beacons, nil
	}
	return nil, function.Unavailable("the minion's daemon, which has the beacons: ask it from the master")
}

func noBeacon(name string) string { return fmt.Sprintf("Beacon %s is not configured.", name) }

// outcome is the return of functions that change something.
func outcome(comment string, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return map[string]any{"comment": comment, "result": true}, nil
}

// changeBeacons changes the beacons in force; change returns why it cannot.
func changeBeacons(c *function.Call, comment string, change func(all map[string]any, name string) string) (any, error) {
	b, err := beaconsOf(c)
	if err != nil {
		return nil, err
	}
	name := c.String("name")
	why, err := b.ChangeBeacons(func(all map[string]any) string { return change(all, name) })
	if why != "" {
		c.SetRetcode(1)
		return map[string]any{"comment": why, "result": false}, nil
	}
	return outcome(fmt.Sprintf(comment, name), err)
}

func switchBeacons(c *function.Call, on bool) (any, error) {
	b, err := beaconsOf(c)
	if err != nil {
		return nil, err
	}
	_, err = b.ChangeBeacons(func(all map[string]any) string {
		all["enabled"] = on
		return ""
	})
	return outcome(map[bool]string{true: "Enabled beacons on minion.", false: "Disabled beacons on minion."}[on], err)
}

// switchBeacon sets enabled in a beacon, in the format of its settings.
func switchBeacon(c *function.Call, on bool) (any, error) {
	comment := map[bool]string{true: "Enabled beacon %s on minion.", false: "Disabled beacon %s on minion."}[on]
	return changeBeacons(c, comment, func(all map[string]any, name string) string {
		v, configured := all[name]
		if configured && v == nil {
			v = []any{} // one without settings
		}
		switch v := v.(type) {
		case map[string]any:
			v = maps.Clone(v)
			v["enabled"] = on
			all[name] = v
		case []any:
			kept := []any{map[string]any{"enabled": on}}
			for _, item := range v {
				one, ok := item.(map[string]any)
				if _, set := one["enabled"]; !ok || !set {
					kept = append(kept, item)
					continue
				}
				one = maps.Clone(one)
				delete(one, "enabled")
				if len(one) > 0 { // an item may have several settings
					kept = append(kept, one)
				}
			}
			all[name] = kept
		default:
			return noBeacon(name)
		}
		return ""
	})
}

// asYAML returns v as YAML for people, or with return_yaml=False as data.
func asYAML(c *function.Call, v any) (any, error) {
	if !c.Bool("return_yaml") {
		return v, nil
	}
	return yamlfile.Format(map[string]any{"beacons": v})
}
