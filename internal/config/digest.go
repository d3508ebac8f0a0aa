package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// ownGuards are settings of security that each master has for itself: they say nothing of what
// somebody may do.
var ownGuards = []string{"audit_file", "cluster_peers", "default_include", "include", "master_pubkey_signature", "master_use_pubkey_signature", "pki_dir", "token_file"}

// Digest returns a checksum of the settings that say who may do what, without the secrets among
// them: masters with the same digest decide alike. The contents of files that they name are not
// in it.
func Digest(settings map[string]any) string {
	rules := map[string]any{}
	for key, value := range Disclose(settings) {
		if isGuard(key) && !slices.Contains(ownGuards, key) && !strings.HasPrefix(key, "auth.") {
			rules[key] = value
		}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%#v", rules)) // it writes maps in the order of their keys
	return hex.EncodeToString(sum[:])
}
