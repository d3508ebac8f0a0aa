package bus

import (
	"slices"
	"strings"
	"testing"

	sorted "github.com/brinebus/brine/test/order"
)

func TestEndpointsAreSound(t *testing.T) {
	for name, list := range map[string]Endpoints{"master": MasterEndpoints, "minion": MinionEndpoints} {
		if err := list.Fault(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, e := range list {
			if e.Why == "" || strings.HasSuffix(e.Why, ".") || e.Body > LargeBody {
				t.Errorf("%s, %s: the row is for %q, of %d bytes", name, e.Op, e.Why, e.Body)
			}
		}
	}
	if ask := MasterEndpoints.Find(RoleUnaccepted, OpAsk); ask.Body > 1<<10 {
		t.Errorf("anybody may ask with %d bytes", ask.Body)
	}
	// Within each group of roles the table is sorted: a row is found, and put, in one place.
	sorted.Of(t, "the endpoints of minions", MinionEndpoints, func(e Endpoint) string { return e.Op })
	for _, role := range roleOrder[1:] {
		var ops []string
		for _, e := range MasterEndpoints[1:] { // ask stands first
			if slices.Contains(e.Roles, role) {
				ops = append(ops, e.Op)
			}
		}
		sorted.Check(t, "the endpoints of the master for "+string(role), ops)
	}
}

// Whatever a row lacks, it cannot be asked: the table is refused before anybody is.
func TestARowWithoutACheckIsAFault(t *testing.T) {
	good := Endpoint{"op", []Role{RoleUser}, Own, 1, "handler", "why"}
	for name, spoil := range map[string]func(*Endpoint){
		"no check":         func(e *Endpoint) { e.Check = "" },
		"an unknown check": func(e *Endpoint) { e.Check = "anybody" },
		"no limit":         func(e *Endpoint) { e.Body = 0 },
		"no handler":       func(e *Endpoint) { e.Handler = "" },
		"nobody's":         func(e *Endpoint) { e.Roles = []Role{RoleNobody} },
		"no role":          func(e *Endpoint) { e.Roles = nil },
		"the daemon's":     func(e *Endpoint) { e.Roles = []Role{RoleMaster} },
		"a wildcard":       func(e *Endpoint) { e.Op = "*" },
		"two tokens":       func(e *Endpoint) { e.Op = "a.b" },
	} {
		row := good
		spoil(&row)
		if (Endpoints{row}).Fault() == nil {
			t.Errorf("%s: no fault", name)
		}
	}
	if (Endpoints{good, good}).Fault() == nil {
		t.Error("the same request twice: no fault")
	}
	if err := (Endpoints{good}).Fault(); err != nil {
		t.Error(err)
	}
}

// Each role tries each operation of each daemon: it has the subject of what the table
// gives it and of nothing else, and no wildcard over operations.
func TestRightsAreThoseOfTheEndpoints(t *testing.T) {
	var ops []string
	for _, list := range []Endpoints{MasterEndpoints, MinionEndpoints} {
		for _, e := range list {
			ops = append(ops, e.Op)
		}
	}
	ops = append(ops, "nosuch", "ctl", "job")
	for daemon, list := range map[string]Endpoints{"master": MasterEndpoints, "minion": MinionEndpoints} {
		rights := list.Rights()
		for _, role := range roleOrder[1:] {
			i := Identity{Role: role, Name: "7", Key: strings.Repeat("ab", 32), Nonce: NewNonce()}
			name := "7"
			if role == RoleGuest {
				name = i.Key // they have no other name
			}
			may := rights.Allowed(i, Publish)
			for _, s := range may {
				if strings.HasSuffix(s, ".req.*") || strings.HasSuffix(s, ">") {
					t.Errorf("%s: a %s may publish %s, all operations at once", daemon, role, s)
				}
			}
			for _, op := range ops {
				subject, declared := RequestSubject(role, name, op), list.Find(role, op) != nil
				if op == opRet {
					subject = RequestSubject(role, name, opReturn) + "*"
				}
				if op == OpAsk {
					subject = AskSubject(i.Key)
				}
				if got := slices.Contains(may, subject); got != declared {
					t.Errorf("%s: a %s asks %s: declared %v, may publish %s: %v", daemon, role, op, declared, subject, got)
				}
			}
		}
	}
}

// A guest may log in and nothing else, whatever daemon it has reached.
func TestGuestsMayLogInOnly(t *testing.T) {
	i := Identity{Role: RoleGuest, Name: "192.0.2.1", Key: strings.Repeat("ab", 32), Nonce: NewNonce()}
	if got, want := MasterEndpoints.Rights().Allowed(i, Publish), []string{"salt.guest." + i.Key + ".req.login"}; !slices.Equal(got, want) {
		t.Errorf("a guest may publish %v, want %v", got, want)
	}
	if got, want := MasterEndpoints.Rights().Allowed(i, Subscribe), []string{i.Inbox() + ".>"}; !slices.Equal(got, want) {
		t.Errorf("a guest may subscribe to %v, want %v", got, want)
	}
	if got := MinionEndpoints.Rights().Allowed(i, Publish); len(got) > 0 {
		t.Errorf("a guest may publish %v to a minion's daemon", got)
	}
}
