package outbox

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
)

// runtime is how long this outbox has been open, in all runs of the minion. It gives messages their age:
// the clock of a machine may be years behind when it starts, and what was fired before it is set would be
// dropped then although it is minutes old. Time in which the minion does not run does not count, so a
// message is never younger than its age.
type runtime struct {
	path   string
	before time.Duration // in earlier runs
	opened time.Time     // has a monotonic reading
	kept   time.Time     // when it was written to its file last
}

// keepRuntime is how often it is written while messages wait; a kill loses no more of it.
const keepRuntime = 10 * time.Minute

// openRuntime reads the file at path. Without it messages of earlier runs get their age from now on: they
// stay longer, within the limit of their size.
func openRuntime(path string, log *slog.Logger) runtime {
	r := runtime{path: path, opened: time.Now(), kept: time.Now()}
	text, err := os.ReadFile(path)
	if err == nil {
		r.before, err = time.ParseDuration(strings.TrimSpace(string(text)))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the age of messages in the outbox is not known, and counts from now on", "err", err)
	}
	return r
}

func (r *runtime) now() time.Duration { return r.before + time.Since(r.opened) }

// age returns how long a message has waited at least. It was put in this run or in an earlier one, of which the
// end may be lacking: then, and if an older minion has put it, it counts from the start of this one.
func (r *runtime) age(m queued, ownRun bool) time.Duration {
	put := m.Put
	if !ownRun && (put == 0 || put > r.before) {
		put = r.before
	}
	return r.now() - put
}

// keep writes it to its file. A failed one only makes messages stay longer.
func (r *runtime) keep() error {
	r.kept = time.Now()
	return atomicfile.Write(r.path, []byte(r.now().String()+"\n"), 0o600)
}
