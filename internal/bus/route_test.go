package bus

import (
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/event"
)

// TestNothingOfClientsIsOnRoutes: no subject that a client may use, and none on which a daemon
// hears or answers clients, is among those of routes.
func TestNothingOfClientsIsOnRoutes(t *testing.T) {
	var subjects []string
	for _, r := range bothRights {
		if r.Role != RoleMaster {
			subjects = append(subjects, strings.NewReplacer("<inbox>", "_INBOX.user0.x", "<", "", ">", "").Replace(r.Pattern))
		}
	}
	subjects = append(subjects, RequestSubjects...)
	subjects = append(subjects, WindowSubjects...)
	subjects = append(subjects, AckSubjects...)
	subjects = append(subjects, JobSubject("web1"))
	if len(subjects) < 30 {
		t.Fatalf("only %d subjects", len(subjects))
	}
	for _, s := range subjects {
		for _, allowed := range RouteSubjects {
			if root, ok := strings.CutSuffix(allowed, ">"); !ok || strings.HasPrefix(s, root) {
				t.Errorf("%s is on routes, by %s", s, allowed)
			}
		}
	}
}

// TestNoMemberIsAll: no name of a member makes the subject that all members hear.
func TestNoMemberIsAll(t *testing.T) {
	for _, name := range []string{"+", "all", "*", ">", "a.+"} {
		if s := MemberSubject(name, "presence"); s == MembersSubject("presence") || strings.Count(s, ".") != 3 || strings.ContainsAny(s, "*>") {
			t.Errorf("the member %q has the subject %s", name, s)
		}
	}
	if _, ok := event.Unescape("+"); ok {
		t.Error("a name is escaped to +")
	}
}
