package eauth

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-ldap/ldap/v3"

	"github.com/brinebus/brine/test/port"
)

// slapd is a directory server of a test's own.
type slapd struct {
	t    *testing.T
	dir  string
	port int
}

// startSlapd starts the server of OpenLDAP with the users of testdata. The lines of access come before the last rule of
// its configuration.
func startSlapd(t *testing.T, access ...string) *slapd {
	t.Helper()
	program, err := exec.LookPath("slapd")
	if err != nil {
		if program = "/usr/sbin/slapd"; !exists(program) {
			t.Skip("this machine has no slapd: package slapd")
		}
	}
	s := &slapd{t: t, dir: t.TempDir()}
	conf, err := os.ReadFile("testdata/slapd.conf")
	if err != nil {
		t.Fatal(err)
	}
	const last = "access to * "
	text := strings.Replace(string(conf), last, strings.Join(append(access, last), "\n"), 1)
	s.write("slapd.conf", strings.ReplaceAll(text, "DIR", s.dir))
	s.certify("localhost")
	for range 5 { // somebody else may get the port first
		if s.run(program) {
			s.fill("testdata/users.ldif")
			return s
		}
	}
	t.Fatal("slapd does not start")
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (s *slapd) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// certify makes a certificate of the server, which is its own authority.
func (s *slapd) certify(host string) {
	s.t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, public, private)
	if err != nil {
		s.t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("server.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	s.write("server.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
}

// run starts the server on a free port and waits until it answers.
func (s *slapd) run(program string) bool {
	s.t.Helper()
	s.port = port.Free(s.t)
	c := exec.Command(program, "-d", "0", "-f", filepath.Join(s.dir, "slapd.conf"), "-h", fmt.Sprintf("ldap://127.0.0.1:%d", s.port))
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = c.Wait()
		close(ended)
	}()
	stop := func() {
		_ = c.Process.Kill()
		<-ended
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(time.Minute); ; {
		select {
		case <-ended:
			return false
		case <-limit:
			stop()
			return false
		case <-tick.C:
		}
		if conn, err := ldap.DialURL(fmt.Sprintf("ldap://127.0.0.1:%d", s.port)); err == nil {
			conn.Close()
			s.t.Cleanup(stop)
			return true
		}
	}
}

// fill adds the entries of a file, of attributes a line each, through the server:
// so that memberOf is kept.
func (s *slapd) fill(file string) {
	s.t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	c := s.admin()
	defer c.Close()
	for text := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n\n") {
		var add *ldap.AddRequest
		for line := range strings.SplitSeq(text, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			if name == "dn" {
				add = ldap.NewAddRequest(value, nil)
				continue
			}
			add.Attribute(name, []string{value})
		}
		if err := c.Add(merged(add)); err != nil {
			s.t.Fatalf("add %s: %v", add.DN, err)
		}
	}
}

// merged puts the values of an attribute together.
func merged(add *ldap.AddRequest) *ldap.AddRequest {
	out := ldap.NewAddRequest(add.DN, nil)
	for _, a := range add.Attributes {
		i := slices.IndexFunc(out.Attributes, func(b ldap.Attribute) bool { return b.Type == a.Type })
		if i < 0 {
			out.Attribute(a.Type, a.Vals)
		} else {
			out.Attributes[i].Vals = append(out.Attributes[i].Vals, a.Vals...)
		}
	}
	return out
}

// admin connects as the administrator.
func (s *slapd) admin() *ldap.Conn {
	s.t.Helper()
	c, err := ldap.DialURL(fmt.Sprintf("ldap://127.0.0.1:%d", s.port))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := c.Bind("cn=admin,dc=example,dc=org", "admin-secret"); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// change modifies an entry as the administrator.
func (s *slapd) change(dn string, f func(*ldap.ModifyRequest)) {
	s.t.Helper()
	c := s.admin()
	defer c.Close()
	m := ldap.NewModifyRequest(dn, nil)
	f(m)
	if err := c.Modify(m); err != nil {
		s.t.Fatalf("modify %s: %v", dn, err)
	}
}

// authenticator opens an authenticator to the server with these settings of auth.ldap.
func (s *slapd) newAuthenticator(t *testing.T, settings string) *Authenticator {
	t.Helper()
	text := fmt.Sprintf("auth.ldap.server: 127.0.0.1\nauth.ldap.port: %d\n", s.port)
	if strings.Contains(settings, "auth.ldap.uri") {
		text = ""
	}
	return newAuthenticator(t, &memory{}, parse(t, load(t, text+settings+"external_auth: {ldap: {fred: [.*]}}\n", "")))
}

const (
	bySearch = "auth.ldap.basedn: dc=example,dc=org\nauth.ldap.binddn: cn=reader,dc=example,dc=org\nauth.ldap.bindpw: reader-secret\n"
	byBind   = "auth.ldap.binddn: 'uid={{ username }},ou=people,dc=example,dc=org'\n"
	byAD     = "auth.ldap.basedn: ou=ad,dc=example,dc=org\nauth.ldap.binddn: cn=reader,dc=example,dc=org\nauth.ldap.bindpw: reader-secret\n" +
		"auth.ldap.filter: 'sAMAccountName={{username}}'\nauth.ldap.activedirectory: True\nauth.ldap.groupclass: group\n"
)

func TestDirectory(t *testing.T) {
	s := startSlapd(t)
	for name, c := range map[string]struct {
		settings, user, secret string
		want                   string // the name; "" is a refusal
		groups                 []string
	}{
		"found":                       {bySearch, "fred", "fred-secret", "fred", []string{"ops", "web"}},
		"found, in other letters":     {bySearch, "FRED", "fred-secret", "fred", []string{"ops", "web"}},
		"no groups":                   {bySearch, "tom", "tom-secret", "tom", nil},
		"a name with wildcards":       {bySearch, "a*b(c)", "odd-secret", "a*b(c)", nil},
		"a wildcard for a name":       {bySearch, "fre*", "fred-secret", "", nil},
		"any user":                    {bySearch, "*", "fred-secret", "", nil},
		"a filter for a name":         {bySearch, "fred)(uid=*", "fred-secret", "", nil},
		"a wrong password":            {bySearch, "fred", "tom-secret", "", nil},
		"no password":                 {bySearch, "fred", "", "", nil},
		"nobody":                      {bySearch, "nosuch", "x", "", nil},
		"by mail, with a uid":         {bySearch + "auth.ldap.filter: (|(uid={{ username }})(mail={{ username }}))\n", "fred@example.org", "fred-secret", "fred", []string{"ops", "web"}},
		"two with one mail":           {bySearch + "auth.ldap.filter: (|(uid={{ username }})(mail={{ username }}))\n", "shared@example.org", "tom-secret", "", nil},
		"not so deep":                 {bySearch + "auth.ldap.scope: 1\n", "fred", "fred-secret", "", nil},
		"groups elsewhere":            {bySearch + "auth.ldap.groupou: Nowhere\n", "fred", "fred-secret", "fred", []string{"web"}},
		"groups anywhere":             {bySearch + "auth.ldap.groupou: ''\n", "fred", "fred-secret", "fred", []string{"ops", "web"}},
		"bind":                        {byBind, "fred", "fred-secret", "fred", []string{"web"}},
		"bind, in other letters":      {byBind, "Fred", "fred-secret", "fred", []string{"web"}},
		"bind, wrong":                 {byBind, "fred", "x", "", nil},
		"bind without a password":     {byBind, "fred", "", "", nil},
		"bind, nobody":                {byBind, "nosuch", "x", "", nil},
		"bind, more of a DN":          {byBind, "fred,ou=people", "fred-secret", "", nil},
		"bind, as one below":          {byBind, "visitor;ou=guests", "visitor-secret", "", nil}, // a comma is in no name of a user
		"bind, by other letters":      {byBind, `fr\65d`, "fred-secret", "", nil},
		"bind, as somebody elsewhere": {byBind, "tom+uid=fred", "fred-secret", "", nil},
		"bind and find":               {byBind + "auth.ldap.basedn: dc=example,dc=org\n", "fred", "fred-secret", "fred", []string{"ops", "web"}},
		"Active Directory":            {byAD, "wilma", "wilma-secret", "Wilma", []string{"Salt Operators"}},
		"Active Directory, disabled":  {byAD, "barney", "barney-secret", "", nil},
		"FreeIPA": {bySearch + "auth.ldap.freeipa: True\nauth.ldap.group_filter: '(&(member={{ userdn }})(objectClass=groupOfNames))'\n",
			"fred", "fred-secret", "fred", []string{"web"}},
		"FreeIPA, a name that is half a filter": {bySearch + "auth.ldap.freeipa: True\nauth.ldap.group_filter: '(&(member={{ userdn }})(objectClass=groupOfNames))'\n",
			"a*b(c)", "odd-secret", "a*b(c)", nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := s.newAuthenticator(t, c.settings)
			grant, err := g.Login(t.Context(), "0", "ldap", c.user, Proof{Secret: c.secret})
			if c.want == "" {
				if !errors.Is(err, ErrRefused) {
					t.Errorf("%v, %v; want a refusal", grant, err)
				}
				return
			}
			if err != nil || grant.Name != c.want || !slices.Equal(grant.Groups, c.groups) {
				t.Errorf("%+v, %v; want %s in %v", grant, err, c.want, c.groups)
			}
		})
	}
}

// Whatever locks an account in a directory ends its tokens, and its logins.
func TestDirectoryLocks(t *testing.T) {
	const fred, wilma = "uid=fred,ou=people,dc=example,dc=org", "cn=Wilma Flintstone,ou=ad,dc=example,dc=org"
	for name, c := range map[string]struct {
		dn, settings, user, attribute, value string
	}{
		"locked by the policy":      {fred, bySearch, "fred", "pwdAccountLockedTime", "000001010000Z"},
		"a password to be changed":  {fred, bySearch, "fred", "pwdReset", "TRUE"},
		"expired by shadow":         {fred, bySearch, "fred", "shadowExpire", "100"},
		"disabled":                  {wilma, byAD, "wilma", "userAccountControl", "514"},
		"locked out":                {wilma, byAD, "wilma", "msDS-User-Account-Control-Computed", "16"},
		"expired":                   {wilma, byAD, "wilma", "accountExpires", "130000000000000000"},
		"a password to set at once": {wilma, byAD, "wilma", "pwdLastSet", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startSlapd(t)
			g := s.newAuthenticator(t, c.settings)
			proof := Proof{Secret: c.user + "-secret"}
			grant, err := g.Login(t.Context(), "0", "ldap", c.user, proof)
			if err != nil {
				t.Fatal(err)
			}
			token, _, err := g.MakeToken(t.Context(), grant, 0, false)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := g.Token(t.Context(), token); err != nil {
				t.Fatal(err)
			}
			s.change(c.dn, func(m *ldap.ModifyRequest) { m.Replace(c.attribute, []string{c.value}) })
			g.forgetLooks()
			if _, err := g.Token(t.Context(), token); !errors.Is(err, ErrRefused) {
				t.Errorf("its token: %v, want a refusal", err)
			}
			if _, err := g.Login(t.Context(), "0", "ldap", c.user, proof); !errors.Is(err, ErrRefused) {
				t.Errorf("a login: %v, want a refusal", err)
			}
		})
	}
}

// TestALockThatIsOver: the server keeps the mark of a lock that is over until the next good bind, which is not refused
// for it.
func TestALockThatIsOver(t *testing.T) {
	s := startSlapd(t)
	s.change("cn=policy,dc=example,dc=org", func(m *ldap.ModifyRequest) { m.Replace("pwdLockoutDuration", []string{"60"}) })
	s.change("uid=fred,ou=people,dc=example,dc=org", func(m *ldap.ModifyRequest) { m.Replace("pwdAccountLockedTime", []string{"20200101000000Z"}) })
	g := s.newAuthenticator(t, bySearch)
	if _, err := g.Login(t.Context(), "0", "ldap", "fred", Proof{Secret: "fred-secret"}); err != nil {
		t.Errorf("the login that ends the lock: %v", err)
	}
}

// TestADirectoryThatShowsLittle: whoever looks up users may search and read only what the filter and the groups need.
func TestADirectoryThatShowsLittle(t *testing.T) {
	s := startSlapd(t,
		`access to dn.subtree="ou=people,dc=example,dc=org" attrs=entry,uid,memberOf by dn.exact="cn=reader,dc=example,dc=org" read by anonymous auth`,
		`access to dn.subtree="ou=people,dc=example,dc=org" by anonymous auth`)
	g := s.newAuthenticator(t, bySearch)
	if grant, err := g.Login(t.Context(), "0", "ldap", "fred", Proof{Secret: "fred-secret"}); err != nil || !slices.Equal(grant.Groups, []string{"ops", "web"}) {
		t.Errorf("%+v, %v", grant, err)
	}
	if _, err := g.Login(t.Context(), "0", "ldap", "fred", Proof{Secret: "tom-secret"}); !errors.Is(err, ErrRefused) {
		t.Errorf("with a wrong password: %v", err)
	}
}

// A changed password ends tokens; a server that is away does not, and lets nobody
// in either.
func TestDirectoryThatChanges(t *testing.T) {
	s := startSlapd(t)
	g := s.newAuthenticator(t, bySearch)
	grant, err := g.Login(t.Context(), "0", "ldap", "fred", Proof{Secret: "fred-secret"})
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := g.MakeToken(t.Context(), grant, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	working := g.backends.Load()
	g.Set(parse(t, load(t, "auth.ldap.uri: ldapi://%2Fnonexistent%2Fsocket\n"+bySearch+"external_auth: {ldap: {}}\n", "")))
	if _, err := g.Token(t.Context(), token); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without the server: %v, want that it is away", err)
	}
	g.Set(working)
	if _, err := g.Token(t.Context(), token); err != nil {
		t.Errorf("with the server again: %v", err)
	}
	s.change("uid=fred,ou=people,dc=example,dc=org", func(m *ldap.ModifyRequest) { m.Replace("userPassword", []string{"another"}) })
	g.forgetLooks()
	if _, err := g.Token(t.Context(), token); !errors.Is(err, ErrRefused) {
		t.Errorf("after a change of the password: %v, want a refusal", err)
	}
}

// The certificate of the server is verified, by name and authority.
func TestDirectoryTLS(t *testing.T) {
	s := startSlapd(t)
	uri := func(host string) string {
		return fmt.Sprintf("auth.ldap.uri: ldap://%s:%d\nauth.ldap.starttls: True\n", host, s.port) + bySearch
	}
	ca := "auth.ldap.ca_file: " + filepath.Join(s.dir, "server.crt") + "\n"
	for name, c := range map[string]struct {
		settings string
		want     error
	}{
		"its authority": {uri("localhost") + ca, nil},
		"another name":  {uri("127.0.0.1") + ca, ErrUnavailable},
		"nobody's":      {uri("localhost"), ErrUnavailable},
		"TLS from the start, where there is none": {fmt.Sprintf("auth.ldap.uri: ldaps://localhost:%d\n", s.port) + bySearch + ca, ErrUnavailable},
	} {
		if _, err := s.newAuthenticator(t, c.settings).Login(t.Context(), "0", "ldap", "fred", Proof{Secret: "fred-secret"}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestBadDirectories(t *testing.T) {
	for settings, want := range map[string]string{
		"":                                       "auth.ldap.basedn is not set",
		"auth.ldap.basedn: dc=x\n":               "auth.ldap.binddn and auth.ldap.bindpw are not both set",
		bySearch + "auth.ldap.no_verify: true\n": "would send passwords to whoever is in the middle",
		bySearch + "auth.ldap.server: ldap.example.org\n":      "in the clear",
		bySearch + "auth.ldap.uri: http://localhost\n":         "neither ldap nor ldaps nor ldapi",
		bySearch + "auth.ldap.filter: uid=x\n":                 "compares no attribute with {{ username }}",
		bySearch + "auth.ldap.filter: '(uid={{ username }}'\n": "auth.ldap.filter",
		bySearch + "auth.ldap.ca_file: nosuch\n":               "auth.ldap.ca_file",
		"auth.ldap.binddn: '{{ username }}@example.org'\n":     "auth.ldap.basedn is not set",
	} {
		_, err := Parse(load(t, settings+"external_auth: {ldap: {fred: [.*]}}\n", ""), System{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", settings, err, want)
		}
	}
}
