package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
)

// format is the number of the form of a backup. A program reads all older ones.
const format = 1

// manifestFile is the file of a backup that says what is in it.
const manifestFile = "manifest.json"

// Modes of a store.
const (
	ModeAlone   = "alone"
	ModeCluster = "cluster"
)

func modeOf(member string) string {
	if member == "" {
		return ModeAlone
	}
	return ModeCluster
}

// Manifest says what is in a backup.
type Manifest struct {
	Format  int       `json:"format"`
	Version string    `json:"version"` // of the program that wrote it
	Time    time.Time `json:"time"`    // when it was begun; of a closed store, that of its newest message
	Mode    string    `json:"mode"`
	Cluster string    `json:"cluster,omitempty"` // its cluster_id, if that is known
	Member  string    `json:"member,omitempty"`  // of the cluster, which wrote it
	Streams []Stream  `json:"streams"`           // in the order in which they were written
	// Unconfirmed says that it was made of a store of a cluster that was opened without the other members. If its member was
	// killed, entries may be in it that had been removed.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
}

// Stream is a stream in a backup.
type Stream struct {
	Name     string          `json:"name"`
	File     string          `json:"file"`
	Bytes    int64           `json:"bytes"` // of the file
	SHA256   string          `json:"sha256"`
	Messages uint64          `json:"messages"`
	First    uint64          `json:"first"` // sequence
	Last     uint64          `json:"last"`  // sequence, also if that message is removed
	Settings json.RawMessage `json:"settings"`

	newest time.Time // of a message, also if that is removed; the zero time without one
}

// Bytes returns the size of the files of all streams.
func (m *Manifest) Bytes() (sum int64) {
	for _, s := range m.Streams {
		sum += s.Bytes
	}
	return sum
}

func (m *Manifest) write(dir string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, manifestFile), append(text, '\n'), 0o600)
}

// maxManifest limits a manifest.
const maxManifest = 16 << 20

// Open reads the manifest of a backup. Its files are read by Verify.
func Open(dir string) (*Manifest, error) {
	path := filepath.Join(dir, manifestFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, none := os.Stat(dir); errors.Is(none, fs.ErrNotExist) {
			return nil, salt.WithHint(fmt.Errorf("there is no directory %s", dir), "name the directory of a backup, on the machine of the master that is asked")
		}
		return nil, salt.WithHint(fmt.Errorf("%s is not a backup: it has no %s", dir, manifestFile), "salt-run journal.backup writes one, in a cluster salt-run cluster.backup")
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxManifest {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxManifest)
	}
	m := new(Manifest)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// fileOf is the name of the file of a stream.
func fileOf(stream string) string { return stream + ".snapshot" }

// check looks for what no backup says.
func (m *Manifest) check() error {
	if m.Format < 1 || m.Format > format {
		return salt.WithHint(fmt.Errorf("it has the format %d, written by version %.40q; this program reads up to format %d", m.Format, m.Version, format), "use that version or a later one")
	}
	if m.Mode != ModeAlone && m.Mode != ModeCluster || len(m.Streams) > maxStreams || m.Mode != modeOf(m.Member) {
		return fmt.Errorf("it is not of a master: mode %.40q, %d streams", m.Mode, len(m.Streams))
	}
	seen := map[string]bool{}
	for _, s := range m.Streams {
		if _, err := journal.PlaceOf(s.Name, s.Settings); err != nil {
			return err
		}
		if s.File != fileOf(s.Name) || seen[s.Name] {
			return fmt.Errorf("the stream %.100q, file %.100q: a wrong name, or there twice", s.Name, s.File)
		}
		seen[s.Name] = true
	}
	return nil
}

// Verify reads all files of the backup in dir, and compares their sums.
func (m *Manifest) Verify(ctx context.Context, dir string) error {
	for _, s := range m.Streams {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f, err := s.open(dir)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// errDamaged is wrapped by the error about a file that is not as it was written.
var errDamaged = errors.New("the file is not as it was written: use another backup")

// checked reads the file of a stream. Where it ends, it checks the sum of what was read.
type checked struct {
	file *os.File
	want *Stream
	sum  hash.Hash
}

func (s *Stream) open(dir string) (*checked, error) {
	path := filepath.Join(dir, s.File)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() != s.Bytes) {
		err = fmt.Errorf("%s: %w (%d bytes, not %d)", path, errDamaged, info.Size(), s.Bytes)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &checked{file: f, want: s, sum: sha256.New()}, nil
}

// Read implements io.Reader.
func (c *checked) Read(p []byte) (int, error) {
	n, err := c.file.Read(p)
	_, _ = c.sum.Write(p[:n]) // a hash takes everything
	if err == io.EOF {
		if got := hex.EncodeToString(c.sum.Sum(nil)); got != c.want.SHA256 {
			return n, fmt.Errorf("%s: %w (SHA-256 %.16s, not %.16s)", c.file.Name(), errDamaged, got, c.want.SHA256)
		}
	}
	return n, err
}

// Close closes the file.
func (c *checked) Close() error { return c.file.Close() }

// readBack checks that the file of a stream is whole, and what is in it. It returns how many of the
// announced messages are not: they were removed or overwritten before they were read.
func (s *Stream) readBack(dir string) (lost uint64, err error) {
	f, err := s.open(dir)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	c, err := count(f)
	if err != nil {
		return 0, fmt.Errorf("read back %s: %w", s.File, err)
	}
	if c.messages > s.Messages || c.last > s.Last {
		return 0, fmt.Errorf("read back %s: %d messages up to %d, the server spoke of %d up to %d", s.File, c.messages, c.last, s.Messages, s.Last)
	}
	lost, s.Messages = s.Messages-c.messages, c.messages
	_, err = io.Copy(io.Discard, f)
	return lost, err
}

// compact is the form in which settings are compared and stored.
func compact(text []byte) (json.RawMessage, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
