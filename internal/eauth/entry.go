package eauth

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-ldap/ldap/v3"
)

// locks are the attributes in which directories record that an account is locked or its password
// was changed: of Active Directory, of the password policy of OpenLDAP, of 389 and FreeIPA, of
// shadow. Together they are the version of an account.
var locks = []string{
	"userAccountControl", "msDS-User-Account-Control-Computed", "accountExpires", "pwdLastSet",
	"pwdAccountLockedTime", "pwdChangedTime", "pwdReset", "nsAccountLock", "shadowExpire",
}

// find returns the only entry of a user.
func (d *directory) find(c *ldap.Conn, user string) (*ldap.Entry, error) {
	return d.one(c, d.cfg.LDAPBaseDN, d.cfg.LDAPScope, fill(d.filter, ldap.EscapeFilter(user)))
}

// one searches for one entry. It is a refusal if there is none, and also if there are several,
// since it is unclear which one is meant.
func (d *directory) one(c *ldap.Conn, base string, scope int, filter string) (*ldap.Entry, error) {
	attributes := append([]string{d.name, d.cfg.LDAPGroupAttribute}, locks...)
	res, err := c.Search(ldap.NewSearchRequest(base, scope, ldap.NeverDerefAliases, 2, int(ldapTime/time.Second), false, filter, attributes, nil))
	switch {
	case ldap.IsErrorAnyOf(err, ldap.LDAPResultNoSuchObject, ldap.LDAPResultSizeLimitExceeded):
		return nil, fmt.Errorf("%w: search %s below %q: %w", ErrRefused, filter, base, err)
	case err != nil:
		return nil, fmt.Errorf("search %s below %q: %w", filter, base, err)
	case len(res.Entries) != 1:
		return nil, fmt.Errorf("%w: %d entries match %s below %q", ErrRefused, len(res.Entries), filter, base)
	}
	return res.Entries[0], nil
}

// account returns the account for an entry that was found for the typed name.
func (d *directory) account(c *ldap.Conn, e *ldap.Entry, typed string) (Account, error) {
	if why := locked(e, time.Now()); why != "" {
		return Account{}, fmt.Errorf("%w: %s: %s", ErrRefused, e.DN, why)
	}
	names := e.GetEqualFoldAttributeValues(d.name)
	if len(names) == 0 {
		return Account{}, fmt.Errorf("%w: %s shows no %s", ErrRefused, e.DN, d.name)
	}
	// Directories ignore upper and lower case, access rules do not.
	a := Account{Name: names[0]}
	if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, typed) }); i >= 0 {
		a.Name = names[i]
	}
	for _, name := range locks {
		a.Version += fmt.Sprintf("%s=%q\n", name, e.GetEqualFoldAttributeValues(name))
	}
	var err error
	a.Groups, err = d.groups(c, e, a.Name)
	return a, err
}

// locked returns why an account may not be used, "" if it may.
func locked(e *ldap.Entry, now time.Time) string {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(e.GetEqualFoldAttributeValue(name), 10, 64) // 0 if it is missing
		return n
	}
	has := func(name, value string) bool {
		return slices.ContainsFunc(e.GetEqualFoldAttributeValues(name), func(v string) bool { return strings.EqualFold(v, value) })
	}
	control := number("userAccountControl") | number("msDS-User-Account-Control-Computed")
	switch {
	case control&0x2 != 0:
		return "the account is disabled"
	case control&0x10 != 0, e.GetEqualFoldAttributeValue("pwdAccountLockedTime") != "", has("nsAccountLock", "true"):
		return "the account is locked"
	case control&0x800000 != 0, has("pwdLastSet", "0"), has("pwdReset", "true"):
		return "the password has expired"
	case expired(number("accountExpires"), number("shadowExpire"), now):
		return "the account has expired"
	}
	return ""
}

// expired compares the expiry times of an account with now: fileTime is that of Active Directory,
// in units of 100 ns since 1601, where 0 and the largest number mean never; days is that of shadow,
// in days since 1970, where 0 and less mean never.
func expired(fileTime, days int64, now time.Time) bool {
	const fileEpoch, never = 11_644_473_600, 1<<63 - 1
	return fileTime > 0 && fileTime < never && fileTime/10_000_000-fileEpoch <= now.Unix() || days > 0 && days*86_400 <= now.Unix()
}

// groups returns the names of the groups of a user: those that their entry names, and those from a
// search, depending on the kind of directory.
func (d *directory) groups(c *ldap.Conn, e *ldap.Entry, user string) ([]string, error) {
	groups := commonNames(e.GetEqualFoldAttributeValues(d.cfg.LDAPGroupAttribute))
	base, filter := d.groupSearch(e.DN, user)
	if base == "" {
		return groups, nil
	}
	res, err := c.Search(ldap.NewSearchRequest(base, ldap.ScopeWholeSubtree, ldap.NeverDerefAliases, 0, int(ldapTime/time.Second), false, filter, []string{"cn"}, nil))
	if ldap.IsErrorWithCode(err, ldap.LDAPResultNoSuchObject) {
		return groups, nil // the base of groups does not exist
	}
	if err != nil {
		return nil, fmt.Errorf("search groups %s below %q: %w", filter, base, err)
	}
	for _, g := range res.Entries {
		groups = append(groups, g.GetEqualFoldAttributeValues("cn")...)
	}
	slices.Sort(groups)
	return slices.Compact(groups), nil
}

// groupSearch returns the base and the filter of the search for groups.
func (d *directory) groupSearch(dn, user string) (base, filter string) {
	c := d.cfg
	class := "(objectClass=" + ldap.EscapeFilter(c.LDAPGroupClass) + ")"
	switch {
	case c.LDAPBaseDN == "":
		return "", ""
	case c.LDAPActiveDirectory:
		return c.LDAPBaseDN, "(&(member=" + ldap.EscapeFilter(dn) + ")" + class + ")"
	case c.LDAPFreeIPA:
		base = c.LDAPGroupBaseDN
		if base == "" {
			base = c.LDAPBaseDN
		}
		filter = placeDN().ReplaceAllLiteralString(bracketed(c.LDAPGroupFilter), ldap.EscapeFilter(dn))
		return base, fill(filter, ldap.EscapeFilter(user))
	case c.LDAPGroupOU != "":
		base = "ou=" + ldap.EscapeDN(c.LDAPGroupOU) + "," + c.LDAPBaseDN
	default:
		base = c.LDAPBaseDN
	}
	return base, "(&(" + c.LDAPAccountAttribute + "=" + ldap.EscapeFilter(user) + ")" + class + ")"
}

// commonNames returns the value of the first part of each DN: ops for cn=ops,ou=groups.
func commonNames(dns []string) []string {
	var names []string
	for _, text := range dns {
		dn, err := ldap.ParseDN(text)
		if err != nil || len(dn.RDNs) == 0 || len(dn.RDNs[0].Attributes) == 0 {
			continue
		}
		names = append(names, dn.RDNs[0].Attributes[0].Value)
	}
	return names
}
