package pki

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// clientsDir is the directory of the store with the keys of clients: programs that are not
// minions and have rights on events only. Every key in it is accepted: only an operator adds
// one, and nobody can request it.
const clientsDir = "clients"

// Client is the key of a program that may connect.
type Client struct {
	Name    salt.ClientName
	Key     PublicKey
	Expires time.Time // from when on the key is refused; zero is never
}

// expiresHeader is in the header of the PEM block: RFC 3339, in UTC.
const expiresHeader = "Expires"

// Expired reports whether the key is refused at the time now.
func (c Client) Expired(now time.Time) bool { return !c.Expires.IsZero() && !now.Before(c.Expires) }

func (s *Store) clientPath(name salt.ClientName) string {
	return filepath.Join(s.dir, clientsDir, string(name))
}

// AddClient accepts the key of c. If the name has a key already, it is kept and the error is
// fs.ErrExist.
func (s *Store) AddClient(c Client) error {
	if _, err := salt.ParseClientName(string(c.Name)); err != nil {
		return err
	}
	if c.Key.IsZero() {
		return errors.New("a client without a key")
	}
	dir := filepath.Join(s.dir, clientsDir)
	if err := s.ensureClients(dir); err != nil {
		return err
	}
	block := &pem.Block{Type: pemPublic, Bytes: []byte(c.Key.der)}
	if !c.Expires.IsZero() {
		block.Headers = map[string]string{expiresHeader: c.Expires.UTC().Format(time.RFC3339)}
	}
	return writeNew(s.clientPath(c.Name), pem.EncodeToMemory(block), publicMode)
}

// ensureClients makes the directory for the owner of the store: root may add to the store of a
// master that runs as another user.
func (s *Store) ensureClients(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeDir(dir); err != nil {
		return err
	}
	info, err := os.Stat(s.dir)
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	owner, _, err := ownerOf(s.dir, info)
	if err != nil {
		return err
	}
	return os.Chown(dir, int(owner), -1)
}

// RemoveClient removes the key of a client. If there is none, the error is fs.ErrNotExist.
func (s *Store) RemoveClient(name salt.ClientName) error {
	if _, err := salt.ParseClientName(string(name)); err != nil {
		return err
	}
	if err := os.Remove(s.clientPath(name)); err != nil {
		return fmt.Errorf("remove the key of client %q: %w", name, bareCause(err))
	}
	return posix.SyncPath(filepath.Join(s.dir, clientsDir))
}

// Client returns the key of a client; if there is none, the error is fs.ErrNotExist.
func (s *Store) Client(name salt.ClientName) (Client, error) {
	if _, err := salt.ParseClientName(string(name)); err != nil {
		return Client{}, err
	}
	path := s.clientPath(name)
	text, err := readKeyFile(path, othersWrite, s.owners)
	if err != nil {
		return Client{}, keyFileError("public", path, err)
	}
	c := Client{Name: name}
	if c.Key, err = ParsePublic(text); err == nil {
		c.Expires, err = expiryOf(text)
	}
	if err != nil {
		return Client{}, keyFileError("public", path, err)
	}
	return c, nil
}

// expiryOf reads the header of a PEM block. An unreadable one is an error: it must not make a
// key valid for longer.
func expiryOf(text []byte) (time.Time, error) {
	block, err := onlyBlock(text)
	if err != nil || block.Headers[expiresHeader] == "" {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339, block.Headers[expiresHeader])
	if err != nil {
		return time.Time{}, fmt.Errorf("it expires at %q, which is not a time", block.Headers[expiresHeader])
	}
	return t, nil
}

// Clients returns the keys of all clients, sorted by name, and the files without a usable key.
func (s *Store) Clients() (list []Client, problems []Problem, err error) {
	names, err := readNames(filepath.Join(s.dir, clientsDir))
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		c, err := s.Client(salt.ClientName(name))
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			problems = append(problems, Problem{Path: s.clientPath(salt.ClientName(name)), Err: err})
		default:
			list = append(list, c)
		}
	}
	return list, problems, nil
}
