package event

import (
	"errors"
	"fmt"
	"testing"

	"gopkg.in/yaml.v3"
)

func parseGrants(t *testing.T, text string) (*Grants, error) {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Content) == 0 {
		return ParseGrants(nil, place)
	}
	return ParseGrants(doc.Content[0], place)
}

// place is where a node stands.
func place(n *yaml.Node) string { return fmt.Sprint("master:", n.Line) }

const someGrants = `
nagios:
  fire: monitoring/*
  listen: [monitoring/*, salt/minion/*/start]
web-*:
  - deploy/?
mute: {}
client:dash:
  listen: [monitoring/*]
`

func TestGrants(t *testing.T) {
	g, err := parseGrants(t, someGrants)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		user, tag    string
		fire, listen bool
	}{
		"a client":             {"client:dash", "monitoring/disk", false, true},
		"a user like a client": {"dash", "monitoring/disk", false, false},
		"granted both":         {"nagios", "monitoring/disk/full", true, true},
		"heard, not fired":     {"nagios", "salt/minion/web1/start", false, true},
		"anchored at the end":  {"nagios", "salt/minion/web1/start/x", false, false},
		"anchored at the top":  {"nagios", "x/monitoring/a", false, false},
		"the space itself":     {"nagios", "monitoring", false, false},
		"list is for both":     {"web-1", "deploy/a", true, true},
		"one character":        {"web-1", "deploy/ab", false, false},
		"name is anchored":     {"xweb-1", "deploy/a", false, false},
		"case counts":          {"Nagios", "monitoring/a", false, false},
		"user without a right": {"mute", "monitoring/a", false, false},
		"nobody":               {"", "monitoring/a", false, false},
	} {
		rule, fire := g.MayFire(c.user, c.tag)
		if fire != c.fire || fire == (rule == Grant{}) {
			t.Errorf("%s: MayFire(%q, %q) = %v, %v", name, c.user, c.tag, rule, fire)
		}
		if got := g.Hearing(c.user).May(c.tag); got != c.listen {
			t.Errorf("%s: Hearing(%q).May(%q) = %v", name, c.user, c.tag, got)
		}
	}
	if rule, _ := g.MayFire("nagios", "monitoring/x"); rule != (Grant{"event_acl: nagios: fire: monitoring/*", "master:3"}) {
		t.Errorf("rule %v", rule)
	}
	if rule, ok := g.Hearing("nagios").Covers("salt/minion/web1"); !ok || rule != (Grant{"event_acl: nagios: listen: salt/minion/*/start", "master:4"}) {
		t.Errorf("rule %v, %v", rule, ok)
	}
	if !g.Known("nagios") || !g.Known("web-9") || g.Known("mute") || g.Known("bob") {
		t.Error("who is known is wrong")
	}
}

// TestPatternsForUsersAreNotForClients, who come over the network.
func TestPatternsForUsersAreNotForClients(t *testing.T) {
	g, err := parseGrants(t, "'*': [a]\n'cl*': [b]\nclient:*: [c]\n'?lient:x': [d]\n")
	if err != nil {
		t.Fatal(err)
	}
	for tag, want := range map[string][2]bool{"a": {true, false}, "b": {true, false}, "c": {false, true}, "d": {false, false}} {
		for i, user := range []string{"clara", "client:x"} {
			if _, ok := g.MayFire(user, tag); ok != want[i] {
				t.Errorf("%s may fire %s: %t", user, tag, ok)
			}
			if ok := g.Hearing(user).May(tag); ok != want[i] {
				t.Errorf("%s may hear %s: %t", user, tag, ok)
			}
		}
	}
}

func TestHearingCovers(t *testing.T) {
	g, err := parseGrants(t, someGrants)
	if err != nil {
		t.Fatal(err)
	}
	h := g.Hearing("nagios")
	for prefix, want := range map[string]bool{
		"": true, "mon": true, "monitoring/disk": true, "salt/minion/web1": true, "salt/job": false, "monitoringx": false, "x": false,
	} {
		if _, got := h.Covers(prefix); got != want {
			t.Errorf("Covers(%q) = %v", prefix, got)
		}
	}
	var nobody *Grants
	h = nobody.Hearing("bob")
	if _, covers := h.Covers(""); covers || h.May("x") || nobody.Known("bob") {
		t.Error("no grants grant something")
	}
	if _, ok := nobody.MayFire("bob", "x"); ok {
		t.Error("no grants let bob fire")
	}
	if _, covers := HearAll.Covers("x"); !covers || !HearAll.May("x") || HearAll.Limits() != nil {
		t.Error("the hearing of all is limited")
	}
}

// The audit log is for those whose rule names it, and nobody fires in it.
func TestGrantsOfTheAuditLog(t *testing.T) {
	g, err := parseGrants(t, `
all: '*'
salt: [salt/*, 'salt/aud*']
auditor: {listen: salt/audit/*, fire: salt/audit/*}
half: {listen: salt/audit/refused}
`)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		user, tag string
		may       bool
	}{
		"a star":             {"all", "salt/audit/allowed", false},
		"the space above":    {"salt", "salt/audit/allowed", false},
		"by name":            {"auditor", "salt/audit/allowed", true},
		"one of them":        {"half", "salt/audit/refused", true},
		"and not the other":  {"half", "salt/audit/allowed", false},
		"nothing but a star": {"all", "salt/job/1/new", true},
		"a like one":         {"all", "salt/auditing", true},
	} {
		h := g.Hearing(c.user)
		if got := h.May(c.tag); got != c.may {
			t.Errorf("%s: May(%s) = %v", name, c.tag, got)
		}
		if _, got := h.Covers(c.tag); got != c.may {
			t.Errorf("%s: Covers(%s) = %v", name, c.tag, got)
		}
		if _, ok := g.MayFire(c.user, "salt/audit/refused"); ok {
			t.Errorf("%s may fire in the audit log", c.user)
		}
	}
}

func TestGrantMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		line int
	}{
		"a word":        {"bob", 1},
		"a list":        {"- bob", 1},
		"unknown right": {"bob:\n  fier: x", 2},
		"tag is a map":  {"bob:\n  fire:\n    a: b", 3},
		"empty tag":     {"bob:\n  fire: ['']", 2},
		"control":       {"bob:\n  fire: \"a\\nb\"", 2},
		"nothing":       {"bob:", 1},
		"empty user":    {"'': x", 1},
	} {
		g, err := parseGrants(t, c.text)
		var mistake *GrantError
		if g != nil || !errors.As(err, &mistake) {
			t.Errorf("%s: %v, %v", name, g, err)
			continue
		}
		if mistake.Node == nil || mistake.Node.Line != c.line {
			t.Errorf("%s: %v at %+v, want line %d", name, err, mistake.Node, c.line)
		}
	}
	if g, err := parseGrants(t, ""); g != nil || err != nil {
		t.Errorf("no setting: %v, %v", g, err)
	}
}
