package member

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
)

// system is masters that share a signing key.
type system struct {
	t      *testing.T
	signer *pki.PrivateKey
	id     string
}

func newSystem(t *testing.T, id string) system { return system{t, newKey(t), id} }

func newKey(t *testing.T) *pki.PrivateKey {
	t.Helper()
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (s system) sign(key *pki.PrivateKey) []byte {
	s.t.Helper()
	sig, err := s.signer.SignPublic(key.Public())
	if err != nil {
		s.t.Fatal(err)
	}
	return sig
}

func (s system) rule(name string) Rule {
	return Rule{Card: NewCard(s.id, name, "1.0"), Signer: s.signer.Public()}
}

func (s system) shows(name string, key *pki.PrivateKey, sig []byte) tls.Certificate {
	s.t.Helper()
	cert, err := NewCard(s.id, name, "1.0").Certificate(key, sig)
	if err != nil {
		s.t.Fatal(err)
	}
	return cert
}

// end is one end of a link.
type end struct {
	conf   *tls.Config
	refuse error
}

// member is a good member's end.
func (s system) member(name string, set ...func(*Rule)) *end {
	s.t.Helper()
	key := newKey(s.t)
	e := &end{}
	r := s.rule(name)
	for _, f := range set {
		f(&r)
	}
	var err error
	if e.conf, err = r.TLS(key, s.sign(key), func(err error) { e.refuse = err }); err != nil {
		s.t.Fatal(err)
	}
	return e
}

// attacker is an end that takes everybody and shows what it likes.
func attacker(certs ...tls.Certificate) *end {
	return &end{conf: &tls.Config{Certificates: certs, InsecureSkipVerify: true, ClientAuth: tls.RequestClientCert}}
}

// link makes the two shake hands, and says whether a word went through to each.
func link(t *testing.T, client, server *end) (toClient, toServer bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan bool, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			done <- false
			return
		}
		done <- talk(tls.Server(c, server.conf))
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	toClient = talk(tls.Client(c, client.conf))
	return toClient, deadline.Receive(t, done, "done")
}

// talk says whether the other end has said something after the handshake.
func talk(c *tls.Conn) bool {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // which is a hang
	if _, err := c.Write([]byte("hello")); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, 5))
	return err == nil
}

func TestMembersTakeEachOther(t *testing.T) {
	s := newSystem(t, "prod")
	one, two := s.member("a-1"), s.member("b-1")
	if a, b := link(t, one, two); !a || !b {
		t.Errorf("heard %v, %v; refused %v, %v", a, b, one.refuse, two.refuse)
	}
}

// TestAttackersAreRefused: each comes as a client and waits as a server, and neither way is
// a byte said to it.
func TestAttackersAreRefused(t *testing.T) {
	s, other := newSystem(t, "prod"), newSystem(t, "prod")
	mine, gone, twin := newKey(t), newKey(t), newKey(t)
	minion, err := mine.Certificate("web1")
	if err != nil {
		t.Fatal(err)
	}
	victim := newKey(t)
	stolen := s.shows("b-1", victim, s.sign(victim)) // it is public: every member shows it
	stolen.PrivateKey = newPrivate(t)
	old := NewCard(s.id, "b-1", "9.0")
	old.Newest, old.Oldest = 99, 98
	tooNew, err := old.Certificate(mine, s.sign(mine))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := system{t, s.signer, "test"}
	for _, test := range []struct {
		name  string
		end   *end
		want  error // nil where the handshake itself fails
		words string
	}{
		{"no certificate", attacker(), nil, ""},
		{"a minion's key", attacker(minion), ErrNoMember, "web1"},
		{"a key that signed itself", attacker(s.shows("b-1", mine, selfSigned(t, mine))), ErrForeign, "not by"},
		{"rubbish for a signature", attacker(s.shows("b-1", mine, []byte{1})), ErrForeign, ""},
		{"the signature of another key", attacker(s.shows("b-1", mine, s.sign(victim))), ErrForeign, ""},
		{"another system's signature", attacker(other.shows("b-1", mine, other.sign(mine))), ErrForeign, s.signer.Public().SHA256()},
		{"another system of the same signing key", attacker(elsewhere.shows("b-1", mine, s.sign(mine))), ErrCluster, "test"},
		{"a member's certificate without its key", attacker(stolen), nil, ""},
		{"a removed member", attacker(s.shows("b-1", gone, s.sign(gone))), ErrRemoved, gone.Public().SHA256()},
		{"a copy of this member's key", attacker(s.shows("b-1", twin, s.sign(twin))), ErrSame, ""},
		{"this member's name", attacker(s.shows("a-1", mine, s.sign(mine))), ErrSame, "a-1"},
		{"no name", attacker(s.shows("", mine, s.sign(mine))), ErrSame, ""},
		{"a protocol that is too new", attacker(tooNew), ErrVersion, "protocol 98 to 99"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, way := range []string{"client", "server"} {
				e := &end{}
				r := s.rule("a-1")
				r.Removed = func() (Fingerprints, error) { return Fingerprints{gone.Public().SHA256(): true}, nil }
				var err error
				if e.conf, err = r.TLS(twin, s.sign(twin), func(err error) { e.refuse = err }); err != nil {
					t.Fatal(err)
				}
				heard := false
				if way == "client" {
					heard, _ = link(t, test.end, e)
				} else {
					if len(test.end.conf.Certificates) == 0 {
						continue // there is no such server
					}
					_, heard = link(t, e, test.end)
				}
				if heard {
					t.Errorf("as %s it heard something", way)
				}
				if test.want == nil {
					continue
				}
				if !errors.Is(e.refuse, test.want) || !strings.Contains(fmt.Sprint(e.refuse), test.words) || salt.Hint(e.refuse) == "" {
					t.Errorf("as %s: %v, want %v with %q and a hint", way, e.refuse, test.want, test.words)
				}
			}
		})
	}
}

func newPrivate(t *testing.T) any {
	t.Helper()
	c, err := newKey(t).Certificate("x")
	if err != nil {
		t.Fatal(err)
	}
	return c.PrivateKey
}

func selfSigned(t *testing.T, key *pki.PrivateKey) []byte {
	t.Helper()
	sig, err := key.SignPublic(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

// TestUnsignedIsRefused: a card without a signature is what no member of ours makes.
func TestUnsignedIsRefused(t *testing.T) {
	s := newSystem(t, "prod")
	key := newKey(t)
	cert := s.shows("b-1", key, s.sign(key))
	for i, e := range cert.Leaf.Extensions {
		if e.Id.Equal(pki.SignatureOID) {
			cert.Leaf.Extensions[i].Value = nil
		}
	}
	if m, err := s.rule("a-1").Judge(cert.Leaf); !errors.Is(err, ErrUnsigned) || m != (Member{}) {
		t.Errorf("%v, %v", m, err)
	}
	if _, err := s.rule("a-1").TLS(key, nil, nil); !errors.Is(err, ErrUnsigned) || salt.Hint(err) == "" {
		t.Errorf("a member without a signature starts: %v", err)
	}
	if _, err := s.rule("a-1").TLS(key, newSystem(t, "prod").sign(key), nil); !errors.Is(err, ErrForeign) {
		t.Errorf("a member whose own signature is another system's starts: %v", err)
	}
}

// The zero rule accepts nobody, and neither does a rule whose list cannot be read.
func TestTheZeroRuleAcceptsNobody(t *testing.T) {
	s := newSystem(t, "")
	key := newKey(t)
	cert := s.shows("b-1", key, s.sign(key))
	if m, err := (Rule{}).Judge(cert.Leaf); err == nil || m != (Member{}) {
		t.Errorf("the zero rule: %v, %v", m, err)
	}
	if m, err := s.rule("a-1").Judge(nil); !errors.Is(err, ErrNoMember) || m != (Member{}) {
		t.Errorf("no certificate: %v, %v", m, err)
	}
	r := s.rule("a-1")
	r.Removed = func() (Fingerprints, error) { return nil, os.ErrPermission }
	if m, err := r.Judge(cert.Leaf); !errors.Is(err, ErrUnread) || m != (Member{}) {
		t.Errorf("an unreadable list: %v, %v", m, err)
	}
}

// TestRemovalCountsAtTheNextHandshake, without a restart.
func TestRemovalCountsAtTheNextHandshake(t *testing.T) {
	s := newSystem(t, "prod")
	list := filepath.Join(t.TempDir(), "removed")
	one := s.member("a-1", func(r *Rule) { r.Removed = func() (Fingerprints, error) { return ReadRemoved(list) } })
	key := newKey(t)
	two := attacker(s.shows("b-1", key, s.sign(key)))
	if _, heard := link(t, one, two); !heard {
		t.Fatal("a member was refused", one.refuse)
	}
	text := "# stolen\n\n" + strings.ToUpper(key.Public().SHA256()) + "  b, 2026-01-01\n"
	if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, heard := link(t, one, two); heard || !errors.Is(one.refuse, ErrRemoved) {
		t.Errorf("heard %v, %v", heard, one.refuse)
	}
}

func TestReadRemoved(t *testing.T) {
	finger := newKey(t).Public().SHA256()
	for _, test := range []struct {
		text string
		want int // -1 is an error
	}{
		{"", 0}, {"# " + finger, 0}, {finger, 1}, {finger + " b-1\r\n" + finger, 1},
		{"b-1", -1}, {finger + "\nSHA256:" + finger, -1}, {finger[:40], -1}, {strings.Repeat(finger+"\n", 20000), -1},
	} {
		path := filepath.Join(t.TempDir(), "removed")
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadRemoved(path)
		if (err != nil) != (test.want < 0) || err == nil && len(got) != test.want || err != nil && got != nil {
			t.Errorf("%.60q: %v, %v, want %d", test.text, got, err, test.want)
		}
	}
	if got, err := ReadRemoved(filepath.Join(t.TempDir(), "none")); err != nil || got != nil {
		t.Errorf("without a file: %v, %v", got, err)
	}
}

// TestReadRemovals: the name of a line is a word of its own, and a line that is commented out takes nothing
// back that another one says.
func TestReadRemovals(t *testing.T) {
	one, two := newKey(t).Public().SHA256(), newKey(t).Public().SHA256()
	for _, test := range []struct {
		text string
		want []Removal
		back []string
	}{
		{one + " member=m1 removed", []Removal{{one, "m1"}}, nil},
		{one + " of member=m1 member=m2\n" + one + " member=m3", []Removal{{one, "m1"}}, nil},
		{one + " m1, a member", []Removal{{one, ""}}, nil},
		{two + "\n" + one, []Removal{{two, ""}, {one, ""}}, nil},
		{"# " + one + " member=m1\n  #" + strings.ToUpper(two), nil, []string{one, two}},
		{"#" + one + "\n" + one, []Removal{{one, ""}}, nil},
		{one + "\n#" + one + "\n#\n# m1", []Removal{{one, ""}}, nil},
	} {
		path := filepath.Join(t.TempDir(), "removed")
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadRemovals(path)
		if err != nil || !slices.Equal(got.List, test.want) || len(got.Back) != len(test.back) || slices.ContainsFunc(test.back, func(f string) bool { return !got.Back[f] }) {
			t.Errorf("%q: %v, %v, want %v and %v", test.text, got, err, test.want, test.back)
		}
	}
}

// TestAddRemoved: whatever was written into the list by hand, and whatever another member names, the
// list can be read afterwards: if it could not, every member would be refused.
func TestAddRemoved(t *testing.T) {
	one, two := newKey(t).Public().SHA256(), newKey(t).Public().SHA256()
	full := strings.Repeat("#"+strings.Repeat("x", 1022)+"\n", 1024)
	for name, test := range map[string]struct {
		before  string
		comment string
		added   bool
	}{
		"without a file":            {"", "b-1", true},
		"without the last line end": {"# by hand\n" + one, "b-1", true},
		"a long comment":            {one + "\n", strings.Repeat("é", 1<<20), true},
		"a comment of lines":        {one + "\n", "b-1\nb-2\r\n", true},
		"a full list":               {full, "b-1", false},
		"a list with a mistake":     {"b-1\n", "b-1", false},
	} {
		path := filepath.Join(t.TempDir(), "removed")
		if test.before != "" {
			if err := os.WriteFile(path, []byte(test.before), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := AddRemoved(path, Removal{two, "m2"}, test.comment)
		text, bad := os.ReadFile(path)
		if bad != nil {
			t.Fatal(bad)
		}
		if !test.added {
			if err == nil || string(text) != test.before {
				t.Errorf("%s: it was changed: %v", name, err)
			}
			continue
		}
		list, bad := ReadRemoved(path)
		if err != nil || bad != nil || !list[two] || list[one] != strings.Contains(test.before, one) || !strings.HasPrefix(string(text), test.before) || len(text) > 1000 {
			t.Errorf("%s: %v, %v, the list has %d keys in %d bytes", name, err, bad, len(list), len(text))
		}
		if err := AddRemoved(path, Removal{two, "m3"}, "again"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if again, _ := os.ReadFile(path); string(again) != string(text) {
			t.Errorf("%s: it was added twice", name)
		}
	}
	for _, name := range []string{"m2", "m2 m3\nm4", strings.Repeat("é", 1<<20)} {
		path := filepath.Join(t.TempDir(), "removed")
		err := AddRemoved(path, Removal{two, name}, "member=m9")
		list, bad := ReadRemovals(path)
		if err != nil || bad != nil || len(list.List) != 1 || list.List[0].Name != first(name) {
			t.Errorf("%.20q: %v, %v, the list has %d keys", name, err, bad, len(list.List))
		}
	}
	if err := AddRemoved(filepath.Join(t.TempDir(), "removed"), Removal{"b-1", ""}, ""); err == nil {
		t.Error("a name was added as a fingerprint")
	}
}

// first returns what a list keeps of a name.
func first(name string) string {
	word := []rune(strings.Fields(name)[0])
	return string(word[:min(len(word), maxComment-len(memberMark))])
}

// TestReadKnown: a list that says something that is not a fingerprint is not believed.
func TestReadKnown(t *testing.T) {
	path := KnownFile(t.TempDir())
	if list, err := ReadKnown(path); err != nil || len(list) > 0 {
		t.Errorf("without the file: %v, %v", list, err)
	}
	want := map[string]string{"a-1": newKey(t).Public().SHA256()}
	if err := WriteKnown(path, want); err != nil {
		t.Fatal(err)
	}
	if list, err := ReadKnown(path); err != nil || !maps.Equal(list, want) {
		t.Errorf("what was written: %v, %v; want %v", list, err, want)
	}
	for _, text := range []string{"", "[]", `{"a-1": "1f:09"}`, `{"a-1": 5}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if list, err := ReadKnown(path); err == nil {
			t.Errorf("%q is read as %v", text, list)
		}
	}
}

// TestBeside: each linked member has a name and a key of its own; several links of one have the same.
func TestBeside(t *testing.T) {
	a, b := newKey(t).Public(), newKey(t).Public()
	linked := Member{Card{Name: "m1"}, a}
	for name, c := range map[string]struct {
		m    Member
		want error
	}{
		"the same again":      {linked, nil},
		"another one":         {Member{Card{Name: "m2"}, b}, nil},
		"its name":            {Member{Card{Name: "m1"}, b}, ErrTwin},
		"its key, a new name": {Member{Card{Name: "m2"}, a}, ErrTwin},
	} {
		if err := c.m.Beside(linked); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
