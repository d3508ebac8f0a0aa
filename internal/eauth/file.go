package eauth

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// maxFile limits the file of users: enough for tens of thousands of lines.
const maxFile = 16 << 20

// passwordFile is a file with one user in each line: of htpasswd, or with its own separator and
// fields. It is read again for each login.
type passwordFile struct {
	name         string
	kind         string // htpasswd, plaintext, or a key of digests
	separator    string
	user, secret int // field indexes, from 0
	trustedUID   int
}

// newPasswordFile reads the options below external_auth: file; their names begin with ^ as in Salt.
func newPasswordFile(o options, under func(string) string) (Backend, error) {
	f := &passwordFile{kind: "htpasswd", separator: ":", user: 0, secret: 1, trustedUID: os.Geteuid()}
	var err error
	if f.name, err = o.text("^filename", ""); err != nil {
		return nil, err
	}
	if f.name == "" {
		return nil, salt.WithHint(errors.New("^filename is not set: the file of users"), "as in ^filename: /etc/salt/users")
	}
	f.name = under(f.name)
	if f.kind, err = o.text("^hashtype", f.kind); err != nil {
		return nil, err
	}
	if err := checkKind(f.kind); err != nil {
		return nil, o.at("^hashtype", err)
	}
	if f.separator, err = o.text("^field_separator", f.separator); err != nil {
		return nil, err
	}
	if f.separator == "" {
		return nil, o.at("^field_separator", errors.New("it is empty"))
	}
	user, err := o.number("^username_field", 1, 1, 1000)
	if err != nil {
		return nil, err
	}
	secret, err := o.number("^password_field", 2, 1, 1000)
	f.user, f.secret = user-1, secret-1
	return f, err
}

func checkKind(kind string) error {
	switch {
	case kind == "htpasswd", kind == "plaintext", digests[kind] != nil:
		return nil
	case kind == "md5" || kind == "sha1":
		return salt.WithHint(fmt.Errorf("%s is easily cracked, and is refused", kind), "make the passwords anew with 'htpasswd -B', and leave ^hashtype out")
	}
	return salt.WithHint(fmt.Errorf("%q is not a kind of file", kind), "the kinds are htpasswd, sha256, sha384, sha512 and plaintext")
}

// Verify implements Backend.
func (f *passwordFile) Verify(_ context.Context, user string, p Proof) (Account, error) {
	entry, other, err := f.find(user)
	if err != nil {
		return Account{}, err
	}
	if entry == "" {
		_, _ = f.match(other, p.Secret) // so that an unknown user takes as long
		return Account{}, fmt.Errorf("%w: %s has no such user", ErrRefused, f.name)
	}
	ok, err := f.match(entry, p.Secret)
	if err != nil {
		return Account{}, fmt.Errorf("%w: the entry of %s in %s: %w", ErrRefused, user, f.name, err)
	}
	if !ok {
		return Account{}, fmt.Errorf("%w: it is not the password in %s", ErrRefused, f.name)
	}
	return Account{Name: user, Version: entry}, nil
}

// Look implements Backend.
func (f *passwordFile) Look(_ context.Context, user string) (Account, error) {
	entry, _, err := f.find(user)
	if err != nil {
		return Account{}, err
	}
	if entry == "" {
		return Account{}, fmt.Errorf("%w: %s has no such user", ErrRefused, f.name)
	}
	return Account{Name: user, Version: entry}, nil
}

func (f *passwordFile) match(entry, secret string) (bool, error) {
	switch {
	case f.kind == "plaintext":
		return same(entry, secret), nil
	case digests[f.kind] != nil:
		return matchDigest(digests[f.kind], entry, secret), nil
	}
	return matchCrypt(entry, secret)
}

// find returns the entry of the user, "" for none, and the entry of some other user. If a user has
// two entries, the first counts, as in Apache.
func (f *passwordFile) find(user string) (entry, other string, err error) {
	b, err := f.read()
	if err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	scan := bufio.NewScanner(bytes.NewReader(b))
	scan.Buffer(nil, 64<<10)
	for scan.Scan() {
		line := strings.TrimRight(scan.Text(), "\r")
		fields := strings.Split(line, f.separator)
		if strings.HasPrefix(line, "#") || len(fields) <= max(f.user, f.secret) {
			continue
		}
		secret := fields[f.secret]
		switch {
		case secret == "":
		case fields[f.user] == user:
			return secret, "", nil
		case other == "":
			other = secret
		}
	}
	return "", other, scan.Err()
}

// read returns the file if nobody else may change it or read its hashes.
func (f *passwordFile) read() ([]byte, error) {
	file, err := os.OpenFile(f.name, os.O_RDONLY|posix.NoWaiting, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if err := f.trust(info); err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	b, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s: it is larger than %d bytes", f.name, maxFile)
	}
	return b, err
}

func (f *passwordFile) trust(info os.FileInfo) error {
	owner, mode, err := posix.Owner(f.name, info)
	switch {
	case !info.Mode().IsRegular():
		return errors.New("it is not a regular file")
	case err != nil || owner != 0 && owner != f.trustedUID:
		return errors.New("it belongs to somebody other than root or the master's user")
	case mode.Perm()&0o022 != 0:
		return fmt.Errorf("its mode %04o lets others than its owner write", mode.Perm())
	case mode.Perm()&0o004 != 0:
		return fmt.Errorf("its mode %04o lets everybody read the hashes: chmod o-r", mode.Perm())
	}
	return nil
}
