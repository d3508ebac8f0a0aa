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

// clientsDir is the directory of the store with the keys of clients: programs
// that are no minions and have no rights but on events. A key in it is accepted;
// there are no other states, since an operator makes it and nobody asks for it.
const clientsDir = "clients"

// Client is the key of a program that may connect.
type Client struct {
	Name    salt.ClientName
	Key     PublicKey
	Expires time.Time // when the key is refused from; zero is never
}

// expiresHeader is in the head of the PEM block: RFC 3339, in UTC.
const expiresHeader = "Expires"

// Expired says whether the key is to be refused at the moment now.
func (c Client) Expired(now time.Time) bool { return !c.Expires.IsZero() && !now.Before(c.Expires) }

func (s *Store) clientPath(name salt.ClientName) string {
	return filepath.Join(s.dir, clientsDir, string(name))
}

// AddClient makes the key of c accepted. One that its name has already is left:
// the error is then fs.ErrExist.
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

// ensureClients makes the directory in the name of whose store it is: root may
// add to the store of a master that runs as a user of its own.
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

// RemoveClient forgets the key of a client. Without one the error is
// fs.ErrNotExist.
func (s *Store) RemoveClient(name salt.ClientName) error {
	if _, err := salt.ParseClientName(string(name)); err != nil {
		return err
	}
	if err := os.Remove(s.clientPath(name)); err != nil {
		return fmt.Errorf("remove the key of client %q: %w", name, bareCause(err))
	}
	return posix.SyncPath(filepath.Join(s.dir, clientsDir))
}

// Client returns the key of a client; without one the error is fs.ErrNotExist.
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

// expiryOf reads the head of a PEM block. What cannot be read there is an error:
// a key must not live longer for it.
func expiryOf(text []byte) (time.Time, error) {
	block, err := onlyBlock(text)
	if err != nil || block.Headers[expiresHeader] == "" {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339, block.Headers[expiresHeader])
	if err != nil {
		return time.Time{}, fmt.Errorf("it expires at %q, which is no moment", block.Headers[expiresHeader])
	}
	return t, nil
}

// Clients returns the keys of all clients, sorted by name, and the files that
// hold none.
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
			problems = append(problems, Problem{s.clientPath(salt.ClientName(name)), err})
		default:
			list = append(list, c)
		}
	}
	return list, problems, nil
}
