package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// live are the settings that take effect when a daemon reads its configuration again; so do
// those that begin with auth.
var live = map[string][]string{
	"master": {
		"auto_accept", "autoreject_file", "autosign_file", "autosign_grains_dir", "client_acl_verify", "event_acl", "external_auth", "keep_acl_in_token",
		"log_level", "log_level_logfile", "mine_get", "nodegroups", "open_mode", "peer", "peer_run", "permissive_acl", "publisher_acl",
		"publisher_acl_blacklist", "reactor", "sharedsecret", "sudo_acl", "token_expire", "token_expire_user_override",
	},
	"minion": {"beacons", "event_acl", "log_level", "log_level_logfile", "schedule"},
}

// ofTools are the settings that the command-line tools read, each time they start.
var ofTools = []string{
	"cli_summary", "color", "output", "show_jid",
	"timeout", "token_file",
}

// isLive reports whether a setting needs no restart. Keys that are not settings of ours belong
// to other packages, which read them anew each time.
func (c *Common) isLive(key string) bool {
	return slices.Contains(live[c.daemon], key) || slices.Contains(ofTools, key) || strings.HasPrefix(key, "auth.") || !slices.Contains(c.Keys(), key)
}

// Changes returns the names of the settings that differ between two configurations of a daemon,
// sorted: taken take effect on reload, restart need a restart.
func (c *Common) Changes(now *Common) (taken, restart []string) {
	keys := map[string]bool{}
	for _, key := range slices.Concat(c.Keys(), slices.Collect(maps.Keys(c.Raw)), slices.Collect(maps.Keys(now.Raw))) {
		keys[key] = true
	}
	for key := range keys {
		was, _ := c.Lookup(key)
		is, _ := now.Lookup(key)
		switch {
		case key == "include", reflect.DeepEqual(was, is):
		case c.isLive(key):
			taken = append(taken, key)
		default:
			restart = append(restart, key)
		}
	}
	slices.Sort(taken)
	slices.Sort(restart)
	return taken, restart
}

// InForce is Raw for a daemon that was started with c and has now read now: the settings that
// need a restart are those of c.
func (c *Common) InForce(now *Common) map[string]any {
	out := map[string]any{}
	for key, v := range c.Raw {
		if !c.isLive(key) {
			out[key] = v
		}
	}
	for key, v := range now.Raw {
		if c.isLive(key) {
			out[key] = v
		}
	}
	return out
}
