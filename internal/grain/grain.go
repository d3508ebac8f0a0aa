// Package grain collects the facts of this machine that users target by: its names, operating
// system, hardware, addresses and what its configuration adds, with the names and values of Salt's
// minion.
//
// Facts are read from the kernel's files and from /etc; no program and no shell is run, so names
// found on the machine are only data. It is not monitoring: values that change from minute to
// minute are for the functions of a minion.
package grain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target/fnmatch"
)

// patience is how long Collect waits for all sources together. They answer within milliseconds; one
// that does not is blocked by a broken disk or name server.
const patience = time.Second

// ErrSlow is wrapped by the error of Collect if a source did not answer.
var ErrSlow = errors.New("no answer")

// Options has what Collect cannot find out itself.
type Options struct {
	ID      salt.MinionID // grain id, and through it server_id
	Version string        // grain saltversion, such as 3006.1
	Master  string        // grain master: the address that the minion uses
	FQDN    string        // the full name of this host; empty: from /etc/hosts
	// Resolve asks the name service for what /etc/hosts does not contain, within the same second.
	// Without it Collect never uses the network.
	Resolve bool
	// ConfigGrains is the mapping grains: of the minion's configuration, in the types of package
	// value. It overrides the file, which overrides facts.
	ConfigGrains map[string]any
	// GrainsFile is the YAML file of static grains, for example /etc/salt/grains; empty or missing
	// means none.
	GrainsFile string
	// Custom has the grains from programs. They override facts; the file overrides them.
	Custom map[string]any
	// Blacklist has shell patterns of grains that are left out, wherever they come from.
	Blacklist []string
	// Root is the directory of /etc, /proc, /run and /sys; empty means "/".
	Root string
}

// machine is the file system from which facts are read, and the options.
type machine struct {
	Options
	ctx context.Context
}

// source collects some of the grains. What it returns together with an error is used.
type source struct {
	name   string
	gather func(*machine) (map[string]any, error)
}

// sources are in order: later ones override earlier ones.
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

// Collect returns all grains. The map is never nil: an error names what is missing from it, such as
// a grains file with an error (file and line) or a source that did not answer within a second
// (ErrSlow); the map has the rest.
//
// A source that blocks in the kernel cannot be stopped; Collect does not wait for it and discards
// its later result.
func Collect(ctx context.Context, opts Options) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return collect(&machine{opts, ctx}, sources)
}

// answer is the result of one source.
type answer struct {
	index  int
	grains map[string]any
	err    error
}

func collect(m *machine, from []source) (map[string]any, error) {
	answers := make(chan answer, len(from)) // room for all, so no source blocks
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

// merge combines the answers in the order of their sources.
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
	maps.DeleteFunc(all, func(name string, _ any) bool {
		return slices.ContainsFunc(m.Blacklist, func(pattern string) bool { return fnmatch.Match(pattern, name) })
	})
	return all, errors.Join(errs...)
}

// path returns the path of a file of this machine.
func (m *machine) path(name string) string {
	if m.Root == "" {
		return name
	}
	return filepath.Join(m.Root, name)
}

// maxFact limits one file of facts; the relevant kernel files are small.
const maxFact = 256 << 10

// read returns the beginning of a file, or "" if it cannot be read: a fact that is not available,
// or not to this user, is missing.
func (m *machine) read(name string) string {
	f, err := os.Open(m.path(name))
	if err != nil {
		return ""
	}
	defer f.Close()
	return readSome(f, maxFact)
}

// readSome returns up to n bytes, also if the read failed after them.
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

// exists reports whether a file or directory with that name exists.
func (m *machine) exists(name string) bool {
	_, err := os.Stat(m.path(name))
	return err == nil
}

// list converts strings to a list for a grain.
func list[T ~string](in []T) []any {
	out := make([]any, len(in))
	for i, s := range in {
		out[i] = string(s)
	}
	return out
}
