package bus

import (
	"crypto/ed25519"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/salt"
)

func TestCheckNonce(t *testing.T) {
	for range 100 {
		if n := NewNonce(); CheckNonce(n) != nil {
			t.Fatalf("the fresh nonce %q is refused", n)
		}
	}
	good := "ABCDEFGHIJKLMNOP"
	for _, s := range []string{good, strings.Repeat("a", 64), "0123456789abcdef"} {
		if err := CheckNonce(s); err != nil {
			t.Errorf("CheckNonce(%q): %v", s, err)
		}
	}
	for _, s := range []string{
		"", "short", good[:15], strings.Repeat("a", 65), good + ".x", good + "*", good + ">", good + " ", good + "\x00", good + "\r\n",
		"_INBOX.other.abcdefgh", good + "é", "....................", ">>>>>>>>>>>>>>>>",
	} {
		if CheckNonce(s) == nil {
			t.Errorf("CheckNonce(%q) took it", s)
		}
	}
}

func TestSender(t *testing.T) {
	for subject, want := range map[string]Identity{
		"salt.minion.web1.req.hello":           {Role: RoleMinion, Name: "web1"},
		"salt.minion.web1%2Eexample.fire":      {Role: RoleMinion, Name: "web1.example"},
		"salt.minion.web1.ret.20261121":        {Role: RoleMinion, Name: "web1"},
		"salt.user.1000.req.publish":           {Role: RoleUser, Name: "1000"},
		"salt.key.abc.req.ask":                 {Role: RoleUnaccepted, Name: "abc", Key: "abc"},
		"salt.minion.web1":                     {},
		"salt.minion..fire":                    {},
		"salt.minion.%.fire":                   {},
		"salt.minion.a%2Fb.fire":               {}, // a slash is in no id
		"salt.minion.%2E%2E.fire":              {},
		"salt.minion.web1%2eexample.fire":      {}, // a second spelling
		"salt.minion.w%65b1.fire":              {},
		"salt.minion.web1%.fire":               {},
		"salt.master.x.req.y":                  {},
		"other.minion.web1.fire":               {},
		"salt.minion." + long(300) + ".req.x.": {},
	} {
		got, _, ok := Sender(subject)
		if got != want || ok != (want != Identity{}) {
			t.Errorf("Sender(%q) = %+v, %v; want %+v", subject, got, ok, want)
		}
	}
}

func long(n int) string { return strings.Repeat("a", n) }

// Subjects of different minions never meet, whatever their ids hold.
func FuzzSubjects(f *testing.F) {
	f.Add("web1", "web2")
	f.Add("web1.job", "web1")
	f.Add("a%2Eb", "a.b")
	f.Fuzz(func(t *testing.T, a, b string) {
		idA, errA := salt.ParseMinionID(a)
		idB, errB := salt.ParseMinionID(b)
		if errA != nil || errB != nil {
			return
		}
		sa, sb := JobSubject(idA), JobSubject(idB)
		if (a == b) != (sa == sb) {
			t.Errorf("%q and %q have the job subjects %s and %s", a, b, sa, sb)
		}
		if strings.Count(sa, ".") != 3 || strings.ContainsAny(sa, "*> ") {
			t.Errorf("%q has the job subject %s", a, sa)
		}
		got, op, ok := Sender(RequestSubject(RoleMinion, a, "hello"))
		if !ok || got.Name != a || op != "req.hello" {
			t.Errorf("the request subject of %q comes back as %+v, %q, %v", a, got, op, ok)
		}
	})
}

func TestKeyTokenOfNoKey(t *testing.T) {
	if got := KeyToken("no key"); got != "" {
		t.Errorf("token %q", got)
	}
	pub, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := KeyToken(pub); len(got) != 64 {
		t.Errorf("token %q, want 64 digits", got)
	}
}

func TestUID(t *testing.T) {
	for i, want := range map[Identity]int{
		{Role: RoleUser, Name: "1000"}:       1000,
		{Role: RoleUser, Name: "0"}:          0,
		{Role: RoleUser}:                     -1,
		{Role: RoleUser, Name: "-1"}:         -1,
		{Role: RoleUser, Name: "4294967296"}: -1,
		{Role: RoleMinion, Name: "0"}:        -1, // an id of digits is not a user
		{Role: RoleUnaccepted, Name: "0"}:    -1,
		{Role: RoleMaster}:                   -1,
	} {
		if got := i.UID(); got != want {
			t.Errorf("UID of %+v = %d, want %d", i, got, want)
		}
	}
}
