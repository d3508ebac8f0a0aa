package config

import "testing"

// TestDigest: what decides about somebody changes it, and what is each master's own does not.
func TestDigest(t *testing.T) {
	rules := func(user string) map[string]any {
		return map[string]any{"publisher_acl": map[string]any{user: []any{"test.*", map[string]any{"web*": []any{"state.*"}}}}, "nodegroups": map[string]any{"a": "web1", "b": "web2"}, "interface": "127.0.0.1"}
	}
	base := Digest(rules("ada"))
	for range 20 { // the order of maps is random
		if again := Digest(rules("ada")); again != base {
			t.Fatalf("the same settings have the digests %s and %s", base, again)
		}
	}
	for name, change := range map[string]func(map[string]any){
		"a rule":       func(m map[string]any) { m["publisher_acl"] = rules("bob")["publisher_acl"] },
		"a blacklist":  func(m map[string]any) { m["publisher_acl_blacklist"] = map[string]any{"users": []any{"eve"}} },
		"text, number": func(m map[string]any) { m["nodegroups"] = map[string]any{"a": 1} },
		"open_mode":    func(m map[string]any) { m["open_mode"] = true },
	} {
		m := rules("ada")
		change(m)
		if Digest(m) == base {
			t.Errorf("%s does not change the digest", name)
		}
	}
	for name, change := range map[string]func(map[string]any){
		"the address":   func(m map[string]any) { m["interface"] = "127.0.0.2" },
		"the key store": func(m map[string]any) { m["pki_dir"] = "/elsewhere" },
		"a secret":      func(m map[string]any) { m["sharedsecret"] = "x" },
	} {
		m, other := rules("ada"), rules("ada")
		change(m)
		if name == "a secret" { // that there is one counts, what it is does not
			other["sharedsecret"] = "y"
		}
		if Digest(m) != Digest(other) {
			t.Errorf("%s changes the digest", name)
		}
	}
}
