package bus

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write doc/subjects.md anew")

// The rights of both daemons, without those that they share twice.
var (
	masterRights = MasterEndpoints.Rights()
	bothRights   = append(slices.Clone(masterRights), onlyIn(MinionEndpoints.Rights(), masterRights)...)
)

func onlyIn(list, other Rights) (only Rights) {
	for _, r := range list {
		if !slices.ContainsFunc(other, func(o Rule) bool { return o.Role == r.Role && o.Verb == r.Verb && o.Pattern == r.Pattern }) {
			only = append(only, r)
		}
	}
	return only
}

func TestTableIsSorted(t *testing.T) {
	place := order
	for i, r := range Table {
		if place(r) < 0 {
			t.Errorf("rule %d is for the unknown role %q", i, r.Role)
		}
		if i > 0 && place(r) < place(Table[i-1]) {
			t.Errorf("rule %d (%s %s %s) stands behind one of a later role or verb", i, r.Role, r.Verb, r.Pattern)
		}
	}
}

func TestTableIsWellFormed(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range bothRights {
		name := fmt.Sprintf("%s %s %s", r.Role, r.Verb, r.Pattern)
		if seen[name] {
			t.Errorf("%s: twice", name)
		}
		seen[name] = true
		if r.Verb != Publish && r.Verb != Subscribe {
			t.Errorf("%s: unknown verb", name)
		}
		if r.Why == "" || strings.HasSuffix(r.Why, ".") {
			t.Errorf("%s: the reason is %q, want a phrase without full stop", name, r.Why)
		}
		if err := checkPattern(r.Pattern); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// checkPattern knows the one shape that patterns have: literal tokens, marks that
// stand for a whole token, * and > at the end.
func checkPattern(p string) error {
	tokens := strings.Split(p, ".")
	for i, token := range tokens {
		switch {
		case token == "":
			return fmt.Errorf("an empty token")
		case token == ">" && i != len(tokens)-1:
			return fmt.Errorf("> is not the last token")
		case token == ">", token == "*":
			continue
		case strings.HasPrefix(token, "<"):
			if !slices.Contains([]string{"<id>", "<client>", "<uid>", "<login>", "<key>", "<inbox>"}, token) {
				return fmt.Errorf("the unknown mark %s", token)
			}
		case strings.ContainsAny(token, "*<> \t"):
			return fmt.Errorf("the token %q mixes text with wildcards or marks", token)
		}
	}
	return nil
}

// Whoever is not the daemon may use only what carries its own verified name.
func TestEveryRuleIsTiedToItsHolder(t *testing.T) {
	for _, r := range bothRights {
		if r.Role == RoleMaster {
			continue
		}
		if !strings.Contains(r.Pattern, "<") {
			t.Errorf("%s may %s %s, which is nobody's own", r.Role, r.Verb, r.Pattern)
		}
		for _, root := range []string{"$", "salt.event", "salt.queue", MemberRoot, "*", ">"} {
			if strings.HasPrefix(r.Pattern, root) {
				t.Errorf("%s may %s %s", r.Role, r.Verb, r.Pattern)
			}
		}
	}
}

func TestNobodyIsAllowedNothing(t *testing.T) {
	for _, r := range bothRights {
		if r.Role == RoleNobody {
			t.Errorf("a rule for nobody: %s %s", r.Verb, r.Pattern)
		}
	}
	nobody := Identity{Role: RoleNobody, Name: "web1", Key: strings.Repeat("a", 64), Nonce: NewNonce()}
	for _, verb := range []Verb{Publish, Subscribe} {
		if got := masterRights.Allowed(nobody, verb); len(got) > 0 {
			t.Errorf("nobody may %s %v", verb, got)
		}
		if got := masterRights.Allowed(Identity{Role: "operator", Name: "x", Key: "y", Nonce: NewNonce()}, verb); len(got) > 0 {
			t.Errorf("an unknown role may %s %v", verb, got)
		}
	}
	if got := masterRights.Allowed(Identity{Role: RoleMaster, Nonce: "internal"}, "delete"); len(got) > 0 {
		t.Errorf("an unknown verb allows %v", got)
	}
}

// An identity that lacks what a pattern needs gets nothing of that rule, and what
// it gets never has an empty token or a wildcard that came from a name.
func TestAllowedOfBrokenIdentities(t *testing.T) {
	key, nonce := strings.Repeat("ab", 32), NewNonce()
	for name, i := range map[string]Identity{
		"no parts":              {},
		"no name":               {Key: key, Nonce: nonce},
		"no key":                {Name: "web1", Nonce: nonce},
		"no nonce":              {Name: "web1", Key: key},
		"name only":             {Name: "web1"},
		"key only":              {Key: key},
		"nonce only":            {Nonce: nonce},
		"wildcards in the name": {Name: "*.>", Key: key, Nonce: nonce},
		"dots in the name":      {Name: "web1.job.web2", Key: key, Nonce: nonce},
		"wildcards as key":      {Name: "web1", Key: ">", Nonce: nonce},
		"wildcards as nonce":    {Name: "web1", Key: key, Nonce: "*"},
		"dots in the nonce":     {Name: "web1", Key: key, Nonce: nonce + ".x"},
		"short nonce":           {Name: "web1", Key: key, Nonce: "abc"},
	} {
		for _, role := range roleOrder[1:] {
			i.Role = role
			for _, verb := range []Verb{Publish, Subscribe} {
				checkBroken(t, name, i, verb)
			}
		}
	}
}

func checkBroken(t *testing.T, name string, i Identity, verb Verb) {
	t.Helper()
	for _, r := range bothRights {
		if r.Role != i.Role || r.Verb != verb {
			continue
		}
		got, ok := i.fill(r.Pattern)
		needsName := strings.Contains(r.Pattern, "<id>") || strings.Contains(r.Pattern, "<client>") || strings.Contains(r.Pattern, "<uid>") || strings.Contains(r.Pattern, "<login>")
		inbox := strings.Contains(r.Pattern, "<inbox>")
		lacks := needsName && i.Name == "" || strings.Contains(r.Pattern, "<key>") && i.Key == "" ||
			inbox && CheckNonce(i.Nonce) != nil || inbox && i.Role == RoleUser && i.Name == "" || inbox && i.Role != RoleUser && i.Key == ""
		if ok == lacks {
			t.Errorf("%s, %s: %s gives %q, %v", name, i.Role, r.Pattern, got, ok)
		}
		if !ok {
			continue
		}
		if len(strings.Split(got, ".")) != len(strings.Split(strings.ReplaceAll(r.Pattern, "<inbox>", "a.b.c"), ".")) || strings.Contains(got, "..") {
			t.Errorf("%s, %s: %s gives %s, of another shape", name, i.Role, r.Pattern, got)
		}
		if strings.Count(got, "*") != strings.Count(r.Pattern, "*") || strings.Count(got, ">") != 1*strings.Count(strings.ReplaceAll(r.Pattern, "<inbox>", ""), ".>") {
			t.Errorf("%s, %s: %s gives %s, with a wildcard of its own", name, i.Role, r.Pattern, got)
		}
	}
}

// TestSubjectsDoc holds doc/subjects.md to the table; -update writes it.
func TestSubjectsDoc(t *testing.T) {
	path := filepath.Join("..", "..", "doc", "subjects.md")
	want := subjectsDoc()
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("doc/subjects.md is not what the table says; run: go test ./internal/bus -run TestSubjectsDoc -update")
	}
}

// about says what each role is, for the document.
var about = map[Role]string{
	RoleMaster:     "The daemon itself, on its own embedded server. Nothing connects in this role from outside the process.",
	RoleMinion:     "The daemon of a minion whose key is accepted.",
	RoleCaller:     "`salt-call` with the key of an accepted minion: it takes no jobs and reports none.",
	RoleClient:     "A program with credentials of `salt-event creds`: it may do only what rules grant to it. See [clients](clients.md).",
	RoleRemote:     "A user of `external_auth` on another machine, on the connection after their login. See [clients](clients.md#the-tools-from-another-machine).",
	RoleGuest:      "A program on another machine, without credentials: it may log in and nothing else.",
	RoleUnaccepted: "The holder of a key that is waiting, rejected, denied or unknown.",
	RoleUser:       "A local process, by the uid that the kernel names.",
}

const docHead = `# Subjects of the bus

Who may publish and subscribe to what, and which requests there are. Generated from the table in ` + "`internal/bus`" + `, which the embedded
server enforces. What is not listed is refused, also for queue subscriptions. There are no rules that deny.

In a subject ` + "`<id>`" + ` is the minion's id, ` + "`<client>`" + ` the client's name, ` + "`<login>`" + ` the backend and name of a login, ` + "`<uid>`" + ` the user's number, ` + "`<key>`" + ` the SHA-256 of the connection's
public key, and ` + "`<inbox>`" + ` the prefix that belongs to this one connection. All of them come from what the server
verified and never from a message. The requests of users are those to a master; those to a minion's daemon are at the end. Names are escaped into one token: letters, digits, ` + "`-`" + ` and ` + "`_`" + ` stay, every
other byte is ` + "`%`" + ` and two hexadecimal digits. ` + "`*`" + ` is one token and ` + "`>`" + ` all that follow.
[Clients](clients.md#requests-and-answers) has the form of the messages, which is the same for all.
`

// docRequests stands before the endpoints.
const docRequests = `
## Requests

Which requests a daemon answers: generated from the table in ` + "`internal/bus/endpoint.go`" + `, from which the rights on the subjects above
are derived, too. There are no other requests: the server refuses their subjects, and a handler can only be registered for a row of this
table. Each row has the check that decides whether the request is answered, and the size of the largest request. If the
check only needs to know who sends the request (*before*), the body is not decoded before the check has allowed it.

| check | decided | what allows it |
|---|---|---|
`

func subjectsDoc() []byte {
	var b bytes.Buffer
	b.WriteString(docHead)
	for _, role := range roleOrder {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| may | subject | for |\n|---|---|---|\n", role, about[role])
		for _, r := range masterRights {
			if r.Role == role {
				fmt.Fprintf(&b, "| %s | `%s` | %s |\n", r.Verb, r.Pattern, r.Why)
			}
		}
	}
	b.WriteString(docRequests)
	for _, c := range checks {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.Check, map[bool]string{true: "before", false: "with the body"}[c.early], c.words)
	}
	endpointsDoc(&b, "Of a master", MasterEndpoints)
	endpointsDoc(&b, "Of a minion's daemon, by local users", MinionEndpoints)
	return b.Bytes()
}

func endpointsDoc(b *bytes.Buffer, title string, list Endpoints) {
	fmt.Fprintf(b, "\n### %s\n\n| request | of | check | largest | for |\n|---|---|---|---|---|\n", title)
	for _, e := range list {
		var roles []string
		for _, r := range e.Roles {
			roles = append(roles, string(r))
		}
		size := fmt.Sprintf("%d KiB", e.Body>>10)
		if e.Body >= 1<<20 {
			size = fmt.Sprintf("%d MiB", e.Body>>20)
		}
		fmt.Fprintf(b, "| `%s` | %s | `%s` | %s | %s |\n", e.Op, strings.Join(roles, ", "), e.Check, size, e.Why)
	}
}
