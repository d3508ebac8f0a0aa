package sink

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// fileTarget is a file with one event in each line, as salt-event listen prints them.
type fileTarget struct {
	path     string
	mode     fs.FileMode
	limit    int64         // a file of at least this many bytes is full; 0 means no limit
	every    time.Duration // a file holds the events of one period of this length, counted in UTC; 0 means no limit
	keep     int           // number of files besides the current one; 0 keeps all
	compress bool
}

func readFile(s *section, _ string) target {
	t := &fileTarget{
		path:     s.needFile("path"),
		limit:    s.size("rotate_size", 1<<10),
		every:    s.duration("rotate_every", 0, time.Minute, 366*day),
		keep:     s.number("keep", 0, 0, 100_000),
		compress: s.flag("compress", false),
	}
	mode, err := strconv.ParseUint(s.text("mode", "0640"), 8, 32)
	if t.mode = fs.FileMode(mode); err != nil || mode&^0o666 != 0 || mode&0o600 != 0o600 {
		s.wrong("mode", "that is not a mode of a file that its owner writes, as in 0640")
	}
	return t
}

func (t *fileTarget) String() string { return "file " + t.path }

func (t *fileTarget) rotates() bool { return t.limit > 0 || t.every > 0 }

func (t *fileTarget) check(context.Context) error { return writable(t.path) }

// writable checks whether the file, or a new file in its directory, can be written.
func writable(path string) error {
	for _, p := range []string{path, filepath.Dir(path)} {
		if err := posix.Access(p, posix.MayWrite); err != nil && (p != path || !errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("write to %s: %w", p, err)
		}
	}
	return nil
}

// open opens the file after its last complete line. Anything after that is part of an event, left
// by a sink that was killed.
func (t *fileTarget) open(_ context.Context, log *slog.Logger) (destination, error) {
	d := &file{fileTarget: t, log: log}
	if err := d.append(); err != nil {
		return nil, err
	}
	var err error
	if d.seen, err = readTail(d.f); err == nil {
		d.size, err = trim(d.f)
	}
	if err == nil {
		err = d.f.Sync() // existing lines count as written
	}
	if err != nil {
		d.f.Close()
		return nil, fmt.Errorf("%s: %w", t.path, err)
	}
	return d, nil
}

// file is an open file.
type file struct {
	*fileTarget
	log  *slog.Logger
	f    *os.File
	size int64
	full bool              // it was asked to start a new file
	seen map[identity]bool // its last events; nil after the first batch without one of them
}

// identity is what identifies an event: in a cluster, several journals have the same sequences.
type identity struct {
	seq    uint64
	digest int64
}

func (e Event) identity() identity { return identity{e.Seq, e.Digest()} }

func (d *file) append() error {
	f, err := os.OpenFile(d.path, os.O_RDWR|os.O_CREATE|os.O_APPEND|posix.NoFollow, d.mode)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", d.path)
	}
	if err == nil && info.Size() == 0 {
		err = errors.Join(f.Chmod(d.mode), posix.SyncPath(filepath.Dir(d.path))) // set the mode regardless of the umask
	}
	if err != nil {
		f.Close()
		return err
	}
	d.f, d.size = f, info.Size()
	return nil
}

// rotate makes the next event start a new file, unless the current file is still empty.
func (d *file) rotate() { d.full = d.rotates() && d.size > 0 }

// write appends the events that are not in the file yet. The file never keeps part of a batch:
// after an error it is truncated to its previous size.
func (d *file) write(_ context.Context, events []Event) error {
	if err := d.follow(); err != nil {
		return err
	}
	fresh := d.unseen(events)
	if len(fresh) == 0 {
		return nil
	}
	// Repeated events must be compared with the file that contains them, so do not rotate yet.
	if len(fresh) == len(events) && d.due(time.Now()) {
		if err := d.begin(); err != nil {
			return err
		}
	}
	var text []byte
	for _, e := range fresh {
		text = append(append(text, e.Line...), '\n')
	}
	_, err := d.f.Write(text)
	if err == nil {
		err = d.f.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", d.path, err), d.f.Truncate(d.size))
	}
	d.size += int64(len(text))
	return nil
}

// follow reopens the file if it was moved away.
func (d *file) follow() error {
	here, err := d.f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Lstat(d.path)
	if err == nil && os.SameFile(here, there) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.f.Close()
	return d.append()
}

// unseen returns the events that are not in the file. After a restart, events of several journals
// may come in another order than they were written, so new ones may be among repeated ones.
func (d *file) unseen(events []Event) []Event {
	if d.seen == nil {
		return events
	}
	fresh := slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return d.seen[e.identity()] })
	if len(fresh) == len(events) {
		d.seen = nil
	}
	return fresh
}

func (d *file) close() { d.f.Close() }

// trim removes everything after the last complete line and returns the size.
func trim(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	end := int64(0)
	err = backward(f, info.Size(), func(at int64, block []byte) bool {
		i := bytes.LastIndexByte(block, '\n')
		end = at + int64(i) + 1
		return i < 0
	})
	if err != nil || end == info.Size() {
		return end, err
	}
	rest := make([]byte, min(info.Size()-end, 8))
	if _, err := f.ReadAt(rest, end); err != nil {
		return 0, err
	}
	if start := []byte(`{"tag":"`); !bytes.HasPrefix(start, rest) {
		return 0, foreign(rest)
	}
	return end, f.Truncate(end)
}

func foreign(line []byte) error {
	return salt.WithHint(fmt.Errorf("it contains something other than events: %.40q", line), "name another path; the file was not changed")
}

// readTail returns the events at the end of the file, more than one batch: only the last batch can
// be repeated. The last line may be incomplete.
func readTail(f *os.File) (map[identity]bool, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	start, lines := int64(0), 0
	err = backward(f, info.Size(), func(at int64, block []byte) bool {
		lines += bytes.Count(block, []byte("\n"))
		start = at
		return lines <= maxBatch
	})
	if err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(io.NewSectionReader(f, start, info.Size()-start), 1<<16)
	if start > 0 {
		if _, err := in.ReadBytes('\n'); err != nil {
			return nil, err
		}
	}
	return readLines(in)
}

func readLines(in *bufio.Reader) (map[identity]bool, error) {
	seen := map[identity]bool{}
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return seen, nil // the rest is part of a line
		}
		if err != nil {
			return nil, err
		}
		line = line[:len(line)-1]
		seq := event.SeqOf(line)
		if seq == 0 {
			return nil, foreign(line)
		}
		seen[identity{seq, Event{Line: line}.Digest()}] = true
	}
}

// backward reads the first size bytes of f in blocks, from the last block to the first, until more
// returns false.
func backward(f *os.File, size int64, more func(at int64, block []byte) bool) error {
	buf := make([]byte, 1<<16)
	for at := size; at > 0; {
		n := min(at, int64(len(buf)))
		at -= n
		if _, err := f.ReadAt(buf[:n], at); err != nil {
			return err
		}
		if !more(at, buf[:n]) {
			return nil
		}
	}
	return nil
}
