package outbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/event"
)

// maxRequests is how many requests are remembered: a tool that was cut repeats its request
// within seconds.
const maxRequests = 20_000

// requests remembers which requests with an id were put into the outbox, and where, so that one
// that is repeated after a kill of the daemon is not carried out twice. It is stored in a file
// to which each is appended.
type requests struct {
	path  string
	mu    sync.Mutex
	file  *os.File
	seqs  map[string]uint64
	order []string
	ended bool
}

// errClosed refuses requests while the daemon is about to end.
var errClosed = errors.New("the minion is stopping")

func openRequests(path string) (*requests, error) {
	r := &requests{path: path, seqs: map[string]uint64{}}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		name, number, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		seq, err := strconv.ParseUint(number, 10, 64)
		if id, known := event.Unescape(name); ok && known && err == nil && strings.HasSuffix(line, "\n") {
			r.remember(id, seq)
		}
	}
	return r, r.rewrite()
}

func (r *requests) remember(id string, seq uint64) {
	if _, known := r.seqs[id]; !known {
		r.order = append(r.order, id)
	}
	r.seqs[id] = seq
}

// find returns the sequence in the outbox of the message of a request.
func (r *requests) find(id string) (seq uint64, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seq, known = r.seqs[id]
	return seq, known
}

// add records a request. Once it has returned nil, the record survives a kill of the process.
// After another error than errClosed, for example on a full disk, it is known until then and
// written with the next one.
func (r *requests) add(id string, seq uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return errClosed
	}
	r.remember(id, seq)
	if r.file == nil || len(r.order) >= 2*maxRequests {
		return r.rewrite()
	}
	if _, err := r.file.WriteString(requestLine(id, seq)); err != nil {
		r.close() // there may be half a line: the next one rewrites the file
		return fmt.Errorf("record a request: %w", err)
	}
	return nil
}

func requestLine(id string, seq uint64) string {
	return event.Escape(id) + " " + strconv.FormatUint(seq, 10) + "\n"
}

// rewrite keeps the newest requests and writes a new file.
func (r *requests) rewrite() error {
	r.close()
	if n := len(r.order) - maxRequests; n > 0 {
		for _, id := range r.order[:n] {
			delete(r.seqs, id)
		}
		r.order = append([]string(nil), r.order[n:]...)
	}
	var b strings.Builder
	for _, id := range r.order {
		b.WriteString(requestLine(id, r.seqs[id]))
	}
	if err := atomicfile.Write(r.path, []byte(b.String()), 0o600); err != nil {
		return err
	}
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_APPEND, 0)
	r.file = f
	if err != nil {
		r.file = nil
	}
	return err
}

// sync returns when what was recorded is on the disk. What could not be written, since the disk is full for
// example, is tried again, and not waited for.
func (r *requests) sync() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
		return nil
	case r.file == nil:
		_ = r.rewrite() // the file is synced; an error leaves it to the next one
		return nil
	}
	if err := r.file.Sync(); err != nil {
		return fmt.Errorf("sync the requests: %w", err)
	}
	return nil
}

// end is the last call: a job that did not end in time may still try to add.
func (r *requests) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.file != nil {
		_ = r.file.Sync() // a power cut may take the records, if this fails
	}
	r.close()
}

// close is for callers that hold the lock.
func (r *requests) close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}
