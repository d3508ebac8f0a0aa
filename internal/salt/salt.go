// Package salt is the vocabulary of the project: the names of minions, jobs, functions and users as
// distinct types, each with one parser that creates its values.
//
// A value of such a type proves that its text was checked, so an invalid name cannot reach a path,
// a subject or a command line. The package contains only names: it knows nothing of networks, files
// or configuration.
package salt

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// MaxMinionID is the longest minion id in bytes: the longest DNS name. It leaves room for a suffix
// within the 255 bytes of a file name.
const MaxMinionID = 253

// MinionID names a minion. Only ParseMinionID creates it; the zero value names no minion.
type MinionID string

// Function names something that can be run, as module.function.
type Function string

// UserName names a person or a service account, of the operating system or of an external
// authentication backend.
type UserName string

// ClientName names a program to which an operator gave credentials for the event bus.
type ClientName string

// JID names a job: twenty digits, the UTC time when it was created, in microseconds. It does not
// fit into 64 bits and is text everywhere.
type JID string

// UserPrefix precedes the name of a local user where a minion would have its id, for example as the
// sender of an event. No minion id begins with it.
const UserPrefix = "user:"

// ClientPrefix is the same for clients.
const ClientPrefix = "client:"

// ClientBackend is the name below external_auth for clients, which prove their identity by their
// key, without a login.
const ClientBackend = "client"

// Errors that the parsers wrap, so that callers can find out what was wrong.
var (
	ErrMinionID = errors.New("invalid minion id")
	ErrFunction = errors.New("invalid function name")
	ErrUserName = errors.New("invalid user name")
	ErrJID      = errors.New("invalid job id")

	ErrClientName = errors.New("invalid name of a client")
)

// ParseMinionID checks that s can name a minion: 1 to 253 bytes of ASCII letters, digits and . _ -
// @ + : = ~ %, not beginning with a dot or a hyphen.
//
// Only these are allowed because an id becomes a file name, a subject token and a word on a
// terminal: path separators, NUL, wildcards, list separators and letters of other alphabets that
// look like ASCII are all refused.
func ParseMinionID(s string) (MinionID, error) {
	switch {
	case s == "":
		return "", fmt.Errorf("%w: it is empty", ErrMinionID)
	case len(s) > MaxMinionID:
		return "", fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrMinionID, len(s), MaxMinionID)
	case strings.HasPrefix(s, UserPrefix), strings.HasPrefix(s, ClientPrefix):
		return "", fmt.Errorf("%w %q: %s and %s mark local users and clients as senders of events", ErrMinionID, shorten(s), UserPrefix, ClientPrefix)
	case s[0] == '.' || s[0] == '-':
		return "", fmt.Errorf("%w %q: it must not begin with %q", ErrMinionID, s, s[0])
	}
	for _, r := range s {
		if !IsIDCharacter(r) {
			return "", fmt.Errorf("%w %q: the character %q is not allowed", ErrMinionID, shorten(s), r)
		}
	}
	return MinionID(s), nil
}

// IsIDCharacter reports whether the id of a minion may contain the character.
func IsIDCharacter(r rune) bool {
	return isASCIIAlnum(r) || strings.ContainsRune("._-@+:=~%", r)
}

// ParseClientName checks that s can name a client: 1 to 64 letters, digits, dots, hyphens and
// underscores, beginning with a letter or a digit, so that it is safe as a file name and in a
// configuration.
func ParseClientName(s string) (ClientName, error) {
	if s == "" || len(s) > 64 || !isASCIIAlnum(rune(s[0])) {
		return "", fmt.Errorf("%w %q: it has 1 to 64 characters and begins with a letter or a digit", ErrClientName, shorten(s))
	}
	for _, r := range s {
		if !isASCIIAlnum(r) && !strings.ContainsRune("._-", r) {
			return "", fmt.Errorf("%w %q: the character %q is not allowed", ErrClientName, shorten(s), r)
		}
	}
	return ClientName(s), nil
}

// ParseFunction checks that s has the form module.function, each part letters,
// digits and underscores, not beginning with a digit.
func ParseFunction(s string) (Function, error) {
	module, name, ok := strings.Cut(s, ".")
	if len(s) > 128 || !ok || !isIdentifier(module) || !isIdentifier(name) {
		return "", fmt.Errorf("%w %q: a function is written module.function, for example test.ping", ErrFunction, shorten(s))
	}
	return Function(s), nil
}

// Module returns the part of the name before the dot.
func (f Function) Module() string {
	module, _, _ := strings.Cut(string(f), ".")
	return module
}

// Name returns the part of the name after the dot.
func (f Function) Name() string {
	_, name, _ := strings.Cut(string(f), ".")
	return name
}

// ParseUserName checks that s can name a user: 1 to 255 bytes of printable text without colon,
// slash, comma or blanks, not beginning with a hyphen. Names from a directory may contain letters
// beyond ASCII, a domain and a backslash, as in EXAMPLE\fred.
func ParseUserName(s string) (UserName, error) {
	if s == "" || len(s) > 255 || s[0] == '-' {
		return "", fmt.Errorf("%w %q", ErrUserName, shorten(s))
	}
	for _, r := range s {
		if r <= ' ' || r == 0x7f || r == 0xfffd || strings.ContainsRune(":/,", r) {
			return "", fmt.Errorf("%w %q: the character %q is not allowed", ErrUserName, shorten(s), r)
		}
	}
	return UserName(s), nil
}

// jidLayout is the time in a jid without its microseconds.
const jidLayout = "20060102150405"

// NewJID returns the job id for the time t. Two jobs in one microsecond would get the same id: the
// caller must pass different times.
func NewJID(t time.Time) JID {
	t = t.UTC()
	return JID(fmt.Sprintf("%s%06d", t.Format(jidLayout), t.Nanosecond()/1000))
}

// ParseJID checks that s has twenty digits that form a time.
func ParseJID(s string) (JID, error) {
	j := JID(s)
	if _, err := j.Time(); err != nil {
		return "", err
	}
	return j, nil
}

// Time returns the time that the id was created for, in UTC.
func (j JID) Time() (time.Time, error) {
	if len(j) != 20 {
		return time.Time{}, j.bad()
	}
	micro := 0
	for i, c := range []byte(j) {
		if c < '0' || c > '9' {
			return time.Time{}, j.bad()
		}
		if i >= 14 {
			micro = micro*10 + int(c-'0')
		}
	}
	t, err := time.Parse(jidLayout, string(j[:14]))
	if err != nil {
		return time.Time{}, j.bad()
	}
	return t.Add(time.Duration(micro) * time.Microsecond), nil
}

func (j JID) bad() error {
	return fmt.Errorf("%w %q: a jid has twenty digits, for example 20261121113344286549", ErrJID, shorten(string(j)))
}

func isIdentifier(s string) bool {
	for i, r := range s {
		if r != '_' && !isASCIIAlnum(r) || i == 0 && r >= '0' && r <= '9' {
			return false
		}
	}
	return s != ""
}

func isASCIIAlnum(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// shorten limits foreign text in a message to one readable line.
func shorten(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}
