package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/salt"
)

// maxSeen is how many job ids are remembered: more than an hour of ten jobs a second, while a
// job expires within minutes.
const maxSeen = 50_000

// Seen is the bounded set of jobs that were started here. It is stored in a file, so that no
// job runs twice after a restart.
type Seen struct {
	mu     sync.Mutex
	path   string
	always bool // each is on the disk before First returns; otherwise within about a second
	file   *os.File
	// lacking means that some records may not be on the disk, and no file is open.
	lacking bool
	soon    *time.Timer      // that syncs the file; nil for none
	group   atomicfile.Group // of callers that wait for a sync
	jids    map[salt.JID]struct{}
	order   []salt.JID
}

// OpenSeen reads the set at path, which need not exist. Lines that are not a job id, such as an
// incomplete last one after a power cut, are ignored. With always, records also survive a power
// cut once First has returned.
func OpenSeen(path string, always bool) (*Seen, error) {
	s := &Seen{always: always, path: path, jids: map[salt.JID]struct{}{}}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the jobs seen: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if jid, err := salt.ParseJID(strings.TrimSuffix(line, "\n")); err == nil {
			s.remember(jid)
		}
	}
	if err := s.rewrite(); err != nil {
		return nil, err
	}
	return s, nil
}

// First records jid and reports whether it is new. Once it has returned true, the record
// survives a kill of this process.
func (s *Seen) First(jid salt.JID) (bool, error) {
	first, err := s.write(jid)
	if first && err == nil && s.always {
		if err = s.group.Do(s.sync); err != nil {
			s.forget(jid)
		}
	}
	if err != nil {
		return false, fmt.Errorf("record job %s: %w", jid, err)
	}
	return first, nil
}

// forget drops a job whose record could not be synced: it is not begun, and is new when it comes again.
func (s *Seen) forget(jid salt.JID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.jids, jid)
	for i, one := range slices.Backward(s.order) {
		if one == jid {
			s.order = slices.Delete(s.order, i, i+1)
			return
		}
	}
}

func (s *Seen) write(jid salt.JID) (first bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.jids[jid]; known {
		return false, nil
	}
	if s.file == nil || len(s.order) >= 2*maxSeen {
		if err := s.rewrite(); err != nil {
			return true, err
		}
	}
	if _, err := s.file.WriteString(string(jid) + "\n"); err != nil {
		// There may be half a line, which must not be joined with the next one.
		s.file.Close()
		s.file = nil
		return true, err
	}
	s.remember(jid)
	if !s.always && s.soon == nil {
		s.soon = time.AfterFunc(syncAfter, s.syncSoon)
	}
	return true, nil
}

// sync returns when all records are on the disk.
func (s *Seen) sync() error {
	for {
		s.mu.Lock()
		f := s.file
		if f == nil { // after a failed write, a new file with all records follows
			defer s.mu.Unlock()
			return s.rewrite()
		}
		s.mu.Unlock()
		err := f.Sync()
		if errors.Is(err, os.ErrClosed) {
			continue // another file has taken its place
		}
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.unsynced(f)
		}
		return err
	}
}

// unsynced closes a file that could not be synced: the system reports that only once, and the
// next sync would seem to succeed for the earlier records, too. A new file gets all of them.
func (s *Seen) unsynced(f *os.File) {
	if s.file == f {
		s.file.Close()
		s.file, s.lacking = nil, true
	}
}

// syncAfter is when records are synced if nobody waits for that.
const syncAfter = time.Second

func (s *Seen) syncSoon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.soon = nil
	if s.file != nil && s.file.Sync() != nil {
		s.unsynced(s.file) // the next First returns the error
	}
}

// Has says whether jid was recorded.
func (s *Seen) Has(jid salt.JID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.jids[jid]
	return known
}

func (s *Seen) remember(jid salt.JID) {
	if _, known := s.jids[jid]; !known {
		s.jids[jid] = struct{}{}
		s.order = append(s.order, jid)
	}
}

// rewrite keeps the newest half of a set that is too large, and writes a new file.
func (s *Seen) rewrite() error {
	if n := len(s.order) - maxSeen; n > 0 {
		for _, jid := range s.order[:n] {
			delete(s.jids, jid)
		}
		s.order = append([]salt.JID(nil), s.order[n:]...)
	}
	var b strings.Builder
	for _, jid := range s.order {
		b.WriteString(string(jid) + "\n")
	}
	if err := atomicfile.Write(s.path, []byte(b.String()), 0o600); err != nil {
		return err
	}
	if s.file != nil { // of the file that was replaced
		s.file.Close()
		s.file = nil
	}
	f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	s.file, s.lacking = f, false
	return nil
}

// Close closes the file.
func (s *Seen) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.soon != nil {
		s.soon.Stop()
		s.soon = nil
	}
	if s.lacking {
		if err := s.rewrite(); err != nil {
			return err
		}
	}
	if s.file == nil {
		return nil
	}
	err := errors.Join(s.file.Sync(), s.file.Close())
	s.file = nil
	return err
}
