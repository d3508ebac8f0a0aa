package pki

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// Errors of the store for callers to test for.
var (
	// ErrFull means that a key was not stored since too many are waiting already.
	ErrFull = errors.New("too many keys are waiting")
	// ErrGone means that the key is no longer in the state that the caller has seen.
	ErrGone = errors.New("the key is no longer there")
	// ErrTaken means that the id has another accepted key.
	ErrTaken = errors.New("another key is accepted for this id")
	// ErrUnread means that the system could not read a key file, which is there: what was known
	// of its key may still hold. A file that could be read and is no usable key is no such case.
	ErrUnread = errors.New("the key file cannot be read now")
)

// Entry is a stored key of a minion.
type Entry struct {
	ID       salt.MinionID
	State    State
	Key      PublicKey
	Path     string
	Modified time.Time
}

// Name returns the name of the key.
func (e Entry) Name() Name { return Name{e.ID, e.Key.SHA256()} }

// Name identifies a key of an id, by its default fingerprint.
type Name struct {
	ID     salt.MinionID `json:"id"`
	Finger string        `json:"finger"`
}

// Problem is a file in the store without a usable key.
type Problem struct {
	Path  string
	Err   error         // wraps ErrUnread if the file may have one
	ID    salt.MinionID // whose key it would be; "" if the name of the file is not that of one
	State State         // of its directory
}

// Unread reports whether the file may have a usable key: it could only not be read now.
func (p Problem) Unread() bool { return errors.Is(p.Err, ErrUnread) }

// Store is the key store of a master, in the directories below pki_dir. Many goroutines and
// processes may use it at once.
type Store struct {
	dir    string
	owners []uint32 // users whose files are trusted

	busy    sync.Mutex // held with the lock, so that one goroutine of this process takes it at a time
	waiting *waiting   // guarded by the exclusive lock; nil until first used

	// GivesWay is called with a waiting key that was removed to make room for another. It is
	// set before the store is used.
	GivesWay func(Entry)
	// Most and MostOfHost limit the waiting keys; they are set like GivesWay. 0 means
	// MaxWaiting and MaxWaitingOfHost.
	Most, MostOfHost int
}

// Dir is the directory of the store.
func (s *Store) Dir() string { return s.dir }

// OpenStore opens the store of a daemon. It makes missing directories, and closes those that
// are open to others.
func OpenStore(pkiDir string) (*Store, error) {
	if err := ensureDir(pkiDir); err != nil {
		return nil, err
	}
	for _, p := range places {
		if err := ensureDir(filepath.Join(pkiDir, p.dir)); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{autosignDir, clientsDir} {
		if err := ensureDir(filepath.Join(pkiDir, dir)); err != nil {
			return nil, err
		}
	}
	return OpenExistingStore(pkiDir)
}

// OpenExistingStore opens the store for a tool, which must not create one at a mistyped path: a
// missing pkiDir is an error that wraps fs.ErrNotExist; one that cannot be entered,
// fs.ErrPermission. Missing state directories count as empty.
func OpenExistingStore(pkiDir string) (*Store, error) {
	d, err := os.Open(pkiDir)
	if err != nil {
		return nil, fmt.Errorf("key directory %s: %w", pkiDir, bareCause(err))
	}
	defer d.Close()
	info, err := d.Stat()
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("key directory %s: %w", pkiDir, syscall.ENOTDIR)
	}
	// The owner of the directory can put any file there anyway. So root's salt-key can use the
	// store of a master that runs as another user.
	owner, _, err := ownerOf(pkiDir, info)
	if err != nil {
		return nil, err
	}
	owners := append(ownOwners(), owner)
	return &Store{dir: pkiDir, owners: owners}, nil
}

// Lookup returns the state of exactly this key under this id: Accepted only if it is the
// accepted key of the id; Denied if another key holds the id (as accepted, pending or
// rejected); Unknown if none does. If a file of the id cannot be read, the state is Denied,
// with the error. It costs a few file reads and, except for Unknown, no lock.
func (s *Store) Lookup(id salt.MinionID, key PublicKey) (State, error) {
	found, state, err := s.look(id, key)
	if found || err != nil {
		return state, err
	}
	// The key may just have moved from a directory not read yet to one already read.
	unlock, err := s.lock(posix.Shared)
	if err != nil {
		return Denied, err
	}
	defer unlock()
	_, state, err = s.look(id, key)
	return state, err
}

// look is one try of Lookup; found reports that the key itself is in the store.
func (s *Store) look(id salt.MinionID, key PublicKey) (found bool, state State, err error) {
	if id == "" || key.IsZero() {
		return false, Denied, errors.New("look up a key: no id or no key")
	}
	for _, p := range places {
		for _, name := range p.names(id) {
			switch there, err := s.readIn(p, name); {
			case err != nil:
				return false, Denied, err
			case there == key:
				return true, p.state, nil
			case !there.IsZero() && p.state != Denied:
				state = Denied // a denied key does not hold the id: anybody can cause one
			}
		}
	}
	return false, state, nil
}

// readIn is read for a file of a state directory. Where files are not synced, an empty file,
// which a power cut can leave, counts as missing.
func (s *Store) readIn(p place, name string) (PublicKey, error) {
	path := filepath.Join(s.dir, p.dir, name)
	key, err := s.read(path)
	if err != nil && p.lossy() {
		if info, e := os.Lstat(path); e == nil && info.Mode().IsRegular() && info.Size() == 0 {
			return PublicKey{}, nil
		}
	}
	return key, err
}

// read returns the key in a file of the store, or the zero key if there is no file.
func (s *Store) read(path string) (PublicKey, error) {
	text, err := readKeyFile(path, othersWrite, s.owners)
	var key PublicKey
	if err == nil {
		key, err = ParsePublic(text)
	}
	if err != nil {
		return PublicKey{}, fileError(path, err)
	}
	return key, nil
}

// fileError returns what is wrong with a file of the store after an error; nil if there is no file. A process out of
// descriptors gets the same error whether there is one or not.
func fileError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !ofSystem(err) {
		return keyFileError("public", path, err)
	}
	switch info, bad := os.Stat(path); {
	case errors.Is(bad, fs.ErrNotExist):
		return nil
	case bad == nil && !info.Mode().IsRegular():
		return keyFileError("public", path, err)
	}
	return &unreadError{fmt.Errorf("public key %s: %w", path, bareCause(err))}
}

// ofSystem reports whether an error says nothing about a file, but that it could not be read, which may
// pass. A missing permission does not: somebody has taken it away.
func ofSystem(err error) bool {
	var bad *fs.PathError
	return errors.As(err, &bad) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission)
}

// unreadError is an ErrUnread with the text of its cause.
type unreadError struct{ error }

func (e *unreadError) Is(target error) bool { return target == ErrUnread }

func (e *unreadError) Unwrap() error { return e.error }

// List returns all keys, sorted by id and state, and the files without a usable key.
func (s *Store) List() ([]Entry, []Problem, error) {
	unlock, err := s.lock(posix.Shared)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	var entries []Entry
	var problems []Problem
	for _, p := range places {
		found, bad, err := s.listPlace(p)
		if err != nil {
			return nil, nil, err
		}
		entries, problems = append(entries, found...), append(problems, bad...)
	}
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.State, b.State), cmp.Compare(a.Path, b.Path))
	})
	return entries, problems, nil
}

func (s *Store) listPlace(p place) (entries []Entry, problems []Problem, err error) {
	names, err := readNames(filepath.Join(s.dir, p.dir))
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		e, err := s.entry(p, name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed by hand in the meantime
		case err != nil:
			id, _ := p.parseName(name)
			problems = append(problems, Problem{filepath.Join(s.dir, p.dir, name), err, id, p.state})
		default:
			entries = append(entries, e)
		}
	}
	return entries, problems, nil
}

func (s *Store) entry(p place, name string) (Entry, error) {
	path := filepath.Join(s.dir, p.dir, name)
	id, err := p.parseName(name)
	if err != nil {
		return Entry{}, fmt.Errorf("key file %s: %w", path, err)
	}
	key, err := s.read(path)
	if err != nil {
		return Entry{}, err
	}
	if key.IsZero() {
		return Entry{}, fs.ErrNotExist
	}
	return Entry{ID: id, State: p.state, Key: key, Path: path, Modified: modified(path)}, nil
}

// modified returns the zero time if it is not known.
func modified(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// readNames lists a state directory without its temporary files.
func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("key directory %s: %w", dir, bareCause(err))
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	slices.Sort(names)
	return slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, ".") }), err
}

// Submission is the key of a minion that connects.
type Submission struct {
	ID  salt.MinionID
	Key PublicKey
	// Host is where it comes from; each host has a limit of its own for waiting keys.
	Host string
	// Decided means that rules are about to decide about the key: it is stored even if there is
	// no room.
	Decided bool
	// Here reports whether the holder of a key is connected; nil means that none is. Such keys
	// are not removed to make room for others.
	Here func(PublicKey) bool
	// As is the state that a new key gets, Pending or Denied; Unknown leaves that to the store.
	As State
}

// Submit is SubmitFrom without a host.
func (s *Store) Submit(id salt.MinionID, key PublicKey) (State, error) {
	state, _, err := s.SubmitFrom(Submission{ID: id, Key: key})
	return state, err
}

// SubmitFrom returns the state of the key of a minion that connects, and records a new key: as
// pending if the id is free, as denied if another key holds it. Calling it again changes
// nothing. If there is no room, the key that was not seen for the longest time is removed; if
// none can be, the state is Denied, with an error that wraps ErrFull.
func (s *Store) SubmitFrom(k Submission) (state State, isNew bool, err error) {
	found, state, err := s.look(k.ID, k.Key)
	if err != nil || found && state != Pending && state != Denied {
		return state, false, err
	}
	unlock, err := s.lock(posix.Exclusive)
	if err != nil {
		return Denied, false, err
	}
	defer unlock()
	found, state, err = s.look(k.ID, k.Key)
	if err != nil {
		return state, false, err
	}
	if err := s.countWaiting(); err != nil {
		return Denied, false, err
	}
	if found {
		s.waiting.seen(k.ID, k.Key, k.Host)
		return state, false, nil
	}
	if state == Unknown {
		state = Pending
	}
	if k.As != Unknown {
		state = k.As
	}
	if err := s.record(k, state); err != nil {
		return Denied, true, fmt.Errorf("record the key of minion %q as %s: %w", k.ID, state, err)
	}
	return state, true, nil
}

func (s *Store) record(k Submission, state State) error {
	p, _ := placeOf(state)
	path, err := s.freeName(p, k.ID)
	if err != nil {
		return err
	}
	if !k.Decided {
		if err := s.evict(k); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return err
	}
	// It is not synced: its holder will submit it again, and anybody can submit one.
	if err := atomicfile.Place(path, k.Key.PEM(), publicMode); err != nil {
		return err
	}
	s.waiting.add(waitingKey{k.ID, k.Key, state, k.Host})
	return nil
}

// freeName returns the path for one more key of id, or ErrFull.
func (s *Store) freeName(p place, id salt.MinionID) (string, error) {
	for _, name := range p.names(id) {
		path := filepath.Join(s.dir, p.dir, name)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && p.lossy() && info.Mode().IsRegular() && info.Size() == 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: %d keys of this id are %s", ErrFull, len(p.names(id)), p.state)
}

// Accept makes e the accepted key of its id. If another key is, the error wraps ErrTaken: an
// operator must delete or reject that one first. Accepting an accepted key does nothing.
func (s *Store) Accept(e Entry) error { return s.move(e, Accepted) }

// Reject makes the master refuse the key of e from now on. It does not affect other keys of the
// same id.
func (s *Store) Reject(e Entry) error { return s.move(e, Rejected) }

// Suspend makes a pending key denied, or a denied one pending, which it cannot be while another key of
// the id is pending. If too many keys of the id are denied already, the error wraps ErrFull.
func (s *Store) Suspend(e Entry, as State) error { return s.move(e, as) }

func (s *Store) move(e Entry, to State) error {
	unlock, err := s.lock(posix.Exclusive)
	if err != nil {
		return err
	}
	defer unlock()
	from, err := s.locate(e)
	if err != nil || e.State == to {
		return err
	}
	target, err := s.target(e, to)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), dirMode); err != nil {
		return err
	}
	// A waiting key was not synced, see record. One that is decided will not be submitted
	// again.
	if err := posix.SyncPath(from); err != nil {
		return fmt.Errorf("sync the key of minion %q: %w", e.ID, err)
	}
	if err := os.Rename(from, target); err != nil {
		return fmt.Errorf("move the key of minion %q: %w", e.ID, err)
	}
	// A copy in another state, put there by hand, would contradict the decision.
	if err := s.removeCopies(e, target); err != nil {
		return err
	}
	return errors.Join(posix.SyncPath(filepath.Dir(target)), posix.SyncPath(filepath.Dir(from)))
}

// locate returns the file with the key of e in the state of e. It does not use the path in e,
// which may be outdated.
func (s *Store) locate(e Entry) (string, error) {
	p, ok := placeOf(e.State)
	if _, err := salt.ParseMinionID(string(e.ID)); err != nil || !ok || e.Key.IsZero() {
		return "", fmt.Errorf("key of minion %q in state %s: %w", e.ID, e.State, ErrGone)
	}
	var unread error
	for _, name := range p.names(e.ID) {
		path := filepath.Join(s.dir, p.dir, name)
		key, err := s.read(path)
		switch {
		case errors.Is(err, ErrUnread):
			unread = err
		case err == nil && key == e.Key:
			return path, nil
		}
	}
	if unread != nil {
		return "", unread // it may be there
	}
	return "", salt.WithHint(fmt.Errorf("%s key %s of minion %q: %w", e.State, e.Key, e.ID, ErrGone),
		"somebody else was faster; look at the keys again with: salt-key -L")
}

// target returns the path for the key of e in the state to.
func (s *Store) target(e Entry, to State) (string, error) {
	p, _ := placeOf(to)
	path, err := s.freeName(p, e.ID)
	if err == nil {
		return path, nil
	}
	if p.several {
		return "", salt.WithHint(fmt.Errorf("minion %q: %w", e.ID, err),
			fmt.Sprintf("delete some of them first with: salt-key -d %s@FINGERPRINT", e.ID))
	}
	path = filepath.Join(s.dir, p.dir, string(e.ID))
	held, err := s.read(path)
	if err != nil || held == e.Key {
		return path, err
	}
	return "", salt.WithHint(fmt.Errorf("minion %q: %w: %s", e.ID, ErrTaken, held),
		fmt.Sprintf("if that key is to go, delete it first with: salt-key -d %s@%s", e.ID, held))
}

// removeCopies removes the key of e from all files of its id except keep.
func (s *Store) removeCopies(e Entry, keep string) error {
	for _, p := range places {
		for _, name := range p.names(e.ID) {
			path := filepath.Join(s.dir, p.dir, name)
			if key, err := s.read(path); path == keep || err != nil || key != e.Key {
				continue
			}
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// Delete deletes the key of e: if it is seen again, it is new. It does not affect other keys of
// the same id.
func (s *Store) Delete(e Entry) error {
	unlock, err := s.lock(posix.Exclusive)
	if err != nil {
		return err
	}
	defer unlock()
	path, err := s.locate(e)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("delete the key of minion %q: %w", e.ID, err)
	}
	return posix.SyncPath(filepath.Dir(path))
}

// lock takes the lock that all processes with this store share.
func (s *Store) lock(how posix.LockMode) (func(), error) {
	s.busy.Lock()
	unlock, err := lockDir(s.dir, how)
	if err != nil {
		s.busy.Unlock()
		return nil, err
	}
	return func() {
		unlock()
		s.busy.Unlock()
	}, nil
}
