package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/salt"
)

// maxSeen is how many job ids are remembered: an hour of ten jobs a second and
// more, while a job expires within minutes.
const maxSeen = 50_000

// Seen is the bounded set of jobs that were started here. It lives in a file, so
// that a restart does not let a job run twice.
type Seen struct {
	mu     sync.Mutex
	path   string
	always bool // each is on the disk before First returns; else within about a second
	file   *os.File
	// lacking says that not all that was recorded is known to be on the disk, and no file is open.
	lacking bool
	soon    *time.Timer      // that syncs the file; nil for none
	group   atomicfile.Group // of those who wait for that
	jids    map[salt.JID]struct{}
	order   []salt.JID
}

// OpenSeen reads the set at path, which need not exist. Lines that are no job id,
// such as the torn last one after a power cut, are left out. With always a power cut takes
// back nothing either that First has recorded.
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

// First records jid and says whether it is new. Once it has returned true the
// record is with the operating system: a kill of this process does not lose it.
func (s *Seen) First(jid salt.JID) (bool, error) {
	first, err := s.write(jid)
	if first && err == nil && s.always {
		err = s.group.Do(s.sync)
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.jids, jid)
		return false, fmt.Errorf("record job %s: %w", jid, err)
	}
	return first, nil
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
		// Half a line may be there, which must not swallow the next one.
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

// sync returns when all that was recorded is on the disk.
func (s *Seen) sync() error {
	for {
		s.mu.Lock()
		f := s.file
		if f == nil { // what follows a failed write is a file of all that was recorded
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

// unsynced gives up a file that could not be synced: the system tells that once, and the
// next sync would pass for one of what was written before. Its successor has all of it.
func (s *Seen) unsynced(f *os.File) {
	if s.file == f {
		s.file.Close()
		s.file, s.lacking = nil, true
	}
}

// syncAfter is when what was recorded is synced, where nobody waits for that.
const syncAfter = time.Second

func (s *Seen) syncSoon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.soon = nil
	if s.file != nil && s.file.Sync() != nil {
		s.unsynced(s.file) // the next job is told, when it is recorded
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

// rewrite keeps the newest half of an overfull set, and starts the file anew.
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
