package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/yamlfile"
)

// Some settings must not get lost. If a letter is wrong, or a later file replaces one of them,
// a blacklist would be gone while everything else looks right.

// denying are the settings that refuse something. They are added up over all files.
var denying = []string{"disable_modules", "disable_returners", "grains_blacklist", "publisher_acl_blacklist"}

// allowing are the settings whose rules allow something. They may stand in one file only: with
// two, it is not obvious which is in force.
var allowing = []string{
	"autoreject_file", "autosign_file", "autosign_grains_dir", "event_acl", "external_auth", "mine_get", "peer", "peer_run", "publisher_acl", "whitelist_modules",
}

// guarding are further settings of access, authentication, keys and signatures.
// Those that begin with auth. are too.
var guarding = []string{
	"allow_minion_key_revoke", "allow_unsigned_master", "audit_args", "audit_file", "auth_safemode", "auto_accept", "autosign_grains",
	"client_acl_verify", "cluster_id", "cluster_peers", "cluster_without_quorum", "file_recv", "journal_mirror_accept", "keep_acl_in_token", "key_type", "keysize",
	"master_finger", "master_pubkey_signature", "master_sign_key_name", "master_sign_pubkey", "master_trust_on_first_use", "master_use_pubkey_signature", "max_minions", "nats_ca", "nats_creds", "nats_finger", "nodegroups", "open_mode",
	"permissive_acl", "pki_dir", "rejected_retry", "remote_login", "sharedsecret", "signing_algorithm", "sudo_acl", "token_expire", "token_expire_user_override",
	"token_file", "verify_master_pubkey_sign",
}

// isGuard reports whether a setting concerns security.
func isGuard(key string) bool {
	return key == "include" || key == "default_include" || // they may name files with any of these
		slices.Contains(denying, key) || slices.Contains(allowing, key) || slices.Contains(guarding, key) || strings.HasPrefix(key, "auth.")
}

// nearGuard returns the security setting that a key was most likely meant to be. Old names
// count; upper case and hyphens are ignored.
func nearGuard(key string, keys []string) string {
	names := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return !isGuard(k) })
	names = append(names, "include")
	if slices.Contains(names, "publisher_acl") {
		names = append(names, "client_acl", "client_acl_blacklist")
	}
	key = strings.ReplaceAll(strings.ToLower(key), "-", "_")
	return cmp.Or(suggest(key, names), shortened(key, names))
}

// shortened returns the name of which a key has most of the words, and no others: acl_blacklist
// or publisher_blacklist. One word alone is not enough.
func shortened(key string, names []string) string {
	words := strings.Split(key, "_")
	for _, name := range names {
		all := strings.Split(name, "_")
		other := func(w string) bool { return !slices.Contains(all, w) }
		if len(words) > 1 && 2*len(words) > len(all) && !slices.ContainsFunc(words, other) {
			return name
		}
	}
	return ""
}

// errTwice is the error for rules in two places.
func errTwice(was entry) error {
	err := fmt.Errorf("%s:%d has these rules too: settings that allow something may be in one file only", was.file, was.key.Line)
	return salt.WithHint(err, "keep one of the two, with all of the rules in it")
}

// errNear is the error for an unknown key that was probably meant to be a security setting.
func errNear(near string) error {
	return salt.WithHint(errors.New("this setting is unknown, and without it other rules would be in force than intended: did you mean "+near+"?"),
		"correct the name, or take the setting out")
}

// add joins two values of a setting that refuses: an empty one removes nothing, and a single
// text is a list of one.
func (d *document) add(a, b *yaml.Node) *yaml.Node {
	switch {
	case yamlfile.IsNull(b):
		return a
	case yamlfile.IsNull(a):
		return b
	case a.Kind == yaml.MappingNode && b.Kind == yaml.MappingNode:
		return d.addMaps(a, b)
	}
	return d.union(d.listed(a), d.listed(b))
}

func (d *document) addMaps(a, b *yaml.Node) *yaml.Node {
	out := *a
	out.Content = slices.Clone(a.Content)
	d.origin[&out] = d.origin[a]
	for i := 0; i+1 < len(b.Content); i += 2 {
		at := slices.IndexFunc(out.Content, func(n *yaml.Node) bool { return n.Value == b.Content[i].Value })
		if at < 0 || at%2 == 1 {
			out.Content = append(out.Content, b.Content[i], b.Content[i+1])
			continue
		}
		out.Content[at+1] = d.add(out.Content[at+1], b.Content[i+1])
	}
	return &out
}

// listed returns n as a list.
func (d *document) listed(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.SequenceNode {
		return n
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: n.Line, Column: n.Column, Content: []*yaml.Node{n}}
	d.origin[list] = d.origin[n]
	return list
}
