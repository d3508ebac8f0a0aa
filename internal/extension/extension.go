// Package extension runs custom programs: modules, grains and returners on a minion, runners on a
// master. All follow one contract, described in doc/modules.md: a word as the first argument, a
// request as JSON on standard input, the answer as JSON on standard output.
//
// It does not know what modules or returners do in Brine, and it does not decide who may call what.
package extension

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// Kind is the kind of a program, and the name of the directory for it.
type Kind string

// The kinds.
const (
	Modules   Kind = "modules"
	Grains    Kind = "grains"
	Returners Kind = "returners"
	Runners   Kind = "runners"
)

// Folder is the directory of this kind in file_roots.
func (k Kind) Folder() string { return "_" + string(k) }

// Set is the programs of one kind in some directories. The directories are read at each call, so
// that a new program is found. A nil Set is empty. It is safe for concurrent use.
type Set struct {
	kind Kind
	dirs []string
	log  *slog.Logger

	mu     sync.Mutex
	known  map[string]known // descriptions of programs, by path
	warned map[string]bool
}

// New returns the programs of a kind in the given directories; if two have the same name, that in
// the first directory counts. A missing directory counts as empty.
func New(kind Kind, log *slog.Logger, dirs ...string) *Set {
	return &Set{kind: kind, dirs: dirs, log: log, known: map[string]known{}, warned: map[string]bool{}}
}

// Within returns the directories for programs of a kind in each of dirs: modules are in the
// directory itself, the others in a subdirectory.
func Within(kind Kind, dirs []string) []string {
	var all []string
	for _, dir := range dirs {
		if kind == Modules {
			all = append(all, dir)
		}
		all = append(all, filepath.Join(dir, string(kind)), filepath.Join(dir, kind.Folder()))
	}
	return all
}

// OfMinion returns the custom programs of a minion: in its module_dirs, or from the master, stored
// by Sync.
func OfMinion(kind Kind, moduleDirs []string, cacheDir string, log *slog.Logger) *Set {
	return New(kind, log, append(Within(kind, moduleDirs), CacheDir(cacheDir, kind))...)
}

// Program is one program.
type Program struct {
	Name string // the file name up to the first dot
	Path string
	kind Kind
	set  *Set
	info fs.FileInfo

	python bool // a Salt module in Python, which is not executable itself
}

// ErrUnsafe is wrapped by the error for a program that another user could have written.
var ErrUnsafe = errors.New("it is not safe to run")

// Programs returns the programs, sorted by name. Unusable ones are omitted, and the reason is
// logged once.
func (s *Set) Programs() []*Program {
	if s == nil {
		return nil
	}
	var list []*Program
	for _, dir := range s.dirs {
		for _, p := range s.in(dir) {
			if !slices.ContainsFunc(list, func(o *Program) bool { return o.Name == p.Name }) {
				list = append(list, p)
			}
		}
	}
	slices.SortFunc(list, func(a, b *Program) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Find returns the program with that name, or nil.
func (s *Set) Find(name string) *Program {
	for _, p := range s.Programs() {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// in returns the programs of one directory.
func (s *Set) in(dir string) []*Program {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.warn("directory of programs cannot be read", dir, err)
		}
		return nil
	}
	if err := checkOwner(dir); err != nil && len(entries) > 0 {
		s.warn("directory of programs is skipped", dir, err)
		return nil
	}
	var list []*Program
	for _, e := range entries {
		if p := s.at(filepath.Join(dir, e.Name())); p != nil {
			list = append(list, p)
		}
	}
	return list
}

// at returns the program at path, nil if there is no usable one.
func (s *Set) at(path string) *Program {
	p, err := s.program(path)
	switch {
	case errors.Is(err, errBeside):
		s.note("a file beside the programs is neither executable nor a module of Python, so it is not used", path)
	case err != nil:
		s.warn("program is skipped", path, err)
	}
	return p
}

// errBeside is the error for a file that a program may have beside it for its own use.
var errBeside = errors.New("it is neither executable nor a module of Python")

// program returns the program at path. It is nil without an error for a file that is not a program
// of this kind.
func (s *Set) program(path string) (*Program, error) {
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || name == "" || strings.HasPrefix(name, "_") {
		return nil, nil
	}
	python := s.isPython(path, info)
	if info.Mode()&0o111 == 0 && !python {
		return nil, errBeside
	}
	if _, err := salt.ParseFunction(name + ".x"); err != nil {
		return nil, fmt.Errorf("its name is not that of a module: %w", err)
	}
	if err := checkOwner(path); err != nil {
		return nil, err
	}
	return &Program{Name: name, Path: path, kind: s.kind, set: s, info: info, python: python}, nil
}

// Passed returns why a file with this name is not used as a program; nil if there is no such file.
func (s *Set) Passed(name string) error {
	if _, err := salt.ParseFunction(name + ".x"); s == nil || err != nil {
		return nil
	}
	for _, dir := range s.dirs {
		files, _ := filepath.Glob(filepath.Join(dir, name+".*"))
		for _, path := range append(files, filepath.Join(dir, name)) {
			p, err := s.program(path)
			if p != nil {
				err = checkOwner(dir)
			}
			if err != nil {
				return fmt.Errorf("%s is skipped: %w", path, err)
			}
		}
	}
	return nil
}

// checkOwner refuses a file that a user other than root and the daemon's own may have written: it
// would run with all rights of the daemon.
func checkOwner(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	owner, mode, err := posix.Owner(path, info)
	if err != nil {
		return err
	}
	if owner != 0 && owner != os.Geteuid() {
		return fmt.Errorf("%w: it belongs to the user with uid %d", ErrUnsafe, owner)
	}
	if mode&0o022 != 0 {
		return salt.WithHint(fmt.Errorf("%w: others may write it", ErrUnsafe), "chmod go-w "+path)
	}
	return nil
}

// warn logs an error once.
func (s *Set) warn(text, path string, err error) {
	if s.first(path + "\x00" + err.Error()) {
		s.log.Warn(text, "path", path, "err", err, "hint", salt.Hint(err))
	}
}

func (s *Set) note(text, path string) {
	if s.first(path) {
		s.log.Info(text, "path", path)
	}
}

// maxWarned limits the memory for logged errors.
const maxWarned = 10_000

func (s *Set) first(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.warned[what] || len(s.warned) > maxWarned {
		return false
	}
	s.warned[what] = true
	return true
}
