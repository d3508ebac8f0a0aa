package event

import (
	"errors"
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
		return ParseGrants(nil)
	}
	return ParseGrants(doc.Content[0])
}

const someGrants = `
nagios:
  fire: monitoring/*
  listen: [monitoring/*, salt/minion/*/start]
web-*:
  - deploy/?
mute: {}
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
		if fire != c.fire || fire == (rule == "") {
			t.Errorf("%s: MayFire(%q, %q) = %q, %v", name, c.user, c.tag, rule, fire)
		}
		if got := g.Hearing(c.user).May(c.tag); got != c.listen {
			t.Errorf("%s: Hearing(%q).May(%q) = %v", name, c.user, c.tag, got)
		}
	}
	if rule, _ := g.MayFire("nagios", "monitoring/x"); rule != "event_acl: nagios: fire: monitoring/*" {
		t.Errorf("rule %q", rule)
	}
	if !g.Known("nagios") || !g.Known("web-9") || g.Known("mute") || g.Known("bob") {
		t.Error("who is known is wrong")
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
		if got := h.Covers(prefix); got != want {
			t.Errorf("Covers(%q) = %v", prefix, got)
		}
	}
	var nobody *Grants
	if h := nobody.Hearing("bob"); h.May("x") || h.Covers("") || nobody.Known("bob") {
		t.Error("no grants grant something")
	}
	if _, ok := nobody.MayFire("bob", "x"); ok {
		t.Error("no grants let bob fire")
	}
	if !HearAll.May("x") || !HearAll.Covers("x") || HearAll.Limits() != nil {
		t.Error("the hearing of all is limited")
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
