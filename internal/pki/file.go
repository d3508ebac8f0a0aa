package pki

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// Modes of written files, set exactly whatever the umask is. Salt sets the same, except for the
// directories below pki, which it leaves at 0755.
const (
	privateMode fs.FileMode = 0o400
	publicMode  fs.FileMode = 0o644
	dirMode     fs.FileMode = 0o700
)

// maxKeyFile limits what is read of a key file: an RSA key of MaxRSABits takes less than 7 KiB.
const maxKeyFile = 64 << 10

const (
	othersAccess fs.FileMode = 0o077 // must not be set on a private key
	othersWrite  fs.FileMode = 0o022 // must not be set on a public key or a directory
)

// LoadPrivate reads a private key. It refuses a file that is not regular, that belongs to a
// user other than root and that of this process, or that others may read or write: a key that
// others could read proves no identity. The error has a hint and wraps fs.ErrNotExist,
// fs.ErrPermission or the cause.
func LoadPrivate(path string) (*PrivateKey, error) {
	text, err := readKeyFile(path, othersAccess, ownOwners())
	if err == nil {
		var key *PrivateKey
		if key, err = ParsePrivate(text); err == nil {
			return key, nil
		}
	}
	return nil, keyFileError("private", path, err)
}

// LoadPublic reads a public key. Everybody may be allowed to read the file, but only root and
// the user of this process may be able to replace its content.
func LoadPublic(path string) (PublicKey, error) {
	return loadPublic(path, ownOwners())
}

// ReadSecret reads a file with a secret that is not a key in PEM. It is refused, as that of a private key is,
// if it is not a regular file, is of another user, or if others may read it.
func ReadSecret(path string) ([]byte, error) { return readKeyFile(path, othersAccess, ownOwners()) }

func loadPublic(path string, owners []uint32) (PublicKey, error) {
	text, err := readKeyFile(path, othersWrite, owners)
	if err == nil {
		var key PublicKey
		if key, err = ParsePublic(text); err == nil {
			return key, nil
		}
	}
	return PublicKey{}, keyFileError("public", path, err)
}

func ownOwners() []uint32 { return []uint32{0, uint32(os.Geteuid())} }

// ErrUnsafe is wrapped by the error about a key file that another user could have read or
// written.
var ErrUnsafe = errors.New("the file is not safe from others")

// unsafeError is an ErrUnsafe with another text.
type unsafeError struct{ text string }

func (e *unsafeError) Error() string { return e.text }

func (e *unsafeError) Is(target error) bool { return target == ErrUnsafe }

func unsafef(format string, args ...any) error { return &unsafeError{fmt.Sprintf(format, args...)} }

// keyFileError puts the path before the cause, and keeps its hint.
func keyFileError(kind, path string, err error) error {
	err = bareCause(err)
	hint := salt.Hint(err)
	if hint == "" {
		hint = keyFileHint(kind, path, err)
	}
	return salt.WithHint(fmt.Errorf("%s key %s: %w", kind, path, err), hint)
}

func keyFileHint(kind, path string, err error) string {
	dir, name := filepath.Dir(path), filepath.Base(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		base := name[:len(name)-len(filepath.Ext(name))]
		return fmt.Sprintf("check the path, or make a key pair with: salt-key --gen-keys=%s --gen-keys-dir=%s", base, dir)
	case errors.Is(err, fs.ErrPermission):
		return posix.DeniedHint(path, "run this as root or as the owner of the file")
	case errors.Is(err, ErrEncrypted):
		return fmt.Sprintf("decrypt it with: openssl pkey -in %s -out NEWFILE", path)
	case errors.Is(err, ErrWantedSecret):
		return "private keys are in files ending in .pem, public ones in .pub"
	case errors.Is(err, ErrWantedPublic):
		return fmt.Sprintf("write its public half with: openssl pkey -in %s -pubout -out NEWFILE", path)
	case errors.Is(err, ErrKeySize), errors.Is(err, ErrKeyType):
		return "make a new key pair with salt-key --gen-keys"
	}
	return fmt.Sprintf("the file should hold one %s key in PEM and nothing else", kind)
}

// readKeyFile opens without blocking, so that a FIFO cannot stop us, and checks the opened
// file, not its name, so that it cannot be replaced in between.
func readKeyFile(path string, forbidden fs.FileMode, owners []uint32) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|posix.NoWaiting, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := checkKeyFile(path, info, forbidden, owners); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("it is longer than %d bytes, too long for a key", maxKeyFile)
	}
	return text, err
}

func checkKeyFile(path string, info fs.FileInfo, forbidden fs.FileMode, owners []uint32) error {
	switch {
	case info.IsDir():
		return salt.WithHint(errors.New("it is a directory"), "name the file in it")
	case !info.Mode().IsRegular():
		return salt.WithHint(errors.New("it is not a regular file"), "copy the key into an ordinary file")
	}
	owner, mode, err := ownerOf(path, info)
	if err != nil {
		return err
	}
	if !slices.Contains(owners, owner) {
		return salt.WithHint(unsafef("it belongs to user %d, who is neither root nor the user of this process", owner),
			fmt.Sprintf("if you trust its content: chown %d %s", os.Geteuid(), path))
	}
	if mode&forbidden == 0 {
		return nil
	}
	if forbidden == othersAccess {
		return salt.WithHint(unsafef("others may access it, its mode is %04o", mode),
			fmt.Sprintf("chmod 0400 %s (and replace the key if others could have read it)", path))
	}
	return salt.WithHint(unsafef("others may write it, its mode is %04o", mode),
		fmt.Sprintf("check its content, then: chmod 0644 %s", path))
}

// ownerOf returns the owner of the file, and its mode.
func ownerOf(path string, info fs.FileInfo) (uint32, fs.FileMode, error) {
	uid, mode, err := posix.Owner(path, info)
	return uint32(uid), mode.Perm(), err
}

// EnsurePair loads the key pair name.pem and name.pub of dir and makes what is missing: the
// directory with mode 0700, the key of type t (see Generate), and the public key. created is
// true if the key is new. A directory of ours that is open to others is closed. If two
// processes call it at once, both get the same key.
//
// A public key without its private key is an error and not overwritten: the private key may
// only be misplaced, and everybody who has pinned it would have to be informed.
func EnsurePair(dir, name string, t KeyType, bits int) (key *PrivateKey, created bool, err error) {
	if err := ensureDir(dir); err != nil {
		return nil, false, err
	}
	private, public := filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".pub")
	key, err = LoadPrivate(private)
	if errors.Is(err, fs.ErrNotExist) {
		key, created, err = createPrivate(private, public, t, bits)
	}
	if err != nil {
		return nil, false, err
	}
	return key, created, ensurePublic(public, key.Public())
}

// CheckPair returns the public key of the pair that EnsurePair would load, or its error. It changes nothing: there is false if
// EnsurePair would make the key.
func CheckPair(dir, name string) (key PublicKey, there bool, err error) {
	private, public := filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".pub")
	k, err := LoadPrivate(private)
	if errors.Is(err, fs.ErrNotExist) {
		return key, false, refuseOrphan(private, public)
	}
	if err != nil {
		return key, false, err
	}
	if err := comparePublic(public, k.Public()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return key, true, err
	}
	return k.Public(), true, nil
}

// WritePair writes k as name.pem and name.pub into dir. dir is made with mode 0700 if it is
// missing; otherwise its mode is left alone, since it may be any directory, such as the working
// directory. An existing name.pem is never overwritten; the error then is fs.ErrExist.
func (k *PrivateKey) WritePair(dir, name string) error {
	if err := makeDir(dir); err != nil {
		return err
	}
	private, public := filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".pub")
	if err := refuseOrphan(private, public); err != nil {
		return err
	}
	if err := writeNew(private, k.PEM(), privateMode); err != nil {
		return err
	}
	return ensurePublic(public, k.Public())
}

func createPrivate(private, public string, t KeyType, bits int) (key *PrivateKey, created bool, err error) {
	if err := refuseOrphan(private, public); err != nil {
		return nil, false, err
	}
	if key, err = Generate(t, bits); err != nil {
		return nil, false, err
	}
	err = writeNew(private, key.PEM(), privateMode)
	if errors.Is(err, fs.ErrExist) { // another process was faster
		key, err = LoadPrivate(private)
		return key, false, err
	}
	return key, err == nil, err
}

// refuseOrphan looks for the private key only after it has seen the public one, so that a pair
// that another process is just writing does not count as an orphan.
func refuseOrphan(private, public string) error {
	if _, err := os.Lstat(public); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Lstat(private); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return salt.WithHint(fmt.Errorf("public key %s: its private half %s is missing", public, private),
		fmt.Sprintf("put %s back, or remove %s to start over with a new key", private, public))
}

// ensurePublic makes path hold key, and refuses to replace another one.
func ensurePublic(path string, key PublicKey) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return atomicfile.Write(path, key.PEM(), publicMode)
	}
	if err != nil {
		return err
	}
	if err := comparePublic(path, key); err != nil {
		return err
	}
	if info.Mode().Perm()&othersWrite == 0 {
		return nil
	}
	return atomicfile.Write(path, key.PEM(), publicMode)
}

// comparePublic checks that path holds key.
func comparePublic(path string, key PublicKey) error {
	text, err := readKeyFile(path, 0, ownOwners())
	if err != nil {
		return keyFileError("public", path, err)
	}
	if found, err := ParsePublic(text); err != nil || found != key {
		return salt.WithHint(fmt.Errorf("public key %s: it does not belong to the private key beside it", path),
			fmt.Sprintf("if the .pem file is the right one, remove %s: it is made anew", path))
	}
	return nil
}

// writeNew writes a file whole or not at all, like atomicfile.Write, but never over an existing
// one: link fails where rename would replace.
func writeNew(path string, data []byte, mode fs.FileMode) error {
	temp, err := os.MkdirTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	whole := filepath.Join(temp, "key")
	if err := atomicfile.Write(whole, data, mode); err != nil {
		return err
	}
	if err := os.Link(whole, path); err != nil {
		return fmt.Errorf("write %s: %w", path, bareCause(err))
	}
	return posix.SyncPath(filepath.Dir(path))
}

// bareCause removes the path that os puts into its errors, if the message has it already, or if
// it is the name of a temporary file.
func bareCause(err error) error {
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	switch {
	case errors.As(err, &pathErr):
		return pathErr.Err
	case errors.As(err, &linkErr):
		return linkErr.Err
	}
	return err
}

// makeDir makes dir if it is missing, closed to others. Missing parents are made open to
// others.
func makeDir(dir string) error {
	if err := atomicfile.MakeDir(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// ensureDir makes dir, with its parents, a directory that only its owner can enter. One that is
// ours is closed to others. One of root's is left alone unless others may write it. One of
// another user is refused.
func ensureDir(dir string) error {
	if err := makeDir(dir); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner, perm, err := ownerOf(dir, info)
	if err != nil {
		return err
	}
	switch {
	case owner == uint32(os.Geteuid()):
		if perm&othersAccess == 0 {
			return nil
		}
		return errors.Join(os.Chmod(dir, perm&^othersAccess|dirMode), posix.Restrict(dir, dirMode))
	case owner == 0 && perm&othersWrite == 0:
		return nil
	}
	return salt.WithHint(fmt.Errorf("key directory %s: user %d owns it and its mode is %04o", dir, owner, perm),
		fmt.Sprintf("chown %d %s && chmod 0700 %s", os.Geteuid(), dir, dir))
}
