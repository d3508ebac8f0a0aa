package eauth

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-ldap/ldap/v3"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/salt"
)

// ldapTime limits one exchange with a directory server.
const ldapTime = 10 * time.Second

// directory looks up users on a directory server. It opens a new connection for each login.
type directory struct {
	cfg    *config.Master
	url    string
	tls    *tls.Config
	direct bool   // users bind with the template binddn, without a search before
	filter string // in parentheses
	name   string // the attribute that contains the name of a user
}

func newDirectory(cfg *config.Master) (Backend, error) {
	d := &directory{cfg: cfg, filter: bracketed(cfg.LDAPFilter), direct: placeholder().MatchString(cfg.LDAPBindDN)}
	template := d.filter
	if d.direct && strings.Contains(cfg.LDAPBindDN, "=") {
		template = cfg.LDAPBindDN
	}
	m := nameAttribute().FindStringSubmatch(template)
	if m == nil {
		return nil, salt.WithHint(errors.New("auth.ldap.filter compares no attribute with {{ username }}"), "as in (uid={{ username }})")
	}
	d.name = m[1]
	if _, err := ldap.CompileFilter(fill(d.filter, "x")); err != nil {
		return nil, fmt.Errorf("auth.ldap.filter: %w", err)
	}
	for _, step := range []func() error{d.checkSearch, d.parseURL, d.loadTLS} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return d, nil
}

var (
	placeholder   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{\{\s*username\s*\}\}`) })
	placeDN       = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{\{\s*userdn\s*\}\}`) })
	nameAttribute = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`([A-Za-z][A-Za-z0-9-]*)\s*=\s*\{\{\s*username\s*\}\}`)
	})
)

// fill inserts an escaped value into a template.
func fill(template, value string) string {
	return placeholder().ReplaceAllLiteralString(template, value)
}

// bracketed adds the parentheses that Salt's manual omits from a filter.
func bracketed(filter string) string {
	if filter = strings.TrimSpace(filter); strings.HasPrefix(filter, "(") {
		return filter
	}
	return "(" + filter + ")"
}

// checkSearch refuses settings that find no user, or that would let everyone in: for a name without
// a password, a server makes an anonymous bind and reports success.
func (d *directory) checkSearch() error {
	c := d.cfg
	switch {
	case d.direct && !strings.Contains(c.LDAPBindDN, "=") && c.LDAPBaseDN == "":
		return errors.New("auth.ldap.basedn is not set: a user who is not a DN in auth.ldap.binddn has to be found")
	case d.direct:
		return nil
	case c.LDAPBaseDN == "":
		return errors.New("auth.ldap.basedn is not set: where to look for users")
	case c.LDAPAnonymous:
		return nil
	case c.LDAPBindDN == "" || c.LDAPBindPassword == "":
		return salt.WithHint(errors.New("auth.ldap.binddn and auth.ldap.bindpw are not both set: as whom to look for users"),
			"set auth.ldap.anonymous where the server lets everybody look, or write {{ username }} into auth.ldap.binddn")
	}
	return nil
}

// parseURL parses the address of the server. A password must not cross a network unencrypted.
func (d *directory) parseURL() error {
	c := d.cfg
	d.url = c.LDAPURI
	if d.url == "" {
		scheme, port := "ldap", 389
		if c.LDAPTLS {
			scheme, port = "ldaps", 636
		}
		d.url = scheme + "://" + net.JoinHostPort(c.LDAPServer, strconv.Itoa(cmp.Or(c.LDAPPort, port)))
	}
	if path, ok := strings.CutPrefix(d.url, "ldapi://"); ok { // OpenLDAP writes it with %2F
		if plain, err := url.PathUnescape(path); err == nil {
			d.url = (&url.URL{Scheme: "ldapi", Path: plain}).String()
		}
	}
	u, err := url.Parse(d.url)
	if err != nil {
		return fmt.Errorf("auth.ldap.uri: %w", err)
	}
	switch {
	case u.Scheme != "ldap" && u.Scheme != "ldaps" && u.Scheme != "ldapi":
		return fmt.Errorf("auth.ldap.uri: %q is neither ldap nor ldaps nor ldapi", u.Scheme)
	case c.LDAPStartTLS && u.Scheme != "ldap":
		return errors.New("auth.ldap.starttls is for ldap:// only")
	case u.Scheme == "ldap" && !c.LDAPStartTLS && !isLoopback(u.Hostname()):
		return salt.WithHint(errors.New("passwords would cross the network in the clear"), "set auth.ldap.starttls or auth.ldap.tls")
	}
	d.tls = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (d *directory) loadTLS() error {
	if d.cfg.LDAPNoVerify {
		return salt.WithHint(errors.New("auth.ldap.no_verify would send passwords to whoever is in the middle; it is not supported"),
			"name the certificate that signs the server's by auth.ldap.ca_file")
	}
	if d.cfg.LDAPCAFile == "" {
		return nil
	}
	b, err := os.ReadFile(under(d.cfg, d.cfg.LDAPCAFile))
	if err != nil {
		return fmt.Errorf("auth.ldap.ca_file: %w", err)
	}
	d.tls.RootCAs = x509.NewCertPool()
	if !d.tls.RootCAs.AppendCertsFromPEM(b) {
		return fmt.Errorf("auth.ldap.ca_file: %s holds no certificate in PEM", d.cfg.LDAPCAFile)
	}
	return nil
}

// connect opens a connection that is closed with ctx at the latest.
func (d *directory) connect(ctx context.Context) (*ldap.Conn, func(), error) {
	dialer := &net.Dialer{Timeout: ldapTime}
	if end, ok := ctx.Deadline(); ok {
		dialer.Deadline = end
	}
	c, err := ldap.DialURL(d.url, ldap.DialWithDialer(dialer), ldap.DialWithTLSConfig(d.tls))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to %s: %w", d.url, err)
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	done := func() {
		stop()
		c.Close()
	}
	c.SetTimeout(ldapTime)
	if d.cfg.LDAPStartTLS {
		if err := c.StartTLS(d.tls); err != nil {
			done()
			return nil, nil, fmt.Errorf("start TLS with %s: %w", d.url, err)
		}
	}
	return c, done, nil
}

// Verify implements Backend.
func (d *directory) Verify(ctx context.Context, user string, p Proof) (Account, error) {
	if p.Secret == "" {
		return Account{}, fmt.Errorf("%w: the password is empty", ErrRefused)
	}
	if d.direct {
		return d.verifyDirect(ctx, user, p.Secret)
	}
	reader, done, err := d.reader(ctx)
	if err != nil {
		return Account{}, err
	}
	defer done()
	entry, err := d.find(reader, user)
	if err != nil {
		return Account{}, err
	}
	c, end, err := d.connect(ctx)
	if err != nil {
		return Account{}, err
	}
	defer end()
	if err := bind(c, entry.DN, p.Secret); err != nil {
		return Account{}, err
	}
	// A bind may unlock the account: OpenLDAP keeps the mark of a lock that is over until then. The reader may search
	// what the filter has; whether also objectClass is not known.
	if entry, err = d.one(reader, entry.DN, ldap.ScopeBaseObject, fill(d.filter, ldap.EscapeFilter(user))); err != nil {
		return Account{}, err
	}
	return d.account(reader, entry, user)
}

// verifyDirect binds as the user, who then reads their own entry.
func (d *directory) verifyDirect(ctx context.Context, user, secret string) (Account, error) {
	c, done, err := d.connect(ctx)
	if err != nil {
		return Account{}, err
	}
	defer done()
	isDN := strings.Contains(d.cfg.LDAPBindDN, "=")
	name := user
	if isDN {
		name = ldap.EscapeDN(user) // no user name has a comma, but with ; and \ a server reads more, or another name
	}
	dn := fill(d.cfg.LDAPBindDN, name)
	if err := bind(c, dn, secret); err != nil {
		return Account{}, err
	}
	if d.cfg.LDAPAnonymous {
		return d.Look(ctx, user) // the later comparison uses what other users can see
	}
	var entry *ldap.Entry
	if isDN {
		entry, err = d.one(c, dn, ldap.ScopeBaseObject, "(objectClass=*)")
	} else {
		entry, err = d.find(c, user)
	}
	if isDN && errors.Is(err, ErrRefused) { // they may not read their own entry
		if user != strings.ToLower(user) {
			return Account{}, fmt.Errorf("%w: the directory does not say how %s is written: write it in lower case", ErrRefused, d.name)
		}
		return Account{Name: user}, nil
	}
	if err != nil {
		return Account{}, err
	}
	return d.account(c, entry, user)
}

// Look implements Backend.
func (d *directory) Look(ctx context.Context, user string) (Account, error) {
	if d.direct && !d.cfg.LDAPAnonymous || d.cfg.LDAPBaseDN == "" {
		return Account{}, errUnknowable
	}
	c, done, err := d.reader(ctx)
	if err != nil {
		return Account{}, err
	}
	defer done()
	entry, err := d.find(c, user)
	if err != nil {
		return Account{}, err
	}
	return d.account(c, entry, user)
}

// reader opens a connection that may look up users.
func (d *directory) reader(ctx context.Context) (*ldap.Conn, func(), error) {
	c, done, err := d.connect(ctx)
	if err != nil || d.cfg.LDAPAnonymous {
		return c, done, err
	}
	if err := c.Bind(d.cfg.LDAPBindDN, d.cfg.LDAPBindPassword); err != nil {
		done()
		return nil, nil, fmt.Errorf("bind as %s: %w", d.cfg.LDAPBindDN, err)
	}
	return c, done, nil
}

// bind checks a password. One that has expired or must be changed is refused, even if the server
// accepts it so that its owner can change it.
func bind(c *ldap.Conn, dn, secret string) error {
	res, err := c.SimpleBind(ldap.NewSimpleBindRequest(dn, secret, []ldap.Control{ldap.NewControlBeheraPasswordPolicy()}))
	if ldap.IsErrorAnyOf(err, ldap.LDAPResultInvalidCredentials, ldap.LDAPResultNoSuchObject, ldap.LDAPResultInvalidDNSyntax,
		ldap.LDAPResultInappropriateAuthentication, ldap.LDAPResultUnwillingToPerform, ldap.LDAPResultConstraintViolation, ldap.LDAPResultInsufficientAccessRights) {
		return fmt.Errorf("%w: bind as %s: %w", ErrRefused, dn, err)
	}
	if err != nil {
		return fmt.Errorf("bind as %s: %w", dn, err)
	}
	policy, ok := ldap.FindControl(res.Controls, ldap.ControlTypeBeheraPasswordPolicy).(*ldap.ControlBeheraPasswordPolicy)
	if ok && (policy.Error >= 0 || policy.Grace >= 0) {
		return fmt.Errorf("%w: bind as %s: the password has expired or is to be changed: %s", ErrRefused, dn, policy.ErrorString)
	}
	return nil
}
