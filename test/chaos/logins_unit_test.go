package chaos

import (
	"slices"
	"testing"
	"time"
)

// TestJudgeOfTokens: it notices a token that is lost, and one that was deleted and is still taken.
func TestJudgeOfTokens(t *testing.T) {
	at := time.Now()
	kept, asked, gone := token{id: "kept"}, token{id: "asked", asked: true}, token{id: "gone", asked: true, deleted: at}
	soon, later := at.Add(revokeTime/2), at.Add(revokeTime)
	for _, c := range []struct {
		name  string
		token token
		use   use
		wrong bool
	}{
		{"kept and accepted", kept, use{begun: later, accepted: true}, false},
		{"kept, and the master cannot say", kept, use{begun: later}, false},
		{"lost", kept, use{begun: soon, refused: true}, true},
		{"perhaps deleted, and accepted", asked, use{begun: later, accepted: true}, false},
		{"perhaps deleted, and refused", asked, use{begun: later, refused: true}, false},
		{"just deleted, and accepted", gone, use{begun: soon, accepted: true}, false},
		{"deleted and refused", gone, use{begun: later, refused: true}, false},
		{"deleted, and the master cannot say", gone, use{begun: later}, false},
		{"deleted and accepted", gone, use{begun: later, accepted: true}, true},
	} {
		if got := c.token.untrue(c.use); (got != "") != c.wrong {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	all := []*token{&kept, &asked, &gone}
	for _, c := range []struct {
		name  string
		ids   []string
		wrong []string
	}{
		{"kept, and one that nobody was told of", []string{"kept", "other"}, nil},
		{"perhaps not deleted", []string{"kept", "asked"}, nil},
		{"lost", []string{"asked"}, []string{"token kept is not known at master"}},
		{"deleted and listed", []string{"kept", "gone"}, []string{"token gone was deleted, and master lists it"}},
	} {
		if got := unlisted(all, "master", c.ids); !slices.Equal(got, c.wrong) {
			t.Errorf("%s: %q, want %q", c.name, got, c.wrong)
		}
	}
}
