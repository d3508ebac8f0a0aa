// Package grain gathers the facts of this machine that users target by: its
// names, operating system, hardware, addresses and what its configuration adds,
// under the names and with the values that Salt's minion gives them.
//
// Facts are read from the kernel's files and from /etc; no program is run and
// no shell is asked, so names found on the machine are data and nothing else. It
// is not monitoring: what changes from minute to minute is the business of the
// functions a minion can run.
package grain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// patience is how long Collect waits for all sources together. They answer
// within milliseconds; one that does not sits on a dead disk or name server.
const patience = time.Second

// ErrSlow is wrapped by the error of Collect when a source did not answer.
var ErrSlow = errors.New("no answer")

// Options say what Collect cannot find out by itself.
type Options struct {
	ID      salt.MinionID // grain id, and through it server_id
	Version string        // grain saltversion, such as 3006.1
	Master  string        // grain master: the address that the minion uses
	FQDN    string        // the full name of this host; empty: from /etc/hosts
	// Resolve asks the name service for what /etc/hosts does not know, within
	// the same second as all else. Without it Collect never uses the network.
	Resolve bool
	// ConfigGrains is the mapping grains: of the minion's configuration, in
	// the types of package value. It wins over the file, the file over facts.
	ConfigGrains map[string]any
	// GrainsFile is the YAML file of static grains, /etc/salt/grains for
	// example; empty or missing means none.
	GrainsFile string
	// Custom are the grains that programs gave. They win over facts, the file over
	// them.
	Custom map[string]any
	// Root is where /etc, /proc, /run and /sys are found; empty means "/".
	Root string
}

// machine is the file system that facts are read from, and the options.
type machine struct {
	Options
	ctx context.Context
}

// source gathers some of the grains. What it returns with an error is kept.
type source struct {
	name   string
	gather func(*machine) (map[string]any, error)
}

// sources in the order in which later ones win.
var sources = []source{
	{"bios", (*machine).bios},
	{"cpu", (*machine).cpu},
	{"disks", (*machine).disks},
	{"dns", (*machine).dns},
	{"gateway", (*machine).gateway},
	{"host", (*machine).host},
	{"interfaces", (*machine).interfaces},
	{"kernel", (*machine).kernel},
	{"locale", (*machine).locale},
	{"memory", (*machine).memory},
	{"minion", (*machine).minion},
	{"os", (*machine).os},
	{"process", (*machine).process},
	{"security", (*machine).security},
	{"virtual", (*machine).virtual},
	{"programs", (*machine).custom},
	{"grains file", (*machine).file},
}

func (m *machine) custom() (map[string]any, error) { return m.Custom, nil }

// Collect returns all grains. The map is never nil: an error names what is
// missing from it, such as a grains file with a mistake (by file and line) or a
// source that did not answer within a second (ErrSlow), and the rest is there.
//
// A source that hangs in the kernel cannot be stopped; it is left behind and
// what it may still return is dropped.
func Collect(ctx context.Context, opts Options) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return collect(&machine{opts, ctx}, sources)
}

// answer is what one source gave.
type answer struct {
	index  int
	grains map[string]any
	err    error
}

func collect(m *machine, from []source) (map[string]any, error) {
	answers := make(chan answer, len(from)) // room for all: nobody blocks
	for i, s := range from {
		go func() {
			g, err := s.gather(m)
			answers <- answer{i, g, err}
		}()
	}
	got := make([]*answer, len(from))
wait:
	for range from {
		select {
		case a := <-answers:
			got[a.index] = &a
		case <-m.ctx.Done():
			break wait
		}
	}
	return merge(m, from, got)
}

// merge puts the answers together in the order of their sources.
func merge(m *machine, from []source, got []*answer) (map[string]any, error) {
	all := map[string]any{}
	var errs []error
	for i, a := range got {
		if a == nil {
			errs = append(errs, fmt.Errorf("grains of %s: %w: %w", from[i].name, ErrSlow, context.Cause(m.ctx)))
			continue
		}
		if a.err != nil {
			errs = append(errs, fmt.Errorf("grains of %s: %w", from[i].name, a.err))
		}
		maps.Copy(all, a.grains)
	}
	maps.Copy(all, m.ConfigGrains)
	return all, errors.Join(errs...)
}

// path is where the file of this machine is found.
func (m *machine) path(name string) string {
	if m.Root == "" {
		return name
	}
	return filepath.Join(m.Root, name)
}

// maxFact bounds one file of facts; those of the kernel that matter are small.
const maxFact = 256 << 10

// read returns the beginning of a file, or "" when it cannot be read: a fact
// that this machine does not show, or not to this user, is simply not there.
func (m *machine) read(name string) string {
	f, err := os.Open(m.path(name))
	if err != nil {
		return ""
	}
	defer f.Close()
	return readSome(f, maxFact)
}

// readSome returns up to n bytes, whatever made the reading end.
func readSome(f *os.File, n int) string {
	b := make([]byte, 0, min(n, 4096))
	for len(b) < n {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		k, err := f.Read(b[len(b):min(cap(b), n)])
		b = b[:len(b)+k]
		if err != nil || k == 0 {
			break
		}
	}
	return string(b)
}

// line returns a file of one line without the white space around it.
func (m *machine) line(name string) string { return strings.TrimSpace(m.read(name)) }

// exists tells whether there is a file or directory of that name.
func (m *machine) exists(name string) bool {
	_, err := os.Stat(m.path(name))
	return err == nil
}

// list makes a list of grains of strings.
func list[T ~string](in []T) []any {
	out := make([]any, len(in))
	for i, s := range in {
		out[i] = string(s)
	}
	return out
}
