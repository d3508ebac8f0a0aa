package acl

import "testing"

func TestAny(t *testing.T) {
	r := &Rules{}
	for name, c := range map[string]struct {
		rules *Rules
		s     Subject
		want  bool
	}{
		"nobody":      {r, Subject{}, false},
		"no rules":    {nil, Subject{Kind: Local, Name: "root", Operator: true}, false},
		"an operator": {r, Subject{Kind: Local, Name: "root", Operator: true}, true},
		"a user":      {r, Subject{Kind: Local, Name: "fred"}, false},
		"a minion":    {r, Subject{Kind: Peer, Name: "web1"}, false},
	} {
		if got := c.rules.Any(Question{Subject: c.s}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
